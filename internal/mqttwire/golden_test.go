package mqttwire_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/texts"
)

// unhex is short for the tables.
func unhex(s string) []byte { return texts.FromHex(s) }

// goodPacket is a packet and its expected encoding.
type goodPacket struct {
	name, clause, wire string
	encode             func(dst []byte) ([]byte, error)
}

var outgoing = []goodPacket{
	{"CONNECT, the least", "[MQTT-3.1.2-1] [MQTT-3.1.2-2] [MQTT-3.1.2-3]", "10 0D 0004'MQTT' 04 00 0000 0001'd'",
		connect(mqttwire.Greeting{ClientID: "d"})},
	{"CONNECT, clean session", "[MQTT-3.1.2-6]", "10 0C 0004'MQTT' 04 02 0000 0000",
		connect(mqttwire.Greeting{CleanSession: true})},
	{"CONNECT, keep-alive", "3.1.2.10", "10 0D 0004'MQTT' 04 00 012C 0001'd'",
		connect(mqttwire.Greeting{ClientID: "d", KeepAlive: 300})},
	{"CONNECT, user name", "[MQTT-3.1.2-19]", "10 10 0004'MQTT' 04 80 0000 0001'd' 0001'u'",
		connect(mqttwire.Greeting{ClientID: "d", UserName: "u"})},
	{"CONNECT, user name and password", "[MQTT-3.1.2-21] [MQTT-3.1.3-1]",
		"10 14 0004'MQTT' 04 C0 003C 0001'd' 0001'u' 0002'pw'",
		connect(mqttwire.Greeting{ClientID: "d", UserName: "u", Password: "pw", KeepAlive: 60})},
	{"CONNECT, will", "[MQTT-3.1.2-8] [MQTT-3.1.2-9] [MQTT-3.1.2-17]",
		"10 15 0004'MQTT' 04 2C 0000 0001'd' 0002't/' 0002'by'",
		connect(mqttwire.Greeting{ClientID: "d", Will: &mqttwire.Will{Topic: []byte("t/"), Body: []byte("by"), QoS: 1,
			Retain: true}})},
	{"CONNECT, everything in its order", "[MQTT-3.1.3-1]",
		"10 1B 0004'MQTT' 04 CE 0001 0001'd' 0002't/' 0001'b' 0001'u' 0002'pw'",
		connect(mqttwire.Greeting{ClientID: "d", UserName: "u", Password: "pw", CleanSession: true, KeepAlive: 1,
			Will: &mqttwire.Will{Topic: []byte("t/"), Body: []byte("b"), QoS: 1}})},
	{"PUBLISH with QoS 0", "[MQTT-2.3.1-5]", "30 05 0002'a/''x'", publish(mqttwire.Outgoing{}, "a/", 0, "x")},
	{"PUBLISH with QoS 1", "[MQTT-2.3.1-1] 3.3.2.2", "32 07 0002'a/' 000A'x'", publish(mqttwire.Outgoing{QoS: 1}, "a/",
		10,
		"x")},
	{"PUBLISH again", "[MQTT-3.3.1-1]", "3A 07 0002'a/' FFFF'x'", publish(mqttwire.Outgoing{QoS: 1, Dup: true}, "a/",
		65535,
		"x")},
	{"PUBLISH retained, without payload", "3.3.1.3, 3.3.3", "33 06 0002'a/' 0001",
		publish(mqttwire.Outgoing{QoS: 1, Retain: true},
			"a/", 1, "")},
	{"PUBLISH, length of 1 byte, the most", "2.2.3", "32 7F 0001't' 0001" + strings.Repeat("00", 122),
		publish(mqttwire.Outgoing{QoS: 1},
			"t", 1, zeros(122))},
	{"PUBLISH, length of 2 bytes, the least", "2.2.3", "32 8001 0001't' 0001" + strings.Repeat("00", 123),
		publish(mqttwire.Outgoing{QoS: 1},
			"t", 1, zeros(123))},
	{"PUBACK", "3.4", "40 02 1234", func(dst []byte) ([]byte, error) {
		return mqttwire.AppendAck(dst, mqttwire.Puback, 0x1234, 0), nil
	}},
	{"SUBSCRIBE", "[MQTT-3.8.1-1] [MQTT-3.8.3-3]", "82 08 000A 0003'a/#' 01", func(dst []byte) ([]byte, error) {
		return mqttwire.AppendSubscribe(dst, 10, mqttwire.Filter{Topic: "a/#", QoS: 1})
	}},
	{"SUBSCRIBE to two", "3.8.3", "82 0C 000B 0002'a/' 00 0002'b/' 00", func(dst []byte) ([]byte, error) {
		return mqttwire.AppendSubscribe(dst, 11, mqttwire.Filter{Topic: "a/", QoS: 0}, mqttwire.Filter{Topic: "b/",
			QoS: 0})
	}},
	{"PINGREQ", "3.12", "C0 00", func(dst []byte) ([]byte, error) { return mqttwire.AppendPingreq(dst), nil }},
	{"DISCONNECT", "[MQTT-3.14.1-1]",
		"E0 00", func(dst []byte) ([]byte, error) { return mqttwire.AppendDisconnect(dst), nil }},
}

