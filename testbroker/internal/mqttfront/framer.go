package mqttfront

// MQTT packet types [MQTT-2.2.1].
const (
	packetConnack  = 2
	packetPublish  = 3
	packetPuback   = 4
	packetSuback   = 9
	packetUnsuback = 11
)

// packet returns a packet: its first byte, its length, and the parts of its body.
func packet(first byte, parts ...[]byte) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	all := make([]byte, 1, 5+n)
	all[0] = first
	for left := n; ; {
		b := byte(left & 0x7f)
		if left >>= 7; left == 0 {
			all = append(all, b)
			break
		}
		all = append(all, b|0x80)
	}
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// A framer finds the beginnings of packets in a stream that arrives in pieces.
type framer struct {
	length bool // inside the remaining length
	shift  uint // of the next seven bits of the length
	left   int  // remaining bytes of the packet; while length is set, the length so far
	mark   bool // the packet is to be torn
	torn   bool // the packet is torn; no more bytes may pass
}

// scan reads a piece and calls begins with the first byte of each packet. If begins returns true,
// scan passes a part of the packet, never all of it, and sets torn. It returns how many bytes of
// the piece may pass.
func (f *framer) scan(p []byte, begins func(first byte) bool) int {
	for i := 0; i < len(p); {
		switch {
		case f.length:
			f.left |= int(p[i]&0x7f) << f.shift
			f.shift += 7
			// A length has at most four bytes [MQTT-2.2.3]; the broker ends a connection that sends more.
			f.length = p[i]&0x80 != 0 && f.shift < 28
			if f.mark && !f.length && f.left == 0 { // there is no body to cut in
				f.torn = true
				return i
			}
			i++
		case f.left == 0 && !f.mark:
			f.mark = begins(p[i])
			f.length, f.shift = true, 0
			i++
		case f.mark:
			f.torn = true
			return i + min(f.left, len(p)-i)/2
		default:
			n := min(f.left, len(p)-i)
			f.left -= n
			i += n
		}
	}
	return len(p)
}
