package mqttwire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/internal/mqttwire"
)

// outgoing5 are packets and their expected encoding.
var outgoing5 = []goodPacket{
	{"CONNECT, the least", "[MQTT-3.1.2-1] [MQTT-3.1.2-2]", "10 0E 0004'MQTT' 05 00 0000 00 0001'd'",
		connect5(mqttwire.Greeting{ClientID: "d"})},
	{"CONNECT, clean start and a client id of the server's choice", "[MQTT-3.1.2-4] [MQTT-3.1.3-6]",
		"10 0D 0004'MQTT' 05 02 003C 00 0000",
		connect5(mqttwire.Greeting{CleanSession: true, KeepAlive: 60})},
	{"CONNECT, password without user name", "3.1.2.9", "10 12 0004'MQTT' 05 40 0000 00 0001'd' 0002'pw'",
		connect5(mqttwire.Greeting{ClientID: "d", Password: "pw"})},
	{"CONNECT, all properties", "3.1.2.11",
		"10 45 0004'MQTT' 05 00 0000 37 11000000FF 210010 2700001000 220005 1901 1700 26 0001'n' 0001'v' 26 0001'n' 0001'w'" +
			" 15 000D'SCRAM-SHA-256' 16 0002 0001 0001'd'",
		connect5(mqttwire.Greeting{ClientID: "d",
			Properties: unhex("11000000FF 210010 2700001000 " +
				"220005 1901 1700 26 0001'n' 0001'v' 26 0001'n' 0001'w' 15 000D'SCRAM-SHA-256' 16 0002 0001")})},
	{"CONNECT, will with all properties, and everything in its order", "[MQTT-3.1.3-1] 3.1.3.2",
		"10 3E 0004'MQTT' 05 EE 0001 00 0001'd' 21 18 0000000A 01 01 02 0000003C 03 0003'a/b' 08 0001'r' 09 0002 00FF" +
			" 26 0001'n' 0000 0002't/' 0001'b' 0001'u' 0002'pw'",
		connect5(mqttwire.Greeting{ClientID: "d", UserName: "u", Password: "pw", CleanSession: true, KeepAlive: 1,
			Will: &mqttwire.Will{Topic: []byte("t/"), Body: []byte("b"), QoS: 1, Retain: true,
				Properties: unhex("18 0000000A 01 01 02 0000003C 03 0003'a/b' 08 0001'r' 09 0002 00FF 26 0001'n' 0000")}})},
	{"PUBLISH with QoS 0", "3.3.1.2", "30 06 0002'a/' 00'x'", publish5(mqttwire.Outgoing{}, "a/", 0, "", "x")},
	{"PUBLISH with QoS 1", "3.3.2", "32 08 0002'a/' 000A 00'x'", publish5(mqttwire.Outgoing{QoS: 1}, "a/", 10, "", "x")},
	{"PUBLISH again, retained", "[MQTT-3.3.1-1]", "3B 07 0002'a/' FFFF 00",
		publish5(mqttwire.Outgoing{QoS: 1, Dup: true, Retain: true}, "a/", 65535, "", "")},
	{"PUBLISH with a topic alias in place of the topic", "3.3.2.3.4", "32 09 0000 0001 03 23 0007'x'",
		publish5(mqttwire.Outgoing{QoS: 1}, "", 1, "23 0007", "x")},
	{"PUBLISH with properties of 128 bytes", "2.2.2.1",
		"30 8701 0001't' 8001 03 007D" + strings.Repeat("61", 125) + "'xy'",
		publish5(mqttwire.Outgoing{}, "t", 0, "03 007D"+strings.Repeat("61", 125), "xy")},
	{"PUBACK, success", "3.4.2.1", "40 02 1234", ack(mqttwire.Puback, 0)},
	{"PUBACK, refused", "3.4.2.1", "40 03 1234 97", ack(mqttwire.Puback, 0x97)},
	{"PUBREC", "3.5", "50 02 1234", ack(mqttwire.Pubrec, 0)},
	{"PUBREL", "[MQTT-3.6.1-1]", "62 02 1234", ack(mqttwire.Pubrel, 0)},
	{"PUBCOMP, no such packet id", "3.7.2.1", "70 03 1234 92", ack(mqttwire.Pubcomp, 0x92)},
	{"SUBSCRIBE", "[MQTT-3.8.1-1]", "82 09 000A 00 0003'a/#' 01", func(dst []byte) ([]byte, error) {
		return mqttwire.AppendSubscribe5(dst, 10, mqttwire.Options{}, mqttwire.Filter{Topic: "a/#", QoS: 1})
	}},
	{"SUBSCRIBE to two with all options", "3.8.3.1 [MQTT-3.8.3-4]",
		"82 14 000B 00 0001'a' 25 000A'$share/g/b' 22", func(dst []byte) ([]byte, error) {
			return mqttwire.AppendSubscribe5(dst, 11, mqttwire.Options{NoLocal: true, RetainHandling: 2},
				mqttwire.Filter{Topic: "a", QoS: 1}, mqttwire.Filter{Topic: "$share/g/b", QoS: 2})
		}},
	{"DISCONNECT", "3.14.2.1", "E0 00", reason(mqttwire.Disconnect, 0, "")},
	{"DISCONNECT with will", "3.14.2.1", "E0 02 04 00", reason(mqttwire.Disconnect, 4, "")},
	{"DISCONNECT with all properties", "3.14.2.2", "E0 12 00 10 11 00000000 1F 0001'r' 26 0001'n' 0001'v'",
		reason(mqttwire.Disconnect, 0, "11 00000000 1F 0001'r' 26 0001'n' 0001'v'")},
	{"AUTH, continue", "3.15.2", "F0 0D 18 0B 15 0003'abc' 16 0002'de'",
		reason(mqttwire.Auth, 0x18, "15 0003'abc' 16 0002'de'")},
	{"AUTH, success", "3.15.2.1", "F0 00", reason(mqttwire.Auth, 0, "")},
}

