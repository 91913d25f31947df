package mqtt

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

func TestASessionPublishesReportsAndSaysGoodbye(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		r.send("one", "two")
		a, b := l.expect(typePublish), l.expect(typePublish)
		require.Equal(t, "one", a.payload())
		require.Equal(t, "two", b.payload())
		require.Equal(t, byte(2), a.flags, "QoS 1, neither DUP nor RETAIN")
		require.Equal(t, "devices/dev-1/messages/events/", a.topic())
		synctest.Wait()
		require.Empty(t, r.sink.tags())
		l.puback(b.id())
		l.puback(a.id())
		l.puback(a.id())
		l.puback(999)
		synctest.Wait()
		require.Equal(t, []uint16{1, 0}, r.sink.tags())

		r.cancel()
		rest, err := l.drain()
		require.Equal(t, io.EOF, err)
		require.Equal(t, []packet{{kind: typeDisconnect, body: []byte{}}}, rest)
		require.Error(t, <-r.ran)
	})
}

func TestTheLossOfALiveSessionIsReportedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		require.NoError(t, l.Close())
		err := <-r.ran
		e := transport.Find(err)
		require.NotNil(t, e)
		require.Equal(t, transport.Network, e.Kind)
		require.Equal(t, transport.Connection, e.Scope)
		require.Equal(t, transport.OpRun, e.Op)
		require.True(t, errors.Is(err, io.EOF))
		require.Equal(t, "mqtt connection: network failure: the hub closed the connection", err.Error())
	})
}
