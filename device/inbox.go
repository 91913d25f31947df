package device

import (
	"context"
	"errors"
	"sync"

	"github.com/hubline-iot/hubline/transport"
)

// ErrReject, in the error that OnMessage returns, rejects the message: the hub sets it aside
// instead of delivering it again. MQTT has no way to say so; there the message is acknowledged.
var ErrReject = errors.New("message rejected by its handler")

// inbox brings what the hub delivers to the handler, in order, and the handler's verdict to the
// loop. A delivery keeps its place until the loop has taken the verdict, so the places bound
// everything.
//
//	taken by the loop <- [ answered | in the handler's hands | waiting ] <- Deliver
//
// Deliveries belong to the session that brought them: when that ends, those that wait are forgotten
// (the hub delivers them again), and verdicts on them are void. It is a monitor like the outbox:
// its lock is never held while anything waits.
type inbox struct {
	handle func(ctx context.Context, m *transport.Message) error
	ctx    *lifetime // of the handler; ends with Close
	poke   func()
	panics func(v any) // told of a panic in the handler; may be nil

	mu       sync.Mutex
	places   []*delivery // made at first use, for a client that nothing is sent to shall be small
	first    int         // the oldest place in use; 0 when there is none
	answered int         // so many from there have their verdict
	n        int         // so many are in use
	session  uint32
	busy     bool          // the handler has the first place without a verdict in its hands
	running  bool          // the handler's goroutine runs
	ended    chan struct{} // closed when it has ended
	totals   inboxTotals
}

type inboxTotals struct{ received, accepted, released, rejected, panics uint64 }

type delivery struct {
	msg     transport.Message // Body and Properties have their memory here
	ref     []byte
	session uint32
	outcome transport.Outcome
}

func newInbox(s *settings, poke func()) *inbox {
	b := &inbox{handle: s.OnMessage, poke: poke}
	if b.handle != nil {
		b.places = make([]*delivery, s.Inbox)
		b.ctx = newLifetime()
		if s.Trace != nil {
			b.panics = s.Trace.handlerPanic
		}
	}
	return b
}

// deliver takes a copy of d, if there is a handler and room.
func (b *inbox) deliver(d *transport.Delivery) bool {
	if b.handle == nil || d.Kind != transport.Messages {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.Again && b.holds(d) {
		return true // the handler is slower than the hub's lock: one verdict settles both
	}
	if b.n == len(b.places) || b.ctx.Err() != nil {
		return false
	}
	at := (b.first + b.n) % len(b.places)
	if b.places[at] == nil {
		b.places[at] = new(delivery)
	}
	p := b.places[at]
	body, props := p.msg.Body, p.msg.Properties
	p.msg = *d.Msg
	p.msg.Redelivered = d.Again
	p.msg.Body = append(body[:0], d.Msg.Body...)
	p.msg.Properties = append(props[:0], d.Msg.Properties...)
	p.ref = append(p.ref[:0], d.Ref...)
	p.session = b.session
	b.n++
	b.totals.received++
	if !b.running {
		b.running = true
		b.ended = make(chan struct{})
		go b.run(b.ended)
	}
	return true
}

// holds reports whether the live session has brought d before and its verdict is still to come.
func (b *inbox) holds(d *transport.Delivery) bool {
	for i := range b.n {
		p := b.places[(b.first+i)%len(b.places)]
		if p.session == b.session && string(p.ref) == string(d.Ref) {
			return true
		}
	}
	return false
}

// run calls the handler until nothing waits, and ends. There is one at a time; deliver starts it,
// Close joins it.
func (b *inbox) run(ended chan struct{}) {
	defer close(ended)
	done := false
	defer func() {
		if !done {
			b.rescue()
		}
	}()
	for {
		b.mu.Lock()
		if b.answered == b.n || b.ctx.Err() != nil {
			b.running = false
			b.mu.Unlock()
			done = true // from now on another goroutine may have the places
			return
		}
		p := b.places[(b.first+b.answered)%len(b.places)]
		b.busy = true
		b.mu.Unlock()

		outcome, panicked := b.call(&p.msg)

		b.mu.Lock()
		b.answer(outcome, panicked)
		b.mu.Unlock()
		b.poke()
	}
}

// answer notes the verdict on what the handler has in its hands.
func (b *inbox) answer(outcome transport.Outcome, panicked bool) {
	b.places[(b.first+b.answered)%len(b.places)].outcome = outcome
	b.busy = false
	b.answered++
	switch outcome {
	case transport.Accept:
		b.totals.accepted++
	case transport.Release:
		b.totals.released++
	case transport.Reject:
		b.totals.rejected++
	}
	if panicked {
		b.totals.panics++
	}
}

// rescue goes on in another goroutine when the handler ended this one by runtime.Goexit.
func (b *inbox) rescue() {
	if b.panics != nil {
		b.panics(errHandlerExit)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer(transport.Release, true)
	b.ended = make(chan struct{})
	go b.run(b.ended)
	b.poke()
}

// working reports whether the handler has something in its hands or a verdict is on its way to the
// loop, which is poked when that changes.
func (b *inbox) working() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.busy || b.answered > 0
}

// call is one call of the handler. A panic releases the message and ends there.
func (b *inbox) call(m *transport.Message) (outcome transport.Outcome, panicked bool) {
	defer func() {
		if v := recover(); v != nil {
			outcome, panicked = transport.Release, true
			if b.panics != nil {
				b.panics(v)
			}
		}
	}()
	err := b.handle(b.ctx, m)
	switch {
	case err == nil:
		return transport.Accept, false
	case errors.Is(err, ErrReject):
		return transport.Reject, false
	}
	return transport.Release, false
}

// verdict takes the oldest verdict that counts for the live session. ref may be kept by the caller
// until its next call.
func (b *inbox) verdict(ref []byte) (_ []byte, outcome transport.Outcome, ok bool) {
	if b.handle == nil {
		return nil, 0, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.answered > 0 {
		p := b.places[b.first]
		b.first = (b.first + 1) % len(b.places)
		b.answered--
		if b.n--; b.n == 0 {
			b.first = 0
		}
		if p.session == b.session {
			return append(ref[:0], p.ref...), p.outcome, true
		}
	}
	return nil, 0, false
}

// void forgets what the session brought, but for what the handler has in its hands. The session has
// ended.
func (b *inbox) void() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.session++
	if b.handle == nil {
		return
	}
	if b.busy {
		b.first = (b.first + b.answered) % len(b.places)
		b.n = 1
	} else {
		b.first, b.n = 0, 0
	}
	b.answered = 0
}

// end tells the handler that the client closes and returns what to wait for, nil for nothing.
func (b *inbox) end() chan struct{} {
	if b.handle == nil {
		return nil
	}
	b.ctx.end()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.running {
		return nil
	}
	return b.ended
}

// received returns how many deliveries were taken.
func (b *inbox) received() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.totals.received
}

func (b *inbox) fill(s *Stats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.totals
	s.Received, s.MessagesAccepted, s.MessagesReleased, s.MessagesRejected, s.HandlerPanics = t.received, t.accepted,
		t.released, t.rejected, t.panics
}
