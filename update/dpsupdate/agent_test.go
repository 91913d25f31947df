package dpsupdate_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/adusign"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/host"
)

// upToDate is a program whose updates are all installed already. It keeps no state.
type upToDate struct{ agent.Handler }

func (upToDate) Installed(context.Context, *agent.Work) (bool, error) { return true, nil }

func (upToDate) Fetch(context.Context, string, int64) (io.ReadCloser, error) {
	return nil, transport.Unsupported
}
func (upToDate) Load() ([]byte, error) { return nil, nil }
func (upToDate) Save([]byte) error     { return nil }

// The update service throttles the agent for two minutes. The registration waits for one at most.
// The agent's report gets through in spite of a lost answer.
func TestTheAgentOutlivesTheTroublesOfTheService(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		w.deploy(t, "wf-1")
		program := upToDate{}
		a, err := agent.New(&agent.Options{Service: w, Verify: adusign.Roots(w.updates.Roots()).Verify,
			Handlers: map[string]agent.Handler{"": program}, Fetch: program, Store: program,
			Properties: query().Properties, Interval: 10 * time.Minute})
		require.NoError(t, err)
		w.client.Before(a.Onboard)
		throttle := w.Inject(fault.Fault{Kind: fault.RefuseUpdate, Route: fault.RouteUpdateCheck, Times: -1})
		w.Inject(fault.Fault{Kind: fault.DropAfterProvisioning, Route: fault.RouteUpdateReport, After: 1})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		began := time.Now()
		_, err = w.client.Register(t.Context())
		require.NoError(t, err)
		held := time.Since(began)
		require.Greater(t, held, 10*time.Second)
		require.Less(t, held, time.Minute+10*time.Second)
		time.Sleep(2*time.Minute - held)
		throttle.Remove()
		require.NoError(t, w.updates.Wait(t.Context(), func() bool {
			return w.updates.Device("reg-1").Last().Outcome().Terminal()
		}))
		time.Sleep(time.Hour)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)

		last := w.updates.Device("reg-1").Last()
		require.Equal(t, updatedata.OutcomeSkipped, last.Outcome())
		require.Len(t, last.Reports, 2, "the first one says that the update is in progress")
		require.Equal(t, 1, last.Repeated, "the answer to the last one was lost")
		require.Equal(t, dpsdata.OperationCheckOnboarding, w.Requests()[0].Operation)
	})
}

// A refusal that says nothing about the final report does not lose it: there is no update service,
// a proxy answers, or the device is not enrolled for now.
func TestAReportOutlivesRefusalsThatAreNotAboutIt(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		w.deploy(t, "wf-1")
		program := upToDate{}
		a, err := agent.New(&agent.Options{Service: w, Verify: adusign.Roots(w.updates.Roots()).Verify,
			Handlers: map[string]agent.Handler{"": program}, Fetch: program, Store: program,
			Properties: query().Properties, Interval: 10 * time.Minute})
		require.NoError(t, err)
		var refusals []*testbroker.Injected
		for _, f := range []fault.Fault{
			{Kind: fault.RefuseUpdate, Text: string(updatedata.CodeNotLinked)},
			{Kind: fault.RefuseUpdate, Text: "Bad Request", Description: "Bad Request", Status: 400, ErrorCode: -1},
			{Kind: fault.RefuseUpdate, Text: "No Such Page", Description: "No Such Page", Status: 404, ErrorCode: -1},
			{Kind: fault.RefuseProvisioning, Status: 404, ErrorCode: 404201},
		} {
			f.Route, f.After = fault.RouteUpdateReport, 1 // the first report is not the final one
			refusals = append(refusals, w.Inject(f))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		require.ErrorIs(t, a.Run(ctx), context.DeadlineExceeded)
		for _, f := range refusals {
			require.Equal(t, 1, f.Fired())
		}
		require.Equal(t, updatedata.OutcomeSkipped, w.updates.Device("reg-1").Last().Outcome())
	})
}

// reader is a program whose update is the content of a file.
type reader struct {
	upToDate
	content string
}

func (p *reader) Installed(context.Context, *agent.Work) (bool, error) {
	return p.content == "new", nil
}

func (p *reader) Download(ctx context.Context, w *agent.Work) error {
	r, err := w.Open(ctx, &w.Files[0], nil)
	if err != nil {
		return err
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	p.content = string(content)
	return err
}

func (p *reader) Install(context.Context, *agent.Work) (agent.Next, error) { return 0, nil }

func (p *reader) Apply(context.Context, *agent.Work) (agent.Next, error) { return 0, nil }

// The first answer is cut off, and the address is refused after that.
func TestADownloadGoesOnAtANewAddressOfTheSameWorkflow(t *testing.T) {
	inWorld(t, "http", false, func(t *testing.T, w *world) {
		w.deploy(t, "wf-1")
		web := &http.Transport{DialContext: w.Dial(testbroker.PortHTTPS), TLSClientConfig: w.ClientTLS()}
		defer web.CloseIdleConnections()
		program := &reader{}
		a, err := agent.New(&agent.Options{Service: w, Verify: adusign.Roots(w.updates.Roots()).Verify,
			Handlers: map[string]agent.Handler{"": program}, Fetch: host.NewFetcher(&http.Client{Transport: web}),
			Store: program, Properties: query().Properties})
		require.NoError(t, err)
		w.Inject(fault.Fault{Kind: fault.DropDuringAnswer, Route: fault.RouteUpdateFile})
		w.Inject(fault.Fault{Kind: fault.AnswerStatus, Statuses: []int{403}, Route: fault.RouteUpdateFile, After: 1})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		require.NoError(t, w.updates.Wait(t.Context(), func() bool {
			return w.updates.Device("reg-1").Last().Offers == 1
		}))
		w.updates.SetFileURL("https://" + w.HostName() + ":443")
		require.NoError(t, w.updates.Wait(t.Context(), func() bool {
			return w.updates.Device("reg-1").Last().Outcome().Terminal()
		}))
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		last := w.updates.Device("reg-1").Last()
		require.Equal(t, updatedata.OutcomeSucceeded, last.Outcome(), last.Reports)
		require.Equal(t, 2, last.Offers)
		require.Equal(t, "new", program.content)
	})
}
