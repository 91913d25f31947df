package sim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// env is the system of one cell of a matrix.
type env struct {
	t     *testing.T
	with  engine
	start time.Time
	hub   *testbroker.Hub
	tr    transport.Transport // of all devices, if the engine is shared
	row   row
	in    *testbroker.Injected // nil: not injected yet
	dev   *party               // the device with the fault
	all   []*party

	dropped bool // the test itself cut connections
}

// party is a device of an env.
type party struct {
	*env
	id        string
	client    *device.Client
	sent      []*entry
	fromCloud int                      // cloud-to-device messages sent to it
	settled   map[hubdata.C2DState]int // their expected final states

	mu       sync.Mutex
	outcome  transport.Outcome // the handler's verdict on cloud-to-device messages
	statuses []device.Status
	got      map[string]int // deliveries to the handler per cloud-to-device message
	calling  calling
}

func newEnv(t *testing.T, with engine) *env {
	e := &env{t: t, with: with, start: time.Now()}
	var err error
	e.hub, err = testbroker.New(with.options(testbroker.Options{}))
	require.NoError(t, err)
	e.dev = e.join("dev-1")
	return e
}

// join adds a device.
func (e *env) join(id string) *party {
	p := &party{env: e, id: id, got: map[string]int{}, settled: map[hubdata.C2DState]int{}}
	e.with.add(e.t, e.hub, id)
	creds := e.with.credsOf(e.t, e.hub, id)
	creds.TokenLife = 10 * time.Minute
	if e.tr == nil || !e.with.shared {
		w := e.with.inMemory(e.hub, true)
		w.KeepAlive, w.PingTimeout = 20*time.Second, 5*time.Second
		e.tr = e.with.make(creds, w)
	}
	var err error
	p.client, err = device.New(creds, e.tr, &device.Options{
		AckTimeout: 25 * time.Second, DialTimeout: 10 * time.Second, StableTime: time.Second,
		OnStatus: func(s device.Status) {
			p.mu.Lock()
			p.statuses = append(p.statuses, s)
			p.mu.Unlock()
		},
	})
	require.NoError(e.t, err)
	if !e.with.next {
		require.NoError(e.t, p.client.HandleMessages(p.handle))
	}
	e.all = append(e.all, p)
	return p
}

// handle applies p.outcome to a cloud-to-device message. It accepts a released one at the second
// delivery.
func (p *party) handle(_ context.Context, m *transport.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got[m.ID]++
	switch {
	case p.outcome == transport.OutcomeReject:
		return device.ErrReject
	case p.outcome == transport.OutcomeRelease && p.got[m.ID] == 1:
		return errors.New("not now")
	}
	return nil
}

func (e *env) inject(r row) {
	if r.alone && len(e.all) > 1 {
		r.fault.Device = e.dev.id
	}
	e.row, e.in = r, e.hub.Inject(r.fault)
}

// provoke triggers a fault that would not happen by itself.
func (e *env) provoke(r row) {
	switch {
	case r.reconnects() && e.in.Fired() == 0 && len(e.all) > 1 && r.class != atConnect:
		_ = e.dev.client.Reconnect() // the others stay
	case r.reconnects():
		e.drop()
	case r.class == atLink:
		e.hub.DetachLinks(e.dev.id, fault.LinkTelemetry, hubdata.AMQPError{})
		synctest.Wait() // until nothing is in flight on it
	}
}

// drop cuts all connections, which the status may report.
func (e *env) drop() {
	e.dropped = true
	e.hub.Drop("")
}

// until waits for ok and checks every 0.1 s of fake time, with a call of nudge each time.
func (e *env) until(limit time.Duration, ok func() bool, nudge func()) error {
	for end := time.Now().Add(limit); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("not within %v; last status %+v", limit, e.dev.client.Status())
		}
		if nudge != nil {
			nudge()
		}
	}
	return nil
}

// happened waits until the fault has happened.
func (e *env) happened() error {
	return e.until(2*time.Minute, func() bool { return e.in.Fired() > 0 }, nil)
}

// close closes everything.
func (e *env) close() (err error) {
	for _, p := range e.all {
		err = errors.Join(err, p.client.Close())
	}
	return errors.Join(err, e.hub.Close())
}

