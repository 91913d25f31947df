package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

func TestASessionPublishesReportsAndDisconnects(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, New(h.dial, nil))
		r.send("one", "two")
		a, b := l.Expect(0x32), l.Expect(0x32)
		require.Equal(t, "devices/dev-1/messages/events/", a.Topic())
		require.Equal(t, "\x00\x01one", a.Rest(), "the packet id is the tag plus one")
		require.Equal(t, "\x00\x02two", b.Rest())
		synctest.Wait()
		require.Empty(t, r.sink.Tags())
		l.Puback(2)
		l.Puback(1)
		synctest.Wait()
		require.Equal(t, []uint16{1, 0}, r.sink.Tags())

		r.cancel()
		rest, err := l.Drain()
		require.Equal(t, io.EOF, err)
		require.Equal(t, []got{{First: 0xE0, Body: []byte{}}}, rest)
		require.ErrorIs(t, <-r.ran, context.Canceled)
	})
}

// Until a message is written, Send may read it: an earlier PUBACK must not resolve it.
func TestAPubackForAMessageThatIsNotWrittenIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, New(h.dial, nil))
		l.Puback(1)
		synctest.Wait()
		require.Empty(t, r.sink.Tags())
		r.send("one")
		l.Expect(0x32)
		l.Puback(1)
		l.Puback(1)
		l.Puback(2)
		synctest.Wait()
		require.Equal(t, []uint16{0}, r.sink.Tags())
		require.Empty(t, r.ran)
	})
}

// hasty is a connection whose hub acknowledges message 0 after each write of its PUBLISH.
type hasty struct {
	Conn
	fast  bool
	hub   *link
	wrote func(p []byte)
}

func (c *hasty) Fast() bool { return c.fast }

func (c *hasty) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.hub != nil {
		c.hub.Puback(1)
		synctest.Wait()
		c.wrote(p)
	}
	return n, err
}

// Until the last bytes of a body are written, Send reads it: a PUBACK for a part must not resolve
// the message, and the PUBACK for the whole must. The writes are larger on a fast link.
func TestAPubackForAPartOfAMessageIsIgnored(t *testing.T) {
	for _, row := range []struct {
		buffer int // 512 is a board's
		fast   bool
		most   int // in a write
	}{{0, false, flushSize}, {0, true, fastChunk}, {512, true, 512}} {
		for _, size := range []int{400, 511, 512, 513, 1024, 16<<10 - 100, 16 << 10, 32 << 10, 32<<10 + 1, 64 << 10, 80 << 10,
			80<<10 + 1, 100_000, 144<<10 + 1} {
			bubble(t, func(t *testing.T) {
				h, c := newHub(t), &hasty{fast: row.fast}
				h.wrap = func(plain Conn) Conn {
					c.Conn = plain
					return c
				}
				r, l := start(t, h, New(h.dial, &Options{WriteBuffer: row.buffer}))
				go func() { _, _ = io.Copy(io.Discard, l.Conn) }()
				body := make([]byte, size)
				packet := mqttwire.Outgoing{QoS: 1, Topic: len("devices/dev-1/messages/events/"), Body: size}
				left, most := packet.HeadSize()+size, 0
				c.wrote = func(p []byte) {
					left, most = left-len(p), max(most, len(p))
					if done := len(r.sink.Tags()) == 1; done != (left == 0) {
						t.Errorf("%+v, body of %d: %d bytes are not written, done %v", row, size, left, done)
					}
				}
				c.hub = l
				r.Send([]transport.Item{{Msg: &transport.Message{Body: body}}})
				require.Zero(t, left)
				require.LessOrEqual(t, most, row.most)
				if size > flushSize+row.most {
					require.Equal(t, row.most, most)
				}
				c.hub = nil
				require.Equal(t, []uint16{0}, r.sink.Tags())
			})
		}
	}
}

// [MQTT-4.4.0-1]: the same packet id and DUP, on another connection.
func TestAMessageGoesAgainWithItsIDAndDUP(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		tr := New(h.dial, nil)
		m := &transport.Message{ID: "m-1", Body: []byte("x")}
		r, l := start(t, h, tr)
		r.Send([]transport.Item{{Tag: 700, Msg: m}})
		first := l.Expect(0x32)
		require.NoError(t, l.Close())
		r.requireLoss(t, transport.Network)

		r, l = start(t, h, tr)
		r.Send([]transport.Item{{Tag: 700, Resent: true, Msg: m}})
		require.Equal(t, first.Body, l.Expect(0x3A).Body)
	})
}

func TestTheLossOfALiveSessionIsReportedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		counter := new(counting)
		h.wrap = func(c Conn) Conn { counter.Conn = c; return counter }
		r, l := start(t, h, New(h.dial, nil))
		require.NoError(t, l.Close())
		err := r.requireLoss(t, transport.Network)
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, "mqtt connection: network failure: the hub closed the connection", err.Error())
		r.send("nobody hears it", strings.Repeat("x", transport.MaxMessageSize+1))
		r.Do(&transport.Request{Op: transport.OpPing})
		r.Do(&transport.Request{Op: transport.OpTwinGet})
		require.Empty(t, r.sink.Results)
		require.Empty(t, r.sink.Replies)
		require.Equal(t, 1, counter.closes)
	})
}

func TestAnIdleSessionHasOneGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		before := testkit.Goroutines()
		_, _ = start(t, h, New(h.dial, nil))
		synctest.Wait()
		require.Equal(t, before+1, testkit.Goroutines(), "the one that calls Run")
	})
}

func TestATransportServesOneClientAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		tr := New(h.dial, nil)
		for range 3 { // sessions one after the other are allowed
			r, l := start(t, h, tr)
			_, err := tr.Dial(t.Context(), &transport.Config{Creds: testCreds(t), Sink: new(sink)})
			require.ErrorIs(t, err, transport.Invalid)
			require.ErrorContains(t, err, "make one for each client")
			require.NoError(t, l.Close())
			<-r.ran
		}
		h.net.Refuse(true)
		for range 3 { // a failed dial does not keep the Transport busy
			_, err := tr.Dial(t.Context(), &transport.Config{Creds: testCreds(t), Sink: new(sink)})
			require.ErrorIs(t, err, transport.Network)
		}
	})
}

// panicking is a connection whose reads panic from a certain one on.
type panicking struct {
	Conn
	reads int // before that
}

func (p *panicking) Read(b []byte) (int, error) {
	if p.reads--; p.reads < 0 {
		panic("read")
	}
	return p.Conn.Read(b)
}

func TestAPanicDoesNotKeepTheTransportBusy(t *testing.T) {
	for name, reads := range map[string]int{"in Dial": 0, "in Run": 1} {
		testkit.Run(t, name, func(t *testing.T) {
			h := newHub(t)
			tr := New(h.dial, nil)
			h.wrap = func(c Conn) Conn { return &panicking{c, reads} }
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				l, _ := h.accept()
				_, _ = l.Write([]byte{0x20, 2, 0, 0})
				_, _ = l.Read(make([]byte, 1)) // until the connection is closed
			}()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			require.PanicsWithValue(t, "read", func() {
				s, err := tr.Dial(ctx, &transport.Config{Creds: testCreds(t), Sink: new(sink)})
				require.NoError(t, err)
				_ = s.Run(ctx)
			})
			<-closed
			h.net.Refuse(true)
			_, err := tr.Dial(ctx, &transport.Config{Creds: testCreds(t), Sink: new(sink)})
			require.ErrorIs(t, err, transport.Network)
		})
	}
}

func TestADialFunctionThatReturnsNoConnection(t *testing.T) {
	tr := New(func(context.Context, *transport.Credentials) (Conn, error) { return nil, nil }, nil)
	_, err := tr.Dial(t.Context(), &transport.Config{Creds: testCreds(t), Sink: new(sink)})
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, "the dial function of engine.New returned no connection")
}

func TestABatchIsOneWriteAndItsAnswersOneRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		counter := new(counting)
		h.wrap = func(c Conn) Conn { counter.Conn = c; return counter }
		r, l := start(t, h, New(h.dial, nil))
		synctest.Wait()
		reads, writes := counter.reads, counter.writes
		var bodies []string
		var answers []byte
		for i := range 64 {
			bodies = append(bodies, strings.Repeat("x", 100))
			answers = append(answers, 0x40, 2, 0, byte(i+1))
		}
		r.send(bodies...)
		for range bodies {
			l.Expect(0x32)
		}
		require.Equal(t, 1, counter.writes-writes)
		l.Send(answers...)
		synctest.Wait()
		require.Len(t, r.sink.Tags(), 64)
		require.Equal(t, 1, counter.reads-reads)
	})
}