func connect5(g mqttwire.Greeting) func(dst []byte) ([]byte, error) {
	return func(dst []byte) ([]byte, error) {
		b, err := mqttwire.AppendConnect5(dst, &g)
		if size := mqttwire.ConnectSize5(&g); err == nil && size != len(b)-len(dst) {
			return b, fmt.Errorf("ConnectSize is %d", size)
		}
		return b, err
	}
}

func publish5(o mqttwire.Outgoing, topic string, id uint16, properties, body string) func([]byte) ([]byte, error) {
	return func(dst []byte) ([]byte, error) {
		p := unhex(properties)
		o.Topic, o.Body = len(topic), len(body)
		o.Properties = mqttwire.BlockSize(len(p))
		b := append(mqttwire.AppendPublish(dst, &o), topic...)
		if o.QoS > 0 {
			b = mqttwire.AppendID(b, id)
		}
		b = mqttwire.AppendBlock(b, p)
		if size := o.HeadSize(); size != len(b)-len(dst) {
			return b, fmt.Errorf("HeadSize is %d", size)
		}
		return append(b, body...), nil
	}
}

func ack(t mqttwire.Type, reason byte) func([]byte) ([]byte, error) {
	return func(dst []byte) ([]byte, error) { return mqttwire.AppendAck(dst, t, 0x1234, reason), nil }
}

func reason(p mqttwire.Type, code byte, block string) func([]byte) ([]byte, error) {
	return func(dst []byte) ([]byte, error) { return mqttwire.AppendReason(dst, p, code, unhex(block)) }
}

func TestEncodingOfMQTT5(t *testing.T) { checkSent(t, mqttwire.Next5, outgoing5) }