func zeros(n int) string { return strings.Repeat("\x00", n) }

func connect(g mqttwire.Greeting) func(dst []byte) ([]byte, error) {
	return func(dst []byte) ([]byte, error) { return mqttwire.AppendConnect(dst, &g) }
}

func publish(o mqttwire.Outgoing, topic string, id uint16, body string) func(dst []byte) ([]byte, error) {
	return func(dst []byte) ([]byte, error) {
		o.Topic, o.Body = len(topic), len(body)
		dst = append(mqttwire.AppendPublish(dst, &o), topic...)
		if o.QoS > 0 {
			dst = mqttwire.AppendID(dst, id)
		}
		return append(dst, body...), nil
	}
}

func TestEncoding(t *testing.T) { checkSent(t, mqttwire.Next, outgoing) }

type nextFunc func(p []byte) (mqttwire.Header, bool, error)

func checkSent(t *testing.T, next nextFunc, all []goodPacket) {
	t.Helper()
	for _, c := range all {
		want := unhex(c.wire)
		got, err := c.encode([]byte("before"))
		if err != nil || !bytes.Equal(got, append([]byte("before"), want...)) {
			t.Errorf("%s (%s): %x %v, want %x behind what was there", c.name, c.clause, got, err, want)
		}
		h, ok, err := next(want)
		if err != nil || !ok || h.Size+h.Body != len(want) {
			t.Errorf("%s: its own header reads as %+v %v %v", c.name, h, ok, err)
		}
	}
}

func TestSizesOfEncodedPackets(t *testing.T) {
	for _, g := range []mqttwire.Greeting{
		{}, {ClientID: "d", UserName: "u"}, {ClientID: strings.Repeat("d", 200), UserName: "u", Password: strings.Repeat("p",
			2000)},
		{ClientID: "d", Will: &mqttwire.Will{Topic: []byte("t"), Body: make([]byte, 500)}},
	} {
		b, err := mqttwire.AppendConnect(nil, &g)
		if err != nil || len(b) != mqttwire.ConnectSize(&g) {
			t.Errorf("ConnectSize is %d, the packet has %d bytes, %v", mqttwire.ConnectSize(&g), len(b), err)
		}
	}
	for _, body := range []int{0, 1, 119, 120, 121, 16000, 16375, 16376, 16377, 2097143, 2097144, 2097145} {
		for qos := range byte(2) {
			o := mqttwire.Outgoing{QoS: qos, Topic: 4, Body: body}
			n := len(mqttwire.AppendPublish(nil, &o)) + o.Topic
			if qos > 0 {
				n += 2
			}
			if o.HeadSize() != n {
				t.Errorf("HeadSize for a body of %d is %d, want %d", body, o.HeadSize(), n)
			}
		}
	}
}

// badPacket is a packet that cannot be encoded, and why.
type badPacket struct {
	name, clause string
	want         mqttwire.Error
	encode       func(dst []byte) ([]byte, error)
}

func TestInvalidPacketsAreNotEncoded(t *testing.T) {
	checkRefused(t, []badPacket{
		{"a password without user name", "[MQTT-3.1.2-22]", mqttwire.ErrPassword,
			connect(mqttwire.Greeting{Password: "p"})},
		{"a will with QoS 3", "[MQTT-3.1.2-14]", mqttwire.ErrQoS,
			connect(mqttwire.Greeting{Will: &mqttwire.Will{Topic: []byte("t"), QoS: 3}})},
		{"a will to nowhere", "[MQTT-4.7.3-1]", mqttwire.ErrTopic, connect(mqttwire.Greeting{Will: &mqttwire.Will{}})},
		{"a will to a filter", "[MQTT-3.3.2-2]", mqttwire.ErrTopic,
			connect(mqttwire.Greeting{Will: &mqttwire.Will{Topic: []byte("a/#")}})},
		{"SUBSCRIBE with id 0", "[MQTT-2.3.1-1]", mqttwire.ErrID, func(dst []byte) ([]byte, error) {
			return mqttwire.AppendSubscribe(dst, 0, mqttwire.Filter{Topic: "a", QoS: 1})
		}},
		{"SUBSCRIBE to nothing", "[MQTT-3.8.3-3]",
			mqttwire.ErrEmpty, func(dst []byte) ([]byte, error) { return mqttwire.AppendSubscribe(dst, 1) }},
		{"SUBSCRIBE with QoS 3", "[MQTT-3.8.3-4]", mqttwire.ErrQoS, func(dst []byte) ([]byte, error) {
			return mqttwire.AppendSubscribe(dst, 1, mqttwire.Filter{Topic: "a", QoS: 3})
		}},
	})
}