// reconnected opens the client, again if it gave up, and waits until it is connected.
func (p *party) reconnected() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for {
		err := p.client.Open(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func (p *party) publish(n int) {
	for range n {
		m := &entry{n: len(p.sent) + 1}
		m.m = transport.Message{ID: strconv.Itoa(m.n)}
		if err := p.client.Enqueue(context.Background(), &m.m, &m.receipt); err != nil {
			p.t.Error(err)
		}
		p.sent = append(p.sent, m)
	}
}

// flushed sends everything that is queued, opens the client again if it gave up, and compares with
// the hub's log.
func (p *party) flushed() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for {
		err := p.client.Flush(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return err
		}
		if err := p.reconnected(); err != nil {
			return err
		}
	}
	return p.compare(false)
}

// compare checks that each message has its result, and that the hub has all acknowledged messages,
// with repeated ones marked.
func (p *party) compare(closed bool) error {
	seen := map[string]bool{}
	for _, l := range p.with.messages(p.hub) {
		if l.DeviceID != p.id {
			continue
		}
		if seen[l.MessageID] && !l.Dup && p.with.protocol == hubdata.MQTT && !p.with.unmarked {
			return fmt.Errorf("message %s came again without DUP", l.MessageID)
		}
		seen[l.MessageID] = true
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, m := range p.sent {
		if m.called { // Send has taken its result
			continue
		}
		m.called = true
		err := m.receipt.Wait(ctx)
		switch {
		case err == nil && !seen[m.m.ID]:
			return fmt.Errorf("message %s was acknowledged and is not at the hub", m.m.ID)
		case err == nil, closed && errors.Is(err, transport.Closed), slices.Contains(p.row.refused, transport.KindOf(err)):
		default:
			return fmt.Errorf("message %s: %w", m.m.ID, err)
		}
	}
	return nil
}

// message sends n cloud-to-device messages.
func (p *party) message(n int) error {
	for range n {
		p.fromCloud++
		if err := p.with.sendC2D(p.hub, p.id, hubdata.C2D{MessageID: strconv.Itoa(p.fromCloud)}); err != nil {
			return err
		}
	}
	return nil
}

// received waits until all cloud-to-device messages since the last call were handled with this
// outcome, and the hub knows it.
func (p *party) received(o transport.Outcome) error {
	state := hubdata.C2DCompleted
	if o == transport.OutcomeReject && p.with.protocol != hubdata.MQTT { // MQTT cannot reject
		state = hubdata.C2DRejected
	}
	fresh := p.fromCloud
	for _, n := range p.settled {
		fresh -= n
	}
	p.settled[state] += fresh
	err := p.until(10*time.Minute, func() bool {
		for state, n := range p.settled {
			if p.hub.CountC2D(p.id, state) != n {
				return false
			}
		}
		return true
	}, func() {
		if p.client.Status().State == device.StateDisconnected {
			_ = p.client.Start()
		}
	})
	if err != nil {
		return fmt.Errorf("%w: %+v", err, p.hub.C2DLog(p.id))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.fromCloud {
		least := 1
		if o == transport.OutcomeRelease && i >= p.fromCloud-fresh {
			least = 2
		}
		if n := p.got[strconv.Itoa(i+1)]; n < least {
			return fmt.Errorf("message %d was handled %d times", i+1, n)
		}
	}
	return nil
}

// works checks that everything works without a fault.
func (p *party) works() error {
	p.mu.Lock()
	p.outcome = transport.OutcomeAccept
	p.mu.Unlock()
	p.publish(1)
	if err := p.flushed(); err != nil {
		return fmt.Errorf("afterwards: %w", err)
	}
	if !p.with.next {
		if err := errors.Join(p.message(1), p.received(transport.OutcomeAccept)); err != nil {
			return fmt.Errorf("afterwards: %w", err)
		}
	}
	if p.calling.on {
		if err := p.callsWork(); err != nil {
			return fmt.Errorf("afterwards: %w", err)
		}
	}
	return nil
}

func (p *party) closed() error {
	start := time.Now()
	if err := p.client.Close(); err != nil {
		return err
	}
	if took := time.Since(start); took > time.Second {
		return fmt.Errorf("Close took %v", took)
	}
	return p.compare(true)
}

// promised compares the failures in the status with the row's promise.
func (p *party) promised(r row, unnoticed bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	noticed := false
	for _, s := range p.statuses {
		switch {
		case s.Err == nil || s.Reason == device.ReasonOpenCancelled:
		case slices.Contains(r.kinds, transport.KindOf(s.Err)):
			noticed = true
			if (s.State == device.StateDisconnected) != r.terminal {
				return fmt.Errorf("%v on %w: terminal is promised to be %v", s.State, s.Err, r.terminal)
			}
		case p.dropped && errors.Is(s.Err, transport.Network) && s.Reason == device.ReasonConnectionLost:
		default:
			return fmt.Errorf("the status tells %w, promised were %v", s.Err, r.kinds)
		}
	}
	if len(r.kinds) > 0 && !noticed && !r.perhaps && !unnoticed {
		return fmt.Errorf("the status never told one of %v, only %v", r.kinds, p.statuses)
	}
	return nil
}

// undisturbed expects exactly one connection and no reported failure.
func (p *party) undisturbed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.statuses {
		if s.Err != nil {
			return fmt.Errorf("%s was told %w", p.id, s.Err)
		}
	}
	if n := p.client.Stats().Connections; n != 1 {
		return fmt.Errorf("%s connected %d times", p.id, n)
	}
	return nil
}
