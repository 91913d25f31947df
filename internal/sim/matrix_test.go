package sim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/stretchr/testify/require"
)

// class says which operations a fault can meet, and how it is brought about there.
type class uint8

const (
	atConnect   class = iota // needs a connect
	atSubscribe              // needs a subscription, which each connect brings
	atPublish                // needs a telemetry message
	atPing                   // needs a ping
	always                   // a state of hub or network
)

// row is a fault and what the device promises about it.
type row struct {
	name  string
	fault testbroker.Fault
	class class
	// kinds are those of the failures that the status may tell because of it; empty: it must not be noticed at all.
	kinds []transport.Kind
	// terminal: the client gives up, and connects when it is opened again.
	terminal bool
}

const (
	network     = transport.Network
	timeout     = transport.Timeout
	unavailable = transport.Unavailable
)

func kinds(k ...transport.Kind) []transport.Kind { return k }

func matrixRows() []row {
	type F = testbroker.Fault
	rows := []row{
		{"RefuseConnect 3", F{Kind: testbroker.RefuseConnect, Code: 3, Times: 2}, atConnect, kinds(unavailable), false},
		{"SlowConnack", F{Kind: testbroker.SlowConnack, Delay: 3 * time.Second}, atConnect, nil, false},
		{"NoConnack", F{Kind: testbroker.NoConnack}, atConnect, kinds(timeout), false},
		{"DropConnect", F{Kind: testbroker.DropConnect}, atConnect, kinds(network), false},
		{"GarbageOnConnect", F{Kind: testbroker.GarbageOnConnect}, atConnect, kinds(network, transport.Protocol), false},
		{"MuteHandshake", F{Kind: testbroker.MuteHandshake}, atConnect, kinds(timeout), false},
		{"CutHandshake", F{Kind: testbroker.CutHandshake}, atConnect, kinds(network), false},
		{"NotTLS", F{Kind: testbroker.NotTLS}, atConnect, kinds(transport.Protocol), true},
		{"OldTLS", F{Kind: testbroker.OldTLS}, atConnect, kinds(transport.Unsupported), true},
		{"ExpiredCertificate", F{Kind: testbroker.ExpiredCertificate}, atConnect, kinds(transport.Untrusted), true},
		{"RefuseSubscribe", F{Kind: testbroker.RefuseSubscribe}, atSubscribe, kinds(unavailable), false},
		{"DropOnSubscribe", F{Kind: testbroker.DropOnSubscribe}, atSubscribe, kinds(network), false},
		{"SwallowSuback", F{Kind: testbroker.SwallowSuback}, atSubscribe, kinds(timeout), false},
		{"SlowSuback", F{Kind: testbroker.SlowSuback, Delay: 3 * time.Second}, atSubscribe, nil, false},
		{"LongSuback", F{Kind: testbroker.LongSuback}, atSubscribe, kinds(network, transport.Protocol), false},
		{"ShortSuback", F{Kind: testbroker.ShortSuback}, atSubscribe, kinds(network, transport.Protocol), false},
		{"GarbageOnSubscribe", F{Kind: testbroker.GarbageOnSubscribe}, atSubscribe, kinds(network, transport.Protocol), false},
		{"DropBeforePublish", F{Kind: testbroker.DropBeforePublish}, atPublish, kinds(network), false},
		{"DropDuringPublish", F{Kind: testbroker.DropDuringPublish}, atPublish, kinds(network), false},
		{"DropAfterPublish", F{Kind: testbroker.DropAfterPublish}, atPublish, kinds(network), false},
		{"DropAfterPuback", F{Kind: testbroker.DropAfterPuback}, atPublish, kinds(network), false},
		{"DelayPuback", F{Kind: testbroker.DelayPuback, Delay: 3 * time.Second}, atPublish, nil, false},
		{"SwallowPuback", F{Kind: testbroker.SwallowPuback}, atPublish, kinds(timeout), false},
		{"StrayPuback", F{Kind: testbroker.StrayPuback}, atPublish, nil, false},
		{"DuplicatePuback", F{Kind: testbroker.DuplicatePuback}, atPublish, nil, false},
		{"GarbageOnPublish", F{Kind: testbroker.GarbageOnPublish}, atPublish, kinds(network, transport.Protocol), false},
		{"SwallowPingresp", F{Kind: testbroker.SwallowPingresp}, atPing, kinds(timeout), false},
		{"HalfOpen", F{Kind: testbroker.HalfOpen, For: 20 * time.Second}, always, kinds(timeout, network), false},
		{"Throttle", F{Kind: testbroker.Throttle, Rate: 2, Limit: 3, For: 20 * time.Second}, always, kinds(unavailable, network), false},
		{"Absent", F{Kind: testbroker.Absent, For: 20 * time.Second}, always, kinds(network), false},
		{"Quota", F{Kind: testbroker.Quota, Limit: -1, For: 20 * time.Second}, always, kinds(unavailable, network), false},
		{"Quota, connects accepted", F{Kind: testbroker.Quota, Limit: -1, AcceptConnects: true, For: 20 * time.Second}, always, kinds(network), false},
	}
	for code, k := range map[byte]transport.Kind{1: transport.Unsupported, 2: transport.Unauthorized, 4: transport.Unauthorized, 5: transport.Unauthorized, 6: transport.Protocol, 255: transport.Protocol} {
		rows = append(rows, row{"RefuseConnect " + strconv.Itoa(int(code)), F{Kind: testbroker.RefuseConnect, Code: code}, atConnect, kinds(k), true})
	}
	slices.SortFunc(rows, func(a, b row) int {
		return int(a.fault.Kind)*1000 + int(a.fault.Code) - int(b.fault.Kind)*1000 - int(b.fault.Code)
	})
	return rows
}

