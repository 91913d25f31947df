package mqtt5

import (
	"strings"

	"github.com/hubline-iot/hubline/internal/mqttpacket"
)

// A Greeting holds the fields of a CONNECT, section 3.1. Empty texts are not sent, except the
// client id. CleanSession is the clean start flag of MQTT 5. A password needs no user name.
type Greeting struct {
	mqttpacket.Greeting
	Properties, WillProperties []byte
}

// ConnectSize returns the size of the packet that AppendConnect appends.
func ConnectSize(g *Greeting) int {
	n := g.body()
	return mqttpacket.HeaderSize(n) + n
}

func blockSize(properties []byte) int { return varintSize(len(properties)) + len(properties) }

func (g *Greeting) body() int {
	n := 10 + blockSize(g.Properties) + 2 + len(g.ClientID)
	if g.Will != nil {
		n += blockSize(g.WillProperties) + 4 + len(g.Will.Topic) + len(g.Will.Body)
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
	cleanStart  = 1 << 1
	hasWill     = 1 << 2
	willQoS     = 3 // shift
	willRetain  = 1 << 5
	hasPassword = 1 << 6
	hasUserName = 1 << 7
)

// AppendConnect appends a CONNECT. With an error, dst is returned unchanged.
func AppendConnect(dst []byte, g *Greeting) ([]byte, error) {
	w := g.Will
	switch {
	case !ValidText(g.ClientID) || !ValidText(g.UserName):
		return dst, ErrString
	case len(g.Password) > mqttpacket.MaxText || w != nil && len(w.Body) > mqttpacket.MaxText:
		return dst, mqttpacket.ErrText
	case w != nil && !mqttpacket.ValidTopic(w.Topic):
		return dst, mqttpacket.ErrTopic
	case w != nil && w.QoS > 2:
		return dst, mqttpacket.ErrQoS
	}
	if err := check(mqttpacket.Connect, g.Properties); err != nil {
		return dst, err
	}
	bits := byte(0)
	if g.CleanSession {
		bits |= cleanStart
	}
	if w != nil {
		if err := check(will, g.WillProperties); err != nil {
			return dst, err
		}
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
	dst = mqttpacket.AppendHeader(dst, mqttpacket.Connect, 0, g.body())
	dst = append(dst, 0, 4, 'M', 'Q', 'T', 'T', 5, bits) // [MQTT-3.1.2-1], [MQTT-3.1.2-2]
	dst = appendBlock(mqttpacket.AppendID(dst, g.KeepAlive), g.Properties)
	dst = appendText(dst, g.ClientID) // [MQTT-3.1.3-1]: in this order
	if w != nil {
		dst = appendBlock(dst, g.WillProperties)
		dst = append(mqttpacket.AppendID(dst, uint16(len(w.Topic))), w.Topic...)
		dst = append(mqttpacket.AppendID(dst, uint16(len(w.Body))), w.Body...)
	}
	if g.UserName != "" {
		dst = appendText(dst, g.UserName)
	}
	if g.Password != "" {
		dst = appendText(dst, g.Password)
	}
	return dst, nil
}

func appendBlock(dst, properties []byte) []byte {
	return append(appendVarint(dst, uint32(len(properties))), properties...)
}

// An Outgoing is the shape of a PUBLISH to send, section 3.3. A Topic of 0 bytes needs a topic
// alias among the properties.
type Outgoing struct {
	mqttpacket.Outgoing
	// Properties is their size in bytes.
	Properties int
}

func (o *Outgoing) body() int {
	n := 2 + o.Topic + varintSize(o.Properties) + o.Properties + o.Body
	if o.QoS > 0 {
		n += 2
	}
	return n
}

// HeadSize returns the size of the packet without its payload.
func (o *Outgoing) HeadSize() int {
	n := o.body()
	return mqttpacket.HeaderSize(n) + n - o.Body
}

// AppendPublish appends a PUBLISH up to its topic. The caller appends the topic; then with QoS 1
// the packet id (AppendID); then AppendLength with the size of the properties, and those; then the
// payload, in the sizes given. The packet's body must not exceed MaxBody, nor the topic MaxText.
// DUP is not allowed with QoS 0.
func AppendPublish(dst []byte, o *Outgoing) []byte {
	bits := o.QoS << 1
	if o.Dup {
		bits |= 8
	}
	if o.Retain {
		bits |= 1
	}
	return mqttpacket.AppendID(mqttpacket.AppendHeader(dst, mqttpacket.Publish, bits, o.body()), uint16(o.Topic))
}

// AppendLength appends the length of a block of properties, MaxBody at most.
func AppendLength(dst []byte, n int) []byte { return appendVarint(dst, uint32(n)) }

// AppendAck appends a PUBACK, PUBREC, PUBREL or PUBCOMP without properties, sections 3.4 to 3.7.
func AppendAck(dst []byte, t mqttpacket.Type, id uint16, reason byte) []byte {
	if reason == 0 {
		return mqttpacket.AppendID(mqttpacket.AppendHeader(dst, t, flags[t&15], 2), id)
	}
	return append(mqttpacket.AppendID(mqttpacket.AppendHeader(dst, t, flags[t&15], 3), id), reason)
}

// Options are the subscription options of SUBSCRIBE beside the QoS, section 3.8.3.1.
type Options struct {
	// NoLocal keeps the client's own messages away. It is left out for shared subscriptions, which
	// must not have it: [MQTT-3.8.3-4].
	NoLocal bool
	// RetainAsPublished keeps the retain flag of messages.
	RetainAsPublished bool
	// RetainHandling: 0 sends retained messages with each subscription, 1 with new ones, 2 never.
	RetainHandling byte
}

func (o Options) of(f *mqttpacket.Filter) byte {
	bits := f.QoS | o.RetainHandling<<4
	if o.NoLocal && !strings.HasPrefix(f.Topic, "$share/") {
		bits |= 1 << 2
	}
	if o.RetainAsPublished {
		bits |= 1 << 3
	}
	return bits
}

// AppendSubscribe appends a SUBSCRIBE for one or more filters, section 3.8. With an error, dst is
// returned unchanged.
func AppendSubscribe(dst []byte, id uint16, properties []byte, o Options, filters ...mqttpacket.Filter) ([]byte,
	error) {
	if o.RetainHandling > 2 {
		return dst, ErrRange
	}
	dst, err := appendFilters(dst, mqttpacket.Subscribe, id, properties, filters, 1)
	if err != nil {
		return dst, err
	}
	for i := range filters {
		dst = append(appendText(dst, filters[i].Topic), o.of(&filters[i]))
	}
	return dst, nil
}

// AppendUnsubscribe appends an UNSUBSCRIBE, section 3.10, like AppendSubscribe. The filters' QoS is
// ignored.
func AppendUnsubscribe(dst []byte, id uint16, properties []byte, filters ...mqttpacket.Filter) ([]byte, error) {
	dst, err := appendFilters(dst, mqttpacket.Unsubscribe, id, properties, filters, 0)
	if err != nil {
		return dst, err
	}
	for i := range filters {
		dst = appendText(dst, filters[i].Topic)
	}
	return dst, nil
}

// appendFilters appends a packet up to its filters, of which each has more bytes behind it.
func appendFilters(dst []byte, t mqttpacket.Type, id uint16, properties []byte, filters []mqttpacket.Filter,
	more int) ([]byte, error) {
	n := 2 + blockSize(properties)
	for i := range filters {
		switch f := &filters[i]; {
		case f.Topic == "" || !ValidText(f.Topic):
			return dst, ErrString
		case more > 0 && f.QoS > 2:
			return dst, mqttpacket.ErrQoS
		}
		n += 2 + len(filters[i].Topic) + more
	}
	switch {
	case len(filters) == 0:
		return dst, mqttpacket.ErrEmpty
	case id == 0:
		return dst, mqttpacket.ErrID
	case n > mqttpacket.MaxBody:
		return dst, mqttpacket.ErrLength
	}
	if err := check(t, properties); err != nil {
		return dst, err
	}
	dst = mqttpacket.AppendID(mqttpacket.AppendHeader(dst, t, flags[t&15], n), id)
	return appendBlock(dst, properties), nil
}

// AppendDisconnect appends a DISCONNECT, section 3.14. With an error, dst is returned unchanged.
func AppendDisconnect(dst []byte, reason byte, properties []byte) ([]byte, error) {
	return appendReason(dst, mqttpacket.Disconnect, reason, properties)
}

// AppendAuth appends an AUTH, section 3.15, like AppendDisconnect.
func AppendAuth(dst []byte, reason byte, properties []byte) ([]byte, error) {
	return appendReason(dst, Auth, reason, properties)
}

func appendReason(dst []byte, t mqttpacket.Type, reason byte, properties []byte) ([]byte, error) {
	if err := check(t, properties); err != nil {
		return dst, err
	}
	if reason == 0 && len(properties) == 0 {
		return mqttpacket.AppendHeader(dst, t, 0, 0), nil
	}
	dst = append(mqttpacket.AppendHeader(dst, t, 0, 1+blockSize(properties)), reason)
	return appendBlock(dst, properties), nil
}
