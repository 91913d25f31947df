package amqpfront

import (
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// A facility handles the twin links, or the method links. Any goroutine may call its methods, with
// no lock held.
type facility interface {
	// joined is called when both links of a pair are attached.
	joined(p *pair)
	// parted is called when one of them has ended, after joined.
	parted(p *pair)
	// ask handles a message from the sender of a pair. An error rejects it.
	ask(p *pair, m *wire.Message) *wire.Error
}

// A pairKey identifies a pair of links within a connection.
type pairKey struct {
	id      identity.Identity
	methods bool
	channel string // the link property com.microsoft:channel-correlation-id; may be empty
}

// A pair is a sender and a receiver (the client's roles) that belong together. Guarded by Front.mu.
type pair struct {
	pairKey
	conn             *conn
	sender, receiver *hubLink // nil = not attached
	whole            bool     // joined was called
}

// answer sends a message on the receiver of a pair; false when there is none.
func (p *pair) answer(m *wire.Message) bool {
	f := p.conn.front
	f.mu.Lock()
	to := p.receiver
	f.mu.Unlock()
	if to != nil {
		to.post.send(to, m)
	}
	return to != nil
}

func (k pairKey) facility(f *Front) facility {
	if k.methods {
		return f.methods
	}
	return f.twins
}

// join adds a link to its pair. Method calls go to the newest pair of an identity: links of an
// older pair are detached, and so is an older link of the same pair.
func (a *conn) join(l *hubLink) {
	h := a.hub
	key := pairKey{l.id, l.kind == fault.LinkMethodSender || l.kind == fault.LinkMethodReceiver,
		l.Asked.Properties.Text("com.microsoft:channel-correlation-id")}
	a.front.mu.Lock()
	p := a.pairs[key]
	if p == nil {
		p = &pair{pairKey: key, conn: a}
		a.pairs[key] = p
	}
	place := &p.receiver
	if l.Receives() {
		place = &p.sender
	}
	var old []*hubLink
	var from *hub.Conn // the connection whose method calls end
	if *place != nil {
		old = append(old, *place)
	}
	if before := a.front.methodPairs[l.id]; key.methods && before != p {
		if before != nil {
			if before.conn != a {
				from = before.conn.c
			}
			for _, other := range []*hubLink{before.sender, before.receiver} {
				if other != nil {
					old = append(old, other)
				}
			}
		}
		a.front.methodPairs[l.id] = p
	}
	*place, l.pair = l, p
	joined := p.sender != nil && p.receiver != nil && !p.whole
	p.whole = p.whole || joined
	a.front.mu.Unlock()
	if from != nil {
		h.DisplaceCalls(from, l.id)
	}
	for _, other := range old {
		other.detach(displaced(other.conn.c, a.c, other), true)
	}
	if joined {
		key.facility(a.front).joined(p)
	}
}

func (a *conn) part(l *hubLink) {
	a.front.mu.Lock()
	p := l.pair
	if p == nil {
		a.front.mu.Unlock()
		return
	}
	mine := true
	switch l {
	case p.sender:
		p.sender = nil
	case p.receiver:
		p.receiver = nil
	default:
		mine = false // another link has replaced it
	}
	parted := mine && p.whole
	if mine {
		p.whole = false
	}
	if p.sender == nil && p.receiver == nil {
		if a.pairs[p.pairKey] == p {
			delete(a.pairs, p.pairKey)
		}
		if a.front.methodPairs[p.id] == p {
			delete(a.front.methodPairs, p.id)
		}
	}
	a.front.mu.Unlock()
	if parted {
		p.facility(a.front).parted(p)
	}
}

// ask passes a message from the sender of a pair to its facility.
func (a *conn) ask(l *hubLink, m *wire.Message) *wire.Error {
	return l.pair.facility(a.front).ask(l.pair, m)
}
