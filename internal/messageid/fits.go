package messageid

import "github.com/hubline-iot/hubline/transport"

// mostProperties is the maximum size of a message without its body, in bytes, for which an id is
// generated. Percent-encoded, three bytes for one, it leaves room for an id in an MQTT topic of
// 65,535 bytes.
const mostProperties = 16 << 10

// Fits reports whether a generated id leaves m, of that size, acceptable to every protocol.
func Fits(m *transport.Message, size int) bool {
	return size+MaxPrefix+1+13 <= transport.MaxMessageSize && size-len(m.Body) <= mostProperties
}
