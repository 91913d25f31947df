package lean

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// With NoCalls, twin and methods are Unsupported and everything else works.
func TestNoCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, New(h.dial, &Options{Calls: NoCalls, ReadBuffer: 256, WriteBuffer: 1024}))
		for i, q := range []transport.Request{
			{Op: transport.OpTwinGet}, {Op: transport.OpTwinPatch, Body: []byte("{}")}, {Op: transport.OpSubscribe,
				Want: transport.Twin},
			{Op: transport.OpSubscribe, Want: transport.Messages | transport.Methods},
		} {
			q.ID = uint32(i + 1)
			r.Do(&q)
			require.Len(t, r.sink.replies, i+1)
			require.ErrorIs(t, r.sink.replies[i].Err, transport.Unsupported)
		}
		r.Do(&transport.Request{Op: transport.OpRespond, Ref: []byte("1"), Status: 200})
		r.Do(&transport.Request{ID: 9, Op: transport.OpSubscribe, Want: transport.Messages})
		l.expect(0x82)
		l.send(publishBytes("$iothub/methods/POST/x/?$rid=1", 0, "{}")...)
		l.send(publishBytes("$iothub/twin/res/200/?$rid=1", 0, strings.Repeat("x", 999))...)
		l.send(publishBytes("devices/dev-1/messages/devicebound/a=1", 300, "first")...)
		synctest.Wait()
		require.Len(t, r.sink.messages, 1)
	})
}

// A twin larger than a board's read buffer is answered with TooLarge.
func TestATwinLargerThanTheReadBuffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, New(h.dial, &Options{Calls: TwinAndMethods, ReadBuffer: 256, WriteBuffer: 1024}))
		l.send(publishBytes("$iothub/twin/res/200/?$rid=77", 0, strings.Repeat("x", 999))...)
		l.send(publishBytes("$iothub/methods/POST/x/?$rid=1", 0, strings.Repeat("x", 999))...)
		synctest.Wait()
		require.Empty(t, r.sink.messages)
		require.Equal(t, []string{"x 1"}, r.sink.unfit, "it is to be answered")
		l.send(publishBytes("$iothub/twin/PATCH/properties/desired/?$version=5", 0, strings.Repeat("x", 999))...)
		l.send(publishBytes("$iothub/twin/res/200/?$rid=78", 0, strings.Repeat("x", 99))...)
		synctest.Wait()
		require.Len(t, r.sink.replies, 2)
		require.ErrorIs(t, r.sink.replies[0].Err, transport.TooLarge)
		require.NoError(t, r.sink.replies[1].Err)
		require.Len(t, r.sink.messages, 1, "a change was missed")

		// a body may be larger than the write buffer
		r.Do(&transport.Request{ID: 5, Op: transport.OpTwinPatch, Body: []byte(strings.Repeat("y", 5000))})
		require.Len(t, l.expect(0x30).body, 2+len("$iothub/twin/PATCH/properties/reported/?$rid=5")+5000)
		r.Do(&transport.Request{ID: 6, Op: transport.OpTwinPatch, Body: make([]byte, transport.MaxMessageSize+1)})
		require.ErrorIs(t, r.sink.replies[2].Err, transport.TooLarge)
		// its topic must not
		r.Do(&transport.Request{Op: transport.OpRespond, Ref: []byte(strings.Repeat("r", 2000)), Status: 200})
		require.Len(t, r.sink.replies, 4)
		require.ErrorIs(t, r.sink.replies[3].Err, transport.TooLarge)
	})
}
