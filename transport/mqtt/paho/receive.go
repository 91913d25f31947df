package paho

import (
	"errors"
	"sync"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// maxEarly is the most bytes of messages that wait for Run. Further ones are not acknowledged, so
// they come again on a later connection.
const maxEarly = 2 << 20

// early holds messages that come before Run.
type early struct {
	mu      sync.Mutex // guards the fields below; never held during a call
	running bool       // Run has delivered the queue
	queue   []paho.Message
	size    int // bytes of their payloads and topics
}

// received is called by paho for each PUBLISH, in order, on its routing goroutine.
func (s *session) received(_ paho.Client, m paho.Message) {
	s.early.mu.Lock()
	running := s.running
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
