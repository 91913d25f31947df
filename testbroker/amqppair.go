package testbroker

import (
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// A facility is what stands behind the links for twins, or those for methods. Its methods may be
// called from any goroutine, with no lock held.
type amqpFacility interface {
	// joined is told that both links of a pair are attached.
	joined(p *amqpPair)
	// parted is told that one of them has gone, after joined.
	parted(p *amqpPair)
	// ask takes a message that came on the sender of a pair. An error rejects it.
	ask(p *amqpPair, m *wire.Message) *wire.Error
}

// A pairKey names a pair of links within a connection.
type pairKey struct {
	id      identity
	methods bool
	channel string // the link property com.microsoft:channel-correlation-id; may be empty
}

// An amqpPair is a sender and a receiver, from the client's side, that belong together. Guarded by
// Hub.mu.
type amqpPair struct {
	pairKey
	conn             *amqpConn
	sender, receiver *amqpLink // nil = not attached
	whole            bool      // joined was called
}

// answer sends a message on the receiver of a pair; false when there is none.
func (p *amqpPair) answer(m *wire.Message) bool {
	h := p.conn.hub
	h.mu.Lock()
	to := p.receiver
	h.mu.Unlock()
	if to != nil {
		to.post.send(to, m)
	}
	return to != nil
}

func (k pairKey) facility(f *amqpFront) amqpFacility {
	if k.methods {
		return f.methods
	}
	return f.twins
}

// join puts a link into its pair. The methods of an identity are with its newest pair: links of an
// older one are detached, and so is an older link of the same pair.
func (a *amqpConn) join(l *amqpLink) {
	h := a.hub
	key := pairKey{l.id, l.kind == LinkMethodSender || l.kind == LinkMethodReceiver,
		l.Asked.Properties.Text("com.microsoft:channel-correlation-id")}
	h.mu.Lock()
	p := a.pairs[key]
	if p == nil {
		p = &amqpPair{pairKey: key, conn: a}
		a.pairs[key] = p
	}
	place := &p.receiver
	if l.Receives() {
		place = &p.sender
	}
	var old []*amqpLink
	var from *conn // whose calls of methods end
	if *place != nil {
		old = append(old, *place)
	}
	if before := a.front.methodPairs[l.id]; key.methods && before != p {
		if before != nil {
			if before.conn != a {
				from = before.conn.c
			}
			for _, other := range []*amqpLink{before.sender, before.receiver} {
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
	h.mu.Unlock()
	if from != nil {
		h.displaceCalls(from, l.id)
	}
	for _, other := range old {
		other.detach(displaced(other.conn.c, a.c, other), true)
	}
	if joined {
		key.facility(a.front).joined(p)
	}
}

// part takes a link out of its pair.
func (a *amqpConn) part(l *amqpLink) {
	h := a.hub
	h.mu.Lock()
	p := l.pair
	if p == nil {
		h.mu.Unlock()
		return
	}
	mine := true
	switch l {
	case p.sender:
		p.sender = nil
	case p.receiver:
		p.receiver = nil
	default:
		mine = false // another has its place
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
	h.mu.Unlock()
	if parted {
		p.facility(a.front).parted(p)
	}
}

// ask hands a message on the sender of a pair to what stands behind it.
func (a *amqpConn) ask(l *amqpLink, m *wire.Message) *wire.Error {
	return l.pair.facility(a.front).ask(l.pair, m)
}
