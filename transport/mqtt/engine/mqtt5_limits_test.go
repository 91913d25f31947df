package engine

import (
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

func TestMQTT5OptionsAreChecked(t *testing.T) {
	for want, c := range map[string]struct {
		opt MQTT5Options
		all Options
	}{
		"SessionExpiry":             {opt: MQTT5Options{SessionExpiry: -1}},
		"ReceiveMaximum is -1":      {opt: MQTT5Options{ReceiveMaximum: -1}},
		"ReceiveMaximum is 65536":   {opt: MQTT5Options{ReceiveMaximum: 65536}},
		"MaximumPacketSize is 63":   {opt: MQTT5Options{MaximumPacketSize: 63}},
		"MaximumPacketSize is 2097": {opt: MQTT5Options{MaximumPacketSize: 2097152}},
		"must fit into the buffer":  {opt: MQTT5Options{MaximumPacketSize: 257}, all: Options{ReadBuffer: 256}},
		"WillDelay is negative":     {opt: MQTT5Options{WillDelay: -1}, all: Options{Will: &transport.Message{}}},
		"WillDelay is set without":  {opt: MQTT5Options{WillDelay: 1}},
		"RetainHandling":            {opt: MQTT5Options{RetainHandling: 3}},
		"Auth.Method":               {opt: MQTT5Options{Auth: &Auth{}}},
		"UserProperties[1] is not a text": {opt: MQTT5Options{UserProperties: []transport.Property{{Name: "a"},
			{Name: "b", Value: "\x00"}}}},
	} {
		all := c.all
		if all.Protocol = MQTT5(&c.opt); all.Dialect == nil {
			all.Dialect = &dialect.Topics{Telemetry: "t"}
		}
		tr := New(newHub(t).dial, &all)
		require.ErrorIs(t, tr.err, transport.Invalid, want)
		require.ErrorContains(t, tr.err, want)
	}
}

// A broker drops a message with no time left, and acknowledges it.
func TestExpiriesAreByTheClockOfTheCredentials(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		creds := testCreds(t)
		time.Sleep(time.Hour) // an earlier clock counts as unset
		creds.Now = func() time.Time { return time.Now().Add(-time.Hour) }
		m := &transport.Message{Topic: "t", Expires: creds.Time().Add(time.Minute)}
		o := fiveOptions(nil)
		o.Will = m
		var l *link
		var connect got
		s, k, ctx, cancel, err := dialedAs(t, New(h.dial, o), creds, func() { l, connect = h.welcome5(0, "") })
		require.NoError(t, err)
		ran := k.Run(t, ctx, s, cancel)
		const minute = "\x02\x00\x00\x00\x3c"
		require.Contains(t, string(connect.Body), block(minute))
		s.Send([]transport.Item{{Msg: m}})
		require.Equal(t, "\x00\x01"+block(minute), l.Expect(0x32).Rest())
		cancel()
		<-ran
	})
}

func TestTheLimitsOfACONNACKHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		// receive maximum 3, maximum packet size 60, keep-alive 7 s
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "\x21\x00\x03\x27\x00\x00\x00\x3c\x13\x00\x07\x1a\x00\x01r")
		info := r.Info()
		info.Expires = time.Time{}
		require.Equal(t, transport.Info{Window: 3, MaxSize: 60, Encodes: true, KeepAlive: 7 * time.Second}, info)
		fits := strings.Repeat("x", 60-2-2-len("site/dev-1/up")-2-1)
		r.send(fits+"x", fits)
		require.Equal(t, "\x00\x02\x00"+fits, l.Expect(0x32).Rest())
		l.Puback(2)
		synctest.Wait()
		require.Len(t, r.sink.Results, 2)
		require.ErrorIs(t, r.sink.Results[0].Err, transport.TooLarge)
		require.Equal(t, []uint16{1}, r.sink.Tags())
		begun := time.Now()
		r.requireLoss(t, transport.Timeout)
		require.Equal(t, 7*time.Second+defaultPingTimeout, time.Since(begun))
	})
}

