package engine

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
)

// versionUnderTest is what differs between the versions of MQTT in these tests.
type versionUnderTest struct {
	options func() *Options
	start   func(t testing.TB, h *hub, tr *Transport) (*running, *link)
	publish func(id uint16, body string) []byte
	granted []byte // behind the packet id of a SUBACK
}

const hubDown = "devices/dev-1/messages/devicebound/"

var versions = map[string]versionUnderTest{
	"3.1.1": {
		options: func() *Options { return new(Options) },
		start:   start,
		publish: func(id uint16, body string) []byte { return publishBytes(hubDown, id, body) },
		granted: []byte{1},
	},
	"5": {
		options: func() *Options { return fiveOptions(nil) },
		start: func(t testing.TB, h *hub, tr *Transport) (*running, *link) {
			return start5(t, h, tr, "")
		},
		publish: func(id uint16, body string) []byte {
			first := byte(0x32)
			if id == 0 {
				first = 0x30
			}
			return publish5(first, down, id, "", body)
		},
		granted: []byte{0, 1},
	},
}

func eachVersion(t *testing.T, f func(t *testing.T, v versionUnderTest, h *hub)) {
	for name, v := range versions {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { f(t, v, newHub(t)) })
		})
	}
}

// subscribe subscribes to messages.
func (v versionUnderTest) subscribe(r *running, l *link) {
	r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
	id := l.Expect(0x82).Body[:2]
	l.Send(packet(0x90, string(id), string(v.granted))...)
	synctest.Wait()
}

// A handler may be slow, or wait for an acknowledgement.
func TestMessagesWithoutRoomWaitInOrderWhileReadingGoesOn(t *testing.T) {
	eachVersion(t, func(t *testing.T, v versionUnderTest, h *hub) {
		r, l := v.start(t, h, New(h.dial, v.options()))
		v.subscribe(r, l)
		l.Send(v.publish(1, "1")...)
		synctest.Wait()
		setFull(r.sink, true)
		want := []string{"1"}
		for i := 2; i <= 500; i++ { // far above the receive maximum
			id := uint16(i)
			if i%10 == 0 {
				id = 0 // with QoS 0
			}
			l.Send(v.publish(id, strconv.Itoa(i))...)
			want = append(want, strconv.Itoa(i))
		}
		repeated := v.publish(7, "7")
		repeated[0] |= 8 // DUP
		l.Send(repeated...)
		r.send("telemetry")
		l.Expect(0x32)
		l.Puback(1)
		synctest.Wait()
		require.Equal(t, []uint16{0}, r.sink.Tags())
		require.Equal(t, []string{"1"}, r.sink.Bodies())
		setFull(r.sink, false)
		r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.Refs[0]})
		require.Equal(t, []byte{0, 1}, l.Expect(0x40).Body)
		l.Send(v.publish(501, "501")...)
		synctest.Wait()
		require.Equal(t, append(want, "501"), r.sink.Bodies())
		require.Empty(t, r.ran)
	})
}

// A slot that an earlier connection held becomes free without a verdict for this one.
func TestASettleWithoutAReferenceSaysThatThereIsRoom(t *testing.T) {
	eachVersion(t, func(t *testing.T, v versionUnderTest, h *hub) {
		r, l := v.start(t, h, New(h.dial, v.options()))
		v.subscribe(r, l)
		setFull(r.sink, true)
		l.Send(v.publish(1, "1")...)
		synctest.Wait()
		setFull(r.sink, false)
		r.Do(&transport.Request{Op: transport.OpSettle})
		require.Equal(t, []string{"1"}, r.sink.Bodies())
	})
}

// An expired command must not be carried out because its handler was slow.
func TestAMessageExpiresWhileItWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
		commands(r, l)
		setFull(r.sink, true)
		expires := time.Now().Add(20 * time.Second)
		l.Send(publish5(0x32, down, 1, "\x02\x00\x00\x00\x14", "1")...)
		time.Sleep(5 * time.Second)
		l.Send(publish5(0x32, down, 2, "\x02\x00\x00\x00\x14", "2")...)
		time.Sleep(25 * time.Second)
		setFull(r.sink, false)
		r.Do(&transport.Request{Op: transport.OpSettle})
		require.Equal(t, expires, r.sink.Messages[0].Expires)
		require.Equal(t, expires.Add(5*time.Second), r.sink.Messages[1].Expires)
		r.cancel()
		<-r.ran
	})
}

// What a resumed session brings before the program has a handler waits for the subscription.
func TestMessagesOfAResumedSessionWaitForTheHandler(t *testing.T) {
	eachVersion(t, func(t *testing.T, v versionUnderTest, h *hub) {
		r, l := v.start(t, h, New(h.dial, v.options()))
		setFull(r.sink, true) // no handler
		l.Send(v.publish(1, "old")...)
		l.Send(v.publish(2, "older than new")...)
		synctest.Wait()
		setFull(r.sink, false)
		l.Send(v.publish(3, "new")...) // before the subscription is granted
		v.subscribe(r, l)
		require.Equal(t, []string{"old", "older than new", "new"}, r.sink.Bodies())
		for i := range 3 {
			r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.Refs[i]})
			require.Equal(t, []byte{0, byte(i + 1)}, l.Expect(0x40).Body)
		}
	})
}