func checkRefused(t *testing.T, all []badPacket) {
	t.Helper()
	for _, c := range all {
		got, err := c.encode([]byte("before"))
		if !errors.Is(err, c.want) || string(got) != "before" {
			t.Errorf("%s (%s): %q, %v, want %v", c.name, c.clause, got, err, c.want)
		}
	}
}

// received is a packet that a server may send, or one that it must not send with its fault.
type received struct {
	name, clause, wire string
	want               string // the fields, see describe
	err                error
}

// incoming are packets that a server may send, and packets that it must not send with their fault.
var incoming = []received{
	{"CONNACK, accepted", "3.2.2.3", "20 02 0000", "connack false 0", nil},
	{"CONNACK, session present", "[MQTT-3.2.2-2]", "20 02 0100", "connack true 0", nil},
	{"CONNACK, not authorized", "table 3.1", "20 02 0005", "connack false 5", nil},
	{"CONNACK, reserved code", "table 3.1", "20 02 00FF", "connack false 255", nil},
	{"CONNACK, reserved flags", "3.2.2.1", "20 02 0200", "", mqttwire.ErrReserved},
	{"CONNACK, too short", "3.2.2", "20 01 00", "", mqttwire.ErrShort},
	{"CONNACK, too long", "3.2.2", "20 03 000000", "", mqttwire.ErrLong},
	{"CONNACK with flags", "[MQTT-2.2.2-2]", "21 02 0000", "", mqttwire.ErrFlags},
	{"PUBLISH with QoS 0", "3.3", "30 04 0001'a''x'", "publish a 0 false false 0 x", nil},
	{"PUBLISH with QoS 1", "3.3", "32 06 0001'a' 0007'x'", "publish a 1 false false 7 x", nil},
	{"PUBLISH again and retained", "3.3.1", "3B 06 0001'a' 0007'x'", "publish a 1 true true 7 x", nil},
	{"PUBLISH with QoS 2", "3.3", "34 06 0001'a' 0007'x'", "publish a 2 false false 7 x", nil},
	{"PUBLISH without payload", "3.3.3", "32 05 0001'a' 0007", "publish a 1 false false 7 ", nil},
	{"PUBLISH with a topic of two bytes a letter", "[MQTT-3.3.2-1]", "30 04 0002C3A9", "publish é 0 false false 0 ", nil},
	{"PUBLISH with QoS 3", "[MQTT-3.3.1-4]", "36 06 0001'a' 0007'x'", "", mqttwire.ErrQoS},
	{"PUBLISH with QoS 0 and DUP", "[MQTT-3.3.1-2]", "38 04 0001'a''x'", "", mqttwire.ErrDup},
	{"PUBLISH with id 0", "[MQTT-2.3.1-1]", "32 06 0001'a' 0000'x'", "", mqttwire.ErrID},
	{"PUBLISH without topic", "[MQTT-4.7.3-1]", "30 03 0000'x'", "publish  0 false false 0 x", nil},
	{"PUBLISH to a filter", "[MQTT-3.3.2-2]", "30 05 0003'a/+'", "publish a/+ 0 false false 0 ", nil},
	{"PUBLISH to no UTF-8", "[MQTT-1.5.3-1]", "30 03 0001FF", "publish \xff 0 false false 0 ", nil},
	{"PUBLISH of one byte", "3.3.2", "30 01 00", "", mqttwire.ErrShort},
	{"PUBLISH whose topic goes on", "3.3.2.1", "30 04 0003'ab'", "", mqttwire.ErrShort},
	{"PUBLISH that ends in its id", "3.3.2.2", "32 04 0001'a' 00", "", mqttwire.ErrShort},
	{"PUBACK", "3.4", "40 02 F000", "id 61440", nil},
	{"PUBACK with id 0", "[MQTT-2.3.1-1]", "40 02 0000", "", mqttwire.ErrID},
	{"PUBACK with flags", "[MQTT-2.2.2-2]", "42 02 0001", "", mqttwire.ErrFlags},
	{"PUBACK too short", "3.4.2", "40 01 00", "", mqttwire.ErrShort},
	{"PUBACK too long", "3.4.2", "40 03 000100", "", mqttwire.ErrLong},
	{"SUBACK, granted", "3.9.3", "90 03 000A 01", "suback 10 01", nil},
	{"SUBACK, refused", "[MQTT-3.9.3-2]", "90 04 000A 00 80", "suback 10 0080", nil},
	{"SUBACK without codes", "3.9.3", "90 02 000A", "", mqttwire.ErrEmpty},
	{"SUBACK too short", "3.9.2", "90 01 00", "", mqttwire.ErrShort},
	{"SUBACK with id 0", "[MQTT-2.3.1-1]", "90 03 0000 00", "", mqttwire.ErrID},
	{"UNSUBACK", "3.11", "B0 02 000A", "id 10", nil},
	{"PINGRESP", "3.13", "D0 00", "empty", nil},
	{"PINGRESP with a body", "3.13", "D0 01 00", "", mqttwire.ErrLong},
	{"type 0", "table 2.1", "00 00", "", mqttwire.ErrType},
	{"type 15", "table 2.1", "F0 00", "", mqttwire.ErrType},
	{"a length of five bytes", "2.2.3", "30 8080808000", "", mqttwire.ErrLength},
	{"a length that never ends", "2.2.3", "30 FFFFFFFFFF", "", mqttwire.ErrLength},
	{"the same length in more bytes than needed", "2.2.3", "D0 8000", "empty", nil},
}

