package mqttwire

// A Greeting holds the fields of a CONNECT, section 3.1. Empty texts are not sent, except the
// client id. In MQTT 3.1.1 a password needs a user name.
type Greeting struct {
	ClientID, UserName, Password string
	// CleanSession makes the server discard the client's session and, in MQTT 3.1.1, keep none.
	CleanSession bool
	// KeepAlive is in seconds; 0 turns it off.
	KeepAlive uint16
	// Will is published by the server when the client disappears without DISCONNECT. Nil: none.
	Will *Will
	// Properties are sent in MQTT 5 alone.
	Properties []byte
}

// A Will is the message that the server publishes for a client that disappeared.
type Will struct {
	Topic, Body []byte
	QoS         byte
	Retain      bool
	// Properties are sent in MQTT 5 alone.
	Properties []byte
}

// ConnectSize returns the size of the packet that AppendConnect appends.
func ConnectSize(g *Greeting) int {
	n := g.body(level311)
	return HeaderSize(n) + n
}

func (g *Greeting) body(l level) int {
	n := 10 + 2 + len(g.ClientID)
	if l == level5 {
		n += BlockSize(len(g.Properties))
	}
	if w := g.Will; w != nil {
		n += 4 + len(w.Topic) + len(w.Body)
		if l == level5 {
			n += BlockSize(len(w.Properties))
		}
	}
	if g.UserName != "" {
		n += 2 + len(g.UserName)
	}
	if g.Password != "" {
		n += 2 + len(g.Password)
	}
	return n
}

// Bits of the connect flags, section 3.1.2.3.
const (
	cleanSession = 1 << 1
	hasWill      = 1 << 2
	willQoS      = 3 // shift
	willRetain   = 1 << 5
	hasPassword  = 1 << 6
	hasUserName  = 1 << 7
)

// AppendConnect appends a CONNECT. With an error, dst is returned unchanged.
func AppendConnect(dst []byte, g *Greeting) ([]byte, error) {
	switch {
	case len(g.ClientID) > MaxText || len(g.UserName) > MaxText:
		return dst, ErrText
	case g.Password != "" && g.UserName == "":
		return dst, ErrPassword
	}
	return appendConnect(dst, g, level311)
}

// appendConnect checks what both versions check, and appends a CONNECT.
func appendConnect(dst []byte, g *Greeting, l level) ([]byte, error) {
	w := g.Will
	switch {
	case len(g.Password) > MaxText || w != nil && len(w.Body) > MaxText:
		return dst, ErrText
	case w != nil && !ValidTopic(w.Topic):
		return dst, ErrTopic
	case w != nil && w.QoS > 2:
		return dst, ErrQoS
	}
	dst = AppendHeader(dst, Connect, 0, g.body(l))
	dst = append(dst, 0, 4, 'M', 'Q', 'T', 'T', byte(l), g.flags()) // [MQTT-3.1.2-1], [MQTT-3.1.2-2]
	dst = AppendID(dst, g.KeepAlive)
	if l == level5 {
		dst = AppendBlock(dst, g.Properties)
	}
	dst = appendField(dst, g.ClientID) // [MQTT-3.1.3-1]: in this order
	if w != nil {
		if l == level5 {
			dst = AppendBlock(dst, w.Properties)
		}
		dst = appendField(appendField(dst, w.Topic), w.Body)
	}
	if g.UserName != "" {
		dst = appendField(dst, g.UserName)
	}
	if g.Password != "" {
		dst = appendField(dst, g.Password)
	}
	return dst, nil
}

// flags returns the connect flags.
func (g *Greeting) flags() (bits byte) {
	if g.CleanSession {
		bits |= cleanSession
	}
	if w := g.Will; w != nil {
		bits |= hasWill | w.QoS<<willQoS
		if w.Retain {
			bits |= willRetain
		}
	}
	if g.UserName != "" {
		bits |= hasUserName
	}
	if g.Password != "" {
		bits |= hasPassword
	}
	return bits
}

// An Outgoing is the shape of a PUBLISH to send, section 3.3.
type Outgoing struct {
	Dup, Retain bool
	// QoS is 0 or 1.
	QoS byte
	// Topic and Body are sizes in bytes. In MQTT 5 a Topic of 0 bytes needs a topic alias among the
	// properties.
	Topic, Body int
	// Properties is the BlockSize of the properties in MQTT 5, 0 in MQTT 3.1.1.
	Properties int
}

func (o *Outgoing) body() int {
	n := 2 + o.Topic + o.Properties + o.Body
	if o.QoS > 0 {
		n += 2
	}
	return n
}

// HeadSize returns the size of the packet without its payload.
func (o *Outgoing) HeadSize() int {
	n := o.body()
	return HeaderSize(n) + n - o.Body
}

// AppendPublish appends a PUBLISH up to its topic. The caller appends the topic; then with QoS 1
// the packet id (AppendID); then in MQTT 5 the properties (AppendBlock); then the payload, in the
// sizes given. The packet's body must not exceed MaxBody, nor the topic MaxText. DUP is not allowed
// with QoS 0.
func AppendPublish(dst []byte, o *Outgoing) []byte {
	bits := o.QoS << 1
	if o.Dup {
		bits |= 8
	}
	if o.Retain {
		bits |= 1
	}
	return AppendID(AppendHeader(dst, Publish, bits, o.body()), uint16(o.Topic))
}

// AppendAck appends a PUBACK, PUBREC, PUBREL or PUBCOMP without properties, sections 3.4 to 3.7.
// In MQTT 3.1.1 reason is 0.
func AppendAck(dst []byte, t Type, id uint16, reason byte) []byte {
	if reason == 0 {
		return AppendID(AppendHeader(dst, t, flags[t&15], 2), id)
	}
	return append(AppendID(AppendHeader(dst, t, flags[t&15], 3), id), reason)
}

// Filter is a topic filter, with the QoS that a SUBSCRIBE requests.
type Filter struct {
	Topic string
	QoS   byte
}

// AppendSubscribe appends a SUBSCRIBE for one or more filters, section 3.8. With an error, dst is
// returned unchanged.
func AppendSubscribe(dst []byte, id uint16, filters ...Filter) ([]byte, error) {
	for i := range filters {
		if len(filters[i].Topic) > MaxText {
			return dst, ErrText
		}
	}
	dst, err := subscribeHead(dst, id, 0, filters)
	if err != nil {
		return dst, err
	}
	for i := range filters {
		dst = append(appendField(dst, filters[i].Topic), filters[i].QoS)
	}
	return dst, nil
}

// subscribeHead appends a SUBSCRIBE up to its packet id. more is the size of what stands between
// the packet id and the filters.
func subscribeHead(dst []byte, id uint16, more int, filters []Filter) ([]byte, error) {
	n := 2 + more
	for i := range filters {
		if filters[i].QoS > 2 {
			return dst, ErrQoS
		}
		n += 2 + len(filters[i].Topic) + 1
	}
	switch {
	case len(filters) == 0:
		return dst, ErrEmpty
	case id == 0:
		return dst, ErrID
	case n > MaxBody:
		return dst, ErrLength
	}
	return AppendID(AppendHeader(dst, Subscribe, flags[Subscribe], n), id), nil // [MQTT-3.8.1-1]
}

// AppendPingreq appends a PINGREQ, section 3.12.
func AppendPingreq(dst []byte) []byte { return AppendHeader(dst, Pingreq, 0, 0) }

// AppendDisconnect appends a DISCONNECT, section 3.14.
func AppendDisconnect(dst []byte) []byte { return AppendHeader(dst, Disconnect, 0, 0) }
