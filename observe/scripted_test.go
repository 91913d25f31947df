package observe_test

import (
	"context"
	"errors"
	"sync"

	"github.com/hubline-iot/hubline/transport"
)

// scripted is a transport.Transport for one client. Its zero value connects at once and
// acknowledges every message.
type scripted struct {
	// OnDial decides about attempt n, counted from 1; nil: success.
	OnDial func(n int) error
	// Verdict decides about a message; nil acknowledges it.
	Verdict func(m *transport.Message) error

	mu    sync.Mutex
	dials int
	live  *session
}

// Dial makes a session.
func (t *scripted) Dial(_ context.Context, cfg *transport.Config) (transport.Session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dials++
	if t.OnDial != nil {
		if err := t.OnDial(t.dials); err != nil {
			return nil, err
		}
	}
	t.live = &session{verdict: t.Verdict, sink: cfg.Sink, wake: make(chan struct{}, 1), kill: make(chan error, 1)}
	return t.live, nil
}

// Lose ends the live session like a lost connection.
func (t *scripted) Lose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live.kill <- scriptedFailure(transport.Network, transport.ScopeConnection)
}

// Deliver delivers a cloud-to-device message and reports whether the client took it.
func (t *scripted) Deliver(body string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live.sink.Deliver(&transport.Delivery{Kind: transport.FeatureMessages, Ref: []byte{1},
		Msg: &transport.Message{Body: []byte(body)}})
}

// scriptedFailure returns an error as a transport reports it.
func scriptedFailure(k transport.Kind, s transport.Scope) *transport.Error {
	op := transport.OpSend
	if s == transport.ScopeConnection {
		op = transport.OpRun
	}
	return &transport.Error{Kind: k, Scope: s, Op: op, Proto: "scripted", Err: errors.New("as the script says")}
}

type session struct {
	verdict func(m *transport.Message) error
	sink    transport.Sink
	wake    chan struct{}
	kill    chan error

	mu    sync.Mutex
	queue []transport.Item
}

func (s *session) Info() transport.Info { return transport.Info{} }

func (s *session) Run(ctx context.Context) error {
	for {
		select {
		case <-s.wake:
			s.mu.Lock()
			items := s.queue
			s.queue = nil
			s.mu.Unlock()
			for _, it := range items {
				var err error
				if s.verdict != nil {
					err = s.verdict(it.Msg)
				}
				s.sink.Done(it.Tag, err)
			}
		case err := <-s.kill:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *session) Send(batch []transport.Item) {
	s.mu.Lock()
	s.queue = append(s.queue, batch...)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Do grants every subscription; other requests are one-way.
func (s *session) Do(r *transport.Request) {
	if r.Op == transport.OpSubscribe {
		s.sink.Reply(r.ID, transport.Reply{})
	}
}
