package engine

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// fiveOptions returns options with MQTT 5 and a topic map.
func fiveOptions(o *MQTT5Options) *Options {
	return &Options{Protocol: MQTT5(o), Dialect: &dialect.Topics{Telemetry: "site/{device}/up",
		Commands: []string{"site/{device}/down/#"}}}
}

var packet = testkit.MQTTBytes

// block returns properties with their length.
func block(properties string) string {
	return string(binary.AppendUvarint(nil, uint64(len(properties)))) + properties
}

// publish5 returns a PUBLISH of MQTT 5, with QoS 1 or 2 unless id is 0.
func publish5(first byte, topic string, id uint16, properties, body string) []byte {
	head := testkit.MQTTText(topic)
	if id != 0 {
		head += string([]byte{byte(id >> 8), byte(id)})
	}
	return packet(first, head, block(properties), body)
}

// welcome5 accepts a connection with a CONNACK that has these properties.
func (h *hub) welcome5(session byte, properties string) (*link, got) {
	l, connect := h.accept()
	l.Send(packet(0x20, string([]byte{session, 0}), block(properties))...)
	return l, connect
}

// start5 starts a session over MQTT 5 with a broker whose CONNACK has these properties.
func start5(t testing.TB, h *hub, tr *Transport, properties string) (*running, *link) {
	t.Helper()
	return begin(t, tr, func() *link {
		l, _ := h.welcome5(0, properties)
		return l
	})
}

func TestMQTT5PublishesAndReports(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
		r.send("one", "two")
		a, b := l.Expect(0x32), l.Expect(0x32)
		require.Equal(t, "site/dev-1/up", a.Topic())
		require.Equal(t, "\x00\x01\x00one", a.Rest(), "the packet id is the tag plus one")
		require.Equal(t, "\x00\x02\x00two", b.Rest())
		synctest.Wait()
		require.Empty(t, r.sink.Tags())
		l.Send(packet(0x40, "\x00\x02\x10")...) // no matching subscribers
		l.Puback(1)
		synctest.Wait()
		require.Equal(t, []uint16{1, 0}, r.sink.Tags())
		r.cancel()
		rest, _ := l.Drain()
		require.Equal(t, []got{{First: 0xE0, Body: []byte{}}}, rest)
	})
}

func TestMQTT5Connect(t *testing.T) {
	for name, c := range map[string]struct {
		opt  MQTT5Options
		all  Options
		want string // behind "MQTT", 5
	}{
		"defaults": {want: "\x00\x00\xb4" + block("\x11\x00\x01\x51\x80\x21\x00\x10\x27\x00\x10\x00\x00") + "\x00\x05dev-1"},
		"all": {opt: MQTT5Options{SessionExpiry: time.Hour, ReceiveMaximum: 5, MaximumPacketSize: 4096,
			WillDelay: time.Minute, UserProperties: []transport.Property{{Name: "n", Value: "v"}}, AssignClientID: true},
			all: Options{CleanSession: true, KeepAlive: time.Second, Will: &transport.Message{Topic: "gone", ContentType: "c",
				Body: []byte("b")}},
			want: "\x0e\x00\x01" + block("\x11\x00\x00\x0e\x10\x21\x00\x05\x27\x00\x00\x10\x00\x26\x00\x01n\x00\x01v") +
				"\x00\x00" + block("\x18\x00\x00\x00\x3c\x03\x00\x01c") + "\x00\x04gone\x00\x01b"},
		"a clean session ends with the connection": {all: Options{CleanSession: true},
			want: "\x02\x00\xb4" + block("\x21\x00\x10\x27\x00\x10\x00\x00") + "\x00\x05dev-1"},
		"a session for ever": {opt: MQTT5Options{SessionExpiry: 1<<63 - 1}, all: Options{ReadBuffer: 512},
			want: "\x00\x00\xb4" + block("\x11\xff\xff\xff\xff\x21\x00\x10\x27\x00\x00\x02\x00") + "\x00\x05dev-1"},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			h := newHub(t)
			all, with := c.all, fiveOptions(&c.opt)
			all.Protocol, all.Dialect = with.Protocol, with.Dialect
			var connect got
			begin(t, New(h.dial, &all), func() (l *link) {
				l, connect = h.welcome5(0, "")
				return l
			})
			sent := string(connect.Body)
			require.Equal(t, "\x00\x04MQTT\x05", sent[:7])
			flags := sent[7] &^ 0x40
			rest := sent[8:]
			if sent[7]&0x40 != 0 { // the token of testCreds is a password without a user name
				rest = rest[:len(c.want)-1]
			}
			require.Equal(t, c.want, string([]byte{flags})+rest)
		})
	}
}