func TestInvalidPacketsOfMQTT5AreNotEncoded(t *testing.T) {
	long := strings.Repeat("x", mqttwire.MaxText+1)
	filter := func(f ...mqttwire.Filter) func([]byte) ([]byte, error) {
		return func(dst []byte) ([]byte, error) {
			return mqttwire.AppendSubscribe5(dst, 1, mqttwire.Options{}, f...)
		}
	}
	checkRefused(t, []badPacket{
		{"a client id with U+0000", "[MQTT-1.5.4-2]", mqttwire.ErrString, connect5(mqttwire.Greeting{ClientID: "a\x00"})},
		{"a user name that is no UTF-8", "[MQTT-1.5.4-1]", mqttwire.ErrString,
			connect5(mqttwire.Greeting{UserName: "\xff"})},
		{"a client id too long", "1.5.4", mqttwire.ErrString, connect5(mqttwire.Greeting{ClientID: long})},
		{"a password too long", "3.1.3.6", mqttwire.ErrText, connect5(mqttwire.Greeting{Password: long})},
		{"a will too long", "3.1.3.4", mqttwire.ErrText,
			connect5(mqttwire.Greeting{Will: &mqttwire.Will{Topic: []byte("t"), Body: []byte(long)}})},
		{"a will with QoS 3", "[MQTT-3.1.2-12]", mqttwire.ErrQoS,
			connect5(mqttwire.Greeting{Will: &mqttwire.Will{Topic: []byte("t"), QoS: 3}})},
		{"a will to a filter", "3.1.3.3", mqttwire.ErrTopic,
			connect5(mqttwire.Greeting{Will: &mqttwire.Will{Topic: []byte("a/#")}})},
		{"a will delay outside the will", "table 2-4", mqttwire.ErrProperty,
			connect5(mqttwire.Greeting{Properties: unhex("18 00000001")})},
		{"a receive maximum in the will", "table 2-4", mqttwire.ErrProperty, connect5(mqttwire.Greeting{
			Will: &mqttwire.Will{Topic: []byte("t"), Properties: unhex("21 0001")}})},
		{"SUBSCRIBE to nothing", "[MQTT-3.8.3-2]", mqttwire.ErrEmpty, filter()},
		{"SUBSCRIBE to an empty filter", "[MQTT-4.7.3-1]", mqttwire.ErrString, filter(mqttwire.Filter{})},
		{"SUBSCRIBE to a filter too long", "1.5.4", mqttwire.ErrString, filter(mqttwire.Filter{Topic: long})},
		{"SUBSCRIBE with QoS 3", "3.8.3.1", mqttwire.ErrQoS, filter(mqttwire.Filter{Topic: "a", QoS: 3})},
		{"SUBSCRIBE with retain handling 3", "3.8.3.1", mqttwire.ErrRange, func(dst []byte) ([]byte, error) {
			return mqttwire.AppendSubscribe5(dst, 1, mqttwire.Options{RetainHandling: 3}, mqttwire.Filter{Topic: "a"})
		}},
		{"SUBSCRIBE with id 0", "[MQTT-2.2.1-3]", mqttwire.ErrID, func(dst []byte) ([]byte, error) {
			return mqttwire.AppendSubscribe5(dst, 0, mqttwire.Options{}, mqttwire.Filter{Topic: "a"})
		}},
		{"DISCONNECT with a topic alias", "table 2-4", mqttwire.ErrProperty, reason(mqttwire.Disconnect, 0, "23 0001")},
		{"AUTH with data and no method", "3.15.2.2.3", mqttwire.ErrMethod, reason(mqttwire.Auth, 0x18, "16 0000")},
	})
}

