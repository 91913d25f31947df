package outbox_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

// A stored message has the same id in every process that sends it.
func TestAMessageWithoutAnIDKeepsItsIDAcrossProcesses(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		folder := t.TempDir()
		m := &transport.Message{Body: []byte("x")}
		q := open(t, folder, nil)
		require.NoError(t, q.Put(t.Context(), m))
		require.NoError(t, q.Put(t.Context(), m))
		require.Empty(t, m.ID, "the user's message stays as it was")
		seen := &first{}
		stop := start(q, seen)
		synctest.Wait()
		require.ErrorIs(t, stop(), context.Canceled)
		require.Len(t, seen.id, 10)
		require.NoError(t, q.Close())

		q = open(t, folder, nil)
		require.NoError(t, q.Put(t.Context(), m))
		all := take(t, q)
		require.Equal(t, seen.id, all[0])
		require.Equal(t, strings.TrimSuffix(all[0], "1")+"2", all[1])
		require.NotEqual(t, all[0][:8], all[2][:8], "another process counts under another prefix")
		require.NoError(t, q.Close())
	})
}

// first is a client that records the id of the first message and has no room for it.
type first struct {
	sending
	id string
}

func (f *first) Enqueue(ctx context.Context, m *transport.Message, _ *device.Receipt) error {
	f.id = m.ID
	<-ctx.Done()
	return ctx.Err()
}

func TestMessageIDsCanBeChosenAndOff(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		for want, o := range map[string]outbox.Options{"": {NoMessageIDs: true}, "p-1": {MessageIDPrefix: "p"}} {
			q := open(t, t.TempDir(), &o)
			require.NoError(t, q.Put(t.Context(), &transport.Message{Body: []byte("x")}))
			require.Equal(t, []string{want}, take(t, q))
			require.NoError(t, q.Close())
		}
		_, err := outbox.Open(t.TempDir(), &outbox.Options{MessageIDPrefix: "a b"})
		require.ErrorIs(t, err, transport.Invalid)
	})
}

func TestAMessageAtTheHubsLimitGetsNoID(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		q := open(t, t.TempDir(), nil)
		require.NoError(t, q.Put(t.Context(), &transport.Message{Body: make([]byte, transport.MaxMessageSize)}))
		require.Equal(t, []string{""}, take(t, q))
		require.NoError(t, q.Close())
	})
}
