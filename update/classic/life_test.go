package classic_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
	"github.com/hubline-iot/hubline/update/adusign"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/host"
)

// tractor is a device with an agent. It is its agent's handler and store, and survives restarts of
// the program.
type tractor struct {
	*updateRig
	mu            sync.Mutex // guards the next two: a check asks for the image while a step is applied
	image, before string     // that is installed, and the one before
	state         []byte
	web           *http.Transport // to the hub
	fetched       int
	first         func()                          // unless nil, called with the first request for a file
	inDownload    chan struct{}                   // unless nil, Download waits here
	fail          error                           // of Install
	work          func(ctx context.Context) error // each method takes its time
}

func (d *tractor) Load() ([]byte, error) { return d.state, nil }

func (d *tractor) Save(state []byte) error {
	d.state = bytes.Clone(state)
	return nil
}

// RoundTrip counts the requests for files.
func (d *tractor) RoundTrip(q *http.Request) (*http.Response, error) {
	if d.fetched++; d.fetched == 1 && d.first != nil {
		d.first()
	}
	return d.web.RoundTrip(q)
}

func (d *tractor) Installed(_ context.Context, w *agent.Work) (bool, error) {
	return d.installed() == "image "+w.ID.Version, nil
}

func (d *tractor) installed() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.image
}