// incoming5 are packets that a server may send, and packets that it must not send with their fault.
var incoming5 = []received{
	{"CONNACK, accepted", "3.2.2", "20 03 00 00 00", "connack false 00", nil},
	{"CONNACK, session present", "[MQTT-3.2.2-2]", "20 03 01 00 00", "connack true 00", nil},
	{"CONNACK, refused with reason and server", "3.2.2.3.9, 3.2.2.3.16", "20 11 00 9C 0E 1F 0003'why' 1C 0005'other'",
		"connack false 9C 1f=why 1c=other", nil},
	{"CONNACK, all properties", "3.2.2.3",
		"20 3E 00 00 3B 11 00000E10 21 000A 24 01 25 00 27 00010000 12 0002'id' 22 0014" +
			" 26 0001'a' 0001'b' 26 0001'a' 0000 28 00 29 01 2A 00 13 001E 1A 0001'r' 15 0001'm' 16 0001 FF",
		"connack false 00 11=3600 21=10 24=1 25=0 27=65536 12=id 22=20 26=a:b 26=a: 28=0 29=1 2a=0 13=30 1a=r 15=m 16=\xff",
		nil},
	{"CONNACK, reserved flags", "[MQTT-3.2.2-1]", "20 03 02 00 00", "", mqttwire.ErrReserved},
	{"CONNACK of MQTT 3.1.1", "3.2.2", "20 02 00 00", "", mqttwire.ErrShort},
	{"CONNACK with bytes behind its properties", "3.2.2", "20 04 00 00 00 00", "", mqttwire.ErrLong},
	{"CONNACK with properties longer than itself", "2.2.2.1", "20 03 00 00 01", "", mqttwire.ErrShort},
	{"CONNACK with receive maximum 0", "3.2.2.3.3", "20 06 00 00 03 21 0000", "", mqttwire.ErrRange},
	{"CONNACK with maximum packet size 0", "3.2.2.3.6", "20 08 00 00 05 27 00000000", "", mqttwire.ErrRange},
	{"CONNACK with maximum QoS 2", "3.2.2.3.4", "20 05 00 00 02 24 02", "", mqttwire.ErrRange},
	{"CONNACK with two reasons", "[MQTT-3.2.2-19]", "20 09 00 00 06 1F 0000 1F 0000", "", mqttwire.ErrTwice},
	{"CONNACK with a property of PUBLISH", "table 2-4", "20 05 00 00 02 01 00", "", mqttwire.ErrProperty},
	{"CONNACK with a property that does not exist", "table 2-4", "20 05 00 00 02 04 00", "", mqttwire.ErrProperty},
	{"CONNACK with the property 0x2B", "table 2-4", "20 05 00 00 02 2B 00", "", mqttwire.ErrProperty},
	{"CONNACK with a property id of two bytes", "2.2.2.2", "20 06 00 00 03 91 01 00", "", mqttwire.ErrProperty},
	{"CONNACK with a text that is no UTF-8", "[MQTT-1.5.4-1]", "20 07 00 00 04 1F 0001 FF", "", mqttwire.ErrString},
	{"CONNACK with a surrogate", "[MQTT-1.5.4-1]", "20 09 00 00 06 1F 0003 EDA080", "", mqttwire.ErrString},
	{"CONNACK with U+0000 in a name", "[MQTT-1.5.4-2]", "20 09 00 00 06 26 0001 00 0000", "", mqttwire.ErrString},
	{"CONNACK with U+0000 in a value", "[MQTT-1.5.4-2]", "20 09 00 00 06 26 0000 0001 00", "", mqttwire.ErrString},
	{"CONNACK with data and no method", "4.12", "20 06 00 00 03 16 0000", "", mqttwire.ErrMethod},
	{"CONNACK whose property ends early", "2.2.2.2", "20 06 00 00 03 11 0000", "", mqttwire.ErrIncomplete},
	{"CONNACK whose text ends early", "1.5.4", "20 06 00 00 03 1F 0001", "", mqttwire.ErrIncomplete},
	{"CONNACK whose pair ends early", "1.5.7", "20 07 00 00 04 26 0000 00", "", mqttwire.ErrIncomplete},
	{"PUBLISH with QoS 0", "3.3", "30 05 0001'a' 00'x'", "publish a 0 false false 0 x", nil},
	{"PUBLISH with QoS 1", "3.3", "32 07 0001'a' 0007 00'x'", "publish a 1 false false 7 x", nil},
	{"PUBLISH with QoS 2, again, retained", "3.3.1", "3D 07 0001'a' 0007 00'x'", "publish a 2 true true 7 x", nil},
	{"PUBLISH with all properties", "3.3.2.3", "30 2F 0001'a' 2A 01 01 02 0000000A 23 0001 08 0001'r' 09 0002 00FF" +
		" 26 0001'n' 0001'v' 26 0001'n' 0001'v' 0B 01 0B FF7F 03 0001't''x'",
		"publish a 0 false false 0 x 01=1 02=10 23=1 08=r 09=\x00\xff 26=n:v 26=n:v 0b=1 0b=16383 03=t", nil},
	{"PUBLISH with an alias in place of its topic", "3.3.2.3.4", "30 07 0000 03 23 0001'x'",
		"publish  0 false false 0 x 23=1", nil},
	{"PUBLISH without topic and alias", "3.3.2.1", "30 04 0000 00'x'", "", mqttwire.ErrTopic},
	{"PUBLISH with alias 0", "[MQTT-3.3.2-8]", "30 07 0001'a' 03 23 0000",
		"publish a 0 false false 0  23=0", nil},
	{"PUBLISH with two aliases", "3.3.2.3.4", "30 0A 0001'a' 06 23 0001 23 0001", "", mqttwire.ErrTwice},
	{"PUBLISH with subscription identifier 0", "3.3.2.3.8", "30 06 0001'a' 02 0B 00",
		"publish a 0 false false 0  0b=0", nil},
	{"PUBLISH with format 2", "3.3.2.3.2", "30 06 0001'a' 02 01 02", "publish a 0 false false 0  01=2", nil},
	{"PUBLISH with a filter to respond to", "[MQTT-3.3.2-14]", "30 08 0001'a' 04 08 0001'#'",
		"publish a 0 false false 0  08=#", nil},
	{"PUBLISH with a name that is no UTF-8", "[MQTT-1.5.4-1]", "30 0A 0001'a' 06 26 0001 FF 0000",
		"publish a 0 false false 0  26=\xff:", nil},
	{"PUBLISH with QoS 3", "[MQTT-3.3.1-4]", "36 07 0001'a' 0007 00'x'", "", mqttwire.ErrQoS},
	{"PUBLISH with QoS 0 and DUP", "[MQTT-3.3.1-2]", "38 05 0001'a' 00'x'", "", mqttwire.ErrDup},
	{"PUBLISH with id 0", "[MQTT-2.2.1-3]", "32 07 0001'a' 0000 00'x'", "", mqttwire.ErrID},
	{"PUBLISH to a filter", "[MQTT-3.3.2-2]", "30 06 0003'a/+' 00", "publish a/+ 0 false false 0 ", nil},
	{"PUBLISH whose topic goes on", "3.3.2.1", "30 04 0003'ab'", "", mqttwire.ErrShort},
	{"PUBLISH that ends in its id", "3.3.2.2", "32 04 0001'a' 00", "", mqttwire.ErrShort},
	{"PUBLISH without property length", "3.3.2.3.1", "30 03 0001'a'", "", mqttwire.ErrShort},
	{"PUBLISH that ends in its property length", "3.3.2.3.1", "30 04 0001'a' 80", "", mqttwire.ErrShort},
	{"PUBLISH with a property length of two bytes for 0", "[MQTT-1.5.5-1]", "30 05 0001'a' 8000", "",
		mqttwire.ErrVarint},
	{"PUBLISH with a property length of five bytes", "1.5.5", "30 08 0001'a' FFFFFFFF 01", "", mqttwire.ErrLength},
	{"PUBACK", "3.4", "40 02 F000", "ack 61440 00", nil},
	{"PUBACK with a code", "3.4.2.1", "40 03 0001 10", "ack 1 10", nil},
	{"PUBACK with a reason", "3.4.2.2", "40 08 0001 97 04 1F 0001'q'", "ack 1 97 1f=q", nil},
	{"PUBACK with no properties and their length", "3.4.2.2.1", "40 04 0001 00 00", "ack 1 00", nil},
	{"PUBACK with id 0", "[MQTT-2.2.1-3]", "40 02 0000", "", mqttwire.ErrID},
	{"PUBACK too short", "3.4.2", "40 01 00", "", mqttwire.ErrShort},
	{"PUBACK too long", "3.4.2", "40 05 0001 00 00 00", "", mqttwire.ErrLong},
	{"PUBACK with flags", "[MQTT-2.1.3-1]", "42 02 0001", "", mqttwire.ErrFlags},
	{"PUBREC", "3.5", "50 03 0001 83", "ack 1 83", nil},
	{"PUBREL", "3.6", "62 02 0001", "ack 1 00", nil},
	{"PUBREL without flags", "[MQTT-3.6.1-1]", "60 02 0001", "", mqttwire.ErrFlags},
	{"PUBCOMP", "3.7", "70 04 0001 92 00", "ack 1 92", nil},
	{"SUBACK", "3.9.3", "90 04 000A 00 01", "codes 10 01", nil},
	{"SUBACK, two refused, with a reason", "3.9.2.1", "90 09 000A 04 1F 0001'r' 80 87", "codes 10 8087 1f=r", nil},
	{"SUBACK without codes", "3.9.3", "90 03 000A 00", "", mqttwire.ErrEmpty},
	{"SUBACK with id 0", "[MQTT-2.2.1-3]", "90 04 0000 00 00", "", mqttwire.ErrID},
	{"SUBACK with a subscription identifier", "table 2-4", "90 06 000A 02 0B 01 01", "", mqttwire.ErrProperty},
	{"UNSUBACK", "3.11", "B0 05 000A 00 00 11", "codes 10 0011", nil},
	{"PINGRESP", "3.13", "D0 00", "empty", nil},
	{"PINGRESP with a body", "3.13", "D0 01 00", "", mqttwire.ErrLong},
	{"DISCONNECT, normal", "3.14.2.1", "E0 00", "reason 00", nil},
	{"DISCONNECT with a code", "3.14.2.2.1", "E0 01 8E", "reason 8E", nil},
	{"DISCONNECT with all properties", "3.14.2.2", "E0 11 9D 0F 1F 0001'r' 1C 0001's' 26 0001'n' 0001'v'",
		"reason 9D 1f=r 1c=s 26=n:v", nil},
	{"DISCONNECT with a session expiry", "[MQTT-3.14.2-2]", "E0 07 00 05 11 00000000", "", mqttwire.ErrProperty},
	{"DISCONNECT too long", "3.14.2", "E0 03 00 00 00", "", mqttwire.ErrLong},
	{"AUTH, success", "3.15.2.1", "F0 00", "reason 00", nil},
	{"AUTH, continue", "3.15.2.2", "F0 0A 18 08 15 0001'm' 16 0001'd'", "reason 18 15=m 16=d", nil},
	{"AUTH without method", "3.15.2.2.2", "F0 02 18 00", "", mqttwire.ErrMethod},
	{"AUTH of one byte", "3.15.2.1", "F0 01 18", "", mqttwire.ErrShort},
	{"AUTH with flags", "[MQTT-3.15.1-1]", "F1 00", "", mqttwire.ErrFlags},
	{"type 0", "table 2-1", "00 00", "", mqttwire.ErrType},
	{"a length of five bytes", "2.1.4", "30 8080808001", "", mqttwire.ErrLength},
	{"a length that never ends", "2.1.4", "30 FFFFFFFFFF", "", mqttwire.ErrLength},
	{"a length in more bytes than needed", "[MQTT-1.5.5-1]", "D0 8000", "", mqttwire.ErrVarint},
}

