package engine

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

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
	id := l.expect(0x82).body[:2]
	l.send(packet(0x90, string(id), string(v.granted))...)
	synctest.Wait()
}

// bodies returns the bodies of the messages that were delivered.
func (s *sink) bodies() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.messages {
		all = append(all, string(s.messages[i].Body))
	}
	return all
}

func (s *sink) setFull(full bool) {
	s.mu.Lock()
	s.full = full
	s.mu.Unlock()
}

// A handler may be slow, or wait for an acknowledgement.
func TestMessagesWithoutRoomWaitInOrderWhileReadingGoesOn(t *testing.T) {
	eachVersion(t, func(t *testing.T, v versionUnderTest, h *hub) {
		r, l := v.start(t, h, New(h.dial, v.options()))
		v.subscribe(r, l)
		l.send(v.publish(1, "1")...)
		synctest.Wait()
		r.sink.setFull(true)
		want := []string{"1"}
		for i := 2; i <= 500; i++ { // far above the receive maximum
			id := uint16(i)
			if i%10 == 0 {
				id = 0 // with QoS 0
			}
			l.send(v.publish(id, strconv.Itoa(i))...)
			want = append(want, strconv.Itoa(i))
		}
		repeated := v.publish(7, "7")
		repeated[0] |= 8 // DUP
		l.send(repeated...)
		r.send("telemetry")
		l.expect(0x32)
		l.puback(1)
		synctest.Wait()
		require.Equal(t, []uint16{0}, r.sink.tags())
		require.Equal(t, []string{"1"}, r.sink.bodies())
		r.sink.setFull(false)
		r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.refs[0]})
		require.Equal(t, []byte{0, 1}, l.expect(0x40).body)
		l.send(v.publish(501, "501")...)
		synctest.Wait()
		require.Equal(t, append(want, "501"), r.sink.bodies())
		require.Empty(t, r.ran)
	})
}

// A slot that an earlier connection held becomes free without a verdict for this one.
func TestASettleWithoutAReferenceSaysThatThereIsRoom(t *testing.T) {
	eachVersion(t, func(t *testing.T, v versionUnderTest, h *hub) {
		r, l := v.start(t, h, New(h.dial, v.options()))
		v.subscribe(r, l)
		r.sink.setFull(true)
		l.send(v.publish(1, "1")...)
		synctest.Wait()
		r.sink.setFull(false)
		r.Do(&transport.Request{Op: transport.OpSettle})
		require.Equal(t, []string{"1"}, r.sink.bodies())
	})
}

// What a resumed session brings before the program has a handler waits for the subscription.
func TestMessagesOfAResumedSessionWaitForTheHandler(t *testing.T) {
	eachVersion(t, func(t *testing.T, v versionUnderTest, h *hub) {
		r, l := v.start(t, h, New(h.dial, v.options()))
		r.sink.setFull(true) // no handler
		l.send(v.publish(1, "old")...)
		l.send(v.publish(2, "older than new")...)
		synctest.Wait()
		r.sink.setFull(false)
		l.send(v.publish(3, "new")...) // before the subscription is granted
		v.subscribe(r, l)
		require.Equal(t, []string{"old", "older than new", "new"}, r.sink.bodies())
		for i := range 3 {
			r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.refs[i]})
			require.Equal(t, []byte{0, byte(i + 1)}, l.expect(0x40).body)
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
		l.send(v.publish(1, "1")...)
		synctest.Wait()
		r.sink.setFull(true)
		l.send(v.publish(2, strings.Repeat("2", 150))...)
		l.send(v.publish(3, strings.Repeat("3", 150))...)
		l.send(v.publish(4, "4")...) // would fit, and is behind 3
		synctest.Wait()
		r.sink.setFull(false)
		r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.refs[0]})
		l.expect(0x40)
		synctest.Wait()
		require.Len(t, r.sink.bodies(), 2)
		require.Empty(t, r.ran, "2 has no verdict")
		r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.refs[1]})
		require.Equal(t, []byte{0, 2}, l.expect(0x40).body)
		require.Empty(t, l.expect(0xe0).body)
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
			l.send(publish5(0x32, down, id+1, "", "")...)
		}
		synctest.Wait()
		require.Len(t, r.sink.bodies(), 3, "taken, as there is room")
		r.sink.setFull(true)
		for id := range uint16(20) {
			l.send(publish5(0x32, down, id+4, "", strings.Repeat("x", 100))...)
		}
		synctest.Wait()
		r.sink.setFull(false)
		for i := 0; len(r.ran) == 0; i++ {
			settle(i, transport.OutcomeAccept)
			synctest.Wait()
		}
		require.ErrorContains(t, r.requireLoss(t, transport.Network), "the next connection brings the rest")
		packets, _ := l.drain()
		require.Equal(t, got{0xe0, []byte{0x93, 0}}, packets[len(packets)-1])
	})
}

// A program without a handler needs no other connection.
func TestMessagesBeyondTheBoundWaitForASubscription(t *testing.T) {
	eachVersion(t, func(t *testing.T, v versionUnderTest, h *hub) {
		o := v.options()
		o.ReadBuffer = 256
		r, l := v.start(t, h, New(h.dial, o))
		r.sink.setFull(true)
		for id := range uint16(20) {
			l.send(v.publish(id+1, strings.Repeat("x", 200))...)
		}
		r.Do(&transport.Request{Op: transport.OpPing})
		l.expect(0xc0)
		synctest.Wait()
		require.Empty(t, r.ran)
		r.sink.setFull(false)
		v.subscribe(r, l)
		require.Len(t, r.sink.bodies(), 1)
		r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.refs[0]})
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
		r.sink.setFull(true)
		for id := range uint16(3) {
			l.send(v.publish(id+1, "x")...)
		}
		synctest.Wait()
		r.sink.setFull(false)
		go l.send(v.publish(4, "x")...)
		for id := range byte(4) {
			require.Equal(t, []byte{0, id + 1}, l.expect(0x40).body)
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
		l.send(v.publish(1, "1")...)
		l.expect(0x40)
		synctest.Wait()
		r.sink.setFull(true)
		for id := range uint16(3) {
			l.send(v.publish(id+2, strings.Repeat("x", 150))...)
		}
		synctest.Wait()
		r.sink.setFull(false)
		go l.send(v.publish(0, "makes the session look for room")...)
		require.Equal(t, []byte{0, 2}, l.expect(0x40).body)
		go func() { _, _ = l.drain() }()
		require.ErrorIs(t, r.requireLoss(t, transport.Network), mqttwire.ErrBehind)
	})
}