func TestAWindowSmallerThanTheReceiveMaximumIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, _ := start5(t, h, New(h.dial, fiveOptions(nil)), "\x21\x00\x11\x13\x00\x00")
		info := r.Info()
		info.Expires = time.Time{}
		require.Equal(t, transport.Info{MaxSize: transport.MaxMessageSize, Encodes: true, KeepAlive: defaultKeepAlive}, info)
	})
}

// A broker that would wait for 18 hours does not keep a client from noticing a dead connection.
func TestALongKeepAliveOfTheBrokerIsNotWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, _ := start5(t, h, New(h.dial, fiveOptions(nil)), "\x13\xff\xff")
		begun := time.Now()
		r.requireLoss(t, transport.Timeout)
		require.Equal(t, defaultKeepAlive+defaultPingTimeout, time.Since(begun))
	})
}

func TestWhatABrokerLacksIsRefusedHere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "\x25\x00")
		r.Send([]transport.Item{{Tag: 0, Msg: &transport.Message{Retain: true}}, {Tag: 1, Msg: &transport.Message{}}})
		l.Expect(0x32)
		require.ErrorIs(t, r.sink.Results[0].Err, transport.Unsupported)
		require.ErrorContains(t, r.sink.Results[0].Err, "leave Retain of the message and of dialect.Topics unset")
		require.Len(t, r.sink.Results, 1)
	})
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "\x24\x00")
		r.Send([]transport.Item{{Tag: 0, Msg: &transport.Message{}}, {Tag: 1, Msg: &transport.Message{AtMostOnce: true}}})
		l.Expect(0x30)
		synctest.Wait()
		require.ErrorContains(t, r.sink.Results[0].Err, "set AtMostOnce")
		require.Equal(t, []uint16{1}, r.sink.Tags())
	})
	for properties, want := range map[string]string{
		"\x28\x00": "no wildcards", "\x2a\x00": "no shared subscriptions",
	} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			o := fiveOptions(nil)
			o.Dialect = &dialect.Topics{Telemetry: "t", Commands: []string{"a", "$share/g/b/#"}}
			r, _ := start5(t, h, New(h.dial, o), properties)
			r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
			require.ErrorIs(t, r.sink.Replies[0].Err, transport.Unsupported)
			require.ErrorContains(t, r.sink.Replies[0].Err, want)
			require.ErrorContains(t, r.sink.Replies[0].Err, `dialect.Topics Commands`)
			require.ErrorContains(t, r.sink.Replies[0].Err, `"$share/g/b/#"`)
		})
	}
}

func TestAnAssignedClientIDIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		tr := New(h.dial, fiveOptions(&MQTT5Options{AssignClientID: true}))
		for _, want := range []string{"\x00\x00", "\x00\x04auto", "\x00\x04auto"} {
			var connect got
			r, _ := begin(t, tr, func() (l *link) {
				l, connect = h.welcome5(0, "\x12\x00\x04auto")
				return l
			})
			require.Equal(t, want, string(connect.Body[24:24+len(want)]))
			r.cancel()
			<-r.ran
		}
	})
}

// An id that a CONNECT cannot have is not kept, and neither is a very long one.
func TestAnAssignedClientIDThatIsNoneIsNotKept(t *testing.T) {
	for _, id := range []string{"a\x01", strings.Repeat("x", 257)} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			tr := New(h.dial, fiveOptions(&MQTT5Options{AssignClientID: true}))
			for range 2 {
				var connect got
				r, _ := begin(t, tr, func() (l *link) {
					l, connect = h.welcome5(0, "\x12"+string([]byte{byte(len(id) >> 8), byte(len(id))})+id)
					return l
				})
				require.Equal(t, "\x00\x00", string(connect.Body[24:26]))
				r.cancel()
				<-r.ran
			}
		})
	}
}