// describe reads a whole packet and returns its fields as text.
func describe(b []byte) (string, error) {
	h, ok, err := mqttwire.Next(b)
	if err != nil || !ok {
		return "incomplete", err
	}
	body := b[h.Size:]
	if h.Body > len(body) {
		return "incomplete", nil
	}
	body = body[:h.Body]
	switch h.Type {
	case mqttwire.Connack:
		session, code, err := mqttwire.ReadConnack(body)
		return "connack " + boolText(session) + " " + number(int(code)), err
	case mqttwire.Publish:
		in, err := mqttwire.ReadPublish(h.Flags, body)
		return "publish " + string(in.Topic) + " " + number(int(in.QoS)) + " " + boolText(in.Dup) + " " +
			boolText(in.Retain) + " " + number(int(in.ID)) + " " + string(in.Body), err
	case mqttwire.Puback, mqttwire.Unsuback:
		id, err := mqttwire.ReadID(body)
		return "id " + number(int(id)), err
	case mqttwire.Suback:
		id, codes, err := mqttwire.ReadSuback(body)
		text := ""
		for _, c := range codes {
			text += string("0123456789ABCDEF"[c>>4]) + string("0123456789ABCDEF"[c&15])
		}
		return "suback " + number(int(id)) + " " + text, err
	case mqttwire.Pingresp:
		return "empty", mqttwire.ReadEmpty(body)
	}
	return "other", nil
}

func boolText(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

func number(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return number(n/10) + string(rune('0'+n%10))
}

func TestDecoding(t *testing.T) { checkReceived(t, describe, incoming) }

func checkReceived(t *testing.T, describe func([]byte) (string, error), all []received) {
	t.Helper()
	for _, c := range all {
		b := unhex(c.wire)
		got, err := describe(b)
		if !errors.Is(err, c.err) || err == nil && got != c.want {
			t.Errorf("%s (%s): %q %v, want %q %v", c.name, c.clause, got, err, c.want, c.err)
		}
		if c.err != nil {
			continue
		}
		for n := range b { // each shorter prefix is incomplete, which is not an error
			if got, err := describe(b[:n:n]); got != "incomplete" || err != nil {
				t.Errorf("%s: the first %d bytes are %q %v", c.name, n, got, err)
			}
		}
	}
}

// An append to a part of a packet copies it.
func TestATopicDoesNotReachIntoThePayload(t *testing.T) {
	in, err := mqttwire.ReadPublish(0, unhex("0001'a''xyz'"))
	if err != nil {
		t.Error(err)
		return
	}
	_ = append(in.Topic, 'b')
	if string(in.Body) != "xyz" {
		t.Errorf("the payload is %q now", in.Body)
	}
}

func TestHeaderSizes(t *testing.T) {
	for n, want := range map[int]int{0: 2, 127: 2, 128: 3, 16383: 3, 16384: 4, 2097151: 4, 2097152: 5,
		mqttwire.MaxBody: 5} {
		b := mqttwire.AppendHeader(nil, mqttwire.Publish, 0, n)
		h, ok, err := mqttwire.Next(b)
		if mqttwire.HeaderSize(n) != want || len(b) != want || !ok || err != nil || h.Body != n || h.Size != want {
			t.Errorf("%d: HeaderSize %d, %x, %+v %v", n, mqttwire.HeaderSize(n), b, h, err)
		}
	}
}
