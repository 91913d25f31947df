package sim_test

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/workload"
	"github.com/hubline-iot/hubline/transport"
)

// siteEngines are the engines that modules can use.
func siteEngines() (some []engine) {
	for _, e := range engines {
		if e.twins && !e.shared && !e.next {
			some = append(some, e)
		}
	}
	return some
}

// TestSimulationOfGateways runs modules behind an edge gateway that restarts, also with another
// certificate, loses the hub, and starts after them.
func TestSimulationOfGateways(t *testing.T) {
	for _, e := range siteEngines() {
		t.Run(e.name, func(t *testing.T) {
			e.skipVariant(t)
			var totals siteTotals
			runs := eachSeed(t, 1, func(t *testing.T, seed uint64) {
				p := drawSite(seed, e)
				s := playSite(t, p)
				s.conclude(t, p, s.check())
				totals.add(s)
			})
			if runs >= 12 {
				totals.check(t)
			}
		})
	}
}

// siteTotals count what happened in all runs, which would show little if it never happened.
type siteTotals struct{ resent, doubled, again, unverified, unanswered, invoked int }

func (n *siteTotals) add(s *site) {
	for _, m := range s.members {
		n.resent += int(m.client.Stats().Resent)
		for _, st := range m.statuses {
			if errors.Is(st.Err, transport.Unavailable) {
				n.unverified++
			}
		}
	}
	seen := map[string]bool{}
	for _, l := range s.log {
		if seen[l.MessageID] {
			n.doubled++
		}
		seen[l.MessageID] = true
	}
	for _, times := range s.members[moduleB].handled {
		n.again += times - 1
	}
	for _, k := range s.called {
		if k.err != nil {
			n.unanswered++
		}
	}
	n.invoked += s.invoked
}

func (n *siteTotals) check(t *testing.T) {
	t.Helper()
	require.Positive(t, n.resent, "no message was sent again")
	require.Positive(t, n.doubled, "no message came to the hub twice")
	require.Positive(t, n.again, "no message was handled again")
	require.Positive(t, n.unverified, "no attempt failed for a certificate or the daemon")
	require.Positive(t, n.unanswered, "no call failed")
	require.Positive(t, n.invoked, "no call of a module succeeded")
	t.Logf("%+v", *n)
}

// The members of a site.
const (
	moduleA = iota
	moduleB
	leafDevice
)

var memberIDs = [...]string{moduleA: "edge-1/a", moduleB: "edge-1/b", leafDevice: "leaf-1"}

// siteRoutes take everything to the hub, and the outputs of module a to inputs of module b too.
var siteRoutes = []string{
	"FROM /messages/* INTO $upstream",
	`FROM /messages/modules/a/outputs/first INTO BrokeredEndpoint("/modules/b/inputs/one")`,
	`FROM /messages/modules/a/outputs/second INTO BrokeredEndpoint("/modules/b/inputs/two")`,
}

// site is the state of one run.
type site struct {
	chronicle
	p       *sitePlan
	hub     *testbroker.Hub
	daemon  *workload.Server
	members [len(memberIDs)]*member
	invoker *edge.Invoker
	calls   sync.WaitGroup
	log     []hubdata.Message
	inputs  []hubdata.C2DRecord

	// Guarded by mu.
	fromCloud int
	called    map[string]*siteMethod // by the text of their payload
	invoked   int                    // calls of module a that were answered
	faults    []interface{ Remove() }
}

// playSite runs the plan and shuts everything down. It must run in a bubble.
func playSite(t *testing.T, p *sitePlan) *site {
	testkit.StartClock()
	s := &site{chronicle: chronicle{start: time.Now()}, p: p, called: map[string]*siteMethod{}}
	s.open(t)
	var clients []*device.Client
	for _, m := range s.members {
		clients = append(clients, m.client)
	}
	stop := s.supervise(p.reopenAfter, clients...)
	for i := range p.steps {
		time.Sleep(time.Until(s.start.Add(p.steps[i].at)))
		s.do(&p.steps[i])
	}
	time.Sleep(p.tail)
	s.heal()
	s.calls.Wait()
	s.finish()
	stop()
	s.close()
	return s
}