// On a processor with 32 bits, too, the largest packet that a broker can name is no limit.
func TestAMaximumPacketSizeAboveAllPackets(t *testing.T) {
	for _, size := range []string{"\x80\x00\x00\x00", "\xff\xff\xff\xff"} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "\x27"+size)
			require.Positive(t, r.Info().MaxSize)
			r.send("x")
			l.Expect(0x32)
		})
	}
}

func TestRefusalsOfCONNECT(t *testing.T) {
	for code, kind := range map[byte]transport.Kind{0x87: transport.Unauthorized, 0x88: transport.Unavailable,
		0x89: transport.Throttled, 0x9d: transport.NotFound, 0xff: transport.Protocol} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			_, _, _, _, err := dialed(t, New(h.dial, fiveOptions(nil)), func() {
				l, _ := h.accept()
				l.Send(packet(0x20, "\x00"+string([]byte{code}), block("\x1f\x00\x03why\x1c\x00\x06other1"))...)
			})
			require.ErrorIs(t, err, kind)
			var refused *ReasonError
			require.True(t, errors.As(err, &refused))
			require.Equal(t, &ReasonError{Packet: "CONNACK", Code: code, Reason: "why", Server: "other1"}, refused)
			require.ErrorContains(t, err, "other1")
		})
	}
}

// A broker that speaks MQTT 3.1.1 alone refuses MQTT 5 in the form of 3.1.1, without properties.
// countingConn counts the reads.
type countingConn struct {
	Conn
	reads atomic.Int32
}

func (c *countingConn) Read(p []byte) (int, error) {
	c.reads.Add(1)
	return c.Conn.Read(p)
}

// Each read copies what was read before.
func TestALargeCONNACKTakesFewReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		var conn *countingConn
		h.wrap = func(c Conn) Conn {
			conn = &countingConn{Conn: c}
			return conn
		}
		start5(t, h, New(h.dial, fiveOptions(nil)), strings.Repeat("\x26\x00\x01a\x00\x01b", 9000))
		require.Less(t, conn.reads.Load(), int32(10))
	})
}

func TestABrokerWithoutMQTT5SaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		_, _, _, _, err := dialed(t, New(h.dial, fiveOptions(nil)), func() {
			l, _ := h.accept()
			l.Send(0x20, 2, 0, 1)
		})
		require.ErrorIs(t, err, transport.Unsupported)
		require.ErrorContains(t, err, "CONNACK 1 (unacceptable protocol version)")
	})
}

func TestBadAnswersToCONNECT(t *testing.T) {
	for want, answer := range map[string][]byte{
		"ends before its fields do":            {0x20, 2, 0, 0},
		"first packet is not a CONNACK":        {0x40, 2, 0, 1},
		"AUTH":                                 nil,
		"a property that it must not have":     packet(0x20, "\x00\x00", block("\x01\x00")),
		"neither success nor failure":          packet(0x20, "\x00\x01", block("")),
		"kept a session that was to be":        packet(0x20, "\x01\x00", block("")),
		"a packet of type 2 with 200000 bytes": {0x20, 0xc0, 0x9a, 0x0c},
	} {
		bubble(t, func(t *testing.T) {
			if answer == nil {
				answer, want = packet(0xf0, "\x18", block("\x15\x00\x01m")), "first packet is not a CONNACK"
			}
			h := newHub(t)
			o := fiveOptions(nil)
			o.CleanSession = true
			_, _, _, _, err := dialed(t, New(h.dial, o), func() {
				l, _ := h.accept()
				l.Send(answer...)
			})
			require.ErrorIs(t, err, transport.Protocol, want)
			require.ErrorContains(t, err, want)
		})
	}
}

