package sim_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

var (
	seeds   = flag.Int("seeds", 2, "how many seeds the simulation tries for each engine")
	all     = flag.Bool("all", false, "try every cell of the matrices, and the variants of the engines")
	oneSeed = flag.Uint64("seed", 0, "the one seed to try")
)

func TestSimulation(t *testing.T) {
	withEachEngine(t, func(t *testing.T, e engine) {
		renewals := int64(0)
		runs := eachSeed(t, 1, func(t *testing.T, seed uint64) {
			p := drawPlan(seed, e)
			w := play(t, p)
			w.conclude(t, p, w.check())
			renewals += w.renewals.Load()
		})
		if runs >= 20 && e.protocol != hubdata.HTTP && !e.next { // HTTPS makes a token per request and reports none
			require.Positive(t, renewals, "no run renewed a token")
		}
	})
}

// A ledger must detect losses.
func TestTheLedgerNoticesASabotage(t *testing.T) {
	withEachEngine(t, func(t *testing.T, e engine) {
		if e.batches {
			t.Skip("the fault would meet a batch")
		}
		testkit.Bubble(t, func(t *testing.T) {
			p := drawPlan(1, e)
			p.steps = []step{
				{at: time.Second, what: inject, fault: fault.Fault{Kind: fault.Forget, After: 3}},
				{at: 2 * time.Second, what: enqueue, count: 10, size: 100},
			}
			w := play(t, p)
			require.ErrorContains(t, w.check(), "message 4 was acknowledged and the hub does not have it")
		})
	})
}

// world is the state of one run.
type world struct {
	chronicle
	p      *plan
	hub    *testbroker.Hub
	client *device.Client
	calls  sync.WaitGroup
	log    []hubdata.Message
	stats  device.Stats
	closed time.Duration // duration of Close
	faults []*testbroker.Injected
	// swallows are the faults that swallow notifications of desired properties.
	swallows []*testbroker.Injected
	// refusals are the faults, and ends the number of other events, that may make messages fail for
	// good.
	refusals []*testbroker.Injected
	ends     int
	twin     twinLedger
	downs    atomic.Int64 // number of times that the client gave up
	renewals atomic.Int64 // of tokens, in place or by a planned reconnect

	producers int

	// Guarded by mu.
	msgs      []*entry
	fromCloud int            // cloud-to-device messages sent
	handled   map[string]int // deliveries to the handler per message
}

// entry is a message and its result.
type entry struct {
	n        int
	producer int // a producer enqueues sequentially; each Send has its own
	m        transport.Message
	receipt  device.Receipt
	accepted bool
	result   error
	called   bool // by Send
}

// play runs the plan and shuts everything down. It must run in a bubble.
func play(t *testing.T, p *plan) *world {
	testkit.StartClock()
	w := &world{chronicle: chronicle{start: time.Now()}, p: p, handled: map[string]int{}}
	var err error
	w.hub, err = testbroker.New(p.engine.options(testbroker.Options{Seed: p.seed + 1,
		C2D: testbroker.C2DOptions{TTL: 1000 * time.Hour, MaxDeliveries: 1000}, OnEvent: func(e event.Event) {
			w.event("hub    %v", e)
		}}))
	require.NoError(t, err)
	p.engine.add(t, w.hub, "dev-1")
	creds := p.engine.credsOf(t, w.hub, "dev-1")
	creds.TokenLife = p.tokenLife
	w.client, err = device.New(creds, p.engine.make(creds, p.engine.inMemory(w.hub, p.tls)), &device.Options{
		RetryPolicy: w.policy(p.policy), Window: p.window, MaxMessages: p.maxOutbox, AckTimeout: p.ackTimeout,
		StableTime: p.stable,
		Rand:       rand.NewPCG(p.seed, 2).Uint64,
		Trace: &device.Trace{Renewed: func(_ time.Time, err error) {
			if err == nil {
				w.renewals.Add(1)
			}
		}},
		OnStatus: func(s device.Status) {
			if s.State == device.StateDisconnected {
				w.downs.Add(1)
			}
			if s.Reason == device.ReasonTokenRenewal {
				w.renewals.Add(1)
			}
			w.event("device %v (%v) retry %d delay %v: %v", s.State, s.Reason, s.Retry, s.Delay, s.Err)
		},
	})
	require.NoError(t, err)
	if !p.engine.next {
		require.NoError(t, w.client.HandleMessages(w.handle))
	}
	if p.engine.twins {
		require.NoError(t, w.watchTwin())
	}
	require.NoError(t, w.client.Start())

	stop := w.supervise(p.reopenAfter, w.client)
	for i := range p.steps {
		s := &p.steps[i]
		time.Sleep(time.Until(w.start.Add(s.at)))
		w.do(s)
	}
	time.Sleep(p.tail)
	for _, f := range w.faults {
		f.Remove()
	}
	w.event("all faults removed")
	w.calls.Wait()
	w.flush()
	w.complete()
	if p.engine.twins {
		w.catchUp()
		w.takeTwin()
	}
	stop()
	w.stats = w.client.Stats()

	before := time.Now()
	if err := w.client.Close(); err != nil {
		w.fail(fmt.Errorf("Close: %w", err))
	}
	w.closed = time.Since(before)
	w.settle()
	if p.engine.protocol == hubdata.HTTP || p.engine.auth {
		time.Sleep(20 * time.Second) // a hub that delays an answer notices the lost connection only when it sends it
	}
	synctest.Wait()
	if n := w.hub.Connections(""); n != 0 {
		w.fail(fmt.Errorf("%d connections left at the hub", n))
	}
	for _, c := range w.hub.Conflicts() {
		w.fail(fmt.Errorf("message %s came with two bodies", c.First.MessageID))
	}
	w.log = w.p.engine.messages(w.hub)
	if err := w.hub.Close(); err != nil {
		w.fail(err)
	}
	synctest.Wait()
	return w
}