// On a fast link large messages go in one write, too, from a buffer that is lent meanwhile.
func TestLargeMessagesAreOneWriteOnAFastLink(t *testing.T) {
	for _, row := range []struct {
		fast                 bool
		messages, size, want int
	}{
		{true, 4, 20_000, 1}, {true, 1, 64 << 10, 1}, {true, 64, 1000, 1}, {true, 64, 100, 1}, {true, 9, 20_000, 3},
		{false, 4, 20_000, 5}, {false, 1, 64 << 10, 5}, {false, 64, 1000, 5}, {false, 64, 100, 1},
	} {
		bubble(t, func(t *testing.T) {
			h, c, counter := newHub(t), &hasty{fast: row.fast}, new(counting)
			h.wrap = func(plain Conn) Conn {
				counter.Conn = plain
				c.Conn = counter
				return c
			}
			tr := New(h.dial, nil)
			r, l := start(t, h, tr)
			go func() { _, _ = io.Copy(io.Discard, l.Conn) }()
			bodies := make([]string, row.messages)
			for i := range bodies {
				bodies[i] = strings.Repeat("x", row.size)
			}
			for range 2 {
				before := counter.writes
				r.send(bodies...)
				require.Equal(t, row.want, counter.writes-before, "%+v", row)
				require.LessOrEqual(t, cap(tr.out), 2*flushSize, "%+v", row)
			}
		})
	}
}

func TestMessagesAreDecodedAndSettled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, New(h.dial, nil))
		r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
		sub := l.Expect(0x82)
		require.Equal(t, "\xf0\x01\x00\x24devices/dev-1/messages/devicebound/#\x01", string(sub.Body),
			"ids from 61441 on are the session's own")
		l.Send(0x90, 3, sub.Body[0], sub.Body[1], 1)
		l.Send(publishBytes("devices/dev-1/messages/devicebound/%24.mid=one&a=1", 300, "first")...)
		l.Send(publishBytes("devices/dev-1/messages/devicebound/%24.mid=two", 0, "QoS 0")...)
		again := publishBytes("devices/dev-1/messages/devicebound/%24.mid=three", 301, "third")
		again[0] |= 8
		l.Send(again...)
		l.Send(publishBytes("devices/another/messages/devicebound/a=b", 303, "not ours")...)
		l.Send(publishBytes("$iothub/twin/res/200/?$rid=one", 0, "not asked for")...)
		synctest.Wait()
		require.Len(t, r.sink.Replies, 1)
		require.NoError(t, r.sink.Replies[0].Err)
		require.Len(t, r.sink.Messages, 3)
		require.Equal(t, transport.Message{ID: "one", Body: []byte("first"),
			Properties: []transport.Property{{Name: "a", Value: "1"}}}, r.sink.Messages[0])
		require.Equal(t, [][]byte{{1, 44}, {}, {1, 45}}, r.sink.Refs)
		require.Equal(t, []bool{false, false, true}, r.sink.Redelivered)
		require.Equal(t, [][]byte{{1, 47}}, r.sink.Unasked)

		for i, outcome := range []transport.Outcome{transport.OutcomeAccept, transport.OutcomeAccept,
			transport.OutcomeReject} {
			r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.Refs[i], Outcome: outcome})
		}
		r.Do(&transport.Request{Op: transport.OpSettle, Ref: []byte{9, 9}, Outcome: transport.OutcomeRelease})
		r.cancel()
		rest, _ := l.Drain()
		require.Equal(t, []got{
			{First: 0x40, Body: []byte{1, 44}}, {First: 0x40, Body: []byte{1, 45}}, {First: 0xE0, Body: []byte{}},
		}, rest)
	})
}

