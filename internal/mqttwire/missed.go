package mqttwire

import "encoding/binary"

// A PUBLISH that is too large to be kept is skipped, because a broker sends it again on each
// connection that ends for it. MQTT 3.1.1 cannot tell a broker what is too large.

// MaxHead is the most bytes of a PUBLISH of MQTT 3.1.1 before its payload.
const MaxHead = MaxHeader + 2 + MaxText + 2

// missedFlag marks a PUBLISH in a Backlog that was skipped.
const missedFlag = 1 << 7

// Missed is Incoming for a PUBLISH of MQTT 3.1.1 with size bytes that is skipped. body is the
// beginning of its body. If even the packet id is missing, nothing is known about it.
func (b *Backlog) Missed(flags byte, body []byte, size int) error {
	in, err := ReadPublish(flags, body)
	switch {
	case err == ErrShort: //nolint:errorlint // not wrapped
		return nil
	case err != nil:
		return Violation{Err: err}
	}
	head := append([]byte(nil), body[:len(body)-len(in.Body)]...)
	return b.Incoming(flags|missedFlag, binary.BigEndian.AppendUint32(head, uint32(size)))
}

// MissedSize returns the size of a PUBLISH that was skipped, 0 for any other, from the arguments of
// Backlog.Pass.
func MissedSize(flags byte, body []byte) int {
	if flags&missedFlag == 0 {
		return 0
	}
	return int(binary.BigEndian.Uint32(body[len(body)-4:]))
}
