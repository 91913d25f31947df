package hub_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// A Reset removes all earlier state, and the device can continue with its keys.
func TestReset(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		cam := hubtest.AddModule(t, h, "dev-1", "cam")
		w := hubtest.Login(t, h, d)
		w.Subscribe(1, "devices/dev-1/messages/devicebound/#")
		w.Publish(1, hubtest.Events+"%24.mid=1", "a")
		w.Acked()
		w.Publish(2, hubtest.Events+"%24.mid=1", "b")
		w.Acked()
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("never acknowledged")}))
		hubtest.PatchDesired(t, h, "dev-1", `{"a":1}`)
		_, err := h.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: "reboot"})
		require.Error(t, err)
		cut := h.Inject(fault.Fault{Kind: fault.DropConnect, Times: -1})
		h.Inject(fault.Fault{Kind: fault.HalfOpen, Device: "dev-1"})
		require.Len(t, h.Conflicts(), 1)

		h.Reset()
		require.Zero(t, h.Connections(""))
		require.Zero(t, h.Len())
		require.Empty(t, h.Messages())
		require.Empty(t, h.Conflicts())
		require.Empty(t, h.C2DLog(""))
		require.Empty(t, h.MethodLog(""))
		twin := hubtest.Twin(t, h, "dev-1")
		require.JSONEq(t, `{}`, string(twin.Desired))
		require.EqualValues(t, 1, twin.DesiredVersion)
		require.Equal(t, []hubdata.Device{d, cam}, h.Devices())

		w = hubtest.Login(t, h, d)
		w.Publish(1, hubtest.Events+"%24.mid=1", "c")
		w.Acked()
		require.Len(t, h.Messages(), 1)
		require.Empty(t, h.Conflicts(), "the message of that id before was forgotten")
		require.Zero(t, cut.Fired())
		cut.Remove()

		w.Subscribe(1, "devices/dev-1/messages/devicebound/#")
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("new")}))
		w.Expect(3)
		require.Equal(t, 1, h.C2DLog("dev-1")[0].Sequence)
	})
}

// A Reset invalidates earlier upload URIs.
func TestResetForgetsFiles(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.NewPoster(t, h.Dial(testbroker.PortHTTP), nil, hubtest.Token(d))
		place := hubtest.BeginUpload(p, "a.txt")
		hubtest.PutBlob(p, place, "content")
		require.Equal(t, []string{"dev-1/a.txt"}, h.Blobs())
		h.Reset()
		require.Empty(t, h.Uploads())
		require.Empty(t, h.Blobs())
		require.Equal(t, 403, hubtest.PutUpload(p, place, "", "content", "x-ms-blob-type", "BlockBlob").StatusCode)

		next := hubtest.BeginUpload(p, "a.txt")
		hubtest.PutBlob(p, next, "other content")
		require.Equal(t, 204, hubtest.EndUpload(p, hubtest.Ended(next.CorrelationID)).StatusCode)
		require.Equal(t, 403, hubtest.PutUpload(p, place, "", "content", "x-ms-blob-type", "BlockBlob").StatusCode)
	})
}

// Open calls of a back end or of the test do not delay a Reset. Two concurrent Resets count as one.
func TestResetDuringCalls(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.BackEnd(t, h, hubdata.RightAll)
		w := hubtest.Login(t, h, d)
		w.Subscribe(1, "$iothub/methods/POST/#")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			p.Try("POST", "/twins/dev-1/methods"+hubtest.Version, `{"methodName":"a","responseTimeoutInSeconds":300}`)
		}()
		ended := make(chan error)
		go func() {
			_, err := h.CallMethod(ctx, "dev-1", hubdata.MethodCall{Name: "b", ResponseTimeout: 5 * time.Minute})
			ended <- err
		}()
		w.Expect(3)
		w.Expect(3)
		start := time.Now()
		again := make(chan struct{})
		go func() { h.Reset(); close(again) }()
		h.Reset()
		<-again
		require.Less(t, time.Since(start), time.Second)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

func TestCloseConnections(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		other := hubtest.AddDevice(t, h, "dev-2")
		w, stays := hubtest.Login(t, h, d), hubtest.Login(t, h, other)
		require.Equal(t, 1, h.CloseConnections("dev-1"))
		require.EqualError(t, w.End(), "EOF", "in good order")
		stays.Ping()
		synctest.Wait()
		require.Zero(t, h.CloseConnections("dev-1"))
	})
}

// A Reset waits also for a connection that ends by itself, so its will and its end come before.
func TestResetWaitsForConnectionsThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ending, release := make(chan struct{}), make(chan struct{})
		kinds := make(chan event.Kind, 2)
		h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: func(e event.Event) {
			switch e.Kind {
			case event.Disconnected:
				close(ending)
				<-release
				kinds <- e.Kind
			case event.HubReset:
				kinds <- e.Kind
			}
		}})
		hubtest.Login(t, h, d).Conn.Close()
		<-ending
		go h.Reset()
		synctest.Wait()
		close(release)
		require.Equal(t, []event.Kind{event.Disconnected, event.HubReset}, []event.Kind{<-kinds, <-kinds})
	})
}
