package amqpscreen

import (
	"maps"
	"slices"
)

// The functions below are for tests: those of other packages play the peer of a stream.

// Pending returns how many bytes are pending.
func (s *Stream) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)
}

// SkipOpening makes the screen expect the frames of an open connection.
func (s *Stream) SkipOpening() { s.screen.phase = running }

// Passes reports whether whole frames pass the screen, after all that was read. It must be called
// by the reading goroutine.
func (s *Stream) Passes(frames ...[]byte) bool {
	c := s.screen.clone()
	for _, part := range frames {
		for len(part) > 0 {
			n, whole, err := c.size(part)
			if err != nil || !whole || n == 0 {
				return false
			}
			if _, err := c.check(part[:n:n]); err != nil {
				return false
			}
			part = part[n:]
		}
	}
	return true
}

// MessagePasses reports whether a message passes the screen.
func MessagePasses(b []byte) bool { return checkMessage(b) == nil }

// clone copies a screen.
func (s *screen) clone() *screen {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &screen{phase: s.phase, partial: s.partial, local: maps.Clone(s.local), remote: maps.Clone(s.remote)}
	c.sessions.Store(s.sessions.Load())
	for channel, h := range c.local {
		copied := *h
		copied.out.bits, copied.in.bits = slices.Clone(h.out.bits), slices.Clone(h.in.bits)
		copied.links = nil
		for _, l := range h.links {
			link := *l
			if l.partial != nil {
				kept := *l.partial
				kept.payload = slices.Clone(kept.payload)
				link.partial = &kept
			}
			copied.links = append(copied.links, &link)
		}
		c.local[channel] = &copied
		for remote, other := range c.remote {
			if other == h {
				c.remote[remote] = &copied
			}
		}
	}
	return c
}

// SessionView is what the peer needs to know of a session to send a valid frame.
type SessionView struct {
	// Links are the links of the session.
	Links []LinkView
	// Transfers is how many frames of transfers this side sent.
	Transfers uint32
	// Unsettled is the first delivery of this side that may be unsettled, Sent is the next one.
	Unsettled, Sent uint32
	// Received is the number of the peer's next delivery.
	Received uint32
}

// LinkView is a link in a SessionView.
type LinkView struct {
	Handle  uint32 // of the peer
	Partial bool   // the peer has begun a delivery
}

// Session returns the session on a channel of the peer; the zero SessionView if there is none.
func (s *Stream) Session(channel uint16) (v SessionView) {
	s.screen.mu.Lock()
	defer s.screen.mu.Unlock()
	h := s.screen.remote[channel]
	if h == nil {
		return v
	}
	for _, l := range h.links {
		v.Links = append(v.Links, LinkView{l.peer, l.partial != nil})
	}
	v.Transfers, v.Unsettled, v.Sent, v.Received = h.transfers, h.out.base, h.out.next, h.in.next
	return v
}
