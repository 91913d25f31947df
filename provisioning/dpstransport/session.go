package dpstransport

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/provisioning/internal/attempt"
	"github.com/hubline-iot/hubline/transport"
)

// session is a session with the assigned hub.
type session struct {
	transport.Session
	t       *Transport
	twin    uint32
	creds   *transport.Credentials
	signed  time.Time // the wall clock at the Dial
	sink    *attempt.Sink
	refused *atomic.Pointer[transport.Error] // the hub's refusal of a subscription
}

// Do starts a request.
func (s session) Do(q *transport.Request) {
	s.sink.Note(q)
	s.Session.Do(q)
}

// refusedLater is told that the hub refuses a subscription because of the device. It returns what
// refuse will return at the end of Run, which follows.
func (s session) refusedLater(e *transport.Error) error {
	if s.creds.ClockRefused(s.signed, e) {
		return e
	}
	s.refused.Store(e)
	if !s.t.wasStable() && !s.t.flips(s.t.otherKey(), e) && s.t.ends(e) {
		return e
	}
	return again(e)
}

// TwinNumber implements transport.Twinned: each registration may lead to another twin.
func (s session) TwinNumber() uint32 { return s.twin }

// Run serves the session. When the hub ends it because the device is gone or forbidden, the next
// Dial asks the service. Unauthorized may be due to an expired token, if there is one: the next
// Dial tells.
func (s session) Run(ctx context.Context) error {
	defer s.t.busy.Store(false) // also when a callback panics
	err := s.Session.Run(ctx)
	if s.t.wasStable() {
		s.t.refusals, s.t.flipped = 0, false
	}
	if e := s.refused.Load(); e != nil {
		_ = s.t.refuse(e) // the client knows the result
		return err
	}
	if e := transport.Find(err); e != nil && ctx.Err() == nil && (e.Kind == transport.Forbidden ||
		e.Kind == transport.NotFound || e.Kind == transport.Unauthorized && s.creds.Sign == nil) {
		err = s.t.refuse(e)
	}
	return err
}

// progressor is a session that reports progress.
type progressor struct {
	session
	transport.Progressor
}
