package sim_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/flashsim"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/update"
	"github.com/hubline-iot/hubline/update/adusign"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/dpsupdate"
	"github.com/hubline-iot/hubline/update/handler"
	"github.com/hubline-iot/hubline/update/host"
)

// Sizes of the flash: two blocks for the state of the boot loader, the slots, and two areas for the
// state of the agent.
const (
	lifeBlock = 1024
	lifeSlot  = 3
	lifeStore = 2 + 2*lifeSlot
	lifeArea  = 16
)

// The first byte of an image is its number, the second one says how it behaves.
const (
	imageWorks = 'w'
	imageSick  = 's' // it is never healthy
	imageCrash = 'c' // it does not get as far as the agent
	imageLies  = 'l' // it works; its files are served with another content at first
)

// life is a device with its services from its first start until all of its updates have ended.
type life struct {
	t       testing.TB
	rand    *rand.Rand // draws what happens at the services
	device  *rand.Rand // draws what happens to the device
	dps     *testbroker.DPS
	updates *testbroker.Updates
	id      provisioning.Identity
	flash   *flashsim.Flash
	layout  update.Layout
	mqtt    bool
	cuts    int
	starts  int
	keys    lifeDisk                  // the device's file system
	sent    map[string][]agent.Report // final reports, by workflow
	faults  []*testbroker.Injected
	mu      sync.Mutex
	log     []string
}

func (l *life) inject(f fault.Fault) { l.faults = append(l.faults, l.dps.Inject(f)) }

func (l *life) logf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, time.Now().Format("02 15:04:05 ")+fmt.Sprintf(format, args...))
}

type lifeDisk struct{ text []byte }

func (m *lifeDisk) Load() ([]byte, error)  { return m.text, nil }
func (m *lifeDisk) Save(text []byte) error { m.text = slices.Clone(text); return nil }

func newLife(t testing.TB, seed uint64) *life {
	l := &life{t: t, rand: rand.New(rand.NewPCG(seed, 7)), device: rand.New(rand.NewPCG(seed, 8)), mqtt: seed%2 == 0,
		sent: map[string][]agent.Report{}}
	var err error
	l.dps, err = testbroker.NewDPS(&testbroker.DPSOptions{Seed: seed})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = l.dps.Close()
		if t.Failed() || *oneSeed != 0 {
			t.Log(strings.Join(l.log, "\n"))
		}
	})
	l.updates, err = testbroker.NewUpdates(&testbroker.UpdatesOptions{FileURL: "http://" + l.dps.HostName()})
	require.NoError(t, err)
	l.dps.LinkUpdates(l.updates)
	e, err := l.dps.Enroll(dpsdata.Enrollment{ID: "reg-1"})
	require.NoError(t, err)
	sign, err := transport.SharedKey(e.PrimaryKey)
	require.NoError(t, err)
	l.id = provisioning.Identity{Endpoint: l.dps.HostName(), IDScope: l.dps.IDScope(), RegistrationID: "reg-1", Sign: sign}
	l.flash = flashsim.New((lifeStore+lifeArea)*lifeBlock, 16, lifeBlock)
	l.layout = update.Layout{Flash: l.flash,
		Slots: [2]update.Slot{{First: 2, Blocks: lifeSlot}, {First: 2 + lifeSlot, Blocks: lifeSlot}}}
	first := newLifeImage(1, imageWorks)
	_, err = l.flash.WriteAt(first, 2*lifeBlock)
	require.NoError(t, err)
	require.NoError(t, update.Format(&l.layout,
		update.Image{Version: 1, Size: int64(len(first)), SHA256: sha256.Sum256(first)}))
	return l
}

func newLifeImage(number, behaviour byte) []byte {
	b := make([]byte, lifeSlot*lifeBlock-16*int(number))
	random := rand.New(rand.NewPCG(uint64(number), 0))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	b[0], b[1] = number, behaviour
	return b
}

// publish offers an image to the device.
func (l *life) publish(number, behaviour byte) (workflow string) {
	id := updatedata.UpdateID{Provider: "Contoso", Name: "Roof", Version: fmt.Sprint(number, ".0")}
	require.NoError(l.t, l.updates.Publish(updatedata.Update{ID: id,
		Compatibility: []map[string]string{{"manufacturer": "contoso", "model": "roof"}},
		Steps: []updatedata.Step{{Handler: "contoso/slots:1", Files: []string{"image"},
			Properties: json.RawMessage(fmt.Sprintf(`{"installedCriteria":"%d"}`, number))}},
		Files: []updatedata.File{{Name: "image", Content: newLifeImage(number, behaviour)}}}))
	if behaviour == imageLies {
		lie := []string{"content", "short"}[l.rand.IntN(2)]
		l.inject(fault.Fault{Kind: fault.WrongFile, Text: lie, Times: 1000})
	}
	d, err := l.updates.Deploy(updatedata.Deployment{Update: id, KeepOffering: l.rand.IntN(2) == 0})
	require.NoError(l.t, err)
	l.logf("deployed %d%c as %s", number, behaviour, d.WorkflowID)
	return d.WorkflowID
}

