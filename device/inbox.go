package device

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/transport"
)

// ErrReject, in the chain of a MessageHandler's error, rejects the message: the hub dead-letters it
// instead of delivering it again. MQTT cannot reject; there the message is acknowledged.
var ErrReject = errors.New("message rejected by its handler")

// MessageHandler handles a cloud-to-device message, or one that came by a module's input. Its
// return value settles the message: nil accepts it; an error with ErrReject in its chain rejects
// it; any other error, and a panic, releases it, so the hub delivers it again, later: over MQTT on
// the next connection; over AMQP after 1 s, then 2 s, 4 s and so on up to 30 s; over HTTPS with the
// next poll after such a delay. A hub gives up a message after ten deliveries, unless it is
// configured otherwise. ctx ends when the client is closed.
//
// m and the memory it points to are valid until the handler returns; boards reuse them for further
// messages. A message that the handler sends on, by Send or Enqueue, needs memory of its own: a new
// Message with clones of Body, Properties and System. The client may still send it later, also
// after Send gave up with transport.ErrOutcomeUnknown.
type MessageHandler func(ctx context.Context, m *transport.Message) error

// inbox is the feature for cloud-to-device messages. It passes them to the handler, in order, and
// the handler's verdicts to the loop. A delivery keeps its slot until the loop has taken the
// verdict, so the number of slots bounds everything.
//
//	taken by the loop <- [ answered | with the handler | waiting ] <- deliver
//
// Deliveries belong to the session that brought them. When it ends, waiting ones are discarded (the
// hub delivers them again), and verdicts on them are void, except for those with Delivery.Once.
// inbox is a monitor like the queue: no method blocks while it holds the lock.
type inbox struct {
	ctx   *lifetime.Context // of the handler; ends with Close
	poke  func()
	trace *Trace // may be nil

	mu         sync.Mutex
	ref        []byte         // of the verdict that the session takes; empty: none. Set by the loop
	handle     MessageHandler // nil: none
	inputs     []inputHandler
	deliveries []*delivery // slots; allocated at first use, to keep a client without messages small
	first      int         // the oldest slot in use; 0 when there is none
	answered   int         // number of slots from first that have their verdict
	n          int         // number of slots in use
	session    uint32
	up         bool          // the session counts as up: the loop takes verdicts
	draining   bool          // the session is about to be replaced: no further message is begun
	handling   bool          // the handler runs with the first slot without a verdict
	running    bool          // the handler's goroutine runs
	once       bool          // there was a delivery with Once
	dropped    int           // messages that no subscription asks for and that were not reported yet
	droppedOn  []byte        // the topic of the first of them, or its beginning
	reportAt   time.Time     // the next report of them comes no earlier
	ended      chan struct{} // Close waits for it: closed when the session has all verdicts; else nil
	totals     inboxTotals
}

// inboxTotals are counts of messages. settled are those whose verdict a session took and that need
// not come again.
type inboxTotals struct{ received, accepted, released, rejected, unhandled, panics, settled uint64 }

// delivery is a slot. With reuseDeliveries it keeps its memory for further messages.
type delivery struct {
	msg       transport.Message
	system    *transport.SystemProperties // memory for msg.System; nil before the first
	ref       []byte
	session   uint32
	once      bool // the session does not matter
	unasked   bool // no subscription asks for it: reported, and accepted without the handler
	missed    bool // it is larger than the session takes: rejected without the handler
	unhandled bool // its input had no handler: rejected
	outcome   transport.Outcome
}

func newInbox(c *Client) *inbox {
	return &inbox{ctx: lifetime.New(), poke: c.poke, trace: c.set.Trace, deliveries: make([]*delivery, c.set.Inbox)}
}

func (b *inbox) feature() *feature {
	return &feature{wants: b.wants, begin: b.begin, serve: b.serve, busy: b.busy, over: b.over, end: b.end,
		deliver: b.deliver, settled: b.settled, fill: b.fill}
}

func (b *inbox) begin(transport.Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.up = true
}