func (w *world) policy(name string) retrypolicy.Policy {
	if name == "constant" {
		return retrypolicy.Func(func(int, error) (bool, time.Duration) { return true, 1234567891 * time.Nanosecond })
	}
	return retrypolicy.ExponentialBackoffWithJitter{}
}

// do runs one step.
func (w *world) do(s *step) {
	if s.what != inject && refuses(s.fault) {
		w.ends++
	}
	switch s.what {
	case enqueue:
		w.calls.Add(1)
		batch := w.messages(s)
		go func() { // one producer; it blocks if the queue is full
			defer w.calls.Done()
			for _, e := range batch {
				if err := w.client.Enqueue(context.Background(), &e.m, &e.receipt); err == nil {
					e.accepted = true
				} else if !errors.Is(err, transport.Expired) {
					w.fail(fmt.Errorf("Enqueue: %w", err))
				}
			}
		}()
	case send:
		for _, e := range w.messages(s) {
			e.called, e.accepted, e.producer = true, true, -e.n
			w.calls.Add(1)
			go func() { // one caller
				defer w.calls.Done()
				ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
				defer cancel()
				e.result = w.client.Send(ctx, &e.m)
			}()
		}
	case inject:
		w.event("inject %+v", s.fault)
		f := w.hub.Inject(s.fault)
		w.faults = append(w.faults, f)
		if swallowsDesired(s.fault) {
			w.swallows = append(w.swallows, f)
		}
		if refuses(s.fault) {
			w.refusals = append(w.refusals, f)
		}
	case message:
		for range s.count {
			id := "c-" + strconv.Itoa(w.fromCloud+1)
			err := w.p.engine.sendC2D(w.hub, "dev-1", hubdata.C2D{MessageID: id, Body: []byte("do " + id)})
			if errors.Is(err, testbroker.ErrQueueFull) {
				break
			} else if err != nil {
				w.fail(err)
			}
			w.fromCloud++
		}
	case drop:
		w.event("drop")
		w.hub.Drop("")
	case reconnect:
		_ = w.client.Reconnect()
	case newPolicy:
		if err := w.client.SetRetryPolicy(w.policy("constant")); err != nil {
			w.fail(err)
		}
	case desire:
		w.desire(s.count)
	case call:
		w.invoke(s)
	case report:
		w.report(s)
	case read:
		w.read(s)
	case detach:
		w.event("detach %v %s: %d", s.fault.Link, s.fault.Condition, w.hub.DetachLinks("dev-1", s.fault.Link,
			hubdata.AMQPError{Condition: s.fault.Condition}))
	case end:
		w.event("end %s: %d", s.fault.Condition, w.hub.EndSessions("dev-1",
			hubdata.AMQPError{Condition: s.fault.Condition}))
	case hangUp:
		w.event("hang up %s: %d", s.fault.Condition, w.hub.CloseAMQP("dev-1",
			hubdata.AMQPError{Condition: s.fault.Condition}))
	}
}