// lifeFaults are faults that pass.
var lifeFaults = []fault.Fault{
	{Kind: fault.DropBeforeProvisioning}, {Kind: fault.DropAfterProvisioning}, {Kind: fault.SwallowProvisioning},
	{Kind: fault.GarbleProvisioning}, {Kind: fault.SlowProvisioning, Delay: 5 * time.Second},
	{Kind: fault.RefuseProvisioning, Status: 503}, {Kind: fault.RefuseProvisioning, Status: 429, RetryAfter: time.Minute},
	{Kind: fault.RefuseUpdate}, {Kind: fault.RefuseUpdate, Text: string(updatedata.CodeUnavailable)},
	{Kind: fault.RefuseUpdate, Text: string(updatedata.CodeOutdatedAgentInfo), Route: fault.RouteUpdateCheck},
	{Kind: fault.AnswerStatus, Route: fault.RouteUpdateFile, Statuses: []int{503}},
	{Kind: fault.DropDuringAnswer, Route: fault.RouteUpdateFile},
	{Kind: fault.ResetAfterRequest, Route: fault.RouteUpdateFile},
	{Kind: fault.SlowFile, Rate: 50}, {Kind: fault.DropAfterProvisioning, Route: fault.RouteUpdateReport},
}

// run starts the device after each reset until ctx ends.
func (l *life) run(ctx context.Context) {
	for ctx.Err() == nil {
		if l.cuts < 12 && l.device.IntN(3) > 0 {
			l.flash.CutAt(1+l.device.IntN(120), flashsim.Tears[l.device.IntN(len(flashsim.Tears))], l.device.Uint64())
		}
		slot, err := update.Boot(&l.layout, make([]byte, 256))
		if !l.flash.Off() {
			require.NoError(l.t, err)
			head := make([]byte, 2)
			_, err = l.flash.ReadAt(head, l.layout.Slots[slot].First*lifeBlock)
			require.NoError(l.t, err)
			l.starts++
			l.logf("starts image %d%c", head[0], head[1])
			if head[1] != imageCrash {
				l.program(ctx, head[0], head[1])
			}
		}
		if l.flash.Off() {
			l.cuts++
			l.logf("power cut")
		}
		l.flash.Restore()
		time.Sleep(time.Second)
	}
}

// powered is flash whose loss of power ends the program.
type powered struct {
	*flashsim.Flash
	off func()
}

func (p powered) WriteAt(b []byte, off int64) (int, error) {
	n, err := p.Flash.WriteAt(b, off)
	if p.Off() {
		p.off()
	}
	return n, err
}

func (p powered) EraseBlocks(start, count int64) error {
	err := p.Flash.EraseBlocks(start, count)
	if p.Off() {
		p.off()
	}
	return err
}

// recorder keeps the final reports that the device sends.
type recorder struct {
	agent.Service
	l *life
}

func (r recorder) Report(ctx context.Context, report *agent.Report) error {
	if report.Final() {
		r.l.sent[report.WorkflowID] = append(r.l.sent[report.WorkflowID], *report)
	}
	err := r.Service.Report(ctx, report)
	r.l.logf("report %s %v %s: %v", report.WorkflowID, report.Result.Outcome, report.Result.Details, err)
	return err
}

// program is the firmware. It returns for a reset.
func (l *life) program(ctx context.Context, number, behaviour byte) {
	ctx, reset := context.WithCancel(ctx)
	defer reset()
	if l.starts < 20 && l.device.IntN(4) == 0 {
		defer time.AfterFunc(time.Duration(l.device.Int64N(int64(20*time.Minute))), reset).Stop()
	}
	flash := powered{l.flash, reset}
	layout := l.layout
	layout.Flash = flash
	u, err := update.Open(&update.Options{Layout: layout, Version: uint32(number), Tries: 30})
	require.NoError(l.t, err)
	store, err := update.NewStore(flash, update.Slot{First: lifeStore, Blocks: lifeArea})
	require.NoError(l.t, err)
	keys, err := adusign.NewKeys(&adusign.KeysOptions{Roots: l.updates.Roots(), Store: &l.keys})
	require.NoError(l.t, err)

	network := &netopt.Options{Plaintext: true, Dial: l.dps.Dial(testbroker.PortHTTP)}
	carrier := provisioning.Carrier(dpshttp.New(network))
	if l.mqtt {
		network.Dial = l.dps.Dial(testbroker.PortMQTT)
		carrier = dpsmqtt.New(network)
	}
	client, err := provisioning.New(&l.id, carrier, nil)
	require.NoError(l.t, err)
	defer client.CloseIdle()
	service, err := dpsupdate.New(client, nil)
	require.NoError(l.t, err)
	web := &http.Client{Transport: &http.Transport{DialContext: l.dps.Dial(testbroker.PortHTTP)}}
	defer web.CloseIdleConnections()

	slots := &handler.Slots{Updater: u, Deadline: time.Minute, Healthy: func(ctx context.Context) error {
		if behaviour == imageSick {
			<-ctx.Done()
			return errors.New("no connection")
		}
		return nil
	}}
	a, err := agent.New(&agent.Options{
		Service: recorder{service, l}, Handlers: map[string]agent.Handler{"contoso/slots:1": slots},
		Verify: keys.Verify, RootKeys: keys.Update, Fetch: host.NewFetcher(web), Store: store,
		Properties: agent.Properties{{Name: "manufacturer", Value: "Contoso"}, {Name: "model", Value: "Roof"}},
		Interval:   10 * time.Minute, Rand: l.device.Uint64,
	})
	require.NoError(l.t, err)
	err = a.Run(ctx)
	l.logf("ends: %v", err)
	require.True(l.t, errors.Is(err, agent.ErrRestart) || ctx.Err() != nil, "%v", err)
}

