package amqpscreen

import "encoding/binary"

// channels keeps begin and end in order on each channel. When the hub ends a session, the library
// reuses its channel before it has answered with end. So the begin of another device may precede
// that end, and the hub closes the connection for it [AMQP 1.0, 2.5.1]. Such a begin waits here for
// the end, which the library always sends.
//
// The hub also closes the connection for an end on a channel without a session. Such an end is
// dropped.
type channels struct {
	begun map[uint16]bool
	held  map[uint16][]byte
}

// Descriptors of performatives, as the library writes them: a small ulong behind the frame's
// header.
const (
	codeBegin = 0x11
	codeEnd   = 0x17
)

// pass appends the frame p to out unless it must wait, and after p a begin that waited for it.
func (c *channels) pass(out, p []byte) []byte {
	channel, code := performative(p)
	switch code {
	case codeBegin:
		if c.begun[channel] {
			c.held[channel] = append([]byte(nil), p...)
			return out
		}
		if c.begun == nil {
			c.begun, c.held = make(map[uint16]bool), make(map[uint16][]byte)
		}
		c.begun[channel] = true
	case codeEnd:
		if !c.begun[channel] {
			return out
		}
		next, ok := c.held[channel]
		if ok {
			delete(c.held, channel)
			return append(append(out, p...), next...)
		}
		delete(c.begun, channel)
	}
	return append(out, p...)
}

// performative returns the channel and the code of the performative of a frame, 0 if it has none.
func performative(p []byte) (channel uint16, code byte) {
	const header = 8
	if len(p) < header+3 || int(binary.BigEndian.Uint32(p)) != len(p) || p[4] != header/4 || p[5] != 0 || p[8] != 0 ||
		p[9] != 0x53 {
		return 0, 0
	}
	return binary.BigEndian.Uint16(p[6:]), p[10]
}
