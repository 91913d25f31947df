package mqtt

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// FuzzPublication checks that a PUBLISH of the library with QoS 0 is rewritten to the bytes that
// the library would write with QoS 1, behind pending bytes.
func FuzzPublication(f *testing.F) {
	f.Add("devices/dev-1/messages/events/", []byte("body"), uint16(7), false)
	for _, size := range []int{0, 123, 124, 125, 126, 16_380, 16_381, 16_382, 2_097_148, 2_097_149} {
		// around the sizes at which the remaining length grows by a byte
		f.Add("t", bytes.Repeat([]byte("x"), size), uint16(65535), true)
	}
	f.Add(strings.Repeat("t", 65535), []byte(nil), uint16(1), true)
	f.Fuzz(func(t *testing.T, topic string, body []byte, id uint16, again bool) {
		if len(topic) == 0 || len(topic) > 65535 {
			return
		}
		p := newPublish(topic, body)
		p.Qos, p.Dup = 0, false
		var plain, want bytes.Buffer
		require.NoError(t, p.Write(&plain))
		if id != 0 {
			p.Qos, p.Dup, p.MessageID = 1, again, id
		}
		require.NoError(t, p.Write(&want))
		before := bytes.Clone(plain.Bytes())
		out := publication{id: id, again: again}.appendTo([]byte("waits"), plain.Bytes())
		require.True(t, bytes.Equal(append([]byte("waits"), want.Bytes()...), out))
		require.True(t, bytes.Equal(before, plain.Bytes()), "the library's bytes are left alone")
	})
}

// A PUBLISH with QoS 0 keeps it, between messages with QoS 1.
func TestQoS0StaysQoS0(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		for i := range 20 {
			r.send("before", "and another")
			r.Do(&transport.Request{ID: uint32(i), Op: transport.OpTwinPatch, Body: []byte("{}")})
			r.Send([]transport.Item{{Tag: 9, Again: true, Msg: &transport.Message{Body: []byte("after")}}})
			for _, want := range []struct {
				flags byte
				id    uint16
			}{{qos1Flag, packetID(0)}, {qos1Flag, packetID(1)}, {0, 0}, {qos1Flag | dupFlag, packetID(9)}} {
				p := l.expect(typePublish)
				require.Equal(t, want.flags, p.flags)
				if want.id != 0 {
					require.Equal(t, want.id, p.id())
				}
			}
		}
	})
}

// The ids of messages differ from those of subscriptions, for any number of subscriptions on a
// connection. When the latter are used up the session ends, and the next session has all again.
func TestSubscriptionsNeverTakeAMessagesID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		subscribe := &transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.Messages}
		for range lastSubID {
			r.Do(subscribe)
			id := l.expect(8).id()
			require.LessOrEqual(t, id, uint16(lastSubID))
			l.send(typeSuback<<4, 3, byte(id>>8), byte(id), 1)
			synctest.Wait()
		}
		require.Len(t, r.sink.replies, lastSubID)
		require.Empty(t, r.ran)
		require.Greater(t, packetID(transport.MaxTags-1), uint16(lastSubID))
		go func() { _, _ = l.drain() }()
		r.Do(subscribe)
		err := <-r.ran
		require.ErrorIs(t, err, transport.Network)
		require.ErrorIs(t, err, errManySubs)
		require.Len(t, r.sink.replies, lastSubID)
	})
}

// A PUBACK for a message that is not in flight does not make the next message wait for a flusher.
func TestAPubackTooManyIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		for range 3 {
			r.send("one")
			id := l.expect(typePublish).id()
			l.puback(id)
			l.puback(id)
			synctest.Wait()
			require.Zero(t, r.Session.(*session).conn.unacked)
		}
		require.Empty(t, r.ran)
	})
}

// Until a message is written, the library may read it: an earlier PUBACK must not resolve it.
func TestAPubackForAMessageThatIsNotWrittenIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		l.puback(packetID(0))
		synctest.Wait()
		require.Empty(t, r.sink.tags())
		r.send("one")
		l.puback(l.expect(typePublish).id())
		l.puback(packetID(0))
		l.puback(packetID(1))
		synctest.Wait()
		require.Equal(t, []uint16{0}, r.sink.tags())
		require.Empty(t, r.ran)
	})
}

// The library writes each packet whole, in one Write: conn relies on it.
func TestTheLibraryWritesPacketsWhole(t *testing.T) {
	var w counting
	p := newPublish("topic", bytes.Repeat([]byte("x"), 100_000))
	require.NoError(t, p.Write(&w))
	require.Len(t, w, 1)
	size, n := binary.Uvarint(w[0][1:])
	require.Len(t, w[0], 1+n+int(size))
}

// counting keeps each write.
type counting [][]byte

func (w *counting) Write(p []byte) (int, error) {
	*w = append(*w, bytes.Clone(p))
	return len(p), nil
}

// A PUBLISH without a publication is not sent.
func TestAPublicationNobodyAnnouncedEndsTheSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		go func() { _, _ = l.drain() }()
		var packet bytes.Buffer
		p := newPublish("devices/dev-1/messages/events/", []byte("whose?"))
		p.Qos = 0
		require.NoError(t, p.Write(&packet))
		_, err := r.Session.(*session).conn.Write(packet.Bytes())
		require.ErrorIs(t, err, errUnannounced)
		require.ErrorIs(t, <-r.ran, errUnannounced)
	})
}