func TestARefusedSubscriptionIsNoticed(t *testing.T) {
	for code, kind := range map[byte]transport.Kind{0x80: transport.Unavailable, 3: transport.Protocol,
		0x87: transport.Protocol, 0xff: transport.Protocol} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			r, l := start(t, h, New(h.dial, nil))
			r.Do(&transport.Request{ID: 7, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
			sub := l.Expect(0x82)
			l.Send(0x90, 3, sub.Body[0], sub.Body[1], code)
			synctest.Wait()
			require.Len(t, r.sink.Replies, 1)
			e := transport.Find(r.sink.Replies[0].Err)
			require.Equal(t, kind, e.Kind)
			require.Equal(t, transport.ScopeOperation, e.Scope)
			refusal, ok := errors.AsType[*SubackError](e)
			require.True(t, ok)
			require.Equal(t, SubackError{Filter: "devices/dev-1/messages/devicebound/#", Code: code}, *refusal)
		})
	}
}

func TestARefusalNamesTheRefusedFilter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, New(h.dial, nil))
		r.Do(&transport.Request{ID: 7, Op: transport.OpSubscribe, Want: transport.FeatureMessages | transport.FeatureMethods})
		sub := l.Expect(0x82)
		l.Send(0x90, 4, sub.Body[0], sub.Body[1], 0, 0x80)
		synctest.Wait()
		require.Len(t, r.sink.Replies, 1)
		refusal, ok := errors.AsType[*SubackError](r.sink.Replies[0].Err)
		require.True(t, ok)
		require.Equal(t, SubackError{Filter: "$iothub/methods/POST/#", Code: 0x80}, *refusal)
	})
}

func TestMoreSubscriptionsThanThereIsRoomForAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, New(h.dial, nil))
		for i := range maxSubs + 1 {
			r.Do(&transport.Request{ID: uint32(i), Op: transport.OpSubscribe, Want: transport.FeatureMessages})
		}
		require.Len(t, r.sink.Replies, 1)
		require.ErrorIs(t, r.sink.Replies[0].Err, transport.Unavailable)
		for i := range maxSubs {
			id := l.Expect(0x82).Body[:2]
			require.Equal(t, []byte{0xf0, byte(i + 1)}, id)
			l.Send(0x90, 3, id[0], id[1], 0)
		}
		synctest.Wait()
		require.Len(t, r.sink.Replies, maxSubs+1)
		r.session.lastID = 65534 // the next id wraps around: 65535 is for handshakes
		r.Do(&transport.Request{Op: transport.OpSubscribe, Want: transport.FeatureMessages})
		require.Equal(t, []byte{0xf0, 1}, l.Expect(0x82).Body[:2])
	})
}

// A violation of the protocol ends the session with a loss that names it. Packets before it are
// handled.
func TestGarbageEndsTheSession(t *testing.T) {
	for name, c := range map[string]struct {
		bytes []byte
		text  string
	}{
		"a second CONNACK":              {[]byte{0x20, 2, 0, 0}, "CONNACK"},
		"a CONNECT":                     {[]byte{0x10, 2, 0, 0}, "type 1"},
		"a PUBREC":                      {[]byte{0x50, 2, 0, 1}, "type 5"},
		"an UNSUBACK":                   {[]byte{0xB0, 2, 0, 1}, "type 11"},
		"type 15":                       {[]byte{0xF0, 0}, "type"},
		"a length of 5 bytes":           {[]byte{0x30, 0xff, 0xff, 0xff, 0xff, 1}, "4 bytes"},
		"a PUBACK of a kilobyte":        {[]byte{0x40, 0x80, 8}, "1024 bytes"},
		"a PUBACK with id 0":            {[]byte{0x40, 2, 0, 0}, "packet id 0"},
		"a PUBACK for a SUBSCRIBE":      {[]byte{0x40, 2, 0xf0, 1}, "SUBSCRIBE with PUBACK"},
		"a SUBACK that nobody asked":    {[]byte{0x90, 3, 0, 1, 0}, "answers no SUBSCRIBE"},
		"a SUBACK with too many codes":  {[]byte{0x90, 4, 0xf0, 1, 0, 0}, "answers no SUBSCRIBE"},
		"a SUBACK with far too many":    {append([]byte{0x90, 36, 0xf0, 1}, make([]byte, 34)...), "36 bytes"},
		"a SUBACK without codes":        {[]byte{0x90, 2, 0xf0, 1}, "nothing"},
		"a PINGRESP with a body":        {[]byte{0xD0, 1, 0}, "goes on"},
		"a PUBLISH with QoS 2":          {[]byte{0x34, 5, 0, 1, 'a', 0, 1}, "QoS above 1"},
		"a PUBLISH with QoS 3":          {[]byte{0x36, 5, 0, 1, 'a', 0, 1}, "QoS 3"},
		"a PUBLISH whose topic goes on": {[]byte{0x30, 3, 0, 9, 'a'}, "ends before"},
		"HTTP":                          {[]byte("HTTP/1.1 400 Bad Request\r\n"), "flags"},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			h := newHub(t)
			r, l := start(t, h, New(h.dial, nil))
			r.send("one")
			r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
			l.Expect(0x32)
			l.Expect(0x82)
			l.Send(append([]byte{0x40, 2, 0, 1}, c.bytes...)...)
			err := r.requireLoss(t, transport.Network)
			require.Equal(t, []uint16{0}, r.sink.Tags())
			require.Empty(t, r.sink.Replies)
			_, ok := errors.AsType[mqttwire.Violation](err)
			require.True(t, ok, "%v", err)
			require.ErrorContains(t, err, c.text)
		})
	}
}

