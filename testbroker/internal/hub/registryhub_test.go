package hub_test

import (
	"crypto/tls"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// TestDisabledDevice checks that disabling a device cuts it and its modules at once, on any kind of
// connection, and that enabling it again restores everything.
func TestDisabledDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec hubtest.Recorder
		h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: rec.Event})
		mod := hubtest.AddModule(t, h, "dev-1", "m")
		w, _ := hubtest.Keeper(t, h, d)
		w.Subscribe(1, hubtest.DeviceBound)
		m := hubtest.NewWire(t, hubtest.DialWeb(t, h))
		require.Equal(t, []byte{0, 0}, m.Connect(hubtest.ConnectOf(mod)))
		hubtest.Enqueue(t, h, "a")
		hubtest.ReadPublish(w)
		require.NoError(t, h.SetEnabled("dev-1", false))
		require.Equal(t, io.EOF, w.End())
		require.True(t, websocket.IsCloseError(m.End(), websocket.CloseNormalClosure))
		hubtest.Enqueue(t, h, "b")
		for _, who := range []hubdata.Device{d, mod} {
			require.Equal(t, []byte{0, 5}, hubtest.Dial(t, h).Connect(hubtest.ConnectOf(who)))
		}
		synctest.Wait()
		require.Zero(t, h.Connections(""))
		require.NoError(t, h.SetEnabled("dev-1", true))
		w, present := hubtest.Keeper(t, h, d)
		require.Equal(t, byte(1), present)
		require.Equal(t, []string{"+a", "b"}, hubtest.ReadBodies(w, 2))
	})
}

func TestRemovedDeviceWithACertificate(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		root := testbroker.NewCertAuthority("root")
		require.NoError(t, h.AddCA(root.Cert()))
		d, err := h.AddDeviceCA("dev-ca")
		require.NoError(t, err)
		w := hubtest.DialTLS(t, h, root.NewClientCert("dev-ca", time.Time{}, time.Time{}))
		require.Equal(t, []byte{0, 0}, w.Connect(hubtest.Certified(d)))
		require.NoError(t, h.RemoveDevice("dev-ca"))
		require.Equal(t, io.EOF, w.End())
		w = hubtest.DialTLS(t, h, root.NewClientCert("dev-ca", time.Time{}, time.Time{}))
		require.Equal(t, []byte{0, 5}, w.Connect(hubtest.Certified(d)))
	})
}

// With a seed the authority is the same in every run, at any time: a client that trusts a hub
// trusts the next.
func TestTheAuthorityFollowsFromTheSeed(t *testing.T) {
	later := func() time.Time { return time.Now().Add(30 * 24 * time.Hour) }
	first, _ := hubtest.NewHub(t, &testbroker.Options{Seed: 5})
	second, _ := hubtest.NewHub(t, &testbroker.Options{Seed: 5, Now: later})
	require.Equal(t, string(first.CAPEM()), string(second.CAPEM()))
	conn, err := second.Dial(testbroker.PortMQTTS)(t.Context(), "tcp", "hub:8883")
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, tls.Client(conn, first.ClientTLS()).HandshakeContext(t.Context()))

	for name, o := range map[string]*testbroker.Options{"another seed": {Seed: 6}, "no seed": nil} {
		h, _ := hubtest.NewHub(t, o)
		require.NotEqual(t, string(first.CAPEM()), string(h.CAPEM()), name)
		again, _ := hubtest.NewHub(t, nil)
		require.NotEqual(t, string(again.CAPEM()), string(h.CAPEM()), name)
	}
}
