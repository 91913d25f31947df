package engine

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/stretchr/testify/require"
)

// With dialect.HubMessages, twin and methods are Unsupported and everything else works.
func TestMessagesAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, New(h.dial, &Options{Dialect: dialect.HubMessages, ReadBuffer: 256, WriteBuffer: 1024}))
		for i, q := range []transport.Request{
			{Op: transport.OpTwinGet}, {Op: transport.OpTwinPatch, Body: []byte("{}")}, {Op: transport.OpSubscribe,
				Want: transport.FeatureTwin},
			{Op: transport.OpSubscribe, Want: transport.FeatureMessages | transport.FeatureMethods},
		} {
			q.ID = uint32(i + 1)
			r.Do(&q)
			require.Len(t, r.sink.Replies, i+1)
			require.ErrorIs(t, r.sink.Replies[i].Err, transport.Unsupported)
		}
		r.Do(&transport.Request{Op: transport.OpRespond, Ref: []byte("1"), Status: 200})
		r.Do(&transport.Request{ID: 9, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
		l.Expect(0x82)
		l.Send(publishBytes("$iothub/methods/POST/x/?$rid=1", 0, "{}")...)
		l.Send(publishBytes("$iothub/twin/res/200/?$rid=1", 0, strings.Repeat("x", 999))...)
		l.Send(publishBytes("devices/dev-1/messages/devicebound/a=1", 300, "first")...)
		synctest.Wait()
		require.Len(t, r.sink.Messages, 1)
	})
}

// A twin larger than a board's read buffer is answered with TooLarge.
func TestATwinLargerThanTheReadBuffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, New(h.dial, &Options{Dialect: dialect.HubTwinAndMethods, ReadBuffer: 256, WriteBuffer: 1024}))
		l.Send(publishBytes("$iothub/twin/res/200/?$rid=77", 0, strings.Repeat("x", 999))...)
		l.Send(publishBytes("$iothub/methods/POST/x/?$rid=1", 0, strings.Repeat("x", 999))...)
		synctest.Wait()
		require.Empty(t, r.sink.Messages)
		require.Equal(t, []string{"x 1"}, r.sink.Unfit, "it is to be answered")
		l.Send(publishBytes("$iothub/twin/PATCH/properties/desired/?$version=5", 0, strings.Repeat("x", 999))...)
		l.Send(publishBytes("$iothub/twin/res/200/?$rid=78", 0, strings.Repeat("x", 99))...)
		synctest.Wait()
		require.Len(t, r.sink.Replies, 2)
		require.ErrorIs(t, r.sink.Replies[0].Err, transport.TooLarge)
		require.NoError(t, r.sink.Replies[1].Err)
		require.Len(t, r.sink.Messages, 1, "a change was missed")

		// a body may be larger than the write buffer
		r.Do(&transport.Request{ID: 5, Op: transport.OpTwinPatch, Body: []byte(strings.Repeat("y", 5000))})
		require.Len(t, l.Expect(0x30).Body, 2+len("$iothub/twin/PATCH/properties/reported/?$rid=5")+5000)
		r.Do(&transport.Request{ID: 6, Op: transport.OpTwinPatch, Body: make([]byte, transport.MaxMessageSize+1)})
		require.ErrorIs(t, r.sink.Replies[2].Err, transport.TooLarge)
		// its topic must not
		r.Do(&transport.Request{Op: transport.OpRespond, Ref: []byte(strings.Repeat("r", 2000)), Status: 200})
		require.Len(t, r.sink.Replies, 4)
		require.ErrorIs(t, r.sink.Replies[3].Err, transport.TooLarge)
	})
}

