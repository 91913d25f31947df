package amqpfront

import (
	"cmp"
	"encoding/binary"
	"sync"

	"github.com/hubline-iot/hubline/testbroker/fault"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// maxPosted is how many answers may wait for credit on a link.
const maxPosted = 1000

// An answers holds answers until the client gives credit for them.
type answers struct {
	mu      sync.Mutex
	number  uint64
	waiting [][]byte
}

// send sends an answer, or queues it if there is no credit.
func (o *answers) send(l *hubLink, m *wire.Message) {
	payload, err := wire.AppendMessage(nil, m)
	if err != nil { // a description that cannot be encoded
		l.detach(wire.Errorf(wire.InternalError, "answer that cannot be encoded"), true)
		return
	}
	o.mu.Lock()
	full := len(o.waiting) >= maxPosted
	if !full {
		o.waiting = append(o.waiting, payload)
		o.flushLocked(l)
	}
	o.mu.Unlock()
	if full {
		l.detach(wire.Errorf(wire.ResourceLimitExceeded, "%d answers wait for credit", maxPosted), true)
	}
}

func (o *answers) flush(l *hubLink) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flushLocked(l)
}

func (o *answers) flushLocked(l *hubLink) {
	for len(o.waiting) > 0 {
		var tag [16]byte
		o.number++
		binary.BigEndian.PutUint64(tag[8:], o.number)
		if !l.Send(amqp.Outgoing{Tag: tag[:], Settled: l.Asked.SndSettleMode != wire.SendUnsettled, Payload: o.waiting[0]}) {
			return
		}
		o.waiting = o.waiting[1:]
	}
}

// reply answers a request on a receiver of a kind: that whose target address is the request's
// reply-to, or else any of the connection. Of several it prefers those of the same session, then
// the newest.
func (a *conn) reply(request *hubLink, kind fault.LinkKind, replyTo string, m *wire.Message) {
	rank := func(l *hubLink) int {
		n := 0
		if target, _ := l.Asked.Target.(*wire.Target); target != nil && replyTo != "" && target.Address == replyTo {
			n += 2
		}
		if l.Session() == request.Session() {
			n++
		}
		return n
	}
	a.front.mu.Lock()
	var to *hubLink
	for l := range a.links {
		if l.kind == kind && !l.Receives() &&
			(to == nil || cmp.Or(cmp.Compare(rank(l), rank(to)), cmp.Compare(l.number, to.number)) > 0) {
			to = l
		}
	}
	a.front.mu.Unlock()
	if to == nil {
		address, _ := addressOf(request.Link)
		request.detach(wire.Errorf(wire.PreconditionFailed, "no receiver is attached to %s", address), true)
		return
	}
	to.post.send(to, m)
}