func TestMessagesThatMQTT5CannotCarryAreRefusedAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
		long := strings.Repeat("x", 65536)
		for field, m := range map[string]*transport.Message{
			"ID": {ID: "\x00"}, "CorrelationID": {CorrelationID: long}, "ContentType": {ContentType: "a\x00"},
			"ContentEncoding": {ContentEncoding: long}, "Component": {Component: "\xff"}, "ResponseTopic": {ResponseTopic: long},
			"Properties": {Properties: []transport.Property{{Name: "a", Value: long}}},
		} {
			r.sink.Results = nil
			r.Send([]transport.Item{{Tag: 9, Msg: m}})
			require.Len(t, r.sink.Results, 1, field)
			require.ErrorIs(t, r.sink.Results[0].Err, transport.Invalid)
			require.ErrorContains(t, r.sink.Results[0].Err, "message "+field+" is not a text of MQTT")
		}
		r.send("next")
		require.Equal(t, "\x00\x01\x00next", l.Expect(0x32).Rest())
	})
}

func TestARefusedMessageFailsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
		r.send("one", "two")
		l.Expect(0x32)
		l.Expect(0x32)
		l.Send(packet(0x40, "\x00\x01\x97", block("\x1f\x00\x04full"))...)
		l.Puback(2)
		synctest.Wait()
		require.Equal(t, []uint16{1}, r.sink.Tags())
		err := r.sink.Results[0].Err
		require.ErrorIs(t, err, transport.Quota)
		require.EqualError(t, err, "mqtt send: quota exceeded: PUBACK 0x97 (quota exceeded): full")
		require.Equal(t, transport.ScopeOperation, transport.Find(err).Scope)
	})
}

func TestARefusedSubscriptionNamesItsFilter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		o := fiveOptions(&MQTT5Options{NoLocal: true, RetainHandling: RetainedNever, ExactlyOnce: true})
		o.Dialect = &dialect.Topics{Telemetry: "t", Commands: []string{"a", "$share/g/b"}}
		r, l := start5(t, h, New(h.dial, o), "")
		r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
		require.Equal(t, "\xf0\x01\x00\x00\x01a\x26\x00\x0a$share/g/b\x22", string(l.Expect(0x82).Body))
		l.Send(packet(0x90, "\xf0\x01", block("\x1f\x00\x02no"), "\x02\x87")...)
		synctest.Wait()
		require.EqualError(t, r.sink.Replies[0].Err,
			"mqtt subscribe: forbidden: SUBACK 0x87 (not authorized) for $share/g/b: no")
		r.Do(&transport.Request{ID: 2, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
		l.Expect(0x82)
		l.Send(packet(0x90, "\xf0\x02\x00\x01")...) // one code for two filters
		r.requireLoss(t, transport.Network)
	})
}

func TestADISCONNECTOfTheBrokerEndsTheSessionWithItsCode(t *testing.T) {
	for code, kind := range map[byte]transport.Kind{0: transport.Network, 0x87: transport.Unauthorized,
		0x8b: transport.Unavailable, 0x8d: transport.Timeout, 0x8e: transport.Unavailable, 0x96: transport.Throttled,
		0x82: transport.Protocol} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
			l.Send(packet(0xe0, string([]byte{code}), block("\x1f\x00\x02so\x1c\x00\x01b"))...)
			err := r.requireLoss(t, kind)
			var e *ReasonError
			require.True(t, errors.As(err, &e))
			require.Equal(t, &ReasonError{Packet: "DISCONNECT", Code: code, Reason: "so", Server: "b"}, e)
			require.Equal(t, code == 0x8e, transport.Find(err).RetryAfter == 10*time.Second)
		})
	}
}

