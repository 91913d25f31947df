package paho

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/internal/mqttpacket"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// maxBacklog is the most bytes of messages that wait.
const maxBacklog = 1 << 20

// messageCost is what a message that waits takes beside its topic and payload: paho's message, the
// packet that its acknowledgement keeps, and a place in a queue that grows.
const messageCost = 400

// errBehind ends a connection on which messages were left to the peer.
var errBehind = errors.New("more messages came than may wait for their handler; the next connection brings the rest")

// backlog holds what came before Run, and messages for which the sink had no room, in order.
// Reading goes on meanwhile: a handler may wait for an acknowledgement.
//
// Messages beyond the bound are left to the peer. So are those behind them, and when all others
// have their verdict the session ends: the next connection brings them, in order.
type backlog struct {
	// passing is held while deliveries are passed on, which keeps their order. The Sink may call Do
	// meanwhile, so Do never waits for it: wanted makes the holder look again.
	passing sync.Mutex
	wanted  atomic.Bool
	sink    tap
	message wire.Inbound // guarded by passing
	topicIn []byte       // of message

	mu      sync.Mutex // guards the fields below; never held during a call
	running bool       // Run was called
	queue   []paho.Message
	size    int                 // bytes of the queue
	open    map[uint16]struct{} // ids of messages that the sink took and has given no verdict on
	behind  bool                // a message was left to the peer
}

// A tap is a Sink that notes whether a delivery found room.
type tap struct {
	transport.Sink
	hold bool // messages wait
	full bool
	took bool // a message
}

func (t *tap) Deliver(d *transport.Delivery) bool {
	message := d.Kind&^transport.FeatureMessages == 0
	if message && t.hold {
		t.full = true
		return false
	}
	taken := t.Sink.Deliver(d)
	t.full, t.took = message && !taken, message && taken
	return taken
}

// received is called by paho for each PUBLISH, in order, on its routing goroutine.
func (s *session) received(_ paho.Client, m paho.Message) {
	b := &s.backlog
	b.passing.Lock()
	b.mu.Lock()
	hold, early := len(b.queue) > 0 || b.behind, !b.running
	b.mu.Unlock()
	if early || !s.deliver(m, hold) {
		b.keep(m)
	}
	b.passing.Unlock()
	if hold || b.wanted.Load() {
		s.redeliver()
	}
}

// keep puts a message into the queue, or leaves it to the peer.
func (b *backlog) keep(m paho.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	repeated := m.Duplicate() && slices.ContainsFunc(b.queue, func(q paho.Message) bool {
		return q.Qos() > 0 && q.MessageID() == m.MessageID()
	})
	size := cost(m)
	switch {
	case repeated:
	case b.size+size <= maxBacklog && !(b.behind && m.Qos() > 0):
		b.queue = append(b.queue, m)
		b.size += size
	case m.Qos() > 0:
		b.behind = true
	}
}

func cost(m paho.Message) int { return messageCost + len(m.Topic()) + len(m.Payload()) }

// start delivers what came before Run.
func (s *session) start() {
	s.backlog.mu.Lock()
	s.backlog.running = true
	s.backlog.mu.Unlock()
	s.redeliver()
}

// redeliver passes on what waits, as far as there is room.
func (s *session) redeliver() {
	b := &s.backlog
	b.wanted.Store(true)
	for b.wanted.Load() && b.passing.TryLock() {
		b.wanted.Store(false)
		for s.deliverFirst() {
		}
		b.passing.Unlock()
	}
}

// deliverFirst returns false without a message, or without room for it. The caller holds passing.
func (s *session) deliverFirst() bool {
	b := &s.backlog
	b.mu.Lock()
	if len(b.queue) == 0 || !b.running {
		b.mu.Unlock()
		return false
	}
	first := b.queue[0]
	b.mu.Unlock()
	if !s.deliver(first, false) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.size -= cost(first)
	b.queue[0] = nil // frees the message
	if b.queue = b.queue[1:]; len(b.queue) == 0 {
		b.queue = nil
	}
	return true
}

// deliver passes a delivery to the dialect. It returns false for a message without room, and with
// hold for each message. The caller holds passing.
func (s *session) deliver(m paho.Message, hold bool) bool {
	b := &s.backlog
	id := m.MessageID()
	if m.Qos() == 0 {
		id = 0
	}
	b.sink = tap{Sink: s.cfg.Sink, hold: hold}
	b.topicIn = append(b.topicIn[:0], m.Topic()...)
	d := b.message.Delivery(m.Payload(), id, m.Retained(), m.Duplicate())
	if id != 0 {
		b.mu.Lock()
		b.open[id] = struct{}{} // before the verdict, which may come at once
		b.mu.Unlock()
	}
	s.dialect.Take(&b.sink, b.topicIn, d)
	wire.Unasked(&b.sink, d)
	if id != 0 && !b.sink.took {
		b.mu.Lock()
		delete(b.open, id)
		b.mu.Unlock()
	}
	return !b.sink.full
}

// settled records a verdict, nil for none: there may be room. It ends a session that brings no
// further messages.
func (s *session) settled(ref []byte) {
	b := &s.backlog
	if len(ref) == 2 {
		b.mu.Lock()
		delete(b.open, uint16(ref[0])<<8|uint16(ref[1]))
		b.mu.Unlock()
	}
	s.redeliver()
	b.mu.Lock()
	over := b.behind && len(b.queue) == 0 && len(b.open) == 0
	b.mu.Unlock()
	if over {
		_, _ = s.guard.Write(mqttpacket.AppendDisconnect(nil)) // else the peer would publish the will
		s.guard.fail(errBehind)
	}
}

// handshake does what the dialect wants before the connection counts as connected.
func (s *session) handshake() error {
	d, ok := s.dialect.(dialect.Handshaker)
	if !ok {
		return nil
	}
	h, ok := d.Handshake().(*dialect.Handshake)
	switch {
	case !ok:
		return nil
	case h.Answer != nil || len(h.Filters) > 0:
		return wire.Refused(transport.OpDial, transport.Unsupported, errAnswers)
	case h.Message.Msg == nil:
		return nil
	}
	p := &h.Message
	if err := s.fits(p); err != nil {
		return err
	}
	token := s.publish(s.topic(p), qos(p.AtMostOnce || s.atMostOnce), p.Retain, p.Msg.Body)
	if token == nil {
		return errClosed
	}
	select {
	case <-token.Done():
		return token.Error()
	case <-s.lost:
		return errClosed
	}
}

var errAnswers = errors.New("paho cannot wait for the answers of a dialect's handshake; use package mqtt")
