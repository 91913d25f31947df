package device_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// filtering makes the hub answer reads for the version that the client has without a document.
func (h *twinHub) filtering() {
	whole := h.f.request
	h.f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
		reply, ok := whole(s, r)
		if r.Op == transport.OpTwinGet && r.Version == h.version {
			reply = transport.Reply{Version: r.Version}
		}
		return reply, ok
	}
}

// push sends all desired properties to the newest session.
func (h *twinHub) push(version int64) {
	h.f.last().cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureDesired, Version: version, Full: true,
		Msg: &transport.Message{Body: fmt.Appendf(nil, `{"n":%d,"$version":%[1]d}`, version)}})
}

func TestTheHubLearnsWhichPropertiesTheClientHas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, w := newTwinHub(), &told{}
		h.filtering()
		h.version = 7
		c, _ := client(t, h.f, &device.Options{DesiredVersion: 7})
		require.NoError(t, c.HandleDesired(w.handle))
		open(t, c)
		synctest.Wait()
		require.Empty(t, w.list(), "the program has them")
		require.EqualValues(t, 7, h.f.last().cfg.DesiredVersion)
		require.Equal(t, transport.FeatureDesired|transport.FeatureTwin, h.f.last().cfg.Want)
		reads := h.f.requests()
		require.Len(t, reads, 1)
		require.EqualValues(t, 7, reads[0].Version)
		require.Equal(t, transport.FeatureDesired, reads[0].Want)

		h.change(true)
		synctest.Wait()
		require.Equal(t, []string{"patch 8"}, w.list())
		h.f.lose(transport.Network, time.Minute)
		require.Zero(t, h.f.last().cfg.DesiredVersion, "a change may have left something out")
		require.Equal(t, []string{"patch 8", "full 8"}, w.list())
		h.f.lose(transport.Network, time.Minute)
		require.EqualValues(t, 8, h.f.last().cfg.DesiredVersion)
		require.Len(t, w.list(), 2)

		next := &told{}
		require.NoError(t, c.HandleDesired(next.handle))
		synctest.Wait()
		require.Equal(t, []string{"full 8"}, next.list(), "another handler has nothing")
	})
}

func TestKeptPropertiesThatAreOldAreReplaced(t *testing.T) {
	for name, kept := range map[string]int64{"older": 3, "of another twin": 12} {
		run(t, name, func(t *testing.T) {
			h, w := newTwinHub(), &told{}
			h.filtering()
			h.version = 7
			c, _ := client(t, h.f, &device.Options{DesiredVersion: kept})
			require.NoError(t, c.HandleDesired(w.handle))
			open(t, c)
			synctest.Wait()
			require.Equal(t, []string{"full 7"}, w.list())
		})
	}
}

func TestPushedPropertiesSpareTheRead(t *testing.T) {
	// held returns a hub that leaves reads unanswered, and a client that is connected.
	held := func(t *testing.T) (*twinHub, *told, *device.Client) {
		h, w := newTwinHub(), &told{}
		whole := h.f.request
		h.f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
			reply, _ := whole(s, r)
			return reply, false
		}
		c, _ := client(t, h.f, nil)
		require.NoError(t, c.HandleDesired(w.handle))
		open(t, c)
		synctest.Wait()
		return h, w, c
	}
	answer := func(h *twinHub, r transport.Reply) {
		h.f.last().cfg.Sink.Reply(h.f.requests()[0].ID, r)
		synctest.Wait()
	}
	run(t, "the push answers the read", func(t *testing.T) {
		h, w, _ := held(t)
		h.push(4)
		answer(h, transport.Reply{Version: 4})
		require.Equal(t, []string{"full 4"}, w.list())
		require.Equal(t, 1, h.readCount())
		h.notify(5)
		h.push(5)
		synctest.Wait()
		require.Equal(t, []string{"full 4", "patch 5"}, w.list())
		require.Equal(t, 1, h.readCount())
	})
	run(t, "an older answer after the push is ignored", func(t *testing.T) {
		h, w, _ := held(t)
		h.push(4)
		answer(h, transport.Reply{Body: []byte(`{"desired":{"n":3,"$version":3},"reported":{}}`)})
		require.Equal(t, []string{"full 4"}, w.list())
	})
	run(t, "a push of the same version says nothing new", func(t *testing.T) {
		h, w, c := watchedTwin(t)
		h.push(1)
		synctest.Wait()
		require.Equal(t, []string{"full 1"}, w.list())
		require.EqualValues(t, 1, c.Stats().DesiredSkipped)
	})
	run(t, "a push that is older than a change makes the client read", func(t *testing.T) {
		h, w, _ := held(t)
		h.notify(5)
		h.push(4)
		synctest.Wait()
		require.Empty(t, w.list())
		h.push(5)
		synctest.Wait()
		require.Equal(t, []string{"full 5"}, w.list())
	})
	run(t, "a lower version later makes the client read", func(t *testing.T) {
		h, w, _ := watchedTwin(t)
		h.notify(2)
		h.version = 1 // the twin was made anew
		h.push(1)
		synctest.Wait()
		require.Equal(t, 2, h.readCount())
		require.Equal(t, []string{"full 1", "patch 2", "full 1"}, w.list())
	})
	run(t, "a push before it is known that the twin is another one makes the client read", func(t *testing.T) {
		h, w := newTwinHub(), &told{}
		h.filtering()
		h.version = 4
		h.f.twin = func(conn int) uint32 { return uint32(conn) }
		h.f.subscribe = func(int) error { h.push(4); return nil }
		whole := h.f.request
		h.f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
			if len(h.f.requests()) == 1 { // the session takes it for answered
				return transport.Reply{Version: 4}, true
			}
			return whole(s, r)
		}
		c, _ := client(t, h.f, &device.Options{Trace: &device.Trace{TwinUnread: func(err error) { t.Error(err) }}})
		require.NoError(t, c.HandleDesired(w.handle))
		open(t, c)
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"full 4", "full 4"}, w.list())
	})
	run(t, "a push that is no object makes the client read", func(t *testing.T) {
		h, w, _ := watchedTwin(t)
		h.change(false)
		h.f.last().cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureDesired, Version: 2, Full: true,
			Msg: &transport.Message{Body: []byte("x")}})
		synctest.Wait()
		require.Equal(t, []string{"full 1", "full 2"}, w.list())
	})
}
