package amqpfront

import (
	"sync"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// A conn is the hub's state of a connection over AMQP. Its methods as an amqp.Handler run in the
// connection's goroutine.
type conn struct {
	hub    *hub.Hub
	front  *Front
	c      *hub.Conn
	engine *amqp.Conn

	events   sync.Mutex // held while events are sent; guards fields of eventsReader
	attaches int        // attaches since the last check of maxAttaches; used only by the connection's goroutine

	// Guarded by Front.mu.
	who      map[identity.Identity]struct{} // identities authenticated in any way
	grants   map[grantKey]*grant            // rights by tokens and keys
	links    map[*hubLink]struct{}
	started  uint64 // links so far
	pairs    map[pairKey]*pair
	reported bool // the client was served, or an event reported its refusal
	ended    bool
}

// A hubLink is the hub's state of a link over AMQP.
type hubLink struct {
	*amqp.Link
	conn *conn
	kind fault.LinkKind
	id   identity.Identity // empty for $cbs links and those of back ends
	pair *pair             // of twin and method links
	acks hub.AckQueue      // delayed dispositions
	back backLink          // of links of back ends, otherwise nil

	number uint64 // counts the links of the connection; guarded by Front.mu

	to   *receiver // of links that receive the messages of a queue, otherwise nil
	post answers
}

var (
	_ amqp.Handler = (*conn)(nil)
	_ hub.Peer     = (*conn)(nil)
)

func (a *conn) Matches(selector string) bool {
	a.front.mu.Lock()
	defer a.front.mu.Unlock()
	return len(identity.Matching(a.who, selector)) > 0
}

func (a *conn) Present(id identity.Identity, _ bool) bool {
	a.front.mu.Lock()
	defer a.front.mu.Unlock()
	_, ok := a.who[id]
	return ok
}

func (a *conn) Leave() {}

// Finish cleans up after the end of the connection. A client that has opened it, wanted nothing and
// left was not refused.
func (a *conn) Finish(cause error, live, _ bool) {
	h := a.hub
	a.front.mu.Lock()
	a.ended = true
	for _, g := range a.grants {
		g.stop()
	}
	clear(a.grants)
	who := identity.Matching(a.who, "")
	clear(a.who)
	reported := a.reported
	a.front.mu.Unlock()
	for _, id := range who {
		h.Event(event.Event{Kind: event.Disconnected, DeviceID: id.Device, ModuleID: id.Module, Err: cause}, a.c)
	}
	if left := live && hub.HungUp(cause); len(who) == 0 && !reported && !left {
		h.Unserved(a.c, cause)
	}
}

func (a *conn) close(e *wire.Error, cause error) {
	a.engine.Close(e)
	a.c.CloseGracefully(cause)
}

// Open checks a connection.
func (a *conn) Open(o *wire.Open) error {
	h, c := a.hub, a.c
	id := c.ID
	if err := c.Unreachable(id); err != nil {
		return err
	}
	if err := a.barred(id); err != nil {
		return err
	}
	if err := c.Unanswered(id); err != nil {
		return err
	}
	if in := c.Fault(fault.RefuseConnect); in != nil {
		c.SetCause(hub.FaultError(fault.RefuseConnect))
		return wireFault(&in.Fault)
	}
	if in := c.Fault(fault.SlowConnack); in != nil && !c.Sleep(in.Fault.Delay) {
		return hub.FaultError(fault.SlowConnack)
	}
	if h.Full(id) {
		c.SetCause(hub.ErrClients)
		return wire.Errorf(wire.ResourceLimitExceeded, "%v", hub.ErrClients)
	}
	if !h.Knows(o.Hostname) {
		return wire.Errorf("com.microsoft:iot-hub-not-found-error", "host name %q is not this hub", o.Hostname)
	}
	return nil
}

// Opened marks the connection as established.
func (a *conn) Opened() error {
	h, c := a.hub, a.c
	c.SetDeadline(time.Time{})
	c.Establish()
	h.Changed.Wake()
	h.Garbage(fault.GarbageOnConnect, c, shortFrame)
	return nil
}

// Idle ends a connection whose client was silent for too long. A half-open connection stays,
// because its client would not notice.
func (a *conn) Idle() { a.c.CloseGracefully(amqp.ErrIdle) }

// admit reports that a client may act for an identity, once.
func (a *conn) admit(id identity.Identity) {
	h := a.hub
	a.c.Candidate(id)
	a.front.mu.Lock()
	_, again := a.who[id]
	if id == (identity.Identity{}) || again || a.ended {
		a.front.mu.Unlock()
		return
	}
	a.who[id] = struct{}{}
	a.reported = true
	a.front.mu.Unlock()
	h.Event(event.Event{Kind: event.Connected, DeviceID: id.Device, ModuleID: id.Module}, a.c)
	h.Changed.Wake()
}

// refused reports that a client was refused, for an identity or none.
func (a *conn) refused(id identity.Identity, why error) {
	a.tell(event.Event{Kind: event.Refused, DeviceID: id.Device, ModuleID: id.Module, Err: why})
}

func (a *conn) refusedLink(l *amqp.Link, id identity.Identity, why error) {
	address, _ := addressOf(l)
	a.tell(event.Event{Kind: event.Refused, DeviceID: id.Device, ModuleID: id.Module, Name: address, Err: why})
}

func (a *conn) tell(e event.Event) {
	a.served()
	a.hub.Event(e, a.c)
}

// served records that the client got an answer, so that the end of the connection is not reported
// as a refusal.
func (a *conn) served() {
	a.front.mu.Lock()
	a.reported = true
	a.front.mu.Unlock()
}

// Expel ends the connection's service for the identities that match a selector. If the identity
// from SASL matches, or the selector is empty, the connection is closed.
func (a *conn) Expel(selector string, cause error, condition string) {
	h := a.hub
	stated := a.c.Identity()
	own := selector == "" || stated != (identity.Identity{}) && stated.Matches(selector)
	a.front.mu.Lock()
	who := identity.Matching(a.who, selector)
	for _, id := range who {
		delete(a.who, id)
		if g := a.grants[deviceGrant(id)]; g != nil {
			g.stop()
			delete(a.grants, deviceGrant(id))
		}
	}
	links := a.linksLocked(selector, fault.LinkAny)
	a.front.mu.Unlock()
	for _, id := range who { // before other goroutines can observe it
		h.Event(event.Event{Kind: event.Disconnected, DeviceID: id.Device, ModuleID: id.Module, Err: cause}, a.c)
	}
	e := &wire.Error{Condition: wire.Symbol(condition), Description: cause.Error()}
	if own {
		a.close(e, cause)
		return
	}
	for _, l := range links {
		l.detach(e, true)
	}
	h.Changed.Wake()
}
