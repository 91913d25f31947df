package engine

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
)

// resume ends a session and starts the next one of its Transport.
func resume(t testing.TB, h *hub, r *running, present byte, properties string) (*running, *link) {
	t.Helper()
	tr := r.t
	r.cancel()
	<-r.ran
	return begin(t, tr, func() *link {
		l, _ := h.welcome5(present, properties)
		return l
	})
}

func again(tags ...uint16) (items []transport.Item) {
	for _, tag := range tags {
		items = append(items, transport.Item{Tag: tag, Resent: true, Msg: &transport.Message{}})
	}
	return items
}

func TestAResumedSessionGetsWhatWasInFlightAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
		r.send("a", "b", "c", "d")
		for range 4 {
			l.Expect(0x32)
		}
		l.Puback(1)
		l.Send(packet(0x40, "\x00\x02\x97")...) // acknowledged, though refused: [MQTT-4.4.0-2]
		synctest.Wait()
		r, l = resume(t, h, r, 1, "")
		r.Send(again(1, 2, 3))
		require.Equal(t, "\x00\x02\x00", l.Expect(0x32).Rest(), "the broker has refused it before")
		require.Equal(t, "\x00\x03\x00", l.Expect(0x3a).Rest())
		require.Equal(t, "\x00\x04\x00", l.Expect(0x3a).Rest())
		l.Puback(3)
		synctest.Wait()
		r, l = resume(t, h, r, 1, "") // what is in flight since two connections
		r.Send(again(3, 1, 2))
		require.Equal(t, "\x00\x04\x00", l.Expect(0x3a).Rest())
		require.Equal(t, "\x00\x02\x00", l.Expect(0x3a).Rest())
		require.Equal(t, "\x00\x03\x00", l.Expect(0x32).Rest())
		r, l = resume(t, h, r, 0, "") // the broker has forgotten the session: all is new
		r.Send(again(1, 3))
		require.Equal(t, "\x00\x02\x00", l.Expect(0x32).Rest())
		require.Equal(t, "\x00\x04\x00", l.Expect(0x32).Rest())
	})
}

// commands subscribes and returns a function that settles the message of this number.
func commands(r *running, l *link) (settle func(i int, o transport.Outcome)) {
	r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
	id := l.Expect(0x82).Body[:2]
	l.Send(packet(0x90, string(id), "\x00\x02")...)
	return func(i int, o transport.Outcome) {
		r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.Ref(i), Outcome: o})
	}
}

const down = "site/dev-1/down/x"

func TestAMessageWithQoS2ComesOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(&MQTT5Options{ExactlyOnce: true})), "")
		settle := commands(r, l)
		l.Send(publish5(0x34, down, 7, "", "once")...)
		synctest.Wait()
		require.Len(t, r.sink.Messages, 1)
		settle(0, transport.OutcomeAccept)
		require.Equal(t, []byte{0, 7}, l.Expect(0x50).Body)
		l.Send(publish5(0x3c, down, 7, "", "once")...) // as if PUBREC was lost
		require.Equal(t, []byte{0, 7}, l.Expect(0x50).Body)

		// the same on the next connections, up to PUBREL
		r, l = resume(t, h, r, 1, "")
		l.Send(publish5(0x3c, down, 7, "", "once")...)
		require.Equal(t, []byte{0, 7}, l.Expect(0x50).Body)
		l.Send(packet(0x62, "\x00\x07")...)
		require.Equal(t, []byte{0, 7}, l.Expect(0x70).Body)
		l.Send(packet(0x62, "\x00\x07")...) // as if PUBCOMP was lost
		require.Equal(t, []byte{0, 7, 0x92}, l.Expect(0x70).Body)
		synctest.Wait()
		require.Empty(t, r.sink.Messages)

		settle = commands(r, l)
		l.Send(publish5(0x34, down, 7, "", "another with this id")...)
		synctest.Wait()
		require.Len(t, r.sink.Messages, 1)
		settle(0, transport.OutcomeAccept)
		require.Equal(t, []byte{0, 7}, l.Expect(0x50).Body)

		// a new session of the broker begins anew
		r, l = resume(t, h, r, 0, "")
		l.Send(publish5(0x34, down, 7, "", "of the new session")...)
		synctest.Wait()
		require.Len(t, r.sink.Messages, 1)
	})
}

// A message without a verdict belongs to the broker: it comes again.
func TestAMessageWithQoS2WithoutAVerdictComesAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
		commands(r, l)
		l.Send(publish5(0x34, down, 7, "", "x")...)
		synctest.Wait()
		r, l = resume(t, h, r, 1, "")
		l.Send(publish5(0x3c, down, 7, "", "x")...)
		synctest.Wait()
		require.Equal(t, []bool{true}, r.sink.Redelivered)
		r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.Refs[0], Outcome: transport.OutcomeRelease})
		l.Send(packet(0x62, "\x00\x07")...) // it was not acknowledged
		require.Equal(t, []byte{0, 7, 0x92}, l.Expect(0x70).Body)
	})
}