// deliver takes a copy of d, if there is a free slot. Without a handler the copy waits for one, so
// a full inbox stops the hub as a slow handler does: no transport can unsubscribe.
func (b *inbox) deliver(d *transport.Delivery) bool {
	if d.Kind&^transport.FeatureMessages != 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.Redelivered && len(d.Ref) > 0 && b.holdsLocked(d) {
		return true // the handler is slower than the hub's lock: one verdict settles both
	}
	if b.ctx.Err() != nil {
		return false
	}
	if d.Kind == 0 && len(d.Ref) == 0 {
		b.dropLocked(d.Name)
		return true
	}
	if b.n == len(b.deliveries) {
		return false
	}
	at := (b.first + b.n) % len(b.deliveries)
	if b.deliveries[at] == nil || !reuseDeliveries {
		b.deliveries[at] = new(delivery)
	}
	p := b.deliveries[at]
	body, props := p.msg.Body, p.msg.Properties
	p.unasked, p.missed = d.Kind == 0, d.Msg == nil
	if p.missed {
		p.msg = transport.Message{Topic: string(d.Name)}
	} else {
		p.msg = *d.Msg
	}
	p.msg.Redelivered = d.Redelivered
	p.msg.Body = append(body[:0], p.msg.Body...)
	p.msg.Properties = append(props[:0], p.msg.Properties...)
	p.keepSystem()
	p.ref = append(p.ref[:0], d.Ref...)
	if p.session, p.once = b.session, d.Once; p.once {
		b.once = true
	}
	b.n++
	if p.unasked {
		b.dropLocked(d.Name)
	} else {
		b.totals.received++
	}
	b.startLocked()
	return true
}

// dropLocked has a message reported that no subscription asks for.
func (b *inbox) dropLocked(topic []byte) {
	if b.dropped == 0 {
		if len(topic) > maxDroppedOn { // whole levels: a secret that is cut in two is not recognized
			topic = topic[:bytes.LastIndexByte(topic[:maxDroppedOn], '/')+1]
		}
		b.droppedOn = append(b.droppedOn[:0], topic...)
	}
	b.dropped++
	b.startLocked()
}

const (
	// maxDroppedOn bounds droppedOn, because a topic may have 64 KB.
	maxDroppedOn = 1000
	// reportInterval is the least time between two reports of messages that no subscription asks for.
	reportInterval = time.Minute
)

// droppedError reports n messages, the first on topic, that no subscription asks for.
func droppedError(n int, topic string) error {
	text := "a message"
	if n > 1 {
		text = strconv.Itoa(n) + " messages, the first"
	}
	return &transport.Error{Kind: transport.NotFound, Op: transport.OpSettle, Err: errors.New(text + " on topic " +
		quoted(topic) + " went to no handler: no subscription asks for the topic, it is unusable, or Envelope.Open failed")}
}

// keepSystem makes msg.System a copy.
func (p *delivery) keepSystem() {
	if p.msg.System == nil {
		return
	}
	if p.system == nil {
		p.system = new(transport.SystemProperties)
	}
	*p.system = *p.msg.System
	p.msg.System = p.system
}

// startLocked starts the handler's goroutine if it does not run and has something to do.
func (b *inbox) startLocked() {
	if !b.running && b.waitsLocked() {
		b.running = true
		go b.run()
	}
}

// waitsLocked reports whether there is time for a report, or for a message without verdict that
// needs no handler or has one, for it or for other inputs.
func (b *inbox) waitsLocked() bool {
	return b.ctx.Err() == nil && (b.reportsLocked() || b.nextLocked())
}

// reportsLocked reports whether a report of messages that no subscription asks for is due.
func (b *inbox) reportsLocked() bool {
	return b.dropped > 0 && !time.Now().Before(b.reportAt)
}

// nextLocked reports whether a message is to get its verdict.
func (b *inbox) nextLocked() bool {
	return b.answered < b.n && !b.draining &&
		(b.handlesLocked() || b.deliveries[(b.first+b.answered)%len(b.deliveries)].unasked)
}

// handlesLocked reports whether there is any handler.
func (b *inbox) handlesLocked() bool {
	return b.handle != nil || len(b.inputs) > 0
}

// holdsLocked reports whether the live session has delivered d before, or for one with Once any
// session, and its verdict is pending.
func (b *inbox) holdsLocked(d *transport.Delivery) bool {
	for i := range b.n {
		p := b.deliveries[(b.first+i)%len(b.deliveries)]
		if (p.session == b.session || p.once && d.Once) && string(p.ref) == string(d.Ref) {
			return true
		}
	}
	return false
}