// op is an operation, with the fault coming in its middle.
type op struct {
	name string
	// meets says which faults can come in the middle of it.
	meets func(r row) bool
	run   func(e *env, r row) error
}

func connects(r row) bool { return r.class == atConnect || r.class == atSubscribe }

var ops = []op{
	{"connect", func(r row) bool { return connects(r) || r.class == always }, func(e *env, r row) error {
		e.inject(r)
		return e.reconnected()
	}},
	{"publish", func(r row) bool { return r.class != atPing }, func(e *env, r row) error {
		if err := e.reconnected(); err != nil {
			return err
		}
		e.inject(r)
		if connects(r) {
			e.hub.Drop("")
		}
		e.publish(20)
		return e.flushed()
	}},
	{"receive", func(r row) bool {
		return connects(r) || r.class == always && r.fault.Kind != testbroker.Quota // the quota stops the sender, too
	}, func(e *env, r row) error {
		if err := e.reconnected(); err != nil {
			return err
		}
		e.inject(r)
		if connects(r) || r.fault.Kind == testbroker.Throttle {
			e.hub.Drop("")
		}
		for i := range 5 {
			if err := e.hub.SendC2D("dev-1", testbroker.C2D{MessageID: strconv.Itoa(i + 1)}); err != nil {
				return err
			}
		}
		return e.received(5)
	}},
	{"subscribe", func(r row) bool { return r.class == atSubscribe || r.class == always }, func(e *env, r row) error {
		if err := e.reconnected(); err != nil {
			return err
		}
		e.inject(r)
		e.hub.Drop("")
		synctest.Wait()
		if err := e.reconnected(); err != nil {
			return err
		}
		if err := e.removeAndSend("1"); err != nil {
			return err
		}
		return e.received(1)
	}},
	{"renew", func(r row) bool { return r.class != atPing }, func(e *env, r row) error {
		if err := e.reconnected(); err != nil {
			return err
		}
		// The renewal is due after 85 % of the token's 10 minutes, less a little at random.
		if err := e.until(e.start.Add(9*time.Minute), func() bool { return e.in != nil && e.seen(device.TokenRenewal) }, func() {
			if e.in == nil && time.Since(e.start) >= 8*time.Minute-time.Millisecond {
				e.inject(r)
				e.publish(3)
			}
		}); err != nil && r.class != always && r.class != atPublish {
			return err
		}
		return e.flushed()
	}},
	{"close", func(r row) bool { return r.class != atPing }, func(e *env, r row) error {
		if err := e.reconnected(); err != nil {
			return err
		}
		e.inject(r)
		if connects(r) || r.fault.Kind == testbroker.Throttle {
			e.hub.Drop("")
		}
		e.publish(20)
		for range 2000 { // until it has happened, and not a moment later
			if synctest.Wait(); e.in.Fired() > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		return e.closed()
	}},
	{"keep-alive", func(r row) bool {
		return r.class == atPing || r.fault.Kind == testbroker.HalfOpen || r.fault.Kind == testbroker.Absent
	}, func(e *env, r row) error {
		if err := e.reconnected(); err != nil {
			return err
		}
		n := e.client.Stats().Connections
		e.inject(r)
		return e.until(time.Now().Add(3*time.Minute), func() bool { return e.client.Stats().Connections > n }, nil)
	}},
}

// env is the system under one cell.
type env struct {
	t      *testing.T
	start  time.Time
	hub    *testbroker.Hub
	client *device.Client
	in     *testbroker.Injected
	sent   []*entry

	mu       sync.Mutex
	statuses []device.Status
	got      map[string]int
}

func newEnv(t *testing.T, with engine) *env {
	e := &env{t: t, start: time.Now(), got: map[string]int{}}
	var err error
	e.hub, err = testbroker.New(nil)
	require.NoError(t, err)
	_, err = e.hub.AddDevice("dev-1")
	require.NoError(t, err)
	creds, err := device.ParseConnectionString(e.hub.ConnectionString("dev-1"))
	require.NoError(t, err)
	creds.TokenLife = 10 * time.Minute
	o := &mqtt.Options{Dial: e.hub.DialTLSPort, TLS: e.hub.ClientTLS(), KeepAlive: 20 * time.Second, PingTimeout: 5 * time.Second}
	e.client, err = device.New(creds, with.make(creds, o), &device.Options{
		AckTimeout: 10 * time.Second, DialTimeout: 10 * time.Second, StableTime: time.Second,
		OnStatus: func(s device.Status) {
			e.mu.Lock()
			e.statuses = append(e.statuses, s)
			e.mu.Unlock()
		},
		OnMessage: func(_ context.Context, m *transport.Message) error {
			e.mu.Lock()
			e.got[m.ID]++
			e.mu.Unlock()
			return nil
		},
	})
	require.NoError(t, err)
	return e
}

func (e *env) inject(r row) { e.in = e.hub.Inject(r.fault) }

// until waits until ok, looking and nudging every tenth of a second of fake time.
func (e *env) until(limit time.Time, ok func() bool, nudge func()) error {
	for !ok() {
		if time.Now().After(limit) {
			return fmt.Errorf("not within %v; last status %+v", limit.Sub(e.start), e.client.Status())
		}
		if nudge != nil {
			nudge()
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}

// reconnected opens the client, again if it has given up, until it is connected.
func (e *env) reconnected() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for {
		err := e.client.Open(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func (e *env) publish(n int) {
	for range n {
		m := &entry{n: len(e.sent) + 1}
		m.m = transport.Message{ID: strconv.Itoa(m.n)}
		if err := e.client.Enqueue(context.Background(), &m.m, &m.receipt); err != nil {
			e.t.Error(err)
		}
		e.sent = append(e.sent, m)
	}
}

// flushed gets everything out, opening the client when it has given up, and compares with the hub's log.
func (e *env) flushed() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for {
		err := e.client.Flush(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return err
		}
		if err := e.reconnected(); err != nil {
			return err
		}
	}
	return e.compare(false)
}

// compare checks that each message has its result and that what was acknowledged is at the hub, marked if it came again.
func (e *env) compare(closed bool) error {
	seen := map[string]bool{}
	for _, l := range e.hub.Messages() {
		if seen[l.MessageID] && !l.Dup {
			return fmt.Errorf("message %s came again without DUP", l.MessageID)
		}
		seen[l.MessageID] = true
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, m := range e.sent {
		err := m.receipt.Wait(ctx)
		switch {
		case err == nil && !seen[m.m.ID]:
			return fmt.Errorf("message %s was acknowledged and is not at the hub", m.m.ID)
		case err != nil && !(closed && errors.Is(err, transport.Closed)):
			return fmt.Errorf("message %s: %w", m.m.ID, err)
		}
	}
	return nil
}

// removeAndSend ends the fault, so that the hub may send a command.
func (e *env) removeAndSend(id string) error {
	fired := e.in.Fired()
	e.in.Remove()
	if fired == 0 {
		return errors.New("the fault did not happen in the middle of it")
	}
	return e.hub.SendC2D("dev-1", testbroker.C2D{MessageID: id})
}

// received waits until n commands were handled and completed.
func (e *env) received(n int) error {
	return e.until(time.Now().Add(10*time.Minute), func() bool {
		e.mu.Lock()
		got := len(e.got)
		e.mu.Unlock()
		return got == n && e.hub.CountC2D("dev-1", testbroker.Completed) == n
	}, func() {
		if e.client.Status().State == device.Disconnected {
			_ = e.client.Start()
		}
	})
}

func (e *env) closed() error {
	start := time.Now()
	if err := e.client.Close(); err != nil {
		return err
	}
	if took := time.Since(start); took > time.Second {
		return fmt.Errorf("Close took %v", took)
	}
	return e.compare(true)
}

func (e *env) seen(r device.Reason) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.statuses, func(s device.Status) bool { return s.Reason == r })
}

// promised compares what the status told with what the row promises.
func (e *env) promised(r row, closing bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	noticed := false
	for _, s := range e.statuses {
		switch {
		case s.Err == nil || s.Reason == device.OpenCancelled:
		case slices.Contains(r.kinds, transport.KindOf(s.Err)):
			noticed = true
			if (s.State == device.Disconnected) != r.terminal {
				return fmt.Errorf("%v on %w: terminal is promised to be %v", s.State, s.Err, r.terminal)
			}
		case connects(r) && errors.Is(s.Err, transport.Network) && s.Reason == device.ConnectionLost: // our own cut
		default:
			return fmt.Errorf("the status tells %w, promised were %v", s.Err, r.kinds)
		}
	}
	if len(r.kinds) > 0 && !noticed && !closing {
		return fmt.Errorf("the status never told one of %v", r.kinds)
	}
	return nil
}

// TestMatrix plays every fault of the hub in the middle of every operation that it can meet. A cell is red when the fault did not happen there or the
// promise was not kept. go test -run TestMatrix -v ./internal/sim prints the table.
func TestMatrix(t *testing.T) { withEachEngine(t, matrix) }

func matrix(t *testing.T, with engine) {
	rows := matrixRows()
	cells := make(map[[2]string]string)
	for _, r := range rows {
		for _, o := range ops {
			key := [2]string{r.name, o.name}
			if !o.meets(r) {
				cells[key] = "-"
				continue
			}
			t.Run(o.name+"/"+r.name, func(t *testing.T) {
				cells[key] = "RED"
				synctest.Test(t, func(t *testing.T) {
					if err := cell(t, with, o, r); err != nil {
						t.Error(err)
						return
					}
					cells[key] = "ok"
				})
			})
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-26s", "")
	for _, o := range ops {
		fmt.Fprintf(&b, "%-12s", o.name)
	}
	for _, r := range rows {
		fmt.Fprintf(&b, "\n%-26s", r.name)
		for _, o := range ops {
			fmt.Fprintf(&b, "%-12s", cells[[2]string{r.name, o.name}])
		}
	}
	t.Log(b.String())

	covered := map[testbroker.FaultKind]bool{testbroker.Forget: true, testbroker.ForgetSession: true} // a lie, and what every connect bears: see the simulation and the tests of sessions
	for _, r := range rows {
		covered[r.fault.Kind] = true
	}
	for k := testbroker.FaultKind(1); k < 100; k++ {
		if !covered[k] && !strings.Contains(k.String(), "(") {
			t.Errorf("the hub's fault %v has no row", k)
		}
	}
}

func cell(t *testing.T, with engine, o op, r row) error {
	e := newEnv(t, with)
	err := o.run(e, r)
	fired := e.in != nil && e.in.Fired() > 0
	if closeErr := e.client.Close(); err == nil {
		err = closeErr
	}
	if closeErr := e.hub.Close(); err == nil {
		err = closeErr
	}
	synctest.Wait()
	switch {
	case err != nil:
		return err
	case !fired:
		return errors.New("the fault did not happen")
	}
	return e.promised(r, o.name == "close" || o.name == "renew")
}
