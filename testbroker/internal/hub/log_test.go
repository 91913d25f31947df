package hub

import (
	"runtime"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// A caller that has read the log once does not keep the messages in memory that the hub forgets.
func TestForgottenMessagesAreFreedAfterARead(t *testing.T) {
	for name, read := range map[string]func(*Hub) int{
		"Messages": func(h *Hub) int { return len(h.Messages()) },
		"Wait": func(h *Hub) (n int) {
			require.NoError(t, h.Wait(t.Context(), func(log []hubdata.Message) bool { n = len(log); return true }))
			return n
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := New(&Options{Keep: 2})
			require.NoError(t, err)
			body := make([]byte, 1024)
			first := weak.Make(&body[0])
			h.Store(hubdata.Message{DeviceID: "dev-1", Body: body})
			body = nil
			require.Equal(t, 1, read(h))
			runtime.GC()
			require.NotNil(t, first.Value(), "kept")
			for range 100 {
				h.Store(hubdata.Message{DeviceID: "dev-1"})
			}
			runtime.GC()
			require.Nil(t, first.Value(), "forgotten")
			require.NoError(t, h.Close())
		})
	}
}
