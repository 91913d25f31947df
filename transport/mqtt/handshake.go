package mqtt

import (
	"context"
	"sync"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// maxEarly is the most bytes of messages that wait for Run. Further ones are not acknowledged, so
// they come again on a later connection.
const maxEarly = 2 << 20

// early holds what a session needs for a dialect's handshake, and the messages that come before
// Run.
type early struct {
	mu      sync.Mutex // guards the fields below; never held during a call
	holding bool       // messages wait in queue, from the handshake until Run has delivered them
	queue   []paho.Message
	size    int // bytes of their payloads and topics

	// Made by handshakeOf.
	acked chan struct{} // capacity 1: the hub has acknowledged the handshake's message
	ended chan error    // capacity 1: answer said that the handshake is done, or failed
	// answer is Handshake.Answer; nil when it is done. Owned by the routing goroutine.
	answer func(topic []byte, m *transport.Message) (mine, done bool, err error)
}

// handshakeOf returns the dialect's handshake, nil if there is none, and prepares the session for
// it.
func (s *session) handshakeOf() *dialect.Handshake {
	d, ok := s.dialect.(dialect.Handshaker)
	if !ok {
		return nil
	}
	h, _ := d.Handshake().(*dialect.Handshake)
	if h != nil {
		e := &s.early
		e.holding, e.acked, e.ended, e.answer = true, make(chan struct{}, 1), make(chan error, 1), h.Answer
	}
	return h
}

// handshake does what the dialect wants before the connection counts as connected, on Dial's
// goroutine.
func (s *session) handshake(ctx context.Context, h *dialect.Handshake) error {
	s.conn.start()
	if len(h.Filters) > 0 {
		granted := make(chan error, 1)
		if err := s.subscribePaho(h.Filters, func(err error) { granted <- err }); err != nil {
			return err
		}
		if err := s.await(ctx, granted, nil); err != nil {
			return err
		}
	}
	p, waits := &h.Message, false
	if p.Msg != nil {
		if err := s.fits(p); err != nil {
			return err
		}
		var how publication
		if waits = !p.AtMostOnce && !s.atMostOnce; waits {
			how.id = issueID
		}
		if err := s.publishPaho(s.topic(p), p.Msg.Body, p.Retain, how); err != nil {
			return err
		}
	}
	switch {
	case h.Answer != nil:
		return s.await(ctx, s.early.ended, nil)
	case waits:
		return s.await(ctx, nil, s.early.acked)
	}
	return nil
}

// await waits for a result or an acknowledgement.
func (s *session) await(ctx context.Context, result <-chan error, acked <-chan struct{}) error {
	select {
	case err := <-result:
		return err
	case <-acked:
		return nil
	case <-s.conn.dead:
		select {
		case err := <-result: // it came before the end
			return err
		default:
			return s.conn.failure()
		}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keepEarly takes a message that comes before Run has begun to deliver, on the routing goroutine:
// it is an answer of the handshake, or waits for Run. It returns false for all later messages.
func (s *session) keepEarly(m paho.Message) bool {
	e := &s.early
	e.mu.Lock()
	holding := e.holding
	e.mu.Unlock()
	if !holding {
		return false
	}
	if e.answer != nil && s.answered(m) {
		return true
	}
	e.mu.Lock()
	holding = e.holding
	if n := len(m.Topic()) + len(m.Payload()); holding && e.size+n <= maxEarly {
		e.queue = append(e.queue, m)
		e.size += n
	}
	e.mu.Unlock()
	return holding
}

// answered passes a message to the dialect, and returns whether it is part of the handshake.
func (s *session) answered(m paho.Message) bool {
	e := &s.early
	mine, done, err := e.answer([]byte(m.Topic()), &transport.Message{Body: m.Payload(), Retain: m.Retained()})
	if mine && m.Qos() > 0 {
		_, _ = s.conn.Write([]byte{typePuback << 4, 2, byte(m.MessageID() >> 8), byte(m.MessageID())})
	}
	if err != nil {
		e.answer = nil
		e.ended <- wire.HandshakeError(err)
		return true
	}
	if done {
		e.answer = nil
		e.ended <- nil
	}
	return mine
}

// deliverEarly delivers the messages that waited for Run. Those that come meanwhile wait too.
func (s *session) deliverEarly() {
	e := &s.early
	for {
		e.mu.Lock()
		if len(e.queue) == 0 {
			e.holding, e.queue = false, nil
			e.mu.Unlock()
			return
		}
		m := e.queue[0]
		e.queue = e.queue[1:]
		e.mu.Unlock()
		s.deliver(m)
	}
}
