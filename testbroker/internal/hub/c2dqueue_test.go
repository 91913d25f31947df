package hub_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// fickle is a receiver that is not ready for its first message, and ready from then on. It cannot
// take the message "too large".
type fickle struct {
	client *hub.Conn
	asked  int
	got    []string
}

func (f *fickle) Deliver(_ *hub.Queue, e *hub.QueuedC2D, _ int) (sent, settled bool) {
	if f.asked++; f.asked == 1 || f.Skips(e) {
		return false, false
	}
	f.got = append(f.got, string(e.C2D.Body))
	return true, true
}

func (f *fickle) Skips(e *hub.QueuedC2D) bool { return string(e.C2D.Body) == "too large" }
func (f *fickle) Client() *hub.Conn           { return f.client }
func (f *fickle) Renews(hub.Receiver) bool    { return false }
func (f *fickle) Replaced(*hub.Conn)          {}

func TestMessagesKeepTheirOrderForAReceiverThatIsReadyAgain(t *testing.T) {
	h, err := hub.New(&hub.Options{})
	require.NoError(t, err)
	defer h.Close()
	_, err = h.AddDevice("dev-1")
	require.NoError(t, err)
	for _, body := range []string{"1", "too large", "2", "3"} {
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte(body)}))
	}
	q, err := h.Queue(identity.Identity{Device: "dev-1"}, hub.Commands)
	require.NoError(t, err)
	f := &fickle{client: new(hub.Conn)}
	q.Receive(f)
	require.Empty(t, f.got)
	q.Kick()
	require.Equal(t, []string{"1", "2", "3"}, f.got)
}
