package mqtt

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

func TestAMessageThatDoesNotFitFailsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		r.Send([]transport.Item{
			{Tag: 1, Msg: &transport.Message{Body: make([]byte, transport.MaxMessageSize+1)}},
			// 66,000 bytes when encoded
			{Tag: 2, Msg: &transport.Message{Properties: []transport.Property{{Name: "p", Value: strings.Repeat("#", 22_000)}}}},
			{Tag: 3, Msg: &transport.Message{Body: make([]byte, transport.MaxMessageSize)}},
		})
		last := l.expect(typePublish)
		require.Len(t, last.payload(), transport.MaxMessageSize)
		l.puback(last.id())
		synctest.Wait()
		require.Len(t, r.sink.done, 3)
		for i, tag := range []uint16{1, 2} {
			require.Equal(t, tag, r.sink.done[i].tag)
			require.ErrorIs(t, r.sink.done[i].err, transport.TooLarge)
			require.Equal(t, transport.Operation, transport.Find(r.sink.done[i].err).Scope)
		}
		require.NoError(t, r.sink.done[2].err)
	})
}

func TestCloudToDeviceMessagesAreDecodedAndSettled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.Messages})
		sub := l.expect(8)
		require.Equal(t, "\x00\x24devices/dev-1/messages/devicebound/#\x01", string(sub.body[2:]))
		l.send(typeSuback<<4, 3, sub.body[0], sub.body[1], 1)
		l.publish("devices/dev-1/messages/devicebound/%24.mid=one&a=1", 300, "first")
		l.publish("devices/dev-1/messages/devicebound/%24.mid=two", 0, "QoS 0")
		l.publish("devices/dev-1/messages/devicebound/%24.mid=three", 301, "third")
		l.publish("devices/dev-1/messages/devicebound/%24.mid=four", 302, "fourth")
		l.publish("devices/another/messages/devicebound/a=b", 303, "not ours")
		l.publish("$iothub/twin/res/200/?$rid=one", 0, "not asked for")
		synctest.Wait()
		require.Len(t, r.sink.replies, 1)
		require.NoError(t, r.sink.replies[0].Err)
		require.Len(t, r.sink.messages, 4)
		require.Equal(t, transport.Message{ID: "one", Body: []byte("first"),
			Properties: []transport.Property{{Name: "a", Value: "1"}}}, r.sink.messages[0])
		require.Equal(t, [][]byte{{1, 44}, nil, {1, 45}, {1, 46}}, r.sink.refs)
		require.Equal(t, [][]byte{{1, 47}}, r.sink.unasked)

		for i, outcome := range []transport.Outcome{transport.Accept, transport.Accept, transport.Release, transport.Reject} {
			r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.refs[i], Outcome: outcome})
		}
		r.cancel()
		rest, _ := l.drain()
		require.Equal(t, []packet{
			{kind: typePuback, body: []byte{1, 44}}, {kind: typePuback, body: []byte{1, 46}},
			{kind: typeDisconnect, body: []byte{}},
		}, rest)
	})
}