// A handler for what a broker does not have is refused at the call, and costs no connection.
func TestAHandlerOverATopicMapThatLacksItIsUnsupported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		go func() {
			l := h.welcome()
			_, _ = l.Drain()
		}()
		client, err := device.New(&transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1"},
			New(h.dial, &Options{Dialect: &dialect.Topics{Telemetry: "up"}}), nil)
		require.NoError(t, err)
		defer client.Close()
		require.NoError(t, client.Open(t.Context()))
		for text, err := range map[string]error{
			"desired properties are not available from a broker with dialect.Topics": client.HandleDesired(
				func(context.Context, device.Desired) {}),
			"direct methods are not available from a broker with dialect.Topics": client.HandleMethod("a",
				func(context.Context, *device.MethodCall) (int, []byte) { return 200, nil }),
			"cloud-to-device messages are not available without Commands in dialect.Topics": client.HandleMessages(
				func(context.Context, *transport.Message) error { return nil }),
		} {
			require.ErrorIs(t, err, transport.Unsupported)
			require.ErrorContains(t, err, text)
		}
		time.Sleep(time.Minute)
		require.Equal(t, device.StateConnected, client.Status().State)
	})
}

// born begins a session of a dialect with a birth, with a broker that sends packets before it
// acknowledges the birth.
func born(t testing.TB, h *hub, o *Options, packets []byte) (*running, *link) {
	t.Helper()
	o.Dialect = &dialect.Topics{Telemetry: "up", Commands: []string{"down"},
		Birth: &transport.Message{Topic: "state", Body: []byte("here")}}
	var l *link
	creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1"}
	s, k, ctx, cancel, err := dialedAs(t, New(h.dial, o), creds, func() {
		if o.Protocol == nil {
			l = h.welcome()
		} else {
			l, _ = h.welcome5(1, "")
		}
		birth := l.Expect(0x32)
		require.Equal(t, "state", birth.Topic())
		id := birth.Rest()[:2]
		l.Send(append(packets, 0x40, 2, id[0], id[1])...)
	})
	require.NoError(t, err)
	require.Empty(t, k.Bodies())
	return &running{s.(*session), k, k.Run(t, ctx, s, cancel), cancel}, l
}

// With a fixed read buffer, messages that come before the birth is acknowledged wait as far as they
// fit. The others are not acknowledged and come on the next connection, and the birth is not held
// up.
func TestMessagesBeforeTheBirthInAFixedBuffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		var packets []byte
		for i, size := range []int{20, 60, 60, 400, 30, 40} {
			packets = append(packets, publishBytes("down", uint16(i+1), strings.Repeat(strconv.Itoa(i), size))...)
		}
		r, l := born(t, h, &Options{ReadBuffer: 128, WriteBuffer: 1024}, packets)
		versions["3.1.1"].subscribe(r, l)
		require.Equal(t, []string{strings.Repeat("0", 20), strings.Repeat("1", 60)}, r.sink.Bodies())
		for i := range 2 {
			r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.Refs[i]})
			require.Equal(t, []byte{0, byte(i + 1)}, l.Expect(0x40).Body)
		}
		l.Expect(0xe0)
		require.ErrorIs(t, r.requireLoss(t, transport.Network), mqttwire.ErrBehind)
	})
}

func TestMessagesBeforeTheBirthOverMQTT5(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		packets := append(publish5(0x32, "down", 1, "", "1"), publish5(0x34, "down", 2, "", "2")...)
		packets = append(packets, publish5(0x32, "not/subscribed", 3, "", "3")...)
		r, l := born(t, h, &Options{Protocol: MQTT5(nil)}, packets)
		require.Equal(t, []byte{0, 3, 0x83}, l.Expect(0x40).Body)
		settle := commands(r, l)
		synctest.Wait()
		require.Equal(t, []string{"1", "2"}, r.sink.Bodies())
		settle(0, transport.OutcomeAccept)
		require.Equal(t, []byte{0, 1}, l.Expect(0x40).Body)
		settle(1, transport.OutcomeAccept)
		require.Equal(t, []byte{0, 2}, l.Expect(0x50).Body)
	})
}

