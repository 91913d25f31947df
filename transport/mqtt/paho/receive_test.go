package paho

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"
	"github.com/eclipse/paho.mqtt.golang/packets"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// sink takes as many messages as it has room for.
type sink struct {
	transport.Sink
	room   int
	bodies []string
	refs   [][]byte
	kinds  []transport.Features
}

func (s *sink) Deliver(d *transport.Delivery) bool {
	if s.room == 0 {
		return false
	}
	s.room--
	if d.Msg != nil {
		s.bodies = append(s.bodies, string(d.Msg.Body))
	} else {
		s.bodies = append(s.bodies, "skipped")
	}
	s.refs = append(s.refs, append([]byte(nil), d.Ref...))
	s.kinds = append(s.kinds, d.Kind)
	return true
}

// arrival is a message from the peer.
type arrival struct {
	paho.Message
	id   uint16 // 0: QoS 0
	end  string // of the topic
	body string
	dup  bool
}

func (a arrival) MessageID() uint16 { return a.id }
func (a arrival) Qos() byte         { return qos(a.id == 0) }
func (a arrival) Payload() []byte   { return []byte(a.body) }
func (a arrival) Topic() string     { return "down" + a.end }
func (arrival) Retained() bool      { return false }
func (a arrival) Duplicate() bool   { return a.dup }

// receiving returns a session with a topic map, and what it writes.
func receiving(t *testing.T, to *sink) (*session, <-chan string) {
	creds := &transport.Credentials{Host: "broker.example", DeviceID: "dev-1"}
	topics := &dialect.Topics{Telemetry: "up", Commands: []string{"down/#"}}
	as, hello, err := topics.Session(&dialect.Config{Creds: creds})
	require.NoError(t, err)
	here, there := net.Pipe()
	s := newSession(&transport.Config{Creds: creds, Window: 1, Sink: to}, transport.Token{}, as, hello.MaxSize,
		newGuard(bare{here}, time.Second))
	written := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(there)
		written <- string(all)
	}()
	t.Cleanup(func() { _ = s.guard.Close() })
	return s, written
}

// settle gives the verdict on the oldest message.
func (s *session) settle(to *sink) {
	r := &transport.Request{Op: transport.OpSettle, Ref: to.refs[0]}
	to.refs = to.refs[1:]
	to.room++
	s.Do(r)
}

func TestMessagesWithoutRoomWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &sink{room: 2}
		s, written := receiving(t, to)
		var want []string
		for i := range 300 {
			if i == 100 {
				s.backlog.Release() // messages come before Run, too
			}
			id := uint16(i + 1)
			if i%10 == 9 {
				id = 0
			}
			s.received(nil, arrival{id: id, body: strconv.Itoa(i)})
			want = append(want, strconv.Itoa(i))
		}
		s.received(nil, arrival{id: 300 - 1, body: "repeated", dup: true})
		require.Equal(t, want[:2], to.bodies)
		for len(to.refs) > 0 {
			s.settle(to)
		}
		require.Equal(t, want, to.bodies)
		require.NoError(t, s.guard.failure())
		require.NoError(t, s.guard.Close())
		acknowledged := <-written
		require.Len(t, acknowledged, 4*270)
		require.Equal(t, uint16(1), binary.BigEndian.Uint16([]byte(acknowledged[2:])))
	})
}

// The next connection brings them, behind those that the handler has had. The peer learns that this
// one ends by intent, so it publishes no will.
func TestMessagesBeyondTheBoundAreLeftToThePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &sink{room: 1}
		s, written := receiving(t, to)
		s.backlog.Release()
		s.backlog.Subscribed()
		large := strings.Repeat("x", mqttwire.MaxBacklog/2)
		s.received(nil, arrival{id: 1, body: "taken"})
		s.received(nil, arrival{id: 2, body: large})
		s.received(nil, arrival{id: 3, body: large}) // does not fit
		s.received(nil, arrival{id: 4, body: "must not overtake it"})
		s.settle(to)
		require.NoError(t, s.guard.failure(), "a message has no verdict")
		s.settle(to)
		require.ErrorIs(t, s.guard.failure(), mqttwire.ErrBehind)
		require.Equal(t, []string{"taken", large}, to.bodies)
		require.Equal(t, "\x40\x02\x00\x01\x40\x02\x00\x02\xe0\x00", <-written)
	})
}

func TestAMessageToAFilterIsDroppedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &sink{room: 2}
		s, _ := receiving(t, to)
		s.backlog.Release()
		s.received(nil, arrival{id: 7, end: "/+"})
		s.guard.skips = []skip{{2, maxIncoming + 1}}
		s.received(nil, arrival{id: 8, end: "/#"})
		to.room += 2
		s.received(nil, arrival{end: "/+"}) // to be reported
		s.received(nil, arrival{id: 9, end: "/x"})
		require.Equal(t, []transport.Features{0, 0, 0, transport.FeatureMessages}, to.kinds)
		require.NoError(t, s.guard.failure())
	})
}

// A message that is skipped stays behind those before it, which paho may not have passed on yet:
// else it would be acknowledged first.
func TestASkippedMessageKeepsItsPlace(t *testing.T) {
	to := &sink{room: 3}
	s, _ := receiving(t, to)
	s.backlog.Release()
	large := testkit.MQTTBytes(0x32, testkit.MQTTText("down/b"), "\x00\x02", strings.Repeat("x", maxIncoming))
	s.guard.r.Reset(io.MultiReader(strings.NewReader("\x20\x02\x00\x00"),
		bytes.NewReader(testkit.MQTTBytes(0x32, testkit.MQTTText("down/a"), "\x00\x01", "first")),
		bytes.NewReader(large), bytes.NewReader(testkit.MQTTBytes(0x30, testkit.MQTTText("down/c"), "last"))))
	var all []*packets.PublishPacket
	for {
		p, err := packets.ReadPacket(s.guard)
		if err != nil {
			break
		}
		if p, ok := p.(*packets.PublishPacket); ok {
			all = append(all, p)
		}
	}
	require.Empty(t, to.bodies)
	for _, p := range all {
		s.received(nil, arrival{id: p.MessageID, end: strings.TrimPrefix(p.TopicName, "down"), body: string(p.Payload)})
	}
	require.Equal(t, []string{"first", "skipped", "last"}, to.bodies)
	require.Equal(t, [][]byte{{0, 1}, {0, 2}, nil}, to.refs)
}
