package amqpclient

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/transport"
)

const (
	// incomingWindow is how many transfers the peer may send before the window is renewed.
	incomingWindow = 4096
	// maxUnsettled is how many deliveries behind the oldest unsettled one a session may have sent.
	maxUnsettled = 1 << 16
	// freeLimit is how long a session waits for the end of another one. The peer allows enough
	// sessions for all devices, so one of them is about to end.
	freeLimit = 5 * time.Second
)

// Session is an AMQP session. Its fields are guarded by Conn.mu.
type Session struct {
	c       *Conn
	channel uint16
	begun   chan struct{} // closed by the peer's begin
	done    chan struct{} // closed by the peer's end
	err     error         // why it ended
	ending  bool          // this side has sent end, or sends it as soon as the session has begun
	ended   bool          // the peer has ended it
	links   []*link       // by this side's handle; nil: free

	sent   uint32       // frames that were sent: the next transfer-id
	window uint32       // frames that the peer still takes
	queue  []queued     // frames of one message, which wait for the window
	first  uint32       // the number of the first of out
	out    []delivering // deliveries that were sent

	incoming uint32 // the peer's next transfer-id
	room     uint32 // transfers that the peer may still send before the window is renewed
	any      bool   // the peer has sent a delivery
	next     uint32 // the number of its next one
}

// queued is a frame that waits for the window.
type queued struct {
	link  *link
	frame []byte
}

// delivering is a delivery that was sent. The zero value is settled.
type delivering struct {
	link     *link
	delivery Delivery
}