// Harmless deviations that hubs are known for.
func TestPacketsThatASessionTolerates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, New(h.dial, nil))
		r.send("one")
		l.Send(0xD0, 0)             // PINGRESP without a ping
		l.Send(0x40, 2, 0xff, 0xff) // PUBACK for an id of a SUBSCRIBE that is not in flight
		l.Send(0xD0, 0x80, 0x80, 0) // a length in more bytes than needed
		l.Send(0xE0, 0)             // DISCONNECT
		l.Send(0x40, 2, 0, 1)
		synctest.Wait()
		require.Equal(t, []uint16{0}, r.sink.Tags())
		require.Empty(t, r.ran)
	})
}

func TestADeadConnectionIsFoundInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, New(h.dial, &Options{KeepAlive: 30 * time.Second, PingTimeout: 10 * time.Second}))
		require.Equal(t, 30*time.Second, r.Info().KeepAlive)
		for range 5 { // the pings are answered
			time.Sleep(30 * time.Second)
			r.Do(&transport.Request{Op: transport.OpPing})
			l.Expect(0xC0)
			l.Send(0xD0, 0)
			synctest.Wait()
		}
		begun := time.Now()
		for range 2 { // the pings are lost
			time.Sleep(15 * time.Second)
			r.Do(&transport.Request{Op: transport.OpPing})
		}
		err := r.requireLoss(t, transport.Timeout)
		require.Equal(t, 40*time.Second, time.Since(begun))
		require.ErrorIs(t, err, mqttwire.ErrNoPong)
		require.True(t, errfilter.Retryable(err))
	})
}

// The writer is stuck, so no ping is sent; the reader times out all the same, and unblocks the
// writer.
func TestAPeerThatStopsReadingIsFound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		h.net.SetBuffer(4 << 10)
		r, _ := start(t, h, New(h.dial, nil))
		begun := time.Now()
		r.send(strings.Repeat("x", 100_000))
		require.Equal(t, 80*time.Second, time.Since(begun), "keep-alive and ping time-out")
		r.requireLoss(t, transport.Timeout)
		require.Empty(t, r.sink.Results)
	})
}

func TestDisconnectIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		h.net.SetBuffer(1 << 10)
		r, _ := start(t, h, New(h.dial, nil))
		sent := make(chan struct{})
		go func() {
			r.send(strings.Repeat("x", 100_000))
			close(sent)
		}()
		synctest.Wait()
		begun := time.Now()
		r.cancel()
		require.ErrorIs(t, <-r.ran, context.Canceled)
		require.LessOrEqual(t, time.Since(begun), time.Second)
		<-sent
	})
}

// faulty is a connection whose writes fail on demand, while its reads still work.
type faulty struct {
	Conn
	on atomic.Bool
}

func (f *faulty) Write(p []byte) (int, error) {
	if f.on.Load() {
		return 0, errPulled
	}
	return f.Conn.Write(p)
}

// faulty wraps the device's end of the next connection.
func (h *hub) faulty() *faulty {
	f := new(faulty)
	h.wrap = func(c Conn) Conn { f.Conn = c; return f }
	return f
}

func TestAFailedWriteEndsTheSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		f := h.faulty()
		r, _ := start(t, h, New(h.dial, nil))
		f.on.Store(true)
		r.send("one", "two")
		require.ErrorIs(t, r.requireLoss(t, transport.Network), errPulled)
	})
}