// open makes the hub, its gateway, the daemon and the members, and starts them.
func (s *site) open(t *testing.T) {
	var err error
	queue := testbroker.C2DOptions{TTL: 1000 * time.Hour, MaxDeliveries: 1000}
	s.hub, err = testbroker.New(&testbroker.Options{Seed: s.p.seed + 1, C2D: queue, Inputs: queue,
		Gateway: &testbroker.GatewayOptions{Name: "gateway.example.test", DeviceID: "edge-1", Routes: siteRoutes},
		OnEvent: func(e event.Event) { s.event("hub    %v", e) }})
	require.NoError(t, err)
	for _, id := range []string{"edge-1", "leaf-1"} {
		_, err = s.hub.AddDevice(id)
		require.NoError(t, err)
	}
	for _, id := range []string{"a", "b"} {
		_, err = s.hub.AddModule("edge-1", id)
		require.NoError(t, err)
	}
	s.daemon, err = workload.New(s.hub, &workload.Options{Device: "edge-1", GatewayHostName: s.hub.GatewayName(),
		Overlap: s.p.overlap, Seed: s.p.seed + 1})
	require.NoError(t, err)
	if s.p.boot > 0 {
		s.away(s.p.boot, false)
		s.faults = append(s.faults, s.daemon.Inject(workload.Fault{Kind: workload.FaultAbsent, For: s.p.boot / 2}))
	}
	for i := range s.members {
		s.members[i] = s.join(t, i)
	}
	for _, m := range s.members {
		require.NoError(t, m.client.Start())
	}
}

// module returns the credentials of a module and its way to the gateway, from its environment.
func (s *site) module(t *testing.T, id string) *edge.Module {
	t.Helper()
	device, module, _ := strings.Cut(id, "/")
	set := map[string]string{}
	for _, variable := range s.daemon.Environment(device, module) {
		name, value, _ := strings.Cut(variable, "=")
		set[name] = value
	}
	m, err := edge.FromEnvironment(&edge.Options{Dial: s.daemon.Dial, LookupEnv: func(name string) (string, bool) {
		value, ok := set[name]
		return value, ok
	}})
	require.NoError(t, err)
	m.Credentials.TokenLife = s.p.tokenLife
	return m
}

// do runs one step.
func (s *site) do(step *siteStep) {
	m := s.members[step.who]
	switch step.what {
	case siteSend:
		s.event("%v", step)
		m.outgoing <- m.messages(step)
	case siteCloud:
		for range step.count {
			s.fromCloud++
			id := "c-" + strconv.Itoa(s.fromCloud)
			if err := s.hub.SendC2D("leaf-1", hubdata.C2D{MessageID: id, Body: []byte("do " + id)}); err != nil {
				s.failf("%s: %w", id, err)
			}
		}
	case siteDesire:
		for range step.count {
			m.desire()
		}
	case siteReport:
		m.reports <- step
	case siteCall:
		for range step.count {
			s.calls.Go(func() { _ = s.callFromCloud(m, step.length, step.connect) })
		}
	case siteInvoke:
		for range step.count {
			s.calls.Go(func() { _ = s.callFromModule(m, step.length, step.connect) })
		}
	case siteRestart:
		s.away(step.length, step.rotate)
	case siteOffline:
		s.event("off-line for %v", step.length)
		s.fail(s.hub.SetOffline(true))
		s.calls.Go(func() {
			time.Sleep(step.length)
			s.fail(s.hub.SetOffline(false))
		})
	case siteDrop:
		s.event("drop")
		s.hub.Drop("")
	case siteInject:
		s.event("inject %+v", step.fault)
		s.faults = append(s.faults, s.hub.Inject(step.fault))
	case siteDaemon:
		s.event("inject at the daemon %+v", step.daemon)
		s.faults = append(s.faults, s.daemon.Inject(step.daemon))
	}
}

// away stops the gateway for a while. It may have another certificate afterwards.
func (s *site) away(long time.Duration, rotate bool) {
	s.event("the gateway stops for %v, rotate %v", long, rotate)
	s.fail(s.hub.StopGateway())
	if rotate {
		s.hub.RotateCertificate()
	}
	s.calls.Go(func() {
		time.Sleep(long)
		s.fail(s.hub.StartGateway())
	})
}

// heal ends all faults.
func (s *site) heal() {
	for _, f := range s.faults {
		f.Remove()
	}
	s.fail(s.hub.SetOffline(false))
	s.fail(s.hub.StartGateway())
	s.event("all faults removed")
}

