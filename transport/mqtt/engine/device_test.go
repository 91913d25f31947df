package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// The hub publishes the will when the device disappears, and not after DISCONNECT.
func TestTheWillIsPublishedAfterALoss(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := hubfixture.New(t)
		will := &transport.Message{ID: "last words", Body: []byte("gone")}
		c, err := device.New(h.CredsWith(t, ""), engine.New(dialHub(h), &engine.Options{Will: will}), nil)
		require.NoError(t, err)
		require.NoError(t, c.Open(t.Context()))
		h.Drop("")
		require.NoError(t, h.WaitMessages(t.Context(), 1))
		m := h.Messages()[0]
		require.Equal(t, "last words", m.MessageID)
		require.Equal(t, "gone", string(m.Body))
		kind, _ := m.Property("iothub-MessageType")
		require.Equal(t, "Will", kind)
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Send(t.Context(), &transport.Message{}))
		require.NoError(t, c.Close())
		synctest.Wait()
		require.Equal(t, 2, h.Len())
	})
}

// dialHub connects to the hub fixture without TLS.
func dialHub(h *hubfixture.Broker) engine.Dial {
	return func(ctx context.Context, _ *transport.Credentials) (engine.Conn, error) {
		return h.Dial(testbroker.PortMQTT)(ctx, "", "")
	}
}

// A hub that kept the session delivers as soon as the device is back.
func TestAHandlerRegisteredAfterOpenGetsWhatCameBefore(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := hubfixture.New(t)
		got := make(chan string, 10)
		handle := func(_ context.Context, m *transport.Message) error {
			got <- string(m.Body)
			return nil
		}
		first, err := device.New(h.CredsWith(t, ""), engine.New(dialHub(h), nil), nil)
		require.NoError(t, err)
		first.HandleMessages(handle)
		require.NoError(t, first.Open(t.Context()))
		require.NoError(t, first.Close())
		for i := range 3 {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte{'1' + byte(i)}}))
		}
		c, err := device.New(h.CredsWith(t, ""), engine.New(dialHub(h), nil), nil)
		require.NoError(t, err)
		require.NoError(t, c.Open(t.Context()))
		synctest.Wait()
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("4")}))
		synctest.Wait()
		c.HandleMessages(handle)
		for _, want := range []string{"1", "2", "3", "4"} {
			require.Equal(t, want, <-got)
		}
		synctest.Wait()
		require.EqualValues(t, 4, c.Stats().MessagesAccepted)
		require.EqualValues(t, 1, c.Stats().Connections)
		require.NoError(t, c.Close())
	})
}

// The handler is with a message of a connection that is gone, and the only slot is not free.
func TestASlotOfALostConnectionDelaysMessagesOnlyUntilItIsFree(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := hubfixture.New(t)
		var handled []time.Time
		c, err := device.New(h.CredsWith(t, ""), engine.New(dialHub(h), nil), &device.Options{Inbox: 1})
		require.NoError(t, err)
		c.HandleMessages(func(context.Context, *transport.Message) error {
			time.Sleep(10 * time.Second)
			handled = append(handled, time.Now())
			return nil
		})
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("x")}))
		synctest.Wait()
		h.Drop("")
		time.Sleep(25 * time.Second)
		require.NoError(t, c.Close())
		require.Len(t, handled, 2, "it came again")
		require.Equal(t, 10*time.Second, handled[1].Sub(handled[0]))
	})
}
