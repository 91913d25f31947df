package mqtt

import "fmt"

// A ConnectPacket is a CONNECT. With a Level other than V311 and V5, or another Name than "MQTT",
// only these two fields are set. A password without a user name is decoded, although MQTT 3.1.1
// forbids it [MQTT-3.1.2-22].
type ConnectPacket struct {
	Name       string
	Level      byte
	Clean      bool
	KeepAlive  uint16
	Properties Properties
	ClientID   string
	Will       *PublishPacket // without a packet id
	UserName   string
	Password   string
	HasUser    bool
	HasPass    bool
}

// DecodeConnect reads a CONNECT.
func DecodeConnect(p []byte) (*ConnectPacket, error) {
	c := cursor{left: p}
	k := &ConnectPacket{Name: c.text("protocol name"), Level: c.byte("protocol level")}
	if c.err != nil || k.Name != "MQTT" || k.Level != V311 && k.Level != V5 {
		return k, c.err
	}
	flags := c.byte("connect flags")
	k.KeepAlive = c.uint16("keep alive")
	k.Clean, k.HasUser, k.HasPass = flags&0x02 != 0, flags&0x80 != 0, flags&0x40 != 0
	hasWill, qos, retain := flags&0x04 != 0, flags>>3&3, flags&0x20 != 0
	switch {
	case flags&1 != 0:
		return k, malformed("reserved connect flag set [MQTT-3.1.2-3]")
	case qos == 3, !hasWill && (qos != 0 || retain):
		return k, malformed("connect flags that do not go together [MQTT-3.1.2-11]")
	}
	if k.Level == V5 {
		k.Properties = c.properties(Connect)
	}
	k.ClientID = c.text("client id")
	if hasWill {
		k.Will = &PublishPacket{QoS: qos, Retain: retain}
		if k.Level == V5 {
			k.Will.Properties = c.properties(will)
		}
		k.Will.Topic = c.text("will topic")
		k.Will.Payload = c.binary("will")
		if c.err == nil && !ValidName(k.Will.Topic) {
			c.fail(&Error{TopicInvalid, fmt.Sprintf("will for %q, which is no topic name", k.Will.Topic)})
		}
	}
	if k.HasUser {
		k.UserName = c.text("user name")
	}
	if k.HasPass {
		k.Password = string(c.binary("password"))
	}
	return k, c.end()
}

// A PublishPacket is a PUBLISH.
type PublishPacket struct {
	Dup, Retain bool
	QoS         byte
	ID          uint16 // zero with QoS 0
	Topic       string
	Properties  Properties
	Payload     []byte
}

// DecodePublish reads a PUBLISH. The topic may be empty in MQTT 5, with a topic alias.
func DecodePublish(version, first byte, p []byte) (*PublishPacket, error) {
	c := cursor{left: p}
	k := &PublishPacket{Dup: first&8 != 0, QoS: first >> 1 & 3, Retain: first&1 != 0}
	switch {
	case k.QoS == 3:
		return k, malformed("publish with QoS 3 [MQTT-3.3.1-4]")
	case k.QoS == 0 && k.Dup:
		return k, malformed("publish with QoS 0 and DUP [MQTT-3.3.1-2]")
	}
	k.Topic = c.text("topic")
	if k.QoS > 0 {
		k.ID = c.id()
	}
	if version == V5 {
		k.Properties = c.properties(Publish)
	}
	_, alias := k.Properties.Get(TopicAlias)
	if c.err == nil && !ValidName(k.Topic) && (k.Topic != "" || !alias) {
		c.fail(&Error{TopicInvalid, fmt.Sprintf("publish to %q, which is no topic name", k.Topic)})
	}
	k.Payload = c.left
	return k, c.err
}

// An AckPacket is a PUBACK, PUBREC, PUBREL or PUBCOMP.
type AckPacket struct {
	ID         uint16
	Code       byte
	Properties Properties
}

// DecodeAck reads an acknowledgement.
func DecodeAck(version, first byte, p []byte) (AckPacket, error) {
	c := cursor{left: p}
	a := AckPacket{ID: c.id()}
	if version == V5 && len(c.left) > 0 {
		a.Code = c.byte("reason code")
		if len(c.left) > 0 {
			a.Properties = c.properties(int(first >> 4))
		}
	}
	return a, c.end()
}

// A Filter is a topic filter of a SUBSCRIBE with its options.
type Filter struct {
	Name              string
	QoS               byte
	NoLocal           bool
	RetainAsPublished bool
	RetainHandling    byte
}

// A SubscribePacket is a SUBSCRIBE or UNSUBSCRIBE.
type SubscribePacket struct {
	ID         uint16
	Properties Properties
	Filters    []Filter
}

// DecodeSubscribe reads a SUBSCRIBE or UNSUBSCRIBE.
func DecodeSubscribe(version, first byte, p []byte) (SubscribePacket, error) {
	c := cursor{left: p}
	typ := int(first >> 4)
	s := SubscribePacket{ID: c.id()}
	if version == V5 {
		s.Properties = c.properties(typ)
	}
	for len(c.left) > 0 && c.err == nil {
		f := Filter{Name: c.text("topic filter")}
		if typ == Subscribe {
			o := c.byte("subscription options")
			f.QoS, f.NoLocal, f.RetainAsPublished, f.RetainHandling = o&3, o&4 != 0, o&8 != 0, o>>4&3
			if f.QoS == 3 || f.RetainHandling == 3 || o&0xc0 != 0 || version == V311 && o > 2 {
				c.fail(malformed("subscription options 0x%02x [MQTT-3.8.3-5]", o))
			}
		}
		s.Filters = append(s.Filters, f)
	}
	if c.err == nil && len(s.Filters) == 0 {
		c.fail(violation("no topic filter [MQTT-3.8.3-2]"))
	}
	return s, c.err
}

// An EndPacket is a DISCONNECT or an AUTH.
type EndPacket struct {
	Code       byte
	Properties Properties
}

// DecodeEnd reads a DISCONNECT or an AUTH.
func DecodeEnd(version, first byte, p []byte) (EndPacket, error) {
	c := cursor{left: p}
	var e EndPacket
	if version == V5 && len(c.left) > 0 {
		e.Code = c.byte("reason code")
		if len(c.left) > 0 {
			e.Properties = c.properties(int(first >> 4))
		}
	}
	return e, c.end()
}

// CheckFlags checks the low four bits of a packet's first byte.
func CheckFlags(first byte) error {
	want := byte(0)
	switch first >> 4 {
	case Publish:
		return nil
	case Pubrel, Subscribe, Unsubscribe:
		want = 2
	}
	if first&15 != want {
		return malformed("flags 0x%x in a packet of type %d [MQTT-2.1.3-1]", first&15, first>>4)
	}
	return nil
}