func (d *tractor) Download(ctx context.Context, w *agent.Work) error {
	r, err := w.Open(ctx, &w.Files[0], nil)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := d.work(ctx); err != nil {
		return err
	}
	content, err := io.ReadAll(r)
	if err == nil && string(content) != "image "+w.ID.Version {
		err = io.ErrUnexpectedEOF
	}
	if d.inDownload != nil && err == nil {
		select {
		case d.inDownload <- struct{}{}:
			<-ctx.Done()
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	return err
}

func (d *tractor) Install(ctx context.Context, _ *agent.Work) (agent.Next, error) {
	if err := d.work(ctx); err != nil {
		return 0, err
	}
	return agent.NextContinue, d.fail
}

func (d *tractor) Apply(ctx context.Context, w *agent.Work) (agent.Next, error) {
	if err := d.work(ctx); err != nil {
		return 0, err
	}
	d.mu.Lock()
	d.before, d.image = d.image, "image "+w.ID.Version
	d.mu.Unlock()
	return agent.NextRestart, d.work(ctx)
}

func (d *tractor) Cancel(ctx context.Context, _ *agent.Work) (agent.Next, error) {
	if err := d.work(ctx); err != nil {
		return 0, err
	}
	d.mu.Lock()
	if d.before != "" {
		d.image, d.before = d.before, ""
	}
	d.mu.Unlock()
	return agent.NextContinue, d.work(ctx)
}

// run runs the program until the agent asks for a restart, or stop is called.
func (d *tractor) run() (stop func() error) {
	a, err := agent.New(&agent.Options{
		Service: d.service, Handlers: map[string]agent.Handler{"contoso/image:1": d},
		Fetch: host.NewFetcher(&http.Client{Transport: d}), Store: d,
		Verify: adusign.Roots(d.updates.Roots()).Verify, Properties: query.Properties,
		Installed: func() agent.UpdateID {
			return agent.UpdateID{Provider: "Contoso", Name: "Tractor", Version: strings.TrimPrefix(d.installed(), "image ")}
		},
		Interval: 24 * time.Hour,
	})
	require.NoError(d.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	return func() error {
		defer cancel()
		select {
		case err := <-ended:
			return err
		default:
		}
		cancel()
		return <-ended
	}
}

// restart starts the program again, with a new connection.
func (d *tractor) restart() (stop func() error) {
	d.start(overMQTT(d.Hub))
	return d.run()
}

func lives(t *testing.T, f func(d *tractor)) {
	t.Helper()
	withUpdates(t, func(r *updateRig) {
		web := &http.Transport{DialContext: r.Dial(testbroker.PortHTTPS), TLSClientConfig: r.ClientTLS()}
		defer web.CloseIdleConnections()
		f(&tractor{updateRig: r, image: "image 1.0", web: web, work: func(context.Context) error { return nil }})
	})
}

// finals returns how many final reports the service has of a workflow.
func (d *tractor) finals(workflow string) (n int) {
	state := d.updates.Device(deviceID)
	for _, r := range state.Workflow(workflow).Reports {
		if r.Result.Outcome.Terminal() {
			n++
		}
	}
	return n
}

func TestAnUpdateByTheTwinIsInstalledThroughARestart(t *testing.T) {
	lives(t, func(d *tractor) {
		stop := d.run()
		workflow := d.deployVersion("1.1")
		d.outcome(workflow, updatedata.OutcomeInProgress)
		time.Sleep(time.Minute)
		require.ErrorIs(t, stop(), agent.ErrRestart)
		require.Contains(t, d.reported("agent"), `"state":6`, "not idle while the device restarts")

		stop = d.restart()
		d.outcome(workflow, updatedata.OutcomeSucceeded)
		require.Equal(t, "image 1.1", d.image)
		require.Equal(t, 1, d.finals(workflow))

		// The same deployment again, in a whole twin and as a patch, is none.
		_, err := d.SetDesired(deviceID, d.desired())
		require.NoError(t, err)
		d.Drop(deviceID)
		time.Sleep(48 * time.Hour)
		require.ErrorIs(t, stop(), context.Canceled)
		require.Equal(t, 1, d.fetched)
		require.Equal(t, 1, d.finals(workflow))
	})
}

func TestAnUpdateWhoseManifestIsAFileIsInstalled(t *testing.T) {
	lives(t, func(d *tractor) {
		d.publishLarge("2.0")
		stop := d.run()
		workflow := d.deployVersion("2.0")
		d.outcome(workflow, updatedata.OutcomeInProgress)
		time.Sleep(time.Minute)
		require.ErrorIs(t, stop(), agent.ErrRestart)
		stop = d.restart()
		d.outcome(workflow, updatedata.OutcomeSucceeded)
		require.ErrorIs(t, stop(), context.Canceled)
		require.Equal(t, "image 2.0", d.image)
		require.Equal(t, 2, d.fetched)
	})
}

// The service writes a new address into the twin while the file server refuses the old one.
func TestANewAddressInTheTwinIsTakenOver(t *testing.T) {
	lives(t, func(d *tractor) {
		refused := d.Inject(fault.Fault{Kind: fault.AnswerStatus, Statuses: []int{410}, Route: fault.RouteUpdateFile})
		d.first = func() { // it has the old address
			desired := strings.ReplaceAll(d.desired(), d.HostName()+"/", d.HostName()+":443/")
			if _, err := d.SetDesired(deviceID, desired); err != nil {
				panic(err)
			}
		}
		stop := d.run()
		workflow := d.deployVersion("1.1")
		time.Sleep(time.Minute)
		require.ErrorIs(t, stop(), agent.ErrRestart)
		stop = d.restart()
		d.outcome(workflow, updatedata.OutcomeSucceeded)
		require.ErrorIs(t, stop(), context.Canceled)
		require.Equal(t, 1, refused.Fired())
		require.Equal(t, 2, d.fetched)
		require.Equal(t, 1, d.finals(workflow))
	})
}

func TestACancelledUpdateIsTakenBack(t *testing.T) {
	lives(t, func(d *tractor) {
		d.inDownload = make(chan struct{})
		stop := d.run()
		workflow := d.deployVersion("1.1")
		<-d.inDownload
		d.inDownload = nil
		require.NoError(t, d.updates.Withdraw(workflow))
		d.outcome(workflow, updatedata.OutcomeCanceled)
		require.Equal(t, "image 1.0", d.image)
		time.Sleep(48 * time.Hour)
		require.Contains(t, d.reported("agent"), `"state":0,"workflow":{"action":255`)
		require.ErrorIs(t, stop(), context.Canceled)
		require.Equal(t, 1, d.finals(workflow))
	})
}

func TestAReplacedUpdateIsTakenBackAndTheNewOneInstalled(t *testing.T) {
	lives(t, func(d *tractor) {
		d.inDownload = make(chan struct{})
		stop := d.run()
		first := d.deployVersion("1.1")
		<-d.inDownload
		d.inDownload = nil
		second := d.deployVersion("1.2")
		d.outcome(second, updatedata.OutcomeInProgress)
		time.Sleep(10 * time.Minute)
		require.ErrorIs(t, stop(), agent.ErrRestart)
		stop = d.restart()
		d.outcome(second, updatedata.OutcomeSucceeded)
		require.ErrorIs(t, stop(), context.Canceled)
		require.Equal(t, "image 1.2", d.image)
		require.Equal(t, 1, strings.Count(d.desired(), "/updates/files/"), "the URL of the first one is gone")
		d.outcome(first, updatedata.OutcomeCanceled)
	})
}

func TestARetryOfAFailedUpdateSucceeds(t *testing.T) {
	lives(t, func(d *tractor) {
		d.fail = &agent.StepError{Code: 7, Err: io.ErrShortWrite}
		stop := d.run()
		workflow := d.deployVersion("1.1")
		d.outcome(workflow, updatedata.OutcomeFailed)
		state := d.updates.Device(deviceID)
		require.Equal(t, "50000007", state.Last().Reports[1].Result.Extended)
		d.fail = nil
		require.NoError(t, d.updates.Retry(workflow))
		time.Sleep(10 * time.Minute)
		require.ErrorIs(t, stop(), agent.ErrRestart)
		stop = d.restart()
		synctest.Wait()
		require.NoError(t, d.updates.Wait(context.Background(), func() bool {
			state := d.updates.Device(deviceID)
			w := state.Last()
			return w.Outcome() == updatedata.OutcomeSucceeded && strings.HasPrefix(w.ID, workflow+"@")
		}))
		require.ErrorIs(t, stop(), context.Canceled)
	})
}

func TestWrongOffersAreReportedAndNotInstalled(t *testing.T) {
	fetched := map[string]bool{"size": true, "file hash": true} // the lie is in what was signed
	for _, wrong := range []string{"size", "file hash", "huge", "manifest hash", "algorithm", "forged root",
		"forged key", "manifest", "signature", "no files"} {
		t.Run(wrong, func(t *testing.T) {
			lives(t, func(d *tractor) {
				d.Inject(fault.Fault{Kind: fault.WrongOffer, Device: deviceID, Text: wrong})
				stop := d.run()
				workflow := d.deployVersion("1.1")
				d.outcome(workflow, updatedata.OutcomeFailed)
				require.ErrorIs(t, stop(), context.Canceled)
				require.Equal(t, "image 1.0", d.image)
				require.Equal(t, fetched[wrong], d.fetched > 0)
				require.Regexp(t, `"extendedResultCodes":"[1-3]`, d.reported("agent"))
			})
		})
	}
}
