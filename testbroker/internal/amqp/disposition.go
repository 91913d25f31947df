package amqp

import (
	"slices"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// sent is a message that was sent unsettled.
type sent struct {
	link *Link
	tag  []byte
}

// disposition handles the client's states of messages that the server sent. A disposition for the
// client's own messages is ignored.
func (s *Session) disposition(d *wire.Disposition) error {
	if d.Role == wire.RoleSender {
		return nil
	}
	last := d.First
	if d.Last.OK {
		last = d.Last.V
	}
	if int32(last-d.First) < 0 {
		return broken(wire.InvalidField, "disposition of %d to %d", d.First, last)
	}
	type one struct {
		id uint32
		*sent
	}
	var all []one
	c := s.conn
	c.mu.Lock()
	_, partial := d.State.(*wire.Received)
	final := d.Settled || d.State != nil && !partial
	full := s.fullLocked()
	if final {
		for id, m := range s.unsettled {
			if id-d.First <= last-d.First {
				all = append(all, one{id, m})
				delete(s.unsettled, id)
			}
		}
	}
	var credited []*Link
	if full && !s.fullLocked() {
		credited = s.creditedLocked()
	}
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b one) int { return int(int32(a.id - b.id)) })
	for _, m := range all {
		state := d.State
		if partial {
			state = nil
		}
		end := c.handler.Settled(m.link, m.tag, state)
		if !d.Settled {
			c.say(s.channel, &wire.Disposition{Role: wire.RoleSender, First: m.id, Last: wire.Some(m.id), Settled: true,
				State: end}, nil)
		}
	}
	for _, l := range credited {
		c.handler.Credit(l)
	}
	return nil
}

// acceptLocked adds a delivery to the accepted ones, which are reported together.
func (s *Session) acceptLocked(id uint32) {
	if s.begun && id == s.run.Last.V+1 {
		s.run.Last.V = id
		return
	}
	s.tellLocked()
	s.run, s.begun = wire.Disposition{Role: wire.RoleReceiver, First: id, Last: wire.Some(id), Settled: true,
		State: &wire.Accepted{}}, true
	s.conn.toTell = append(s.conn.toTell, s)
}

func (s *Session) tellLocked() {
	if s.begun && !s.ended {
		run := s.run
		s.conn.writeLocked(s.channel, &run, nil)
	}
	s.begun = false
}
