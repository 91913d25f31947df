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

// A reading that is brought up to date is the same as a new one.
func TestReadingsFollowTheLog(t *testing.T) {
	h, err := New(&Options{Keep: 3})
	require.NoError(t, err)
	var r reading
	bodies := func(all []hubdata.Message) (text string) {
		for _, m := range all {
			text += string(m.Body)
		}
		return text
	}
	number := 0
	// How many are added; below 0 after a clear.
	for _, step := range []int{0, 1, 1, 0, 1, 1, 2, 3, 5, -1, 0, -1, 1, -2, -3} {
		if step < 0 {
			h.log.clear()
		}
		for range max(step, -step) {
			number++
			h.Store(hubdata.Message{DeviceID: "dev-1", Body: []byte{byte('A' + number)}})
		}
		r.update(&h.log)
		require.Equal(t, bodies(h.log.view()), bodies(r.all), "after %d messages", number)
	}
	require.NoError(t, h.Close())
}