func TestTopicAliases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		tr := New(h.dial, fiveOptions(&MQTT5Options{TopicAliases: true}))
		r, l := start5(t, h, tr, "\x22\x00\x02")
		send := func(tag uint16, topic string, again bool) got {
			r.Send([]transport.Item{{Tag: tag, Resent: again, Msg: &transport.Message{Topic: topic, Body: []byte("b")}}})
			p, err := l.Next()
			require.NoError(t, err)
			return p
		}
		for i, c := range []struct{ topic, sent, alias string }{
			{"", "site/dev-1/up", "\x23\x00\x01"}, {"", "", "\x23\x00\x01"},
			{"two/two", "two/two", "\x23\x00\x02"}, {"three/three", "three/three", ""}, {"two/two", "", "\x23\x00\x02"},
			{"", "", "\x23\x00\x01"}, {"t/3", "t/3", ""}, {"three/three", "three/three", ""},
		} {
			p := send(uint16(i), c.topic, false)
			require.Equal(t, c.sent, p.Topic(), i)
			require.Equal(t, string([]byte{0, byte(i + 1)})+block(c.alias)+"b", p.Rest(), i)
		}
		// a message that is refused here introduces no alias
		r.cancel()
		<-r.ran
		r, l = start5(t, h, tr, "\x22\x00\x01\x27\x00\x00\x00\x30")
		r.Send([]transport.Item{{Tag: 0, Resent: true, Msg: &transport.Message{Body: make([]byte, 50)}}})
		require.ErrorIs(t, r.sink.Results[0].Err, transport.TooLarge)
		require.Equal(t, "site/dev-1/up", send(0, "", true).Topic(), "a resend carries the topic")
		require.Empty(t, send(1, "", false).Topic())
		r.cancel()
		<-r.ran
		r, l = start5(t, h, tr, "")
		require.Equal(t, "\x00\x01\x00b", send(0, "", false).Rest(), "the broker allows none")
	})
	bubble(t, func(t *testing.T) { // and none without the option, nor more than 16
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "\x22\xff\xff")
		r.send("b")
		require.Equal(t, "\x00\x01\x00b", l.Expect(0x32).Rest())
		r.cancel()
		<-r.ran
		r, l = start5(t, h, New(h.dial, fiveOptions(&MQTT5Options{TopicAliases: true})), "\x22\xff\xff")
		for i := range 18 {
			r.Send([]transport.Item{{Tag: 0, Msg: &transport.Message{Topic: "topic" + strconv.Itoa(i)}}})
			require.Equal(t, i < 16, strings.Contains(l.Expect(0x32).Rest(), "\x23"))
		}
	})
}

// What topic aliases save is in the documentation of MQTT5.
func TestBytesThatTopicAliasesSave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		size := func(o *MQTT5Options) (n int) {
			h := newHub(t)
			r, l := start5(t, h, New(h.dial, fiveOptions(o)), "\x22\x00\x01")
			for range 100 {
				r.Send([]transport.Item{{Tag: 0, Msg: &transport.Message{Topic: "plants/plant-07/line-3/device-000123/telemetry",
					Body: make([]byte, 40)}}})
				n += 2 + len(l.Expect(0x32).Body)
			}
			return n
		}
		require.Equal(t, 100*(2+2+46+2+1+40), size(nil), "93 bytes each")
		require.Equal(t, 46+100*(2+2+2+1+3+40), size(&MQTT5Options{TopicAliases: true}), "50 bytes each, and the topic once")
	})
}

// A broker's refusal of one message costs neither the connection nor another message.
func TestAnyCodeOfAPUBACKIsAboutItsMessageAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
		for code := 0x80; code < 0x100; code++ {
			r.send("refused", "good")
			l.Expect(0x32)
			l.Expect(0x32)
			l.Send(packet(0x40, "\x00\x01"+string([]byte{byte(code)}))...)
			l.Puback(2)
			synctest.Wait()
			require.Empty(t, r.ran, "0x%x", code)
			require.Len(t, r.sink.Results, 2)
			var refusal *ReasonError
			require.ErrorAs(t, r.sink.Results[0].Err, &refusal)
			require.EqualValues(t, code, refusal.Code)
			require.Equal(t, transport.ScopeOperation, transport.Find(r.sink.Results[0].Err).Scope)
			require.Equal(t, code == 0x95, errors.Is(r.sink.Results[0].Err, transport.TooLarge))
			require.Equal(t, []uint16{1}, r.sink.Tags())
			r.sink.Results = nil
		}
	})
}
