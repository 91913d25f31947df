package mqtt

// CheckFirst checks the first byte of a connection, which is that of a CONNECT [MQTT-3.1.0-1]. Its
// error names the protocol that begins with another byte.
func CheckFirst(b byte) error {
	const recordOfTLS = 0x16
	speaks := "no MQTT"
	switch {
	case b == Connect<<4:
		return nil
	case b == recordOfTLS:
		speaks = "TLS, and this port has none"
	case b == 'A':
		speaks = "AMQP, and this port is for MQTT"
	case 'B' <= b && b <= 'Z':
		speaks = "HTTP, and this port is for MQTT"
	}
	return malformed("first byte 0x%02x in place of a CONNECT: the client speaks %s [MQTT-3.1.0-1]", b, speaks)
}

// packet returns a packet: its first byte, its length, and the parts of its body.
func packet(first byte, parts ...[]byte) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	all := appendLength(append(make([]byte, 0, 5+n), first), n)
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// appendLength appends a number as a variable byte integer.
func appendLength(dst []byte, n int) []byte {
	for n > 0x7f {
		dst = append(dst, byte(n)|0x80)
		n >>= 7
	}
	return append(dst, byte(n))
}