// run calls the handler until no message waits for it, and ends. One runs at a time; startLocked
// starts it, Close waits for it.
func (b *inbox) run() {
	callback.Watch(b.handleAll, func(returned bool) {
		if !returned {
			b.rescue()
		}
	})
}

// handleAll calls the handler until no message waits for it. When it returns, another goroutine may
// own the slots.
func (b *inbox) handleAll() {
	for {
		b.mu.Lock()
		if b.ctx.Err() == nil && b.reportsLocked() {
			why := droppedError(b.dropped, string(b.droppedOn))
			b.dropped = 0
			b.totals.panics++
			b.mu.Unlock()
			b.trace.handlerPanic(why)
			b.mu.Lock()
			b.reportAt = time.Now().Add(reportInterval)
		}
		if b.ctx.Err() != nil || !b.nextLocked() {
			b.running = false
			b.endLocked()
			b.mu.Unlock()
			return
		}
		p := b.deliveries[(b.first+b.answered)%len(b.deliveries)]
		b.handling = true
		handle := b.handlerLocked(p)
		b.mu.Unlock()

		outcome, panicked := transport.OutcomeAccept, false
		switch {
		case p.unasked:
		case p.missed:
			outcome, panicked = transport.OutcomeReject, true
			b.trace.handlerPanic(&transport.Error{Kind: transport.TooLarge, Op: transport.OpSettle,
				Err: errors.New("a message on topic " + quoted(p.msg.Topic) + " is larger than the transport takes; it was " +
					"rejected without its handler")})
		case p.unhandled:
			outcome = b.refuse(p)
		default:
			outcome, panicked = b.call(handle, &p.msg)
		}
		b.mu.Lock()
		b.answerLocked(outcome, panicked)
		b.mu.Unlock()
		b.poke()
	}
}

// answerLocked records the verdict on the message with the handler.
func (b *inbox) answerLocked(outcome transport.Outcome, panicked bool) {
	p := b.deliveries[(b.first+b.answered)%len(b.deliveries)]
	p.outcome = outcome
	b.handling = false
	b.answered++
	switch {
	case p.unasked:
	case p.unhandled && !p.missed:
		b.totals.unhandled++
	case outcome == transport.OutcomeAccept:
		b.totals.accepted++
	case outcome == transport.OutcomeRelease:
		b.totals.released++
	case outcome == transport.OutcomeReject:
		b.totals.rejected++
	}
	if panicked {
		b.totals.panics++
	}
}

// rescue starts another goroutine when the handler ended this one by runtime.Goexit.
func (b *inbox) rescue() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answerLocked(transport.OutcomeRelease, true)
	go b.run()
	b.poke()
}

// busy reports whether the handler runs or a verdict waits for the loop. The loop is poked when
// that changes.
func (b *inbox) busy() (handlers, calls bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.handling || b.answered > 0, false
}

// call calls the handler once. It recovers a panic, which releases the message.
func (b *inbox) call(handle MessageHandler, m *transport.Message) (outcome transport.Outcome, panicked bool) {
	outcome = transport.OutcomeRelease
	panicked = callback.Protect(func() {
		switch err := handle(b.ctx, m); {
		case err == nil:
			outcome = transport.OutcomeAccept
		case errors.Is(err, ErrReject): // calls methods of the handler's error
			outcome = transport.OutcomeReject
		}
	}, b.trace.handlerPanic)
	return outcome, panicked
}

// serve hands the handler's verdicts to the session. Those that come meanwhile wait for the next
// turn. A report of messages that no subscription asks for comes with the first turn after
// reportAt.
func (b *inbox) serve(l *loop, _ time.Time) time.Time {
	b.mu.Lock()
	b.draining = l.conn.renewal.step == replacing
	n := b.answered
	b.mu.Unlock()
	for ; n > 0; n-- {
		outcome, handled := b.verdict()
		l.conn.do(transport.Request{Op: transport.OpSettle, Ref: b.ref, Outcome: outcome})
		if handled && b.trace != nil && b.trace.Settled != nil {
			l.calls("Trace.Settled")
			b.trace.Settled(outcome)
			l.called()
		}
	}
	b.mu.Lock()
	b.ref = b.ref[:0]
	b.startLocked()
	b.endLocked()
	b.mu.Unlock()
	return time.Time{}
}

