package oteltrace

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/hubline-iot/hubline/transport"
)

// Transport returns a Transport around inner for device.New. With it the Tracer sees each attempt
// to send a message of a Client. Where packages dpstransport or dpscert make transports, put it
// around those that they are given, so that spans name the hub.
func (t *Tracer) Transport(inner transport.Transport) transport.Transport { return &traced{t, inner} }

type traced struct {
	tracer *Tracer
	inner  transport.Transport
}

// Check asks the inner transport.
func (x *traced) Check(creds *transport.Credentials) error {
	if checker, ok := x.inner.(transport.Checker); ok {
		return checker.Check(creds)
	}
	return nil
}

// Lacks asks the inner transport.
func (x *traced) Lacks(creds *transport.Credentials, feature transport.Features) string {
	if limited, ok := x.inner.(transport.Limited); ok {
		return limited.Lacks(creds, feature)
	}
	return ""
}

// Dial dials with the inner transport.
func (x *traced) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	s := &session{tracer: x.tracer, sink: cfg.Sink, peer: peer(cfg.Creds), inFlight: map[uint16]*message{}}
	own := *cfg
	own.Sink = s
	inner, err := x.inner.Dial(ctx, &own)
	if err != nil {
		return nil, err
	}
	if twinned, ok := inner.(transport.Twinned); ok {
		s.twin = twinned.TwinNumber()
	}
	if p, ok := inner.(transport.Progressor); ok {
		return progressor{sender{inner, s}, p}, nil
	}
	return sender{inner, s}, nil
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

// session knows the messages of a session that have spans. It is the Sink of the inner session.
type session struct {
	tracer *Tracer
	sink   transport.Sink
	peer   []attribute.KeyValue
	twin   uint32

	traced atomic.Int32 // size of inFlight, so that other messages need no lock

	mu       sync.Mutex
	inFlight map[uint16]*message // by tag
	over     bool                // Run has returned
}

// note takes a batch before it is handed over.
func (s *session) note(batch []transport.Item) {
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

// Done notes the answer to a message, and passes it on.
func (s *session) Done(tag uint16, err error) {
	if s.traced.Load() > 0 {
		s.mu.Lock()
		m := s.inFlight[tag]
		delete(s.inFlight, tag)
		s.traced.Store(int32(len(s.inFlight)))
		s.mu.Unlock()
		if m != nil {
			m.answered(time.Now(), err, false)
		}
	}
	s.sink.Done(tag, err)
}

// Reply passes the answer to a request on.
func (s *session) Reply(id uint32, r transport.Reply) { s.sink.Reply(id, r) }

// Deliver passes a delivery on.
func (s *session) Deliver(d *transport.Delivery) bool { return s.sink.Deliver(d) }

// lose notes that the session has ended.
func (s *session) lose(err error) {
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

// sender is a session of the inner transport that is observed.
type sender struct {
	transport.Session
	own *session
}

// Send notes the batch and sends it.
func (s sender) Send(batch []transport.Item) {
	s.own.note(batch)
	s.Session.Send(batch)
}

// Run runs the inner session.
func (s sender) Run(ctx context.Context) error {
	err := s.Session.Run(ctx)
	if ctx.Err() != nil {
		s.own.lose(errHungUp)
	} else {
		s.own.lose(err)
	}
	return err
}

// TwinNumber is that of the inner session.
func (s sender) TwinNumber() uint32 { return s.own.twin }

// progressor is a sender whose inner session is a transport.Progressor.
type progressor struct {
	sender
	transport.Progressor
}
