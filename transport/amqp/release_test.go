package amqp_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// A handler that cannot handle a message yet returns an error. The hub gives up a message after ten
// deliveries, so they must not be used up in a moment. Another message is not delayed.
func TestReleasedMessagesComeAgainLater(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		c, err := device.New(h.CredsWith(t, ""), amqp.New(h.options()), nil)
		require.NoError(t, err)
		defer c.Close()
		began := time.Now()
		var at []time.Duration
		c.HandleMessages(func(_ context.Context, m *transport.Message) error {
			if string(m.Body) != "early" {
				return nil
			}
			at = append(at, time.Since(began).Truncate(time.Second))
			if len(at) < 8 {
				return errors.New("not ready")
			}
			return nil
		})
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("early")}))
		synctest.Wait()
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("other")}))
		synctest.Wait()
		require.Equal(t, 1, h.CountC2D("dev-1", hubdata.C2DCompleted))
		time.Sleep(5 * time.Minute)
		require.Equal(t, 2, h.CountC2D("dev-1", hubdata.C2DCompleted))
		const s = time.Second
		require.Equal(t, []time.Duration{0, 1 * s, 3 * s, 7 * s, 15 * s, 31 * s, 61 * s, 91 * s}, at)
	})
}

// A message that waited in the client for most of its lock is released before the lock ends.
func TestAReleaseComesBeforeTheLockEnds(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		r.subscribe(1)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("x")}))
		time.Sleep(49*time.Second + 500*time.Millisecond)
		settle := &transport.Request{Op: transport.OpSettle, Ref: r.sink.Ref(0), Outcome: transport.OutcomeRelease}
		r.Do(settle)
		r.Do(settle) // a second one has no effect
		synctest.Wait()
		require.Len(t, r.sink.Bodies(), 1)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		require.Len(t, r.sink.Bodies(), 2)
	})
}

// The session ends while a release waits: nothing is left behind, and the hub has the message.
func TestASessionEndsWhileAReleaseWaits(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		r.subscribe(1)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("x")}))
		synctest.Wait()
		r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.Ref(0), Outcome: transport.OutcomeRelease})
		r.cancel()
		<-r.over
		time.Sleep(time.Minute)
		require.Equal(t, 1, h.CountC2D("dev-1", hubdata.C2DEnqueued))
	})
}

// A handler is busy for two minutes and the inbox is full, since the connection was lost meanwhile:
// the hub does not give up the message that has no place.
func TestAMessageWithoutAPlaceOutlastsASlowHandler(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		c, err := device.New(h.CredsWith(t, ""), amqp.New(h.options()), &device.Options{Inbox: 2})
		require.NoError(t, err)
		defer c.Close()
		var handled []string
		c.HandleMessages(func(_ context.Context, m *transport.Message) error {
			if handled = append(handled, string(m.Body)); len(handled) == 1 {
				time.Sleep(2 * time.Minute)
			}
			return nil
		})
		require.NoError(t, c.Open(t.Context()))
		for _, body := range []string{"a", "b"} {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte(body)}))
		}
		time.Sleep(time.Second)
		require.Equal(t, 1, h.Drop("dev-1"))
		time.Sleep(10 * time.Minute)
		require.Zero(t, h.CountC2D("dev-1", hubdata.C2DDeadLettered))
		require.Contains(t, handled, "b")
		require.Equal(t, 2, h.CountC2D("dev-1", hubdata.C2DCompleted))
	})
}