// messages makes the messages of a step, numbered consecutively.
func (w *world) messages(s *step) (batch []*entry) {
	r := rand.New(rand.NewPCG(w.p.seed, uint64(s.at)))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.producers++
	for range s.count {
		e := &entry{n: len(w.msgs) + 1, producer: w.producers}
		body := make([]byte, s.size)
		for i := range body {
			body[i] = byte(r.Uint32())
		}
		e.m = transport.Message{ID: strconv.Itoa(e.n), Component: componentOf(e.n), Body: body,
			Properties: []transport.Property{{Name: "n", Value: "#" + strconv.Itoa(e.n)}}}
		if s.expires > 0 {
			e.m.Expires = time.Now().Add(s.expires)
		}
		w.msgs = append(w.msgs, e)
		batch = append(batch, e)
	}
	return batch
}

// rejects reports whether the application rejects its nth cloud-to-device message.
func rejects(n int) bool { return n%13 == 0 && n%7 != 0 }

// handle is the application's handler of cloud-to-device messages. It sometimes is slow, releases a
// message twice before it accepts it, panics at the first delivery, or rejects it.
func (w *world) handle(ctx context.Context, m *transport.Message) error {
	w.mu.Lock()
	w.handled[m.ID]++
	times := w.handled[m.ID]
	w.mu.Unlock()
	if string(m.Body) != "do "+m.ID {
		w.fail(fmt.Errorf("message %s came with body %q", m.ID, m.Body))
	}
	n, err := strconv.Atoi(strings.TrimPrefix(m.ID, "c-"))
	if err != nil {
		w.fail(err)
	}
	switch {
	case n%7 == 0:
		select {
		case <-time.After(time.Duration(n) * time.Second):
		case <-ctx.Done():
		}
	case n%5 == 0 && times <= 2:
		return errors.New("not now")
	case n%11 == 0 && times == 1:
		panic("a bug of the application")
	case rejects(n):
		return device.ErrReject
	}
	return nil
}

// complete waits until every cloud-to-device message was handled and the hub knows it. A hub with a
// wrong clock can ask for a pause of times.MaxRetryAfter, so the wait is longer.
func (w *world) complete() {
	completed, rejected := w.fromCloud, 0
	for n := range w.fromCloud {
		if rejects(n+1) && w.p.engine.protocol != hubdata.MQTT { // MQTT cannot reject
			completed--
			rejected++
		}
	}
	done := func() bool {
		return w.hub.CountC2D("dev-1", hubdata.C2DCompleted) == completed &&
			w.hub.CountC2D("dev-1", hubdata.C2DRejected) == rejected
	}
	patience := int((times.MaxRetryAfter + time.Hour) / time.Second)
	for i := range patience {
		if synctest.Wait(); done() {
			break
		}
		if w.p.engine.auth && i%600 == 599 { // without a reconnect for a token nothing that was released comes again
			_ = w.client.Reconnect()
		}
		time.Sleep(time.Second)
	}
	if !done() {
		w.fail(fmt.Errorf("not %d messages completed and %d rejected: %+v", completed, rejected, w.hub.C2DLog("dev-1")))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.handled) != w.fromCloud {
		w.errs = append(w.errs, fmt.Errorf("%d of %d messages were handled", len(w.handled), w.fromCloud))
	}
}

// flush sends everything that is queued. If the client gave up, it waits for the supervisor.
func (w *world) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for {
		err := w.client.Flush(ctx)
		switch {
		case err == nil:
			return
		case ctx.Err() != nil:
			w.fail(fmt.Errorf("Flush: %w", err))
			return
		}
		time.Sleep(time.Second)
	}
}

// settle collects the results of enqueued messages.
func (w *world) settle() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, e := range w.msgs {
		if !e.accepted || e.called {
			continue
		}
		e.result = e.receipt.Wait(ctx)
		if errors.Is(e.result, context.DeadlineExceeded) {
			w.fail(fmt.Errorf("message %d has no result", e.n))
		} else if !errors.Is(e.receipt.Wait(ctx), transport.Invalid) {
			w.fail(fmt.Errorf("message %d has two results", e.n))
		}
	}
}

// componentOf returns the component of message n: every third one belongs to the root, so that
// neighbours in a batch differ.
func componentOf(n int) string {
	return [...]string{"", "thermostat1", "thermostat2"}[n%3]
}

// newer returns how many of all are above n.
func newer(all []int, n int) (count int) {
	for _, other := range all {
		if other > n {
			count++
		}
	}
	return count
}

