package hubfixture

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/hubline-iot/hubline/transport"
)

// Sink records what a session reports. Its fields may be read and set while the session rests; the
// methods may be called at any time.
type Sink struct {
	Hold   func(body string) // called first by Deliver, without the lock, if set
	Full   bool              // there is no room for messages: Deliver returns false
	Refuse bool              // Deliver records messages and returns false

	Results     []Result
	Replies     []Answer
	Messages    []transport.Message
	Refs        [][]byte // of Messages
	Redelivered []bool   // of Messages
	Unfit       []string // names and references of method calls whose body did not fit
	Unasked     [][]byte // references of messages that no subscription asks for

	mu    sync.Mutex
	ended bool // Run has returned
	late  int  // calls after that
}

// Result is a call of Done.
type Result struct {
	Tag uint16
	Err error
}

// Answer is a call of Reply.
type Answer struct {
	ID uint32
	transport.Reply
}

func (s *Sink) enter() func() {
	s.mu.Lock()
	if s.ended {
		s.late++
	}
	return s.mu.Unlock
}

// Done records a result.
func (s *Sink) Done(tag uint16, err error) {
	defer s.enter()()
	s.Results = append(s.Results, Result{tag, err})
}

// Reply records a reply.
func (s *Sink) Reply(id uint32, r transport.Reply) {
	defer s.enter()()
	s.Replies = append(s.Replies, Answer{id, r})
}

// Deliver records a delivery.
func (s *Sink) Deliver(d *transport.Delivery) bool {
	s.mu.Lock()
	hold := s.Hold
	s.mu.Unlock()
	if hold != nil {
		hold(string(d.Msg.Body))
	}
	defer s.enter()()
	switch {
	case s.Full && d.Kind&^transport.FeatureMessages == 0:
		return false
	case d.Msg == nil:
		s.Unfit = append(s.Unfit, string(d.Name)+" "+string(d.Ref))
		return true
	case d.Kind == 0:
		s.Unasked = append(s.Unasked, slices.Clone(d.Ref))
		return true
	}
	m := *d.Msg
	m.Properties, m.Body = slices.Clone(m.Properties), slices.Clone(m.Body)
	if m.System != nil {
		own := *m.System
		m.System = &own
	}
	s.Messages = append(s.Messages, m)
	s.Refs = append(s.Refs, slices.Clone(d.Ref))
	s.Redelivered = append(s.Redelivered, d.Redelivered)
	return !s.Refuse
}

// Set changes fields.
func (s *Sink) Set(change func(s *Sink)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// AllResults returns the results so far.
func (s *Sink) AllResults() []Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.Results)
}

// Tags returns the tags that were acknowledged or written with QoS 0, in order.
func (s *Sink) Tags() (tags []uint16) {
	for _, r := range s.AllResults() {
		if r.Err == nil || errors.Is(r.Err, transport.ErrWritten) {
			tags = append(tags, r.Tag)
		}
	}
	return tags
}

// Bodies returns the bodies of the messages so far.
func (s *Sink) Bodies() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.Messages {
		all = append(all, string(m.Body))
	}
	return all
}

// Ref returns the reference of a message by its number.
func (s *Sink) Ref(i int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Refs[i]
}

// ReplyTo returns the latest reply to a request.
func (s *Sink) ReplyTo(id uint32) (transport.Reply, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range slices.Backward(s.Replies) {
		if a.ID == id {
			return a.Reply, true
		}
	}
	return transport.Reply{}, false
}

// Run runs a session on a goroutine until cancel is called, at the latest by t.Cleanup. The channel
// gets Run's error. A call of the sink after that fails the test.
func (s *Sink) Run(t testing.TB, ctx context.Context, of transport.Session, cancel context.CancelFunc) <-chan error {
	ran, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		err := of.Run(ctx)
		s.Set(func(s *Sink) { s.ended = true })
		ran <- err
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if s.late > 0 {
			t.Errorf("%d calls of the sink after Run had returned", s.late)
		}
	})
	return ran
}

// Items returns messages with these bodies, under the tags from first up.
func Items(first int, bodies ...string) []transport.Item {
	items := make([]transport.Item, len(bodies))
	for i, b := range bodies {
		items[i] = transport.Item{Tag: uint16(first + i), Msg: &transport.Message{Body: []byte(b)}}
	}
	return items
}
