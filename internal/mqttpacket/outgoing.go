package mqttpacket

// A Greeting holds the fields of a CONNECT, section 3.1. Empty texts are not sent, except the
// client id.
type Greeting struct {
	ClientID, UserName, Password string
	// CleanSession makes the server discard the client's session and keep none.
	CleanSession bool
	// KeepAlive is in seconds; 0 turns it off.
	KeepAlive uint16
	// Will is published by the server when the client disappears without DISCONNECT. Nil: none.
	Will *Will
}

// A Will is the message that the server publishes for a client that disappeared.
type Will struct {
	Topic, Body []byte
	QoS         byte
	Retain      bool
}

// ConnectSize returns the size of the packet that AppendConnect appends.
func ConnectSize(g *Greeting) int {
	n := g.body()
	return HeaderSize(n) + n
}

func (g *Greeting) body() int {
	n := 10 + 2 + len(g.ClientID)
	if g.Will != nil {
		n += 4 + len(g.Will.Topic) + len(g.Will.Body)
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
	switch w := g.Will; {
	case len(g.ClientID) > MaxText || len(g.UserName) > MaxText || len(g.Password) > MaxText || w != nil &&
		len(w.Body) > MaxText:
		return dst, ErrText
	case g.Password != "" && g.UserName == "":
		return dst, ErrPassword
	case w != nil && !ValidTopic(w.Topic):
		return dst, ErrTopic
	case w != nil && w.QoS > 2:
		return dst, ErrQoS
	}
	bits := byte(0)
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
	dst = AppendHeader(dst, Connect, 0, g.body())
	dst = append(dst, 0, 4, 'M', 'Q', 'T', 'T', 4, bits) // [MQTT-3.1.2-1], [MQTT-3.1.2-2]
	dst = AppendID(dst, g.KeepAlive)
	dst = appendText(dst, g.ClientID) // [MQTT-3.1.3-1]: in this order
	if w := g.Will; w != nil {
		dst = append(AppendID(dst, uint16(len(w.Topic))), w.Topic...)
		dst = append(AppendID(dst, uint16(len(w.Body))), w.Body...)
	}
	if g.UserName != "" {
		dst = appendText(dst, g.UserName)
	}
	if g.Password != "" {
		dst = appendText(dst, g.Password)
	}
	return dst, nil
}

// An Outgoing is the shape of a PUBLISH to send, section 3.3.
type Outgoing struct {
	Dup, Retain bool
	// QoS is 0 or 1.
	QoS byte
	// Topic and Body are sizes in bytes.
	Topic, Body int
}

func (o *Outgoing) body() int {
	n := 2 + o.Topic + o.Body
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

// AppendPublish appends a PUBLISH up to its topic. The caller appends the topic, then with QoS 1
// the packet id (AppendID), then the payload, in the sizes given. The packet's body must not exceed
// MaxBody, nor the topic MaxText. DUP is not allowed with QoS 0.
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

// AppendPuback appends a PUBACK, section 3.4.
func AppendPuback(dst []byte, id uint16) []byte {
	return AppendID(AppendHeader(dst, Puback, 0, 2), id)
}

// Filter is a topic filter, with the QoS that a SUBSCRIBE requests.
type Filter struct {
	Topic string
	QoS   byte
}

// AppendSubscribe appends a SUBSCRIBE for one or more filters, section 3.8. With an error, dst is
// returned unchanged.
func AppendSubscribe(dst []byte, id uint16, filters ...Filter) ([]byte, error) {
	return appendFilters(dst, Subscribe, id, filters, 1)
}

// AppendUnsubscribe appends an UNSUBSCRIBE, section 3.10, like AppendSubscribe. The filters' QoS is
// ignored.
func AppendUnsubscribe(dst []byte, id uint16, filters ...Filter) ([]byte, error) {
	return appendFilters(dst, Unsubscribe, id, filters, 0)
}

func appendFilters(dst []byte, t Type, id uint16, filters []Filter, more int) ([]byte, error) {
	n := 2
	for _, f := range filters {
		switch {
		case len(f.Topic) > MaxText:
			return dst, ErrText
		case more > 0 && f.QoS > 2:
			return dst, ErrQoS
		}
		n += 2 + len(f.Topic) + more
	}
	switch {
	case len(filters) == 0:
		return dst, ErrEmpty
	case id == 0:
		return dst, ErrID
	case n > MaxBody:
		return dst, ErrLength
	}
	dst = AppendID(AppendHeader(dst, t, 2, n), id) // [MQTT-3.8.1-1], [MQTT-3.10.1-1]
	for _, f := range filters {
		dst = appendText(dst, f.Topic)
		if more > 0 {
			dst = append(dst, f.QoS)
		}
	}
	return dst, nil
}

// AppendPingreq appends a PINGREQ, section 3.12.
func AppendPingreq(dst []byte) []byte { return AppendHeader(dst, Pingreq, 0, 0) }

// AppendDisconnect appends a DISCONNECT, section 3.14.
func AppendDisconnect(dst []byte) []byte { return AppendHeader(dst, Disconnect, 0, 0) }