// check compares the ledger with the hub.
func (w *world) check() error {
	byID := make(map[string]*entry, len(w.msgs))
	for _, e := range w.msgs {
		byID[e.m.ID] = e
	}
	seen := map[string]bool{}
	type line struct { // one producer's messages on one connection
		connection uint64
		producer   int
	}
	newest, overtakers := map[line]int{}, map[line][]int{}
	for _, l := range w.log {
		e := byID[l.MessageID]
		if e == nil {
			w.fail(fmt.Errorf("the hub has message %q that was never sent", l.MessageID))
			continue
		}
		if !bytes.Equal(l.Body, e.m.Body) {
			w.fail(fmt.Errorf("message %d arrived with another body", e.n))
		}
		if v, _ := l.Property("n"); v != "#"+l.MessageID {
			w.fail(fmt.Errorf("message %d arrived with property %q", e.n, v))
		}
		if l.Component != e.m.Component {
			w.fail(fmt.Errorf("message %d arrived as one of component %q, not %q", e.n, l.Component, e.m.Component))
		}
		if seen[l.MessageID] && !l.Dup && w.p.marks() {
			w.fail(fmt.Errorf("message %d came again without DUP", e.n))
		}
		again := seen[l.MessageID]
		seen[l.MessageID] = true
		on := line{l.Connection, e.producer}
		switch {
		case w.p.engine.protocol == hubdata.AMQP, w.p.has(fault.RefusePublish):
			// AMQP and MQTT 5 may refuse a message and accept the next one
		case w.p.engine.protocol == hubdata.HTTP:
			// HTTP may accept messages and say that it did not; first deliveries are still in order, on any
			// connection
			on.connection = 0
			overtakers[on] = append(overtakers[on], e.n)
			if !again && e.n <= newest[on] && !(w.p.trials() && newer(overtakers[on], e.n) == 1) {
				w.fail(fmt.Errorf("message %d came after %d", e.n, newest[on]))
			}
		default:
			overtakers[on] = append(overtakers[on], e.n)
			if e.n <= newest[on] && !((l.Dup || w.p.engine.unmarked) && w.p.trials() && newer(overtakers[on], e.n) == 1) {
				w.fail(fmt.Errorf("message %d came after %d on connection %d", e.n, newest[on], l.Connection))
			}
		}
		newest[on] = max(newest[on], e.n)
	}
	accepted, acknowledged := uint64(0), uint64(0)
	refused, refusals := 0, w.ends
	for _, f := range w.refusals {
		refusals += f.Fired()
	}
	for _, e := range w.msgs {
		if !e.accepted {
			continue
		}
		accepted++
		switch {
		case e.result == nil:
			acknowledged++
			if !seen[e.m.ID] {
				w.fail(fmt.Errorf("message %d was acknowledged and the hub does not have it", e.n))
			}
		case e.called && errors.Is(e.result, transport.ErrOutcomeUnknown):
		case e.called: // withdrawn, refused as not open, or ended with the client
			withdrawn := errors.Is(e.result, transport.Timeout) || errors.Is(e.result, transport.Cancelled)
			if seen[e.m.ID] && withdrawn && !w.p.lies() {
				w.fail(fmt.Errorf("message %d was withdrawn and the hub has it: %w", e.n, e.result))
			}
		case errors.Is(e.result, transport.Expired) && !e.m.Expires.IsZero():
		case errors.Is(e.result, transport.Poison) && w.p.trials(): // the faults met it again and again
		case refused < refusals && slices.Contains([]transport.Kind{transport.Forbidden, transport.Invalid,
			transport.TooLarge, transport.Unknown}, transport.KindOf(e.result)):
			refused++
		default:
			w.fail(fmt.Errorf("message %d failed: %w", e.n, e.result))
		}
	}
	s := w.stats
	if s.Queued != 0 || s.InFlight != 0 || s.QueuedBytes != 0 {
		w.fail(fmt.Errorf("left over: %+v", s))
	}
	if s.Accepted != s.Acknowledged+s.Refused+s.Expired+s.Dropped+s.Cancelled || s.Acknowledged < acknowledged ||
		s.Accepted > accepted {
		w.fail(fmt.Errorf("the client's own account is wrong: %d accepted, %d acknowledged, %+v", accepted, acknowledged, s))
	}
	if w.closed > time.Second {
		w.fail(fmt.Errorf("Close took %v", w.closed))
	}
	if w.p.engine.twins {
		w.errs = append(w.errs, w.twin.check())
	}
	return errors.Join(w.errs...)
}
