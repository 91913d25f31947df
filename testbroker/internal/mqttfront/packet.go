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