// A verdict on a message with QoS 2 counts on later connections, as long as the broker knows the
// session.
func TestAVerdictOnQoS2CountsOnTheNextConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
		commands(r, l)
		l.Send(publish5(0x34, down, 7, "", "x")...)
		l.Send(publish5(0x32, down, 8, "", "y")...)
		synctest.Wait()
		refs := r.sink.Refs
		settle := func() {
			for _, ref := range refs {
				r.Do(&transport.Request{Op: transport.OpSettle, Ref: ref})
			}
			r.Do(&transport.Request{Op: transport.OpPing})
		}
		r, l = resume(t, h, r, 1, "")
		settle()
		require.Equal(t, []byte{0, 7}, l.Expect(0x50).Body)
		l.Expect(0xc0)
		l.Send(publish5(0x3c, down, 7, "", "x")...) // on its way meanwhile
		require.Equal(t, []byte{0, 7}, l.Expect(0x50).Body)
		require.Empty(t, r.sink.Messages)
		r, l = resume(t, h, r, 0, "")
		settle()
		l.Expect(0xc0)
	})
}

// The handler may return when its connection has ended and the client does not know it yet.
func TestAVerdictOnQoS2CountsAlthoughItsConnectionHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
		settle := commands(r, l)
		l.Send(publish5(0x34, down, 7, "", "accepted")...)
		l.Send(publish5(0x34, down, 8, "", "released")...)
		synctest.Wait()
		r.cancel()
		<-r.ran
		settle(0, transport.OutcomeAccept)
		settle(1, transport.OutcomeRelease)
		r, l = begin(t, r.t, func() *link {
			l, _ := h.welcome5(1, "")
			return l
		})
		l.Send(publish5(0x3c, down, 7, "", "accepted")...)
		require.Equal(t, []byte{0, 7}, l.Expect(0x50).Body)
		l.Send(publish5(0x3c, down, 8, "", "released")...)
		synctest.Wait()
		require.Len(t, r.sink.Messages, 1)
		require.Equal(t, "released", string(r.sink.Messages[0].Body))
	})
}

func TestTheReceiveMaximumHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(&MQTT5Options{ReceiveMaximum: 2})), "")
		settle := commands(r, l)
		for i := range 6 { // settled in time
			l.Send(publish5(0x32+byte(i%2*2), down, 7, "", "")...) // QoS 1 and 2 in turns
			synctest.Wait()
			settle(i, transport.OutcomeAccept)
			if l.Expect(0x40 | byte(i%2*0x10)); i%2 == 1 {
				l.Send(packet(0x62, "\x00\x07")...)
				l.Expect(0x70)
			}
		}
		l.Send(publish5(0x32, down, 1, "", "")...)
		l.Send(publish5(0x34, down, 2, "", "")...)
		synctest.Wait()
		settle(7, transport.OutcomeAccept)
		l.Expect(0x50)
		l.Send(publish5(0x30, down, 0, "", "")...) // QoS 0 does not count
		synctest.Wait()
		require.Empty(t, r.ran)

		// On the next connection the broker may begin with PUBLISH, and PUBREL of 2 follows.
		r.cancel()
		<-r.ran
		r, l = begin(t, r.t, func() *link {
			l, _ := h.welcome5(1, "")
			return l
		})
		l.Send(publish5(0x3a, down, 1, "", "")...)
		l.Send(publish5(0x32, down, 3, "", "")...)
		l.Send(packet(0x62, "\x00\x02")...)
		require.Equal(t, []byte{0, 2}, l.Expect(0x70).Body)
		synctest.Wait()
		require.Len(t, r.sink.Messages, 2)
		require.Empty(t, r.ran)
	})
}

// Released messages come again on the next connection only, so one is needed when no other message
// may come.
func TestReleasedMessagesDoNotBlockTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(&MQTT5Options{ReceiveMaximum: 2})), "")
		settle := commands(r, l)
		l.Send(publish5(0x32, down, 1, "", "")...)
		l.Send(publish5(0x32, down, 2, "", "")...)
		synctest.Wait()
		settle(0, transport.OutcomeRelease)
		synctest.Wait()
		require.Empty(t, r.ran)
		settle(1, transport.OutcomeRelease)
		released := time.Now()
		require.Empty(t, l.Expect(0xe0).Body, "else the broker would publish the will")
		require.ErrorContains(t, r.requireLoss(t, transport.Network), "were released")
		require.Equal(t, 30*time.Second, time.Since(released), "the handler has time until it gets them again")
	})
}

