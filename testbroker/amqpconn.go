package testbroker

import (
	"slices"
	"strings"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// An amqpConn is a connection over AMQP as the hub sees it. Its methods as a handler run in the
// connection's goroutine.
type amqpConn struct {
	hub    *Hub
	front  *amqpFront
	c      *conn
	engine *amqp.Conn

	attaches int // since somebody was known; of the connection's goroutine

	// Guarded by Hub.mu.
	who    map[identity]struct{} // those that were authenticated, by whatever way
	grants map[identity]*grant   // what tokens allow; that of the empty identity is for all devices
	links  map[*amqpLink]struct{}
	pairs  map[pairKey]*amqpPair
	told   bool // an event told of the connection
	ended  bool
}

// An amqpLink is a link over AMQP as the hub sees it.
type amqpLink struct {
	*amqp.Link
	conn *amqpConn
	kind LinkKind
	id   identity  // empty for those of $cbs
	pair *amqpPair // of links for twins and methods
	acks ackQueue  // dispositions that wait for their time

	to   *amqpReceiver // of links for commands, otherwise nil
	post outbox
}

var (
	_ amqp.Handler = (*amqpConn)(nil)
	_ peer         = (*amqpConn)(nil)
)

func (a *amqpConn) matchesLocked(selector string) bool { return len(a.whoLocked(selector)) > 0 }

func (a *amqpConn) presentLocked(id identity) bool {
	_, ok := a.who[id]
	return ok
}

func (a *amqpConn) leaveLocked() {}

// finish ends what is left when the connection has ended.
func (a *amqpConn) finish(cause error, _, _ bool) {
	h := a.hub
	h.mu.Lock()
	a.ended = true
	for _, g := range a.grants {
		g.timer.Stop()
	}
	clear(a.grants)
	who := a.whoLocked("")
	clear(a.who)
	told := a.told
	h.mu.Unlock()
	for _, id := range who {
		h.event(Event{Kind: Disconnected, DeviceID: id.device, ModuleID: id.module, Err: cause}, a.c)
	}
	if len(who) == 0 && !told {
		h.event(Event{Kind: Refused, Err: cause}, a.c)
	}
}

// whoLocked returns the identities that a selector means, by their names.
func (a *amqpConn) whoLocked(selector string) []identity {
	var all []identity
	for id := range a.who {
		if id.matches(selector) {
			all = append(all, id)
		}
	}
	slices.SortFunc(all, func(x, y identity) int { return strings.Compare(x.String(), y.String()) })
	return all
}

// close closes the connection with an error, for a reason.
func (a *amqpConn) close(e *wire.Error, cause error) {
	a.engine.Close(e)
	a.c.farewell(cause)
}

// Open judges a connection.
func (a *amqpConn) Open(o *wire.Open) error {
	h, c := a.hub, a.c
	id := c.id
	if err := a.gone(id); err != nil {
		return err
	}
	if err := a.barred(id); err != nil {
		return err
	}
	if in := h.faults.take(DropConnect, id); in != nil {
		h.happened(in, c)
		c.closeFor(faultError(DropConnect))
		return faultError(DropConnect)
	}
	if in := h.faults.take(NoConnack, id); in != nil {
		c.blame(faultError(NoConnack))
		c.silence()
		h.happened(in, c)
		c.drain()
		return faultError(NoConnack)
	}
	if in := h.faults.take(RefuseConnect, id); in != nil {
		h.happened(in, c)
		c.blame(faultError(RefuseConnect))
		return in.fault.wire()
	}
	if in := h.faults.take(SlowConnack, id); in != nil {
		h.happened(in, c)
		if !c.sleep(in.fault.Delay) {
			return faultError(SlowConnack)
		}
	}
	if !h.knows(o.Hostname) {
		return wire.Errorf("com.microsoft:iot-hub-not-found-error", "host name %q is not this hub", o.Hostname)
	}
	return nil
}

// gone lets the faults have their way that make the hub unreachable. An error ends the connection.
func (a *amqpConn) gone(id identity) error {
	h, c := a.hub, a.c
	if in := h.faults.inForce(Absent, id); in != nil {
		h.happenedTo(in, c, id)
		c.cutFor(faultError(Absent))
		return faultError(Absent)
	}
	if in := h.faults.inForce(HalfOpen, id); in != nil {
		if c.silence() {
			h.happenedTo(in, c, id)
		}
		c.drain()
		return faultError(HalfOpen)
	}
	return nil
}

// Opened makes the connection one that counts.
func (a *amqpConn) Opened() error {
	h, c := a.hub, a.c
	c.SetDeadline(time.Time{})
	h.mu.Lock()
	c.live = true
	h.mu.Unlock()
	h.changed.wake()
	h.garbage(GarbageOnConnect, c, shortFrame)
	return nil
}

// Idle ends a connection whose client was silent for too long, unless the link is dead: then nobody
// would learn of it.
func (a *amqpConn) Idle() { a.c.farewell(amqp.ErrIdle) }

// admit tells that a client may act for an identity from now on.
func (a *amqpConn) admit(id identity) {
	h := a.hub
	h.mu.Lock()
	_, again := a.who[id]
	if id == (identity{}) || again || a.ended {
		h.mu.Unlock()
		return
	}
	a.who[id] = struct{}{}
	a.told = true
	h.mu.Unlock()
	h.event(Event{Kind: Connected, DeviceID: id.device, ModuleID: id.module}, a.c)
	h.changed.wake()
}

// refused tells that a client was refused for an identity, or any.
func (a *amqpConn) refused(id identity, why error) {
	a.tell(Event{Kind: Refused, DeviceID: id.device, ModuleID: id.module, Err: why})
}

// refusedLink tells that a link was refused.
func (a *amqpConn) refusedLink(l *amqp.Link, id identity, why error) {
	address, _ := addressOf(l)
	a.tell(Event{Kind: Refused, DeviceID: id.device, ModuleID: id.module, Name: address, Err: why})
}

func (a *amqpConn) tell(e Event) {
	a.served()
	a.hub.event(e, a.c)
}

// served notes that the client got an answer, so the end of the connection is not a refusal.
func (a *amqpConn) served() {
	a.hub.mu.Lock()
	a.told = true
	a.hub.mu.Unlock()
}

// expel ends what the connection does for the identities that a selector means. A connection that
// is one of them by SASL is closed.
func (a *amqpConn) expel(selector string, cause error, condition string) {
	h := a.hub
	h.mu.Lock()
	own := a.c.id != (identity{}) && a.c.id.matches(selector)
	who := a.whoLocked(selector)
	for _, id := range who {
		delete(a.who, id)
		if g := a.grants[id]; g != nil {
			g.timer.Stop()
			delete(a.grants, id)
		}
	}
	links := a.linksLocked(selector, LinkAny)
	h.mu.Unlock()
	for _, id := range who { // before anybody can see it
		h.event(Event{Kind: Disconnected, DeviceID: id.device, ModuleID: id.module, Err: cause}, a.c)
	}
	e := &wire.Error{Condition: wire.Symbol(condition), Description: cause.Error()}
	if own {
		a.close(e, cause)
		return
	}
	for _, l := range links {
		l.detach(e, true)
	}
	h.changed.wake()
}