// describe5 reads a whole packet and returns its fields as text.
func describe5(b []byte) (string, error) {
	h, ok, err := mqttwire.Next5(b)
	if err != nil || !ok || h.Body > len(b)-h.Size {
		return "incomplete", err
	}
	body := b[h.Size : h.Size+h.Body]
	var fields string
	var p mqttwire.Properties
	switch h.Type {
	case mqttwire.Connack:
		var c mqttwire.Connack5
		c, err = mqttwire.ReadConnack5(body)
		fields, p = fmt.Sprintf("connack %v %02X", c.Session, c.Reason), c.Properties
	case mqttwire.Publish:
		var in mqttwire.Incoming
		in, err = mqttwire.ReadPublish5(h.Flags, body)
		fields = fmt.Sprintf("publish %s %d %v %v %d %s", in.Topic, in.QoS, in.Dup, in.Retain, in.ID, in.Body)
		p = in.Properties
	case mqttwire.Puback, mqttwire.Pubrec, mqttwire.Pubrel, mqttwire.Pubcomp:
		var a mqttwire.Ack
		a, err = mqttwire.ReadAck(h.Type, body)
		fields, p = fmt.Sprintf("ack %d %02X", a.ID, a.Reason), a.Properties
	case mqttwire.Suback, mqttwire.Unsuback:
		var c mqttwire.Codes
		c, err = mqttwire.ReadCodes(h.Type, body)
		fields, p = fmt.Sprintf("codes %d %02X", c.ID, c.Reasons), c.Properties
	case mqttwire.Disconnect, mqttwire.Auth:
		var r mqttwire.Reason
		r, err = mqttwire.ReadReason(h.Type, body)
		fields, p = fmt.Sprintf("reason %02X", r.Code), r.Properties
	case mqttwire.Pingresp:
		return "empty", mqttwire.ReadEmpty(body)
	default:
		return "other", nil
	}
	for {
		v, rest, ok := p.Next()
		switch {
		case !ok:
			return fields, err
		case v.Value != nil:
			fields += fmt.Sprintf(" %02x=%s:%s", byte(v.ID), v.Text, v.Value)
		case v.Text != nil:
			fields += fmt.Sprintf(" %02x=%s", byte(v.ID), v.Text)
		default:
			fields += fmt.Sprintf(" %02x=%d", byte(v.ID), v.Number)
		}
		p = rest
	}
}

