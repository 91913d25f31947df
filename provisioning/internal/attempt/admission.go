package attempt

import (
	"sync/atomic"

	"github.com/hubline-iot/hubline/transport"
)

// Sink is the sink of a session. It notices that a hub refuses a device after it has let it
// connect: over AMQP with a certificate the hub learns the device's name with the first link.
type Sink struct {
	transport.Sink
	refused func(e *transport.Error) error
	id      atomic.Uint32 // of the latest subscription; 0: none
}

// Watch returns a sink that passes everything on to the given one. The error of a subscription that
// names no feature but the device, Unauthorized or NotFound, becomes what refused returns. Any
// goroutine of the session may call that, with the rules of transport.Sink.
func Watch(to transport.Sink, refused func(e *transport.Error) error) *Sink {
	return &Sink{Sink: to, refused: refused}
}

// Note notes a request before the session gets it.
func (s *Sink) Note(q *transport.Request) {
	if q.Op == transport.OpSubscribe && q.Want != transport.FeatureCertificates {
		s.id.Store(q.ID)
	}
}

// Reply implements transport.Sink.
func (s *Sink) Reply(id uint32, r transport.Reply) {
	if r.Err != nil && id != 0 && id == s.id.Load() {
		if e := transport.Find(r.Err); e != nil && (e.Kind == transport.Unauthorized || e.Kind == transport.NotFound) {
			r.Err = s.refused(e)
		}
	}
	s.Sink.Reply(id, r)
}

// TwinNumber returns the number of the twin of a session, 0 if it has none.
func TwinNumber(s transport.Session) uint32 {
	if t, ok := s.(transport.Twinned); ok {
		return t.TwinNumber()
	}
	return 0
}