func TestLargeMessagesArriveAndGiveTheirMemoryBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		h.net.SetBuffer(0)
		tr := New(h.dial, nil)
		r, l := start(t, h, tr)
		body := strings.Repeat("x", 900_000)
		l.Send(publishBytes("devices/dev-1/messages/devicebound/", 1, body)...)
		synctest.Wait()
		require.Len(t, r.sink.Messages, 1)
		require.Equal(t, body, string(r.sink.Messages[0].Body))
		l.Send(publishBytes("devices/dev-1/messages/devicebound/", 2, "small")...)
		synctest.Wait()
		require.Len(t, r.sink.Messages, 2)
		require.Equal(t, maxRead, len(tr.in))
	})
}

// With the buffers of a board, packets that are too large are skipped and all others are handled.
func TestWhatDoesNotFitIntoAFixedReadBufferIsSkipped(t *testing.T) {
	for _, size := range []int{200, 201, 255, 256, 1000, 70_000} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			h.net.SetBuffer(0)
			r, l := start(t, h, New(h.dial, &Options{ReadBuffer: 256, WriteBuffer: 1024}))
			r.send("x")
			large := publishBytes("devices/dev-1/messages/devicebound/", 5, strings.Repeat("x", size))
			var stream []byte
			for id := range uint16(3) {
				stream = append(stream, large...)
				stream = append(stream, publishBytes("devices/dev-1/messages/devicebound/", id+1, "small")...)
			}
			l.Send(append(stream, 0x40, 2, 0, 1)...)
			synctest.Wait()
			want := 3
			if len(large) <= 256 {
				want = 6
			}
			require.Len(t, r.sink.Messages, want, "%d", size)
			require.Equal(t, []uint16{0}, r.sink.Tags())
		})
	}
}

// The written stream is correct for all sizes of messages and buffer.
func TestTheStreamDoesNotDependOnTheBuffer(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	var items []transport.Item
	for i := range 300 {
		m := &transport.Message{Body: make([]byte, rnd.IntN(1<<rnd.IntN(18)))}
		for j := range m.Body {
			m.Body[j] = byte(rnd.Uint32())
		}
		if rnd.IntN(2) == 0 {
			m.ID = fmt.Sprint("m/", i)
			m.Properties = []transport.Property{{Name: "n", Value: strings.Repeat("#", rnd.IntN(100))}}
		}
		if rnd.IntN(4) == 0 {
			m.Created = time.Unix(rnd.Int64N(1<<33), 0)
		}
		items = append(items, transport.Item{Tag: uint16(i), Resent: rnd.IntN(3) == 0, Msg: m})
	}
	var want []byte
	for _, row := range []struct {
		buffer int
		fast   bool
		most   int // in a write
	}{{0, false, flushSize}, {0, true, fastChunk}, {600, true, 600}, {601, false, 601}, {777, false, 777},
		{4096, false, 4096}, {65536, false, 65536}} {
		c := &recorder{fast: row.fast}
		o := &Options{WriteBuffer: row.buffer}
		s := newSession(New(nil, o), &transport.Config{Sink: new(sink)}, transport.Token{}, hubSession(t), c)
		s.t.opt, _ = o.resolve()
		s.t.out = make([]byte, 0, s.t.opt.WriteBuffer)
		for rest := items; len(rest) > 0; {
			n := min(len(rest), 1+rnd.IntN(64))
			s.Send(rest[:n])
			rest = rest[n:]
		}
		if want == nil {
			want = c.stream
			requireItems(t, items, want)
		}
		require.True(t, bytes.Equal(want, c.stream), "%+v", row)
		require.Equal(t, row.most, c.largest)
		if row.buffer > 0 {
			require.Equal(t, row.buffer, cap(s.t.out), "the buffer did not grow")
		}
	}
}

// recorder records writes and answers nothing.
type recorder struct {
	Conn
	fast    bool
	stream  []byte
	largest int
}

func (r *recorder) Write(p []byte) (int, error) {
	r.stream = append(r.stream, p...)
	r.largest = max(r.largest, len(p))
	return len(p), nil
}

func (r *recorder) SetReadDeadline(time.Time) error { return nil }
func (r *recorder) Fast() bool                      { return r.fast }

