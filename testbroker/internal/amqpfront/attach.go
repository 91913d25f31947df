package amqpfront

import (
	"errors"
	"fmt"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// Limits of a client that has not authenticated.
const (
	maxAttaches     = 64 // accepted and refused links
	maxTokenLinks   = 32 // to $cbs, on one connection, also after authentication
	maxTokenMessage = 64 << 10
)

// errAttaches is the cause of a connection's end when the client attaches many links without
// authenticating.
var errAttaches = errors.New("client attaches many links and has not authenticated")

// Attach checks a link.
func (a *conn) Attach(link *amqp.Link) error {
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
		a.refusedLink(link, identity.Identity{}, err)
		return err
	}
	link.Value = l
	switch {
	case l.back != nil:
		err = l.back.permit()
	case !cbs(l.kind):
		err = a.permit(l)
	}
	if err != nil {
		return err
	}
	if err := a.prepare(l); err != nil {
		a.refusedLink(link, l.id, err)
		return err
	}
	return a.attachFaults(l)
}

// knowsSomebody reports whether an identity is authenticated at present.
func (a *conn) knowsSomebody() bool {
	a.front.mu.Lock()
	defer a.front.mu.Unlock()
	return len(a.who)+len(a.grants) > 0
}

// permit checks whether the client may attach the link.
func (a *conn) permit(l *hubLink) error {
	h := a.hub
	if err := a.c.Unreachable(l.id); err != nil {
		return err
	}
	if err := a.authorized(l.id); err != nil {
		a.refusedLink(l.Link, l.id, err)
		return linkRefusal(l.id, err)
	}
	if in := h.Faults.InForce(fault.Throttle, l.id); in != nil {
		h.HappenedTo(in, a.c, l.id)
		return throttled()
	}
	a.admit(l.id)
	return nil
}

// authorized returns why the client may not act for an identity at present.
func (a *conn) authorized(id identity.Identity) error {
	h := a.hub
	err := h.Known(id)
	if err == nil && !a.granted(id) {
		if err = h.Certified(h.Host, id, a.chain()); err != nil {
			err = fmt.Errorf("no token for %s was put on this connection: %w", id.Resource(), err)
		}
	}
	return err
}

// revoked returns why a link that was permitted may not start. The link is in conn.links, so that a
// right that ends later detaches it.
func (a *conn) revoked(l *hubLink) *wire.Error {
	var err error
	switch {
	case l.back != nil:
		err = a.allowed(l.back.resource(), hubdata.RightServiceConnect)
	case !cbs(l.kind):
		err = a.authorized(l.id)
	}
	if err == nil {
		return nil
	}
	return linkRefusal(l.id, err)
}

// linkRefusal returns the error of a link for lack of a right.
func linkRefusal(id identity.Identity, err error) *wire.Error {
	if errors.Is(err, hub.ErrNotFound) {
		return wire.Errorf(wire.NotFound, "404001 DeviceNotFound: %s", id)
	}
	return wire.Errorf(wire.UnauthorizedAccess, "401003 IotHubUnauthorized: %v", err)
}

func throttled() *wire.Error {
	return wire.Errorf("com.microsoft:device-container-throttled", "429001 ThrottlingException")
}

// boxes maps the links that receive the messages of a queue to the queue.
var boxes = map[fault.LinkKind]hub.Box{fault.LinkC2D: hub.Commands, fault.LinkInput: hub.Inputs}

// prepare sets the answer to an attach.
func (a *conn) prepare(l *hubLink) error {
	if l.Receives() {
		l.Answer.MaxMessageSize = a.hub.AMQP.MaxMessageSize
	}
	if cbs(l.kind) { // before any authentication
		l.Answer.MaxMessageSize = min(l.Answer.MaxMessageSize, maxTokenMessage)
		a.front.mu.Lock()
		n := 0
		for other := range a.links {
			if cbs(other.kind) {
				n++
			}
		}
		a.front.mu.Unlock()
		if n >= maxTokenLinks {
			return wire.Errorf(wire.ResourceLimitExceeded, "%d links to $cbs are attached", n)
		}
	}
	if box, ok := boxes[l.kind]; ok {
		q, err := a.hub.Queue(l.id, box)
		if err != nil {
			return wire.Errorf(wire.NotFound, "%v", err)
		}
		l.to = &receiver{l, q}
	}
	return nil
}

// Attached starts the link's service.
func (a *conn) Attached(link *amqp.Link) { a.start(link.Value.(*hubLink)) }

// start is Attached for any goroutine.
func (a *conn) start(l *hubLink) {
	h := a.hub
	a.front.mu.Lock()
	if a.ended {
		a.front.mu.Unlock()
		return
	}
	a.started++
	l.number = a.started
	a.links[l] = struct{}{}
	a.front.mu.Unlock()
	if why := a.revoked(l); why != nil {
		l.detach(why, true)
		return
	}
	if !cbs(l.kind) && l.back == nil {
		h.AnnounceModel(l.id, l.Asked.Properties.Text("com.microsoft:model-id"))
	}
	switch {
	case l.back != nil:
		l.back.attached()
	case l.to != nil:
		l.to.q.Receive(l.to)
	case paired(l.kind):
		a.join(l)
	}
	if l.Receives() {
		a.allow(l)
	}
	a.idleFault(l)
	if !l.Attached() { // detached meanwhile by a goroutine that could not see the new entries
		a.leave(l)
	}
	h.Changed.Wake()
}

// Detached removes a link from all tables.
func (a *conn) Detached(link *amqp.Link) {
	if l, ok := link.Value.(*hubLink); ok {
		a.leave(l)
	}
}

// leave removes an ended link from all tables. The caller holds no lock.
func (a *conn) leave(l *hubLink) {
	h := a.hub
	a.front.mu.Lock()
	delete(a.links, l)
	a.front.mu.Unlock()
	if l.back != nil {
		l.back.detached()
	}
	if l.to != nil {
		l.to.q.Unreceive(l.to)
	}
	if paired(l.kind) {
		a.part(l)
	}
	h.Changed.Wake()
}

func (l *hubLink) detach(e *wire.Error, closed bool) {
	if l.Detach(e, closed) {
		l.conn.leave(l)
	}
}