// verdict takes the oldest verdict, and sets ref. It is empty for a verdict of an earlier session,
// which tells the live one only that there is room. handled: it is of a handler, and not of an
// earlier session. There is a verdict. Loop only.
func (b *inbox) verdict() (outcome transport.Outcome, handled bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.deliveries[b.first]
	b.first = (b.first + 1) % len(b.deliveries)
	b.answered--
	if b.n--; b.n == 0 {
		b.first = 0
	}
	b.ref = b.ref[:0]
	if p.session == b.session || p.once {
		b.ref = append(b.ref, p.ref...)
		handled = !p.unasked && !p.unhandled && !p.missed
		if !p.unasked && p.outcome != transport.OutcomeRelease {
			b.totals.settled++
		}
	}
	return p.outcome, handled
}

// over discards the session's deliveries, except the one with the handler and those with Once.
func (b *inbox) over(*loop) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session++
	b.up, b.draining = false, false
	switch {
	case b.once:
		b.keepLocked()
	case b.handling:
		b.first = (b.first + b.answered) % len(b.deliveries)
		b.n, b.answered = 1, 0
	default:
		b.first, b.n, b.answered = 0, 0, 0
	}
	b.startLocked() // those with Once
	b.endLocked()
}

// keepLocked discards the session's deliveries, except the one with the handler and those with
// Once.
func (b *inbox) keepLocked() {
	kept, answered := 0, 0
	for i := range b.n {
		at := (b.first + i) % len(b.deliveries)
		if !b.deliveries[at].once && !(b.handling && i == b.answered) {
			continue
		}
		to := (b.first + kept) % len(b.deliveries)
		b.deliveries[at], b.deliveries[to] = b.deliveries[to], b.deliveries[at]
		if i < b.answered {
			answered++
		}
		kept++
	}
	b.n, b.answered = kept, answered
	if kept == 0 {
		b.first = 0
	}
}

func (b *inbox) end() <-chan struct{} {
	b.ctx.End()
	b.mu.Lock()
	defer b.mu.Unlock()
	ended := make(chan struct{})
	b.ended = ended
	b.endLocked()
	return ended
}

// endLocked lets Close go on when it need not wait for the handler, nor for the session to get a
// verdict. It gets none before it is up, nor one on an earlier session's message.
func (b *inbox) endLocked() {
	if b.ended == nil || b.running || b.up && len(b.ref) > 0 {
		return
	}
	for i := range b.answered {
		if b.up && b.deliveries[(b.first+i)%len(b.deliveries)].session == b.session {
			return
		}
	}
	close(b.ended)
	b.ended = nil
}

func (b *inbox) wants() (always, now transport.Features) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.handlesLocked() {
		always = transport.FeatureMessages
	}
	return always, 0
}

// settled does not count messages that were released or answered too late, which come again: they
// are no progress.
func (b *inbox) settled() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.totals.settled
}

func (b *inbox) fill(s *Stats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &b.totals
	s.Received, s.MessagesAccepted, s.MessagesReleased, s.MessagesRejected = t.received, t.accepted, t.released, t.rejected
	s.InputsUnhandled = t.unhandled
	s.HandlerPanics += t.panics
}

// inputHandler is the handler of one input. It is not nil.
type inputHandler struct {
	input  string
	handle MessageHandler
}

// setInputLocked sets, replaces or removes the handler of an input.
func (b *inbox) setInputLocked(input string, handle MessageHandler) {
	at := slices.IndexFunc(b.inputs, func(x inputHandler) bool { return x.input == input })
	switch {
	case handle == nil && at >= 0:
		b.inputs = slices.Delete(b.inputs, at, at+1)
	case handle == nil:
	case at >= 0:
		b.inputs[at].handle = handle
	default:
		b.inputs = append(b.inputs, inputHandler{input, handle})
	}
}

// handlerLocked returns the handler for p, and sets p.unhandled.
func (b *inbox) handlerLocked(p *delivery) MessageHandler {
	handle := b.handle
	for i := range b.inputs {
		if b.inputs[i].input == p.msg.Input {
			handle = b.inputs[i].handle
			break
		}
	}
	p.unhandled = handle == nil
	return handle
}

// refuse traces a message that no handler is for, and returns its outcome.
func (b *inbox) refuse(p *delivery) transport.Outcome {
	if t := b.trace; t != nil && t.InputUnhandled != nil {
		_ = callback.Run("Trace.InputUnhandled", func() { t.InputUnhandled(p.msg.Input) })
	}
	return transport.OutcomeReject
}
