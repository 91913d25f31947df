package engine

import (
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
)

// handshakeTag is the tag of the message of a handshake, which no other message has. Its packet id
// is none of nextID.
const handshakeTag = lastPacketID - 1

const lastPacketID = 65535

// puback reports the message as done. A PUBACK for a message that is not written yet, or was
// acknowledged before, is ignored: until a message is written, Send may read it.
func (s *session) puback(id uint16) error {
	if s.answeredMessage(id - 1) {
		s.sink.Done(id-1, nil)
		return nil
	}
	return s.acknowledged(id)
}

// wrote records that the peer may have the message from now on, which has so many bytes.
func (s *session) wrote(tag uint16, size int) {
	s.mu.Lock()
	s.unacked++
	s.unackedBytes = min(s.unackedBytes+size, transport.MaxMessageSize)
	if tag == handshakeTag {
		s.handshakeUnacked, s.t.handshake = true, true
	} else {
		s.t.unacked.Add(tag)
		s.t.inFlight.Add(tag)
		s.t.unsent.Remove(tag)
	}
	s.mu.Unlock()
}

// answeredMessage records an acknowledgement. It returns false if no message with this tag waited
// for one on this connection.
func (s *session) answeredMessage(tag uint16) (ours bool) {
	s.mu.Lock()
	if tag == handshakeTag {
		if ours = s.handshakeUnacked; ours {
			s.handshakeUnacked, s.t.handshake = false, false
		}
	} else if ours = s.t.unacked.Remove(tag); ours {
		s.t.inFlight.Remove(tag)
	}
	if ours {
		if s.unacked--; s.unacked == 0 {
			s.unackedBytes = 0
		}
	}
	s.mu.Unlock()
	return ours
}

// mayHave reports whether the peer may have a copy of a message that was handed over before. A peer
// that speaks MQTT 5 says when it has forgotten the session. Otherwise another Transport of the
// client may have written the message.
func (s *session) mayHave(tag uint16) (may bool) {
	s.mu.Lock()
	switch {
	case tag == handshakeTag:
		may = s.t.handshake
	case s.t.newer != nil:
		may = s.t.inFlight.Has(tag)
	default:
		may = !s.t.unsent.Has(tag)
	}
	s.mu.Unlock()
	return may
}

// took begins the record of a batch: messages that were not handed over before have no earlier
// copy. It returns false when the connection has failed.
func (s *session) took(batch []transport.Item) bool {
	s.mu.Lock()
	for i := range batch {
		if tag := batch[i].Tag; !batch[i].Resent {
			s.t.inFlight.Remove(tag)
			s.t.unsent.Add(tag)
		}
	}
	ok := s.err == nil
	s.mu.Unlock()
	return ok
}

// acknowledged handles a PUBACK for no message of Send.
func (s *session) acknowledged(id uint16) error {
	if _, ok := s.takeSubscription(id); ok {
		return mqttwire.NewViolation("the hub answered a SUBSCRIBE with PUBACK")
	}
	return nil // acknowledged before, or never sent
}
