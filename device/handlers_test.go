package device_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// Handlers of messages, desired properties and methods may be registered at any time.
func TestHandlersAreRegisteredReplacedAndRemovedWhileConnected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newTwinHub()
		c, w := client(t, h.f, nil)
		open(t, c)
		require.Empty(t, h.f.subscriptions(), "a client without handlers subscribes to nothing")
		require.False(t, h.f.last().deliver("nobody"))

		got := &handled{}
		message := func(name string) device.MessageHandler {
			return func(_ context.Context, m *transport.Message) error { got.add(name + " " + m.ID); return nil }
		}
		desired := func(name string) device.DesiredHandler {
			return func(_ context.Context, d device.Desired) { got.add(name + " desired") }
		}
		c.HandleMessages(message("first"))
		synctest.Wait()
		require.Equal(t, []transport.Features{transport.FeatureMessages}, h.f.subscriptions())
		require.True(t, h.f.last().deliver("1"))
		c.HandleDesired(desired("first"))
		synctest.Wait()
		require.ElementsMatch(t, []string{"first 1", "first desired"}, got.list())

		got.ids = nil
		c.HandleMessages(message("second"))
		c.HandleDesired(desired("second"))
		synctest.Wait()
		require.True(t, h.f.last().deliver("2"))
		synctest.Wait()
		require.ElementsMatch(t, []string{"second 2", "second desired"}, got.list())

		got.ids = nil
		c.HandleMessages(nil)
		c.HandleDesired(nil)
		require.True(t, h.f.last().deliver("3"), "it waits for a handler")
		h.change(true)
		h.f.lose(transport.Network, time.Minute)
		require.Equal(t, device.StateConnected, w.list()[len(w.list())-1].State)
		require.Empty(t, got.list())
		for _, want := range h.f.subscriptions()[2:] {
			require.Equal(t, transport.FeatureTwin, want, "only what earlier calls of the twin had needed")
		}
	})
}

// A client without a handler takes as many messages as fit into its inbox, and keeps them for the
// next handler.
func TestMessagesWaitForTheNextHandler(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, _ := client(t, f, &device.Options{Inbox: 3})
		got := &handled{}
		handle := func(_ context.Context, m *transport.Message) error {
			time.Sleep(time.Second)
			got.add(m.ID)
			return nil
		}
		c.HandleMessages(handle)
		open(t, c)
		require.True(t, f.last().deliver("1"))
		require.True(t, f.last().deliver("2"))
		synctest.Wait()
		c.HandleMessages(nil)
		time.Sleep(time.Minute)
		require.Equal(t, []settled{{1, "1", transport.OutcomeAccept}}, f.verdicts(), "a running handler ends")
		require.True(t, f.last().deliver("3"))
		require.True(t, f.last().deliver("4"))
		require.False(t, f.last().deliver("5"), "the inbox is full")
		c.HandleMessages(handle)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"1", "2", "3", "4"}, got.list())
		require.Len(t, f.verdicts(), 4)

		c.HandleMessages(nil)
		require.True(t, f.last().deliver("6"))
		f.lose(transport.Network, time.Minute)
		c.HandleMessages(handle)
		time.Sleep(time.Minute)
		require.Len(t, got.list(), 4, "what waits when its connection ends is the hub's again")
	})
}

// nilCause is an error whose nil pointer cannot be unwrapped.
type nilCause struct{ cause error }

func (e *nilCause) Error() string { return "nil" }
func (e *nilCause) Unwrap() error { return e.cause }

func TestAHandlersErrorThatPanicsReleasesTheMessage(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, _ := client(t, f, nil)
		c.HandleMessages(func(context.Context, *transport.Message) error {
			var e *nilCause
			return e
		})
		open(t, c)
		require.True(t, f.last().deliver("1"))
		synctest.Wait()
		require.EqualValues(t, 1, c.Stats().MessagesReleased)
		require.EqualValues(t, 1, c.Stats().HandlerPanics)
	})
}

// A change comes without a handler, while a read for the handler before is in flight.
func TestAChangeBetweenTwoHandlersIsRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var first transport.Request // the read that is in flight
		f := &fake{}
		f.request = func(_ *fakeSession, r *transport.Request) (transport.Reply, bool) {
			if first.Op == 0 {
				first = *r
				return transport.Reply{}, false
			}
			return transport.Reply{Status: 200, Body: []byte(`{"desired":{"$version":6},"reported":{"$version":1}}`)}, true
		}
		c, _ := client(t, f, nil)
		var got []int64
		handle := func(_ context.Context, d device.Desired) { got = append(got, d.Version) }
		c.HandleDesired(handle)
		open(t, c)
		synctest.Wait()
		require.Equal(t, transport.OpTwinGet, first.Op)
		c.HandleDesired(nil)
		sink := f.last().cfg.Sink
		sink.Deliver(&transport.Delivery{Kind: transport.FeatureDesired, Version: 6,
			Msg: &transport.Message{Body: []byte(`{"a":6,"$version":6}`)}})
		c.HandleDesired(handle)
		sink.Reply(first.ID, transport.Reply{Status: 200,
			Body: []byte(`{"desired":{"$version":5},"reported":{"$version":1}}`)})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Contains(t, got, int64(6))
	})
}