// requireItems parses the stream as a hub does.
func requireItems(t *testing.T, items []transport.Item, stream []byte) {
	a, b := memconn.Pair("a", "b")
	a.SetBuffer(0)
	_, err := a.Write(stream)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	hub, _, err := dialect.HubMessages.Session(&dialect.Config{Creds: &transport.Credentials{Host: "h", DeviceID: "d"}})
	require.NoError(t, err)
	l := testkit.NewMQTTLink(t, b)
	for _, it := range items {
		p, err := l.Next()
		require.NoError(t, err)
		first := byte(0x32)
		if it.Resent {
			first = 0x3A
		}
		require.Equal(t, first, p.First)
		got, ok := strings.CutPrefix(p.Topic(), "devices/dev-1/messages/events/")
		require.True(t, ok)
		require.Equal(t, string(hub.AppendSuffix(nil, it.Msg)), got)
		require.Equal(t, string([]byte{byte((it.Tag + 1) >> 8), byte(it.Tag + 1)})+string(it.Msg.Body), p.Rest())
	}
	_, err = l.Next()
	require.Equal(t, io.EOF, err)
}

func TestAMessageThatDoesNotFitFailsAlone(t *testing.T) {
	for _, o := range []*Options{nil, {WriteBuffer: 600}} {
		bubble(t, func(t *testing.T) {
			h := newHub(t)
			h.net.SetBuffer(0)
			tr := New(h.dial, o)
			r, l := start(t, h, tr)
			middle := &transport.Message{Properties: []transport.Property{{Name: "p", Value: strings.Repeat("x", 1000)}}}
			r.Send([]transport.Item{
				{Tag: 1, Msg: &transport.Message{Body: make([]byte, transport.MaxMessageSize+1)}},
				// 66,000 bytes when encoded
				{Tag: 2, Msg: &transport.Message{Properties: []transport.Property{{Name: "p", Value: strings.Repeat("#",
					22_000)}}}},
				{Tag: 3, Msg: middle},
				{Tag: 4, Msg: &transport.Message{Properties: []transport.Property{{Name: "p", Value: strings.Repeat("x",
					60_000)}}}},
				{Tag: 5, Msg: &transport.Message{Body: make([]byte, transport.MaxMessageSize)}},
			})
			large := []uint16{1, 2}
			if o == nil {
				l.Expect(0x32)
				l.Expect(0x32)
			} else {
				large = []uint16{1, 2, 3, 4}
			}
			last := l.Expect(0x32)
			require.Len(t, last.Rest(), 2+transport.MaxMessageSize)
			require.Len(t, r.sink.Results, len(large))
			says := []string{"message of 262145 bytes", "the topic, which has the properties percent-encoded in it, has 66",
				"WriteBuffer has", "WriteBuffer has"}
			for i, tag := range large {
				require.Equal(t, tag, r.sink.Results[i].Tag)
				require.ErrorIs(t, r.sink.Results[i].Err, transport.TooLarge)
				require.ErrorContains(t, r.sink.Results[i].Err, says[i])
				require.Equal(t, transport.ScopeOperation, transport.Find(r.sink.Results[i].Err).Scope)
			}
			require.LessOrEqual(t, cap(tr.out), 2*flushSize, "what a long topic took was given back")
		})
	}
}

func TestAtMostOnceIsDoneWhenWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		f := h.faulty()
		r, l := start(t, h, New(h.dial, &Options{AtMostOnce: true}))
		r.Send([]transport.Item{
			{Tag: 0, Resent: true, Msg: &transport.Message{Body: []byte("a")}},
			{Tag: 1, Msg: &transport.Message{Body: make([]byte, transport.MaxMessageSize+1)}},
			{Tag: 2, Msg: &transport.Message{ID: "m", Body: []byte("b")}},
		})
		require.Equal(t, "a", l.Expect(0x30).Rest())
		require.Equal(t, "b", l.Expect(0x30).Rest())
		require.Equal(t, []uint16{0, 2}, r.sink.Tags())
		require.Len(t, r.sink.Results, 3)
		require.ErrorIs(t, r.sink.Results[0].Err, transport.TooLarge)
		require.ErrorIs(t, r.sink.Results[1].Err, transport.ErrWritten)

		f.on.Store(true)
		r.send("lost with the connection")
		r.requireLoss(t, transport.Network)
		require.Len(t, r.sink.Results, 3)
	})
}
