package testbroker

import (
	"errors"
	"fmt"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// What a client may do that has not proved anything yet.
const (
	maxAttaches     = 64 // of any links, good or not
	maxTokenLinks   = 32 // to $cbs, on one connection, also later
	maxTokenMessage = 64 << 10
)

// errAttaches is the cause of a connection's end whose client attaches and attaches, and never says
// who it is.
var errAttaches = errors.New("client attaches many links and has not authenticated")

// Attach judges a link.
func (a *amqpConn) Attach(link *amqp.Link) error {
	if a.attaches++; a.attaches > maxAttaches {
		if !a.knowsSomebody() {
			a.close(wire.Errorf(wire.ResourceLimitExceeded, "%d links were attached and nobody has authenticated", maxAttaches),
				errAttaches)
			return errAttaches
		}
		a.attaches = 0
	}
	l, err := a.classify(link)
	if err != nil {
		a.refusedLink(link, identity{}, err)
		return err
	}
	link.Value = l
	if !l.kind.cbs() {
		if err := a.permit(l); err != nil {
			return err
		}
	}
	if err := a.prepare(l); err != nil {
		a.refusedLink(link, l.id, err)
		return err
	}
	return a.attachFaults(l)
}

// knowsSomebody says whether anybody has authenticated, and has not lost the right since.
func (a *amqpConn) knowsSomebody() bool {
	a.hub.mu.Lock()
	defer a.hub.mu.Unlock()
	return len(a.who)+len(a.grants) > 0
}

// permit looks whether the client may attach the link.
func (a *amqpConn) permit(l *amqpLink) error {
	h := a.hub
	if err := a.gone(l.id); err != nil {
		return err
	}
	chain := a.chain()
	h.mu.Lock()
	_, err := h.knownLocked(h.host, l.id)
	if err == nil && !a.grantedLocked(l.id) {
		if err = h.certifiedLocked(h.host, l.id, chain); err != nil {
			err = fmt.Errorf("no token for %s was put on this connection: %w", l.id.resource(), err)
		}
	}
	h.mu.Unlock()
	switch {
	case errors.Is(err, ErrNotFound):
		a.refusedLink(l.Link, l.id, err)
		return wire.Errorf(wire.NotFound, "404001 DeviceNotFound: %s", l.id)
	case err != nil:
		a.refusedLink(l.Link, l.id, err)
		return wire.Errorf(wire.UnauthorizedAccess, "401003 IotHubUnauthorized: %v", err)
	}
	if in := h.faults.inForce(Throttle, l.id); in != nil {
		h.happenedTo(in, a.c, l.id)
		return throttled()
	}
	a.admit(l.id)
	return nil
}

func throttled() *wire.Error {
	return wire.Errorf("com.microsoft:device-container-throttled", "429001 ThrottlingException")
}

// prepare sets what is answered to an attach.
func (a *amqpConn) prepare(l *amqpLink) error {
	if l.Receives() {
		l.Answer.MaxMessageSize = a.hub.amqp.MaxMessageSize
	}
	if l.kind.cbs() { // before anybody has proved anything
		l.Answer.MaxMessageSize = min(l.Answer.MaxMessageSize, maxTokenMessage)
		a.hub.mu.Lock()
		n := 0
		for other := range a.links {
			if other.kind.cbs() {
				n++
			}
		}
		a.hub.mu.Unlock()
		if n >= maxTokenLinks {
			return wire.Errorf(wire.ResourceLimitExceeded, "%d links to $cbs are attached", n)
		}
	}
	if l.kind == LinkC2D {
		q, err := a.hub.queue(l.id)
		if err != nil {
			return wire.Errorf(wire.NotFound, "%v", err)
		}
		l.to = &amqpReceiver{l, q}
	}
	return nil
}

// Attached lets a link work.
func (a *amqpConn) Attached(link *amqp.Link) { a.start(link.Value.(*amqpLink)) }

// start is Attached for any goroutine.
func (a *amqpConn) start(l *amqpLink) {
	h := a.hub
	h.mu.Lock()
	if a.ended {
		h.mu.Unlock()
		return
	}
	a.links[l] = struct{}{}
	h.mu.Unlock()
	if !l.kind.cbs() {
		h.announceModel(l.id, l.Asked.Properties.Text("com.microsoft:model-id"))
	}
	switch {
	case l.to != nil:
		l.to.q.receive(l.to)
	case l.kind.paired():
		a.join(l)
	}
	if l.Receives() {
		a.allow(l)
	}
	a.idleFault(l)
	if !l.Attached() { // somebody detached it meanwhile, and could not know of all this
		a.leave(l)
	}
	h.changed.wake()
}

// Detached takes a link out of all tables.
func (a *amqpConn) Detached(link *amqp.Link) {
	if l, ok := link.Value.(*amqpLink); ok {
		a.leave(l)
	}
}

// leave takes a link that has ended out of all tables. No lock is held.
func (a *amqpConn) leave(l *amqpLink) {
	h := a.hub
	h.mu.Lock()
	delete(a.links, l)
	h.mu.Unlock()
	if l.to != nil {
		l.to.q.unreceive(l.to)
	}
	if l.kind.paired() {
		a.part(l)
	}
	h.changed.wake()
}

// detach detaches a link.
func (l *amqpLink) detach(e *wire.Error, closed bool) {
	if l.Detach(e, closed) {
		l.conn.leave(l)
	}
}