// Begin begins a session. It waits for a free channel and not for the peer's begin: links may be
// attached at once, which saves a round trip. The official Java SDK does so too.
func (c *Conn) Begin(ctx context.Context) (*Session, error) {
	s := &Session{c: c, begun: make(chan struct{}), done: make(chan struct{}), room: incomingWindow}
	if err := s.takeChannel(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Begun waits for the peer's begin.
func (s *Session) Begun(ctx context.Context) error { return s.c.waitFor(ctx, s.begun) }

// takeChannel writes the begin when there is a free channel.
func (s *Session) takeChannel(ctx context.Context) error {
	c := s.c
	var limit <-chan time.Time
	for {
		c.mu.Lock()
		at := slices.Index(c.local, nil)
		if at < 0 && len(c.local) < c.Sessions() {
			at = len(c.local)
			c.local = append(c.local, nil)
		}
		if at >= 0 {
			c.local[at], s.channel = s, uint16(at)
			s.first, c.numbers = c.numbers, c.numbers+numbersApart
			c.writeLocked(s.channel, &wire.Begin{IncomingWindow: incomingWindow, OutgoingWindow: 1<<31 - 1,
				HandleMax: 1<<32 - 1})
			c.kickLocked()
			c.mu.Unlock()
			return nil
		}
		if c.freed == nil {
			c.freed = make(chan struct{})
		}
		freed := c.freed
		c.mu.Unlock()
		if limit == nil {
			t := time.NewTimer(freeLimit)
			defer t.Stop()
			limit = t.C
		}
		select {
		case <-freed:
		case <-limit:
			return &transport.Error{Kind: transport.Quota, Err: errors.New("the peer allows " + strconv.Itoa(c.Sessions()) +
				" AMQP sessions on a connection (channel-max), and has not answered the end of former ones")}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.done:
			return c.Loss()
		}
	}
}

// begunLocked handles the peer's begin. mu is held.
func (c *Conn) begunLocked(f *inFrame) *Violation {
	const remoteChannel, nextOutgoing, window = 0, 1, 2
	if f.null(remoteChannel) {
		return f.unsupported(remoteChannel, "is missing: sessions are begun by this side only")
	}
	var s *Session
	if at := int(f.uint32(remoteChannel)); at < len(c.local) {
		s = c.local[at]
	}
	switch {
	case s == nil || isClosed(s.begun):
		return f.broken(remoteChannel, "is %d, on which no session is being begun", f.uint32(remoteChannel))
	case c.remote[f.channel] != nil:
		return broken(f.name, "is on channel %d, which has a session", f.channel)
	}
	if c.remote == nil {
		c.remote = make(map[uint16]*Session)
	}
	c.remote[f.channel] = s
	s.window, s.incoming = f.uint32(window), f.uint32(nextOutgoing)
	close(s.begun)
	if s.ending {
		c.writeLocked(s.channel, &wire.End{})
	}
	return nil
}

// Ended reports whether the session has ended, or ends.
func (s *Session) Ended() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.ended || s.ending
}

// End ends the session and waits for the peer's answer, unless the peer has not even begun it.
func (s *Session) End(ctx context.Context) {
	s.c.mu.Lock()
	s.endLocked()
	begun := isClosed(s.begun)
	s.c.mu.Unlock()
	if begun {
		_ = s.c.waitFor(ctx, s.done)
	}
}

// endLocked ends the session unless that has happened. mu is held.
func (s *Session) endLocked() {
	if s.ending || s.ended {
		return
	}
	s.ending, s.queue = true, nil
	if isClosed(s.begun) { // else begunLocked writes it
		s.c.writeLocked(s.channel, &wire.End{})
		s.c.kickLocked()
	}
}

// writeLocked appends a frame, unless this side has ended the session. mu is held.
func (s *Session) writeLocked(p wire.Performative) {
	if !s.ending && !s.ended {
		s.c.writeLocked(s.channel, p)
	}
}

// endedLocked handles the peer's end. mu is held.
func (s *Session) endedLocked(f *inFrame, after *calls) {
	const failure = 0
	c := s.c
	s.err = f.condition("session", failure)
	delete(c.remote, f.channel)
	if !s.ending {
		c.writeLocked(s.channel, &wire.End{})
	}
	s.ended = true
	for _, l := range s.links {
		if l != nil {
			l.goneLocked(s.err, after)
		}
	}
	s.links, s.queue, s.out = nil, nil, nil
	c.local[s.channel] = nil
	if c.freed != nil {
		close(c.freed)
		c.freed = nil
	}
	close(s.done)
}

// byPeer finds a link by the peer's handle, nil if there is none.
func (s *Session) byPeer(handle uint32) *link {
	for _, l := range s.links {
		if l != nil && l.answered && l.peer == handle {
			return l
		}
	}
	return nil
}

// flowLocked handles a flow: the window, and the credit of a link. mu is held.
func (s *Session) flowLocked(f *inFrame, after *calls) *Violation {
	const nextIncoming, window, handle, drain, echo = 0, 1, 4, 8, 9
	closed := s.window == 0 || len(s.queue) > 0
	next := s.sent // a peer that omits it opens its window as it receives; Proton does the same
	if !f.null(nextIncoming) {
		next = f.uint32(nextIncoming)
	}
	s.window = rest(f.uint32(window), s.sent-next)
	s.pumpLocked()
	if closed && s.window > 0 && len(s.queue) == 0 {
		s.creditedLocked(after)
	}
	if f.null(handle) {
		if f.isTrue(echo) {
			s.writeFlowLocked(nil)
		}
		return nil
	}
	l := s.byPeer(f.uint32(handle))
	switch {
	case l == nil:
		return f.broken(handle, notAttached, f.uint32(handle))
	case l.refused:
		return f.broken(handle, "is %d, that of a link that was refused", f.uint32(handle))
	case l.sender != nil:
		l.sender.flowLocked(f, after)
	}
	if l.sender != nil && f.isTrue(drain) {
		after.add(l.sender.drain) // behind the messages that Credited sends
	} else if f.isTrue(echo) {
		s.writeFlowLocked(l)
	}
	return nil
}

// creditedLocked calls Credited for each link on which a message waits. mu is held.
func (s *Session) creditedLocked(after *calls) {
	for _, l := range s.links {
		if l != nil && l.sender != nil {
			l.sender.creditedLocked(after)
		}
	}
}

// rest returns what is left of a window or of credit. used is negative when the peer counts further
// than this side.
func rest(given, used uint32) uint32 {
	if int32(used) < 0 {
		return given
	}
	return given - min(given, used)
}

// pumpLocked writes queued frames as far as the window allows. mu is held.
func (s *Session) pumpLocked() {
	n := 0
	for n < len(s.queue) && s.window > 0 {
		s.c.out.grow(len(s.queue[n].frame))
		s.c.out.pending = append(s.c.out.pending, s.queue[n].frame...)
		s.countLocked()
		n++
	}
	if s.queue = slices.Delete(s.queue, 0, n); len(s.queue) == 0 {
		s.queue = nil
	}
}

// countLocked counts a frame against the window. mu is held.
func (s *Session) countLocked() {
	s.sent++
	s.window--
}

// writeFlowLocked writes the windows, and the state of a link unless it is nil. mu is held.
func (s *Session) writeFlowLocked(l *link) {
	s.room = incomingWindow
	f := &wire.Flow{NextIncomingID: wire.Some(s.incoming), IncomingWindow: incomingWindow, NextOutgoingID: s.sent,
		OutgoingWindow: 1<<31 - 1}
	if l != nil && !l.detaching {
		f.Handle, f.DeliveryCount, f.LinkCredit = wire.Some(l.handle), wire.Some(l.count), wire.Some(l.credit)
	}
	s.writeLocked(f)
}

// numbersApart is how far apart the first deliveries of sessions are numbered. Channels are used
// again, and rhea sends outcomes for deliveries of an earlier session.
const numbersApart = 1 << 22

// dispositionLocked handles the peer's outcomes. Those of deliveries that are settled or were never
// sent are ignored. mu is held.
func (s *Session) dispositionLocked(f *inFrame, after *calls) *Violation {
	const role, first, last, settled, state = 0, 1, 2, 3, 4
	from, to := f.uint32(first), f.uint32(first)
	if !f.null(last) {
		to = f.uint32(last)
	}
	switch {
	case int32(to-from) < 0:
		return f.broken(last, "is %d, which comes before first, %d", to, from)
	case !f.isTrue(role):
		return nil // about its own deliveries, which this side settles first
	}
	outcome, final, err := f.state(state)
	if err != nil {
		return f.broken(state, "cannot be read: %v", err)
	}
	if !final && !f.isTrue(settled) {
		return nil
	}
	found := false
	begin := max(0, int(int32(from-s.first)))
	for at := begin; at <= int(int32(to-s.first)) && at < len(s.out); at++ {
		if d := &s.out[at]; d.delivery != nil {
			if accepts(outcome) && len(s.queue) > 0 && at == len(s.out)-1 {
				return f.broken(state, "accepts delivery %d, which was not sent whole", s.first+uint32(at))
			}
			after.outcomes = append(after.outcomes, settlement{d.delivery, outcome})
			*d = delivering{}
			found = true
		}
	}
	if found && !f.isTrue(settled) { // the peer settles second
		s.writeLocked(&wire.Disposition{Role: wire.RoleSender, First: from, Last: wire.Some(to), Settled: true})
	}
	if blocked := len(s.out) >= maxUnsettled; found && s.trimLocked() && blocked {
		s.creditedLocked(after)
	}
	return nil
}

// trimLocked forgets settled deliveries at the front. It reports whether there were any. mu is
// held.
func (s *Session) trimLocked() bool {
	n := 0
	for n < len(s.out) && s.out[n].delivery == nil {
		n++
	}
	s.first += uint32(n)
	if n == len(s.out) {
		s.out = s.out[:0]
		if cap(s.out) > 1024 {
			s.out = nil
		}
		return n > 0
	}
	s.out = s.out[n:]
	return n > 0
}

// accepts reports whether an outcome is success for the sender of a message.
func accepts(outcome wire.DeliveryState) bool {
	_, ok := outcome.(*wire.Accepted)
	return ok || outcome == nil
}

var accepted wire.DeliveryState = &wire.Accepted{}

// state returns the delivery state in a field, nil for none. final: it is an outcome.
func (f *inFrame) state(i int) (state wire.DeliveryState, final bool, err error) {
	if f.null(i) {
		return nil, false, nil
	}
	raw := f.raw(i)
	const accept = 0x24
	if len(raw) > 2 && raw[1] == 0x53 && raw[2] == accept {
		return accepted, true, nil
	}
	state, err = wire.ReadState(raw)
	_, partial := state.(*wire.Received)
	return state, !partial, err
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