// Messages beyond the bound come on the next connection, behind those that the handler has had. The
// broker learns why, and publishes no will.
func TestMessagesBeyondTheBoundComeOnTheNextConnection(t *testing.T) {
	eachVersion(t, func(t *testing.T, v versionUnderTest, h *hub) {
		o := v.options()
		o.ReadBuffer = 256
		r, l := v.start(t, h, New(h.dial, o))
		v.subscribe(r, l)
		l.Send(v.publish(1, "1")...)
		synctest.Wait()
		setFull(r.sink, true)
		l.Send(v.publish(2, strings.Repeat("2", 150))...)
		l.Send(v.publish(3, strings.Repeat("3", 150))...)
		l.Send(v.publish(4, "4")...) // would fit, and is behind 3
		synctest.Wait()
		setFull(r.sink, false)
		r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.Refs[0]})
		l.Expect(0x40)
		synctest.Wait()
		require.Len(t, r.sink.Bodies(), 2)
		require.Empty(t, r.ran, "2 has no verdict")
		r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.Refs[1]})
		require.Equal(t, []byte{0, 2}, l.Expect(0x40).Body)
		require.Empty(t, l.Expect(0xe0).Body)
		require.ErrorContains(t, r.requireLoss(t, transport.Network), "the next connection brings the rest")
	})
}

func TestABrokerThatExceedsTheReceiveMaximumLearnsIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		o := fiveOptions(&MQTT5Options{ReceiveMaximum: 2})
		o.ReadBuffer = 256
		r, l := start5(t, h, New(h.dial, o), "")
		settle := commands(r, l)
		for id := range uint16(3) {
			l.Send(publish5(0x32, down, id+1, "", "")...)
		}
		synctest.Wait()
		require.Len(t, r.sink.Bodies(), 3, "taken, as there is room")
		setFull(r.sink, true)
		for id := range uint16(20) {
			l.Send(publish5(0x32, down, id+4, "", strings.Repeat("x", 100))...)
		}
		synctest.Wait()
		setFull(r.sink, false)
		for i := 0; len(r.ran) == 0; i++ {
			settle(i, transport.OutcomeAccept)
			synctest.Wait()
		}
		require.ErrorContains(t, r.requireLoss(t, transport.Network), "the next connection brings the rest")
		packets, _ := l.Drain()
		require.Equal(t, got{First: 0xe0, Body: []byte{0x93, 0}}, packets[len(packets)-1])
	})
}

// A program without a handler needs no other connection.
func TestMessagesBeyondTheBoundWaitForASubscription(t *testing.T) {
	eachVersion(t, func(t *testing.T, v versionUnderTest, h *hub) {
		o := v.options()
		o.ReadBuffer = 256
		r, l := v.start(t, h, New(h.dial, o))
		setFull(r.sink, true)
		for id := range uint16(20) {
			l.Send(v.publish(id+1, strings.Repeat("x", 200))...)
		}
		r.Do(&transport.Request{Op: transport.OpPing})
		l.Expect(0xc0)
		synctest.Wait()
		require.Empty(t, r.ran)
		setFull(r.sink, false)
		v.subscribe(r, l)
		require.Len(t, r.sink.Bodies(), 1)
		r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.Refs[0]})
		r.requireLoss(t, transport.Network)
	})
}

// eager is a Sink that settles a message inside Deliver.
type eager struct {
	*sink
	r *running
}

func (r *running) settleInside() { r.backlog.Sink = eager{r.sink, r} }

func (e eager) Deliver(d *transport.Delivery) bool {
	if !e.sink.Deliver(d) {
		return false
	}
	e.r.Do(&transport.Request{Op: transport.OpSettle, Ref: d.Ref})
	return true
}

func TestASinkMaySettleAMessageInsideDeliver(t *testing.T) {
	eachVersion(t, func(t *testing.T, v versionUnderTest, h *hub) {
		r, l := v.start(t, h, New(h.dial, v.options()))
		v.subscribe(r, l)
		r.settleInside()
		setFull(r.sink, true)
		for id := range uint16(3) {
			l.Send(v.publish(id+1, "x")...)
		}
		synctest.Wait()
		setFull(r.sink, false)
		go l.Send(v.publish(4, "x")...)
		for id := range byte(4) {
			require.Equal(t, []byte{0, id + 1}, l.Expect(0x40).Body)
		}
	})
}

// A message with such a verdict must not count as open for ever, or the connection would not end.
func TestAConnectionEndsWhenVerdictsCameInsideDeliver(t *testing.T) {
	eachVersion(t, func(t *testing.T, v versionUnderTest, h *hub) {
		o := v.options()
		o.ReadBuffer = 256
		r, l := v.start(t, h, New(h.dial, o))
		v.subscribe(r, l)
		r.settleInside()
		l.Send(v.publish(1, "1")...)
		l.Expect(0x40)
		synctest.Wait()
		setFull(r.sink, true)
		for id := range uint16(3) {
			l.Send(v.publish(id+2, strings.Repeat("x", 150))...)
		}
		synctest.Wait()
		setFull(r.sink, false)
		go l.Send(v.publish(0, "makes the session look for room")...)
		require.Equal(t, []byte{0, 2}, l.Expect(0x40).Body)
		go func() { _, _ = l.Drain() }()
		require.ErrorIs(t, r.requireLoss(t, transport.Network), mqttwire.ErrBehind)
	})
}

func setFull(s *sink, full bool) { s.Set(func(s *sink) { s.Full = full }) }
