package engine

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// handshake does what the dialect wants before the connection counts as connected.
func (s *session) handshake() error {
	d, ok := s.dialect.(dialect.Handshaker)
	if !ok {
		return nil
	}
	plan := d.Handshake()
	if plan == nil {
		return nil
	}
	err := plan.Perform(s)
	s.dropHandled()
	if err != nil {
		s.sayGoodbye(err)
	}
	return err
}

// The methods of dialect.Engine, on Dial's goroutine. Messages that are not part of a handshake
// wait in the backlog, for Run.

func (s *session) StandIn(d dialect.Session, k transport.Sink) (dialect.Session, transport.Sink) {
	dialectBefore, sinkBefore := s.dialect, s.sink
	s.dialect, s.sink, s.backlog.Sink = d, k, k
	return dialectBefore, sinkBefore
}

func (s *session) Request(r *transport.Request) { s.Do(r) }

func (s *session) Publish(m *transport.Message) {
	s.Send([]transport.Item{{Tag: handshakeTag, Resent: true, Msg: m}}) // again only if it was written
}

func (s *session) Packet(mine func(topic []byte, m *transport.Message) bool, until time.Time) error {
	for {
		in := s.t.in[s.handled:s.unread]
		head, ok, err := s.next(in)
		if err != nil {
			return err
		}
		size, want := head.Size+head.Body, 1
		if ok && size <= len(in) {
			s.handled += size
			return s.handleEarly(head, in[head.Size:size], mine)
		}
		s.dropHandled()
		if ok {
			more, tooLarge, err := s.incomplete(head, s.t.in[:s.unread])
			if err != nil {
				return err
			}
			if tooLarge {
				return s.lost(s.skipFirst(size))
			}
			want = more
		}
		if err := s.readUntil(want, until); err != nil {
			return s.lost(err)
		}
	}
}

// dropHandled makes room for what is read next.
func (s *session) dropHandled() {
	s.unread, s.handled = copy(s.t.in, s.t.in[s.handled:s.unread]), 0
}

// lost returns why a read failed with err: perhaps the connection was closed since a write failed.
func (s *session) lost(err error) error {
	if failed := s.failure(); err != nil && failed != nil {
		return failed
	}
	return err
}

// stepEvery is how often a step of a handshake with a limit reports that it goes on, as the limit
// of the attempt is shorter, and sends a ping, as it may last longer than the keep-alive.
const stepEvery = 5 * time.Second

var errNoStep = errors.New("the peer did not answer a step of the handshake in time")

// readUntil is readMore with the time at which a step of the handshake ends, zero for none.
func (s *session) readUntil(want int, until time.Time) error {
	if until.IsZero() {
		return s.readMore(want)
	}
	for {
		if s.progress != nil {
			s.progress()
		}
		now := time.Now()
		every := min(stepEvery, s.info.KeepAlive, until.Sub(now))
		if s.timeout > 0 {
			every = min(every, s.timeout/2)
		}
		_ = s.conn.SetReadDeadline(now.Add(every))
		err := s.readMore(want)
		if !mqttwire.TimedOut(err) {
			return err
		}
		if !time.Now().Before(until) {
			return &transport.Error{Kind: transport.Timeout, Scope: transport.ScopeConnection, Op: transport.OpDial,
				Proto: mqttwire.Proto, Err: errNoStep}
		}
		s.Do(&transport.Request{Op: transport.OpPing})
	}
}

// handleEarly handles one packet. A PUBLISH that is not part of the handshake waits for Run.
func (s *session) handleEarly(head mqttwire.Header, body []byte, mine func([]byte, *transport.Message) bool) error {
	if head.Type != mqttwire.Publish {
		return s.handle(head, body)
	}
	topic, m, done, err := s.readMessage(head, body)
	switch {
	case err != nil || done:
		return err
	case mine != nil && mine(topic, m):
		return s.backlog.Overtake(head.Flags, body)
	}
	return s.backlog.Incoming(head.Flags, body)
}

// readMessage reads a PUBLISH. done is true if it was received before.
func (s *session) readMessage(head mqttwire.Header, body []byte) (topic []byte, m *transport.Message, done bool,
	err error) {
	if v := s.t.newer; v != nil {
		return v.read(s, head, body)
	}
	in, err := readPublish(head.Flags, body)
	if err != nil {
		return nil, nil, false, err
	}
	return in.Topic, s.delivery(&in).Msg, false, nil
}

// skipFirst reads the first packet, of size bytes, without keeping it.
func (s *session) skipFirst(size int) error {
	for size > s.unread {
		size -= s.unread
		s.unread = 0
		if err := s.readMore(1); err != nil {
			return err
		}
	}
	s.unread = copy(s.t.in, s.t.in[size:s.unread])
	return nil
}
