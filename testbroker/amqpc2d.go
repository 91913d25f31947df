package testbroker

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// lockLost is what a device is told whose command is not its own any more.
const lockLost wire.Symbol = "com.microsoft:message-lock-lost"

// An amqpReceiver is a link that receives commands.
type amqpReceiver struct {
	link *amqpLink
	q    *c2dQueue
}

func (r *amqpReceiver) client() *conn { return r.link.conn.c }

// replaced detaches the link, and tells what happened to it.
func (r *amqpReceiver) replaced(by *conn) {
	r.link.Detach(displaced(r.client(), by, r.link), true)
	h := r.link.conn.hub
	h.mu.Lock()
	delete(r.link.conn.links, r.link)
	h.mu.Unlock()
}

// displaced is the error for a link whose place another has taken.
func displaced(old, by *conn, l *amqpLink) *wire.Error {
	if old == by {
		return wire.Errorf(wire.LinkStolen, "another %s link of %s was attached", l.kind, l.id)
	}
	return wire.Errorf("com.microsoft:link-creation-conflict", "409002 LinkCreationConflict: %s is connected elsewhere",
		l.id)
}

// receive gives a link the commands of its identity. The receiver before loses them.
func (a *amqpConn) receive(l *amqpLink) {
	q := l.to.q
	q.mu.Lock()
	defer q.unlock()
	q.takeLocked(l.to)
	q.dispatchLocked()
}

// unreceive ends that.
func (a *amqpConn) unreceive(l *amqpLink) {
	l.to.q.mu.Lock()
	defer l.to.q.unlock()
	l.to.q.leaveLocked(func(r c2dReceiver) bool { return r == c2dReceiver(l.to) })
}

// kick delivers what may be delivered.
func (q *c2dQueue) kick() {
	q.mu.Lock()
	q.dispatchLocked()
	q.unlock()
	q.hub.changed.wake()
}

// deliver sends a command, for which the client has given credit.
func (r *amqpReceiver) deliver(q *c2dQueue, e *c2dEntry, _ int) (sent, settled bool) {
	if !r.link.Ready() {
		return false, false
	}
	tag := q.hub.lockToken(e)
	token := guidText(tag)
	payload, err := wire.AppendMessage(nil, e.message(token))
	if limit := r.link.Asked.MaxMessageSize; err != nil || limit > 0 && uint64(len(payload)) > limit {
		return false, false // it waits for a link that can carry it
	}
	settled = r.link.Asked.SndSettleMode == wire.SendSettled
	// What is sent now may be settled before Send returns; that waits for the queue's lock.
	if !r.link.Send(amqp.Outgoing{Tag: tag[:], Settled: settled, Payload: payload}) {
		return false, false
	}
	e.tag, e.LockToken = string(tag[:]), token
	return true, settled
}

// message is the command as it goes over AMQP.
func (e *c2dEntry) message(lockToken string) *wire.Message {
	m := e.C2D
	p := &wire.Properties{
		To:          wire.Some("/" + identity{e.DeviceID, e.ModuleID}.resource() + "/messages/devicebound"),
		ContentType: wire.Symbol(m.ContentType), ContentEncoding: wire.Symbol(m.ContentEncoding),
	}
	if m.MessageID != "" {
		p.MessageID = m.MessageID
	}
	if m.CorrelationID != "" {
		p.CorrelationID = m.CorrelationID
	}
	if m.UserID != "" {
		p.UserID = []byte(m.UserID)
	}
	if !m.Expiry.IsZero() {
		p.AbsoluteExpiryTime = wire.Some(wire.Timestamp(m.Expiry.UnixMilli()))
	}
	properties := wire.Map{}
	seen := make(map[string]bool)
	add := func(name, value string) {
		if !seen[name] { // no key may come twice
			seen[name] = true
			properties = append(properties, wire.Pair{Key: name, Value: value})
		}
	}
	for _, q := range m.Properties {
		add(q.Name, q.Value)
	}
	if m.Ack != "" {
		add("iothub-ack", m.Ack)
	}
	return &wire.Message{
		MessageAnnotations: wire.Map{
			{Key: wire.Symbol("iothub-enqueuedtime"), Value: wire.Timestamp(e.Enqueued.UnixMilli())},
			{Key: wire.Symbol("iothub-deliverycount"), Value: uint8(min(e.Deliveries, 255))},
			{Key: wire.Symbol("x-opt-sequence-number"), Value: uint64(e.Sequence)},
			{Key: wire.Symbol("x-opt-lock-token"), Value: lockToken},
		},
		Properties: p, ApplicationProperties: properties, Data: [][]byte{m.Body},
	}
}

// lockToken makes the tag of a delivery: 16 bytes, which some clients insist on. With a seed it
// follows from that.
func (h *Hub) lockToken(e *c2dEntry) (tag [16]byte) {
	if h.seed == 0 {
		rand.Read(tag[:]) // never fails
		return tag
	}
	var seed [8]byte
	binary.BigEndian.PutUint64(seed[:], h.seed)
	sum := sha256.Sum256(fmt.Appendf(seed[:], "%s/%s %d %d", e.DeviceID, e.ModuleID, e.Sequence, e.Deliveries))
	copy(tag[:], sum[:])
	return tag
}

// guidText writes 16 bytes as those clients read them: the first three fields begin with their last
// byte.
func guidText(b [16]byte) string {
	le := binary.LittleEndian
	return fmt.Sprintf("%08x-%04x-%04x-%x-%x", le.Uint32(b[:]), le.Uint16(b[4:]), le.Uint16(b[6:]), b[8:10], b[10:])
}

// settle does what a client wants to become of a command. One whose lock has ended is not its own
// any more.
func (r *amqpReceiver) settle(tag string, state wire.DeliveryState) wire.DeliveryState {
	q := r.q
	q.mu.Lock()
	defer q.hub.changed.wake()
	defer q.unlock()
	for _, e := range q.waiting {
		if e.tag != tag || e.State != Invisible || q.to != c2dReceiver(r) {
			continue
		}
		switch state.(type) {
		case *wire.Accepted:
			q.becomeLocked(e, Completed)
		case *wire.Rejected:
			q.becomeLocked(e, Rejected)
		default: // released, modified, or forgotten without a word
			q.releaseLocked(e)
			if state == nil {
				state = &wire.Released{}
			}
		}
		q.dispatchLocked()
		return state
	}
	return &wire.Rejected{Error: wire.Errorf(lockLost, "412002 DeviceMessageLockLost")}
}