func TestMQTT5MessagesHaveTheirProperties(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
		now := time.Now()
		m := &transport.Message{ID: "m-1", CorrelationID: "c", ContentType: "t/p", ContentEncoding: "utf-8",
			Component: "thermo", Created: now, Expires: now.Add(1500 * time.Millisecond), Topic: "other",
			ResponseTopic: "back", Retain: true, AtMostOnce: true, Body: []byte("b"),
			Properties: []transport.Property{{Name: "x", Value: "1"}, {Name: "x", Value: ""}}}
		properties := "\x01\x01\x02\x00\x00\x00\x02\x03\x00\x03t/p\x08\x00\x04back\x09\x00\x01c" +
			"\x26\x00\x0amessage-id\x00\x03m-1\x26\x00\x0dcreation-time\x00\x18" + now.UTC().Format("2006-01-02T15:04:05.000Z") +
			"\x26\x00\x0adt-subject\x00\x06thermo\x26\x00\x01x\x00\x011\x26\x00\x01x\x00\x00"
		r.Send([]transport.Item{{Tag: 0, Msg: m}})
		p := l.Expect(0x31)
		require.Equal(t, "other", p.Topic())
		require.Equal(t, block(properties)+"b", p.Rest())
		synctest.Wait()
		require.Equal(t, []uint16{0}, r.sink.Tags())
		r.Send([]transport.Item{{Tag: 1, Msg: &transport.Message{ContentEncoding: "utf-16"}}})
		require.Equal(t, "\x00\x02"+block("\x26\x00\x10content-encoding\x00\x06utf-16"), l.Expect(0x32).Rest())

		// and the other way
		r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
		require.Equal(t, "\xf0\x01\x00\x00\x11site/dev-1/down/#\x01", string(l.Expect(0x82).Body))
		l.Send(packet(0x90, "\xf0\x01\x00\x01")...)
		l.Send(publish5(0x33, "site/dev-1/down/x", 7, properties+"\x0b\x05", "b")...)
		l.Send(publish5(0x30, "site/dev-1/down/y", 0, "\x01\x00\x26\x00\x0dcreation-time\x00\x03now"+
			"\x26\x00\x10content-encoding\x00\x06utf-16", "")...)
		synctest.Wait()
		require.Len(t, r.sink.Replies, 1)
		require.NoError(t, r.sink.Replies[0].Err)
		m.Topic, m.AtMostOnce, m.Expires, m.Created = "site/dev-1/down/x", false, now.Add(2*time.Second),
			now.UTC().Truncate(time.Millisecond)
		require.Len(t, r.sink.Messages, 2)
		require.True(t, m.Created.Equal(r.sink.Messages[0].Created))
		m.Created = r.sink.Messages[0].Created
		require.Equal(t, *m, r.sink.Messages[0])
		second := r.sink.Messages[1]
		require.Equal(t, []transport.Property{{Name: "creation-time", Value: "now"}}, second.Properties, "not a time")
		require.Equal(t, "utf-16", second.ContentEncoding)
		r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.Refs[0]})
		require.Equal(t, []byte{0, 7}, l.Expect(0x40).Body)
		require.Empty(t, r.sink.Refs[1])
	})
}

// A broker passes properties on as their sender wrote them: mosquitto before 2.0.20 a filter to
// respond to, mochi any payload format. The connection must not end, as the next one would bring
// the same message.
func TestAPropertyWithAWrongValueIsLeftOut(t *testing.T) {
	for name, properties := range map[string]string{
		"a filter to respond to":   "\x08\x00\x03a/#",
		"nowhere to respond to":    "\x08\x00\x00",
		"payload format 2":         "\x01\x02",
		"content type, no UTF-8":   "\x03\x00\x01\xff",
		"content type with U+0000": "\x03\x00\x01\x00",
		"a name, no UTF-8":         "\x26\x00\x01\xff\x00\x01v",
		"a value with U+0000":      "\x26\x00\x0amessage-id\x00\x01\x00",
		"identifier 0":             "\x0b\x00",
	} {
		testkit.Run(t, name, func(t *testing.T) {
			h := newHub(t)
			o := fiveOptions(nil)
			o.Dialect.(*dialect.Topics).Birth = &transport.Message{Topic: "birth"}
			r, l := begin(t, New(h.dial, o), func() *link {
				l, _ := h.welcome5(1, "")
				birth := l.Expect(0x32)
				l.Send(publish5(0x32, down, 7, properties+"\x09\x00\x01c", "a")...)
				l.Puback(binary.BigEndian.Uint16([]byte(birth.Rest())))
				return l
			})
			l.Send(publish5(0x32, down, 8, "", "b")...)
			synctest.Wait()
			require.Empty(t, r.ran)
			require.Equal(t, []transport.Message{{Topic: down, CorrelationID: "c", Body: []byte("a")},
				{Topic: down, Body: []byte("b")}}, r.sink.Messages)
		})
	}
}
