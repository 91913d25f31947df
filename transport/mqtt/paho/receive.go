package paho

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

// early holds messages that come before Run, and the answers of a dialect's handshake.
type early struct {
	mu      sync.Mutex // guards the fields below; never held during a call
	running bool       // Run has delivered the queue
	queue   []paho.Message
	size    int // bytes of their payloads and topics

	answer func(m paho.Message) (mine bool) // nil without a handshake that waits for answers
}

// received is called by paho for each PUBLISH, in order, on its routing goroutine.
func (s *session) received(_ paho.Client, m paho.Message) {
	s.early.mu.Lock()
	running, answer := s.running, s.answer
	s.early.mu.Unlock()
	if !running && answer != nil && answer(m) {
		return
	}
	s.early.mu.Lock()
	running = s.running
	if n := len(m.Topic()) + len(m.Payload()); !running && s.size+n <= maxEarly {
		s.queue = append(s.queue, m)
		s.size += n
	}
	s.early.mu.Unlock()
	if running {
		s.deliver(m)
	}
}

// deliverEarly delivers the messages that waited for Run. Those that come meanwhile wait too.
func (s *session) deliverEarly() {
	for {
		s.early.mu.Lock()
		if len(s.queue) == 0 {
			s.running, s.queue = true, nil
			s.early.mu.Unlock()
			return
		}
		m := s.queue[0]
		s.queue = s.queue[1:]
		s.early.mu.Unlock()
		s.deliver(m)
	}
}

// deliver passes a message to the dialect.
func (s *session) deliver(m paho.Message) {
	id := m.MessageID()
	if m.Qos() == 0 {
		id = 0
	}
	s.topicIn = append(s.topicIn[:0], m.Topic()...)
	d := s.message.Delivery(m.Payload(), id, m.Retained(), m.Duplicate())
	s.dialect.Take(s.cfg.Sink, s.topicIn, d)
	wire.Unasked(s.cfg.Sink, d)
}

// handshake does what the dialect wants before the connection counts as connected.
func (s *session) handshake(ctx context.Context) error {
	d, ok := s.dialect.(dialect.Handshaker)
	if !ok {
		return nil
	}
	h, ok := d.Handshake().(*dialect.Handshake)
	if !ok {
		return nil
	}
	answered := s.awaitAnswers(h)
	if len(h.Filters) > 0 {
		grants := s.subscribeTo(h.Filters)
		if grants == nil {
			return errClosed
		}
		if err, live := grants.wait(s.lost); err != nil || !live {
			return orClosed(err)
		}
	}
	if p := &h.Message; p.Msg != nil {
		if err := s.fits(p); err != nil {
			return err
		}
		token := s.publish(s.topic(p), qos(p.AtMostOnce || s.atMostOnce), p.Retain, p.Msg.Body)
		if token == nil {
			return errClosed
		}
		if h.Answer == nil {
			select {
			case <-token.Done():
				return token.Error()
			case <-s.lost:
				return errClosed
			}
		}
	}
	if h.Answer == nil {
		return nil
	}
	select {
	case err := <-answered:
		return err
	case <-s.lost:
	case <-ctx.Done():
	}
	return errClosed
}

// orClosed returns err, or an error for a connection that ended.
func orClosed(err error) error {
	if err == nil {
		return errClosed
	}
	return err
}

// awaitAnswers has messages passed to the handshake, until it is done.
func (s *session) awaitAnswers(h *dialect.Handshake) <-chan error {
	answered := make(chan error, 1)
	if h.Answer == nil {
		return answered
	}
	ended := false // owned by the routing goroutine
	s.early.mu.Lock()
	defer s.early.mu.Unlock()
	s.answer = func(m paho.Message) bool {
		if ended {
			return false
		}
		mine, done, err := h.Answer([]byte(m.Topic()), &transport.Message{Body: m.Payload(), Retain: m.Retained()})
		if mine && m.Qos() > 0 {
			s.acknowledge(m.MessageID())
		}
		switch {
		case err != nil:
			answered <- wire.HandshakeError(err)
		case done:
			answered <- nil
		}
		ended = done || err != nil
		return mine
	}
	return answered
}
