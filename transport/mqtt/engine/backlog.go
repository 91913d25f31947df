package engine

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/hubline-iot/hubline/internal/mqttpacket"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// backlog holds the messages that came while the sink had no room for them, in order. Reading goes
// on meanwhile: a handler may wait for an acknowledgement. Before the first subscription of the
// connection the messages of a resumed session wait here for a handler.
//
// Messages beyond the bound are left to the peer. So are those behind them, and when all others
// have their verdict the session ends: the next connection brings them, in order.
type backlog struct {
	// mu is held while a message is passed on. It keeps the order, and guards the memory of the
	// dialect and the Transport for a message. The Sink may call Do meanwhile, so Do never waits for
	// it: wanted makes the holder look again.
	mu     sync.Mutex
	wanted atomic.Bool

	packets []byte // of each message: flags, length of the body, body
	head    int    // where the first one begins
	ids     wire.Tags
	tap     tap
}

// backlogHead is the size of the fields before a body.
const backlogHead = 5

// verdicts are what session.mu guards for a backlog.
type verdicts struct {
	waiting    int       // number of messages in the backlog
	open       wire.Tags // ids of messages that the sink took and has given no verdict on
	opened     int       // number of those
	subscribed bool      // to messages, on this connection
	behind     bool      // a message was left to the peer
}

// errBehind ends a connection on which messages were left to the peer.
var errBehind = errors.New("more messages came than may wait for their handler; the next connection brings the rest")

// A tap is a Sink that notes what became of a message.
type tap struct {
	transport.Sink
	hold    bool // messages wait
	called  bool
	message bool // it is one for the backlog
	taken   bool
}

func (t *tap) Deliver(d *transport.Delivery) bool {
	t.called = true
	t.message = d.Kind&^transport.FeatureMessages == 0
	t.taken = !(t.message && t.hold) && t.Sink.Deliver(d)
	return t.taken
}

// incoming handles a PUBLISH. It runs on the goroutine that reads.
func (s *session) incoming(flags byte, body []byte) error {
	b := &s.backlog
	b.mu.Lock()
	s.mu.Lock()
	hold := s.waiting > 0 || s.behind
	s.mu.Unlock()
	id, err := s.pass(flags, body, true, hold)
	if err == nil && b.tap.message && !b.tap.taken {
		s.keep(flags, id, body)
	}
	b.mu.Unlock()
	if hold || b.wanted.Load() {
		s.redeliver()
	}
	return err
}

// pass passes a PUBLISH to the dialect. fresh: it was just read. The caller holds backlog.mu.
func (s *session) pass(flags byte, body []byte, fresh, hold bool) (id uint16, err error) {
	t := &s.backlog.tap
	*t = tap{Sink: s.sink, hold: hold}
	if v := s.t.newer(); v != nil {
		id, err = v.pass(s, flags, body, fresh)
	} else {
		id, err = s.passOld(flags, body)
	}
	if err == nil && t.message && t.taken && id != 0 {
		s.mu.Lock()
		if !s.open.Has(id) {
			s.open.Add(id)
			s.opened++
		}
		s.mu.Unlock()
	}
	return id, err
}

// passOld is pass over MQTT 3.1.1.
func (s *session) passOld(flags byte, body []byte) (uint16, error) {
	in, err := mqttpacket.ReadPublish(flags, body)
	switch {
	case err != nil:
		return 0, wire.Violation{Err: err}
	case in.QoS > 1:
		return 0, wire.NewViolation("the hub sent a PUBLISH with a QoS above 1, which was not requested")
	}
	t, d := &s.backlog.tap, s.delivery(&in)
	s.dialect.Take(t, in.Topic, d)
	wire.Unasked(t, d)
	return in.ID, nil
}

// keep puts a message into the backlog, or leaves it to the peer. The caller holds backlog.mu.
func (s *session) keep(flags byte, id uint16, body []byte) {
	b := &s.backlog
	if id != 0 && b.ids.Has(id) {
		return // the peer repeats it
	}
	s.mu.Lock()
	room := !(s.behind && id != 0) && len(b.packets)-b.head+backlogHead+len(body) <= s.t.opt.maxBacklog()
	if room {
		s.waiting++
	} else if id != 0 {
		s.behind = true
	}
	s.mu.Unlock()
	if !room {
		return
	}
	if id != 0 {
		b.ids.Add(id)
	}
	if b.head > len(b.packets)/2 {
		b.packets = b.packets[:copy(b.packets, b.packets[b.head:])]
		b.head = 0
	}
	b.packets = binary.BigEndian.AppendUint32(append(b.packets, flags), uint32(len(body)))
	b.packets = append(b.packets, body...)
}

// maxBacklog is the most bytes in a backlog. While a large one grows its memory is there twice.
func (o *Options) maxBacklog() int {
	if o.ReadBuffer > 0 {
		return o.ReadBuffer
	}
	return maxIncoming / 2
}

// redeliver passes messages of the backlog on, as far as there is room.
func (s *session) redeliver() {
	b := &s.backlog
	b.wanted.Store(true)
	for b.wanted.Load() && b.mu.TryLock() {
		b.wanted.Store(false)
		for s.passFirst() {
		}
		b.mu.Unlock()
	}
}

// passFirst passes the first message of the backlog on. It returns false without one, or without
// room for it. The caller holds backlog.mu.
func (s *session) passFirst() bool {
	b := &s.backlog
	if b.head == len(b.packets) {
		return false
	}
	first := b.packets[b.head:]
	size := backlogHead + int(binary.BigEndian.Uint32(first[1:]))
	id, err := s.pass(first[0], first[backlogHead:size], false, false)
	if err == nil && b.tap.message && !b.tap.taken {
		return false
	}
	b.ids.Remove(id)
	if b.head += size; b.head == len(b.packets) {
		b.head, b.packets = 0, b.packets[:0]
		if cap(b.packets) > maxRead {
			b.packets = nil // shrinks after a large backlog
		}
	}
	s.mu.Lock()
	s.waiting--
	s.mu.Unlock()
	return true
}

// settled records a verdict.
func (s *session) settled(ref []byte) {
	s.mu.Lock()
	if s.open.Remove(binary.BigEndian.Uint16(ref)) {
		s.opened--
	}
	s.mu.Unlock()
}

// nowSubscribed passes on what has waited for a subscription. It returns errBehind if nothing has
// and there is more.
func (s *session) nowSubscribed() error {
	s.mu.Lock()
	s.subscribed = true
	s.mu.Unlock()
	s.redeliver()
	if s.over() {
		return errBehind
	}
	return nil
}

// over reports whether only another connection brings further messages.
func (s *session) over() bool {
	s.mu.Lock()
	over := s.behind && s.subscribed && s.waiting == 0 && s.opened == 0
	s.mu.Unlock()
	return over
}
