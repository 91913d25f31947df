package dpspaho

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/internal/dpstopic"
	"github.com/hubline-iot/hubline/transport"
)

// A session is one connection. One goroutine uses it. The engine reports on others, to the Sink
// that the session is.
type session struct {
	link    transport.Session
	timeout time.Duration
	hangUp  context.CancelFunc // ends the link
	ended   chan struct{}      // closed when the link has ended
	err     error              // why; valid when ended is closed

	granted chan error  // capacity 1: the answer to SUBSCRIBE
	answers chan answer // capacity 1: the answer to the request in flight

	mu     sync.Mutex // guards the fields below
	lastID uint16     // of a request
	asked  bool       // the request has no answer yet
}

// answer is an answer, with the reference by which its message is acknowledged.
type answer struct {
	provisioning.Answer
	ref []byte
}

func newSession(timeout time.Duration) *session {
	return &session{timeout: timeout, ended: make(chan struct{}), granted: make(chan error, 1),
		answers: make(chan answer, 1)}
}

// serve runs the link until Close.
func (s *session) serve(link transport.Session) {
	ctx, cancel := context.WithCancel(context.Background())
	s.link, s.hangUp = link, cancel
	go func() { // ends with the link
		s.err = link.Run(ctx)
		close(s.ended)
	}()
}

// guarded runs f, which waits for the link, and ends the link when limited ends first.
func (s *session) guarded(ctx, limited context.Context, f func() error) error {
	stop := lifetime.AfterFunc(limited, s.hangUp)
	err := f()
	if !stop() {
		<-s.ended
		return cause(ctx, limited, s.err)
	}
	if err != nil {
		return cause(ctx, limited, err)
	}
	return nil
}

// subscribe subscribes to answers.
func (s *session) subscribe(ctx, limited context.Context) error {
	return s.guarded(ctx, limited, func() error {
		s.link.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.Messages})
		select {
		case err := <-s.granted:
			return err
		case <-s.ended:
			return s.err
		}
	})
}

// Exchange publishes the request and waits for its answer.
func (s *session) Exchange(ctx context.Context, r *provisioning.Request) (*provisioning.Answer, error) {
	limited, end := lifetime.WithinTime(ctx, s.timeout)
	defer end()
	var got answer
	err := s.guarded(ctx, limited, func() error {
		id := s.ask()
		s.link.Send([]transport.Item{{Tag: id % transport.MaxTags,
			Msg: &transport.Message{Topic: string(dpstopic.Of(r, id)), Body: r.Body}}})
		select {
		case got = <-s.answers:
			s.link.Do(&transport.Request{Op: transport.OpSettle, Ref: got.ref})
			return nil
		case <-s.ended:
			return s.err
		}
	})
	if err != nil {
		return nil, err
	}
	return &got.Answer, nil
}

// ask returns the id of the next request.
func (s *session) ask() uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastID++; s.lastID == 0 {
		s.lastID++
	}
	s.asked = true
	return s.lastID
}

// Deliver passes on the answer to the request in flight. Other messages are ignored.
func (s *session) Deliver(d *transport.Delivery) bool {
	a, ok := dpstopic.Parse(d.Msg.Topic)
	if !ok {
		return false
	}
	s.mu.Lock()
	ours := s.asked && a.RID == strconv.Itoa(int(s.lastID))
	if ours {
		s.asked = false
	}
	s.mu.Unlock()
	if ours {
		s.answers <- answer{ref: append([]byte(nil), d.Ref...), Answer: provisioning.Answer{Status: a.Status,
			RetryAfter: a.After, Body: append([]byte(nil), d.Msg.Body...)}}
	}
	return ours
}

// Close sends DISCONNECT and closes the connection.
func (s *session) Close() {
	s.hangUp()
	<-s.ended
}

// Done is called for the PUBACK of a request, which says nothing: the answer counts.
func (s *session) Done(uint16, error) {}

// Reply is called for the SUBACK.
func (s *session) Reply(_ uint32, r transport.Reply) { s.granted <- r.Err }
