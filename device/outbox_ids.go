package device

import "github.com/hubline-iot/hubline/transport"

// A message without an id gets one when it is accepted, and keeps it for all resends. The message
// belongs to the caller, who may send it again as another message, so the session gets a copy with
// the id. Copies are reused: there are as many as were in flight at a time.

// withIDLocked returns the message of slot s as the session gets it.
func (b *outbox) withIDLocked(s *slot) *transport.Message {
	if s.id == "" {
		return s.msg
	}
	if n := len(b.copies); n > 0 {
		s.copied, b.copies = b.copies[n-1], b.copies[:n-1]
	} else {
		s.copied = new(transport.Message)
	}
	*s.copied = *s.msg
	s.copied.ID = s.id
	return s.copied
}

// returnCopyLocked takes the copy back once the session does not use it any more. A session reports
// a message as done only after it has written it, whatever the hub sends.
func (b *outbox) returnCopyLocked(s *slot) {
	if s.copied != nil {
		*s.copied = transport.Message{}
		b.copies = append(b.copies, s.copied)
		s.copied = nil
	}
}