// An earlier program of the device had subscribed to it.
func TestAMessageWithoutASubscriptionIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(&MQTT5Options{ReceiveMaximum: 1})), "")
		for range 3 {
			l.Send(publish5(0x32, "old", 1, "", "")...)
			require.Equal(t, []byte{0, 1, 0x83}, l.Expect(0x40).Body)
			l.Send(publish5(0x34, "old", 1, "", "")...)
			require.Equal(t, []byte{0, 1, 0x83}, l.Expect(0x50).Body)
		}
		require.Empty(t, r.sink.Messages)
		require.Len(t, r.sink.Unasked, 6)
	})
}

// A broker may send more at once than the receive maximum allows, as mosquitto 2.0.11 does, here
// for a former subscription.
func TestABurstWithoutASubscriptionIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(&MQTT5Options{ReceiveMaximum: 1})), "")
		const messages = 1000
		var burst []byte
		for id := range messages {
			burst = append(burst, publish5(0x32, "old", uint16(id+1), "", "")...)
		}
		go l.Send(burst...)
		for id := range messages {
			require.Equal(t, mqttwire.AppendID(nil, uint16(id+1)), l.Expect(0x40).Body[:2])
		}
		require.Empty(t, r.ran)
	})
}

func TestOnlyTheFirstPropertiesOfAMessageAreKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
		l.Send(publish5(0x30, down, 0, strings.Repeat("\x26\x00\x00\x00\x00", 2000)+"\x03\x00\x01t", "")...)
		synctest.Wait()
		require.Len(t, r.sink.Messages[0].Properties, maxProperties)
		require.Equal(t, "t", r.sink.Messages[0].ContentType)
	})
}

func TestBrokersThatBreakTheProtocol(t *testing.T) {
	for want, packets := range map[string][]byte{
		"a topic alias, and none are":      publish5(0x30, down, 0, "\x23\x00\x01", ""),
		"a second CONNACK":                 packet(0x20, "\x00\x00", block("")),
		"a packet of type 5, which":        packet(0x50, "\x00\x01"),
		"a packet of type 7, which":        packet(0x70, "\x00\x01"),
		"a packet of type 11, which":       packet(0xb0, "\x00\x01", block(""), "\x00"),
		"a packet of type 8, which":        packet(0x82, "\x00\x01\x00\x00\x01a\x00"),
		"an AUTH that was not expected":    packet(0xf0),
		"a type that does not exist":       {0, 0},
		"written in more bytes than":       {0xd0, 0x80, 0},
		"goes on after its fields":         packet(0xd0, "x"),
		"a property that it must not":      packet(0x40, "\x00\x01\x00", block("\x21\x00\x01")),
		"answers no SUBSCRIBE":             packet(0x90, "\xf0\x01\x00\x00"),
		"a packet of type 3 with 2097152 ": {0x30, 0x80, 0x80, 0x80, 0x01},
		"a packet of type 4 with 1048576 ": {0x40, 0x80, 0x80, 0x40},
	} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
			l.Send(packets...)
			require.ErrorContains(t, r.requireLoss(t, transport.Network), want)
		})
	}
}

func TestAPUBACKForASUBSCRIBEIsAViolation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
		r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
		l.Expect(0x82)
		l.Send(packet(0x40, "\xf0\x01")...)
		require.ErrorContains(t, r.requireLoss(t, transport.Network), "answered a SUBSCRIBE with PUBACK")
	})
}

// A broker that sends PUBREL without end and reads nothing makes the answers wait, up to a bound.
func TestAnswersThatTheBrokerDoesNotReadAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		h.net.SetBuffer(1 << 10)
		r, l := start5(t, h, New(h.dial, fiveOptions(&MQTT5Options{ReceiveMaximum: 4})), "")
		go func() {
			for i := range 20_000 {
				if _, err := l.Write(packet(0x62, string([]byte{byte(i>>8) | 1, byte(i)}))); err != nil {
					return
				}
			}
		}()
		require.ErrorContains(t, r.requireLoss(t, transport.Network), "sends PUBREL or PUBLISH and reads no answers")
	})
}

// A packet larger than a board's buffer breaks the limit that CONNECT announced.
func TestABoardAnnouncesItsReadBuffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		o := fiveOptions(nil)
		o.ReadBuffer, o.WriteBuffer = 128, 512
		r, l := start5(t, h, New(h.dial, o), "")
		l.Send(publish5(0x30, down, 0, "", strings.Repeat("x", 128-2-2-len(down)-1))...)
		synctest.Wait()
		require.Len(t, r.sink.Messages, 1)
		r.Send([]transport.Item{{Tag: 0, Msg: &transport.Message{Properties: []transport.Property{{Name: "a",
			Value: strings.Repeat("x", 600)}}}}})
		require.ErrorIs(t, r.sink.Results[0].Err, transport.TooLarge)
		l.Send(publish5(0x30, down, 0, "", strings.Repeat("x", 128-2-2-len(down)))...)
		r.requireLoss(t, transport.Network)
	})
}