// finish waits until everything is where it belongs.
func (s *site) finish() {
	for _, m := range s.members {
		close(m.outgoing)
		close(m.reports)
		<-m.sent
		<-m.reported
	}
	s.until("not every message was acknowledged", func() bool {
		for _, m := range s.members {
			if st := m.client.Stats(); st.Queued > 0 {
				return false
			}
		}
		return true
	})
	s.until("the gateway has stored messages left", func() bool { return s.hub.Stored() == 0 })
	s.until("not every message of an input was settled", func() bool {
		return s.hub.CountInputs("edge-1/b", hubdata.C2DEnqueued)+s.hub.CountInputs("edge-1/b", hubdata.C2DInvisible) == 0
	})
	s.until("not every cloud-to-device message was completed", func() bool {
		return s.hub.CountC2D("leaf-1", hubdata.C2DCompleted) == s.fromCloud
	})
	for _, m := range s.members {
		m.agree()
	}
	s.until("messages that handlers sent are left", func() bool {
		return s.hub.Stored() == 0 && s.members[moduleB].client.Stats().Queued == 0
	})
	for _, m := range s.members[1:] { // everything works
		s.fail(soon(func() error { return s.callFromModule(m, lastCall, lastCall) }))
		s.fail(soon(func() error { return s.callFromCloud(m, lastCall, lastCall) }))
	}
}

// lastCall is the time-out of calls after everything.
const lastCall = 30 * time.Second

// soon makes a call up to three times: an answer is lost when a slow method outlasts the wait of a
// planned reconnect for a new token.
func soon(call func() error) (err error) {
	for range 3 {
		if err = call(); err == nil {
			return nil
		}
	}
	return err
}

// until waits for ok. Every ten minutes it replaces the connections, on which what MQTT's handlers
// released comes again.
func (s *site) until(what string, ok func() bool) {
	for i := range 2 * 3600 {
		if synctest.Wait(); ok() {
			return
		}
		if i%600 == 599 {
			for _, m := range s.members {
				_ = m.client.Reconnect()
			}
		}
		time.Sleep(time.Second)
	}
	s.failf("%s after two hours", what)
}

// close closes everything and takes the logs.
func (s *site) close() {
	for _, m := range s.members {
		before := time.Now()
		if err := m.client.Close(); err != nil {
			s.failf("Close of %s: %w", m.id, err)
		}
		if took := time.Since(before); took > time.Second {
			s.failf("Close of %s took %v", m.id, took)
		}
		m.settle()
	}
	s.fail(s.invoker.Close())
	synctest.Wait()
	if n := s.hub.Connections(""); n != 0 {
		s.failf("%d connections left at the gateway", n)
	}
	s.log, s.inputs = s.hub.Messages(), s.hub.InputLog("edge-1/b")
	for _, m := range s.members {
		twin, err := s.hub.Twin(m.id)
		s.fail(err)
		m.twin = twin
	}
	state := s.hub.GatewayState()
	if state.Unrouted+state.Expired > 0 {
		s.failf("the gateway lost messages: %+v", state)
	}
	s.fail(s.daemon.Close())
	s.fail(s.hub.Close())
	synctest.Wait()
}

// join makes a member and its client.
func (s *site) join(t *testing.T, who int) *member {
	m := newMember(s, who)
	w := s.p.engine.inMemory(s.hub, true)
	w.KeepAlive, w.PingTimeout = 30*time.Second, 10*time.Second
	var creds *transport.Credentials
	if who == leafDevice {
		creds = s.p.engine.creds(t, s.hub.ConnectionString(m.id))
		creds.TokenLife = s.p.tokenLife
		w.RootCAs = s.leafRoots
	} else {
		module := s.module(t, m.id)
		creds, w.RootCAs = module.Credentials, module.Network.RootCAs
		if who == moduleA {
			network := module.Network
			network.Dial = s.hub.Dial(testbroker.PortHTTPS)
			invoker, err := edge.NewInvoker(creds, &edge.InvokerOptions{Network: network})
			require.NoError(t, err)
			s.invoker = invoker
		}
	}
	w.TLS = nil
	var err error
	m.client, err = device.New(creds, s.p.engine.make(creds, w), &device.Options{
		Window: s.p.window, AckTimeout: s.p.ackTimeout, StableTime: s.p.stable, MaxMessages: 200,
		Rand: rand.NewPCG(s.p.seed, uint64(who)).Uint64,
		OnStatus: func(st device.Status) {
			m.statuses = append(m.statuses, st) // read after Close
			s.event("%-8s %v (%v) retry %d delay %v: %v", m.id, st.State, st.Reason, st.Retry, st.Delay, st.Err)
		},
	})
	require.NoError(t, err)
	m.attach(t)
	return m
}

// errNotYet releases a message.
var errNotYet = errors.New("not now")