// A message larger than all that may wait would come first on each connection.
func TestALargeMessageBeforeTheBirthIsDelivered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		body := strings.Repeat("x", mqttwire.MaxBacklog+1)
		r, _ := born(t, h, new(Options), publishBytes("down", 1, body))
		synctest.Wait()
		require.Equal(t, []string{body}, r.sink.Bodies())
	})
}

// Each read copies what was read before.
func TestMessagesBeforeTheBirthTakeFewReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		var conn *countingConn
		h.wrap = func(c Conn) Conn {
			conn = &countingConn{Conn: c}
			return conn
		}
		r, _ := born(t, h, new(Options), bytes.Repeat(publishBytes("down", 0, strings.Repeat("x", 100)), 2000))
		synctest.Wait()
		require.Len(t, r.sink.Bodies(), 2000)
		require.Less(t, conn.reads.Load(), int32(200))
	})
}

// endings is a dialect whose topics end with the message's id.
type endings struct{ dialect.Topics }

type endingsSession struct{ dialect.Session }

func (d *endings) Session(c *dialect.Config) (dialect.Session, dialect.Hello, error) {
	s, hello, err := d.Topics.Session(c)
	return endingsSession{s}, hello, err
}

func (s endingsSession) Publication(m *transport.Message) (dialect.Publication, *transport.Error) {
	p, refused := s.Session.Publication(m)
	p.Suffix = len(m.ID)
	return p, refused
}

func (s endingsSession) AppendSuffix(dst []byte, m *transport.Message) []byte {
	return append(dst, m.ID...)
}

// The end of a topic that the dialect appends is in each packet, and keeps the topic from an alias.
func TestTopicsHaveTheDialectsSuffix(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		o := fiveOptions(&MQTT5Options{TopicAliases: true})
		o.Dialect = &endings{dialect.Topics{Telemetry: "site/{device}/up/"}}
		r, l := start5(t, h, New(h.dial, o), "\x22\x00\x02")
		for tag, id := range [...]string{"one", "two", "one"} {
			r.Send([]transport.Item{{Tag: uint16(tag), Msg: &transport.Message{ID: id, Body: []byte("b")}}})
			p, err := l.Next()
			require.NoError(t, err)
			require.Equal(t, "site/dev-1/up/"+id, p.Topic())
			require.Equal(t, "b", p.Rest()[len(p.Rest())-1:])
		}
	})
}

// A broker may not check the topic of a message: nats-server makes it of any subject of NATS.
func TestAMessageWithAnInvalidTopicIsDroppedAlone(t *testing.T) {
	for _, end := range []string{"#", "a+b", "\xff", "\x00"} {
		testkit.Run(t, "3.1.1: "+strconv.Quote(end), func(t *testing.T) {
			h := newHub(t)
			r, l := startPlain(t, h, New(h.dial, topics()))
			l.Send(publishBytes("down/"+end, 0, "a")...)
			l.Send(publishBytes("down/"+end, 7, "b")...)
			l.Send(publishBytes("down/x", 8, "c")...)
			synctest.Wait()
			require.Equal(t, []string{"c"}, r.sink.Bodies())
			require.Equal(t, [][]byte{{}, {0, 7}}, r.sink.Unasked)
			require.Empty(t, r.ran)
		})
		testkit.Run(t, "5: "+strconv.Quote(end), func(t *testing.T) {
			h := newHub(t)
			r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
			l.Send(publish5(0x30, down+end, 0, "", "a")...)
			l.Send(publish5(0x32, down+end, 7, "", "b")...)
			l.Send(publish5(0x32, down, 8, "", "c")...)
			require.Equal(t, []byte{0, 7, 0x83}, l.Expect(0x40).Body)
			synctest.Wait()
			require.Equal(t, []string{"c"}, r.sink.Bodies())
			require.Equal(t, [][]byte{{}, {}}, r.sink.Unasked)
			require.Empty(t, r.ran)
		})
	}
}