func TestDecodingOfMQTT5(t *testing.T) { checkReceived(t, describe5, incoming5) }

func TestPropertiesAreFoundByID(t *testing.T) {
	c, err := mqttwire.ReadConnack5(unhex("00 00 0E 21 000A 1F 0001'r' 26 0001'n' 0000 00")[:17])
	if err == nil {
		t.Fatal("a block that ends early was read")
	}
	c, err = mqttwire.ReadConnack5(unhex("00 00 0D 21 000A 1F 0001'r' 26 0001'n' 0000"))
	if n, ok := c.Properties.Number(mqttwire.ReceiveMaximum); err != nil || n != 10 || !ok {
		t.Error(n, ok, err)
	}
	if n, ok := c.Properties.Number(mqttwire.TopicAliasMaximum); n != 0 || ok {
		t.Error(n, ok)
	}
	if r := c.Properties.Text(mqttwire.ReasonString); string(r) != "r" {
		t.Errorf("%q", r)
	}
	if r := c.Properties.Text(mqttwire.ServerReference); r != nil {
		t.Errorf("%q", r)
	}
}

func TestTextsThatCanBeSent(t *testing.T) {
	for s, want := range map[string]bool{
		"": true, "é": true, "a\x00b": false, "\xff": false, "\xed\xa0\x80": false,
		strings.Repeat("x", mqttwire.MaxText): true, strings.Repeat("x", mqttwire.MaxText+1): false,
	} {
		if mqttwire.ValidText(s) != want {
			t.Errorf("ValidText(%.10q) of %d bytes is %v", s, len(s), !want)
		}
	}
}