// play5 feeds a stream to a session over MQTT 5.
func play5(t testing.TB, stream []byte, size int, o *Options) (*sink, string) {
	k := new(sink)
	o.Dialect, o.Protocol = fiveOptions(nil).Dialect, MQTT5(&MQTT5Options{ReceiveMaximum: 3, TopicAliases: true})
	tr := New(func(context.Context, *transport.Credentials) (Conn, error) {
		return &pieces{append(packet(0x20, "\x01\x00", block("\x22\x00\x03")), stream...), size}, nil
	}, o)
	s, err := tr.Dial(context.Background(), &transport.Config{Creds: testCreds(t), Window: 4, Queue: 4, Sink: k})
	require.NoError(t, err)
	s.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
	s.Send([]transport.Item{{Tag: 0, Msg: &transport.Message{}}, {Tag: 8, Msg: &transport.Message{}}})
	return k, s.Run(context.Background()).Error()
}

// No stream makes the reader panic. The split into pieces makes no difference.
func FuzzStream5(f *testing.F) {
	f.Add([]byte{0x40, 2, 0, 1, 0x90, 4, 0xf0, 1, 0, 1, 0xD0, 0}, 3)
	f.Add(append(publish5(0x34, down, 7, "\x26\x00\x01a\x00\x01b", "hello"), 0x62, 2, 0, 7, 0x40, 3, 0, 9, 0x97), 1)
	f.Add(publish5(0x30, down, 0, "\x02\x00\x00\x00\x01", strings.Repeat("x", 300)), 255)
	f.Add(packet(0xe0, "\x8e", block("\x1f\x00\x01r")), 2)
	f.Add(append(publish5(0x32, "old", 1, "", ""), publish5(0x3a, down, 1, "", "")...), 5)
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		if size < 1 || len(stream) > 4096 {
			return
		}
		whole, why := play5(t, stream, 1<<20, new(Options))
		cut, whyCut := play5(t, stream, size, new(Options))
		require.Equal(t, why, whyCut)
		require.Equal(t, len(whole.Results), len(cut.Results))
		require.Equal(t, len(whole.Messages), len(cut.Messages))
		require.Equal(t, whole.Refs, cut.Refs)
		require.Equal(t, len(whole.Replies), len(cut.Replies))
		_, _ = play5(t, stream, size, &Options{ReadBuffer: 128, WriteBuffer: 512})
	})
}

func TestASessionOverMQTT5AllocatesNothingPerMessage(t *testing.T) {
	for _, aliases := range []bool{false, true} {
		o := fiveOptions(&MQTT5Options{TopicAliases: aliases})
		k := nowhere{make(chan uint16, 64)}
		ctx, cancel := context.WithCancel(context.Background())
		tr := New(func(context.Context, *transport.Credentials) (Conn, error) {
			e := newEcho()
			e.rest = packet(0x20, "\x00\x00", block("\x22\x00\x05"))
			return e, nil
		}, o)
		s, err := tr.Dial(ctx, &transport.Config{Creds: testCreds(t), Window: 64, Sink: k})
		require.NoError(t, err)
		ran := make(chan error)
		go func() { ran <- s.Run(ctx) }()
		batch := make([]transport.Item, 8)
		var topics [4]string
		for i := range topics {
			topics[i] = "a/topic/of/number/" + strconv.Itoa(i)
		}
		m := &transport.Message{ID: "m-1", ContentType: "text/plain", Created: time.Unix(1, 0), CorrelationID: "c",
			Expires: time.Now().Add(time.Hour), Properties: []transport.Property{{Name: "a b", Value: "c/d"}},
			Body: make([]byte, 60)}
		cycle := func() {
			for i := range batch {
				batch[i] = transport.Item{Tag: uint16(i), Resent: i%2 == 0, Msg: m}
			}
			m.Topic = topics[int(m.Body[0])%4]
			m.Body[0]++
			s.Send(batch)
			for range batch {
				<-k.done
			}
		}
		for range 10 {
			cycle() // the buffers grow
		}
		require.Zero(t, testing.AllocsPerRun(200, cycle))
		cancel()
		<-ran
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]uint32{0: 0, -time.Hour: 0, 1: 1, time.Second: 1, time.Second + 1: 2,
		1<<63 - 1: maxExpiry, maxExpiry * time.Second: maxExpiry} {
		require.Equal(t, want, seconds(d), d)
	}
	require.True(t, mqttwire.ValidText(nameID))
}