// expected is the outcome of an image's update, unless another one replaces it.
var expected = map[byte]updatedata.Outcome{imageWorks: updatedata.OutcomeSucceeded, imageSick: updatedata.OutcomeFailed,
	imageCrash: updatedata.OutcomeFailed, imageLies: updatedata.OutcomeFailed}

// live lives a life and checks its ledger.
func live(t testing.TB, seed uint64) *life {
	l := newLife(t, seed)
	ctx, off := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { // the device: ends with ctx
		defer close(done)
		l.run(ctx)
	}()
	join := func() { off(); <-done }
	defer join()
	for number := byte(2); number < 6; number++ {
		for range l.rand.IntN(4) {
			f := lifeFaults[l.rand.IntN(len(lifeFaults))]
			f.Times, f.After = 1+l.rand.IntN(3), l.rand.IntN(4)
			l.inject(f)
		}
		behaviour := []byte{imageWorks, imageWorks, imageSick, imageCrash, imageLies}[l.rand.IntN(5)]
		workflow := l.publish(number, behaviour)
		if number < 5 && l.rand.IntN(4) == 0 { // the next one replaces it
			l.inject(fault.Fault{Kind: fault.SlowFile, Rate: 4, Times: 3})
			time.Sleep(time.Duration(l.rand.Int64N(int64(25 * time.Minute))))
		} else {
			l.wait(ctx, workflow)
			require.Equal(t, expected[behaviour], l.outcome(workflow), "image %d", number)
		}
		for _, f := range l.faults {
			f.Remove()
		}
		l.faults = nil
	}
	time.Sleep(10 * time.Hour)
	join()
	l.check()
	return l
}

// wait waits for the end of a workflow.
func (l *life) wait(ctx context.Context, workflow string) {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Hour)
	defer cancel()
	err := l.updates.Wait(ctx, func() bool { return l.outcome(workflow).Terminal() })
	require.NoError(l.t, err, "the update does not end")
}

func (l *life) outcome(workflow string) updatedata.Outcome {
	return l.updates.Device("reg-1").Workflow(workflow).Outcome()
}

// check compares the ledger: each workflow that the device has begun has one final report, which
// the service has acknowledged, and the image of the latest success runs.
func (l *life) check() {
	device := l.updates.Device("reg-1")
	running := 1
	for _, w := range device.Workflows {
		reports := l.sent[w.ID]
		for _, r := range reports {
			require.True(l.t, reflect.DeepEqual(reports[0], r), "two final reports differ: %v and %v", reports[0], r)
		}
		if len(w.Reports) > 0 || len(reports) > 0 {
			require.NotEmpty(l.t, reports, "workflow %s has no final report", w.ID)
			require.Equal(l.t, reports[0].Result.Outcome.String(), string(w.Outcome()), w.ID)
		}
		if w.Outcome() == updatedata.OutcomeSucceeded {
			_, err := fmt.Sscanf(w.Update.Version, "%d.0", &running)
			require.NoError(l.t, err)
		}
	}
	slot, err := update.Boot(&l.layout, make([]byte, 256))
	require.NoError(l.t, err)
	head := make([]byte, 1)
	_, err = l.flash.ReadAt(head, l.layout.Slots[slot].First*lifeBlock)
	require.NoError(l.t, err)
	require.Equal(l.t, running, int(head[0]), "the image that runs in the end")
}

// TestLivesOfUpdates lets devices live through four updates each, with faults of the network, the
// services and the files, power cuts at any write, and resets. 1,000 lives with -seeds 1000.
func TestLivesOfUpdates(t *testing.T) {
	least := 4
	if *all {
		least = 100
	}
	cuts, starts, replaced := 0, 0, 0
	runs := eachSeed(t, least, func(t *testing.T, seed uint64) {
		l := live(t, seed)
		cuts, starts = cuts+l.cuts, starts+l.starts
		for _, reports := range l.sent {
			if reports[0].Result.Outcome == agent.OutcomeCanceled {
				replaced++
			}
		}
	})
	t.Logf("%d lives with %d power cuts, %d starts and %d replaced updates", runs, cuts, starts, replaced)
}
