package oteltrace

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/hubline-iot/hubline/observe/otel/internal/tap"
	"github.com/hubline-iot/hubline/transport"
)

// Transport returns a Transport around inner for device.New. With it the Tracer sees each attempt
// to send a message of a Client. Where packages dpstransport or dpscert make transports, put it
// around those that they are given, so that spans name the hub.
func (t *Tracer) Transport(inner transport.Transport) transport.Transport {
	return tap.Transport(inner, func(creds *transport.Credentials) tap.Session {
		return &session{tracer: t, peer: peer(creds), inFlight: map[uint16]*message{}}
	})
}

// peer returns the attributes of the client and of the host that it dials.
func peer(c *transport.Credentials) []attribute.KeyValue {
	var attrs []attribute.KeyValue
	if id := c.DeviceID; id != "" {
		if c.ModuleID != "" {
			id += "/" + c.ModuleID
		}
		attrs = append(attrs, semconv.MessagingClientID(id))
	}
	host := c.Host
	if c.GatewayHost != "" {
		host = c.GatewayHost
	}
	return append(attrs, semconv.ServerAddress(host))
}

// session knows the messages of a session that have spans.
type session struct {
	tracer *Tracer
	peer   []attribute.KeyValue

	traced atomic.Int32 // size of inFlight, so that other messages need no lock

	mu       sync.Mutex
	inFlight map[uint16]*message // by tag
	over     bool                // it has ended
}

// Send takes a batch before it is handed over.
func (s *session) Send(batch []transport.Item) {
	var now time.Time
	for i := range batch {
		m := s.tracer.find(batch[i].Msg)
		if m == nil {
			continue
		}
		if now.IsZero() {
			now = time.Now()
		}
		s.mu.Lock()
		if !s.over && m.handOver(now, batch[i].Msg.ID, s.peer) {
			s.inFlight[batch[i].Tag] = m
			s.traced.Store(int32(len(s.inFlight)))
		}
		s.mu.Unlock()
	}
}

// Done notes the answer to a message.
func (s *session) Done(tag uint16, err error) {
	if s.traced.Load() == 0 {
		return
	}
	s.mu.Lock()
	m := s.inFlight[tag]
	delete(s.inFlight, tag)
	s.traced.Store(int32(len(s.inFlight)))
	s.mu.Unlock()
	if errors.Is(err, transport.ErrWritten) {
		err = nil
	}
	if m != nil {
		m.answered(time.Now(), err, false)
	}
}

// End notes that the session has ended.
func (s *session) End(err error, planned bool) {
	if planned {
		err = errHungUp
	}
	now := time.Now()
	s.mu.Lock()
	lost := s.inFlight
	s.inFlight, s.over = nil, true
	s.traced.Store(0)
	s.mu.Unlock()
	for _, m := range lost {
		m.answered(now, err, true)
	}
}

// errHungUp is the end of an attempt whose session the client ended.
var errHungUp = &transport.Error{Kind: transport.Cancelled, Scope: transport.ScopeConnection, Op: transport.OpSend,
	Err: errors.New("the client ended the connection before an answer came")}
