package hub_test

import (
	"io"
	"strings"
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

func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec hubtest.Recorder
		h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: rec.Event, TokenGrace: 100 * time.Hour})
		two := hubtest.AddDevice(t, h, "dev-2")
		in := h.Inject(fault.Fault{Kind: fault.Quota, Device: "dev-1", Limit: 6})
		w, w2 := hubtest.Login(t, h, d), hubtest.Login(t, h, two)
		for _, body := range []string{"", strings.Repeat("x", 4096), strings.Repeat("x", 4097)} { // count as one, one and two
			w.Publish(1, hubtest.Events, body)
			w.Acked()
		}
		hubtest.Enqueue(t, h, "a")
		require.Zero(t, in.Fired())
		w.Publish(2, hubtest.Events, strings.Repeat("x", 4000)) // the sixth message
		w.Acked()
		require.ErrorIs(t, h.SendC2D("dev-1", hubdata.C2D{}), testbroker.ErrQuota)
		w.Publish(3, hubtest.Events, "x")
		require.Equal(t, io.EOF, w.End())
		require.Equal(t, 4, h.Len())
		require.Equal(t, []byte{0, 3}, hubtest.Dial(t, h).Connect(hubtest.ConnectOf(d)))
		require.Equal(t, 3, in.Fired())
		w2.Publish(1, "devices/dev-2/messages/events/", "x")
		w2.Acked()
		synctest.Wait()
		require.Contains(t, rec.Text(), "#1 dev-1 disconnected: testbroker: quota of messages is used up")

		time.Sleep(24*time.Hour - time.Second) // the bubble begins at midnight
		require.Equal(t, []byte{0, 3}, hubtest.Dial(t, h).Connect(hubtest.ConnectOf(d)))
		time.Sleep(time.Second)
		w = hubtest.Login(t, h, d)
		w.Publish(1, hubtest.Events, "x")
		w.Acked()
		require.Equal(t, 4, in.Fired())
	})
}

func TestQuotaThatAcceptsConnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec hubtest.Recorder
		h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: rec.Event})
		in := h.Inject(fault.Fault{Kind: fault.Quota, Limit: -1, AcceptConnects: true, For: time.Hour})
		for range 3 {
			w := hubtest.Dial(t, h)
			require.Equal(t, []byte{0, 0}, w.Connect(hubtest.ConnectOf(d)))
			require.Equal(t, io.EOF, w.End())
			w.Conn.Close()
			synctest.Wait()
		}
		require.Equal(t, 3, in.Fired())
		require.Equal(t, []string{"fault Quota declared", "#1 dev-1 connected", "#1 dev-1 fault Quota",
			"#1 dev-1 disconnected: testbroker: quota of messages is used up"}, rec.Text()[:4])
		require.Equal(t, rec.All()[3].Err, testbroker.ErrQuota)
		time.Sleep(time.Hour)
		hubtest.Login(t, h, d).Ping()
	})
}

func TestReasonsOfEnds(t *testing.T) {
	for name, c := range map[string]struct {
		act  func(t *testing.T, h *testbroker.Hub, d hubdata.Device, w *hubtest.Wire)
		want error
	}{
		"replaced": {func(t *testing.T, h *testbroker.Hub, d hubdata.Device, w *hubtest.Wire) {
			hubtest.Login(t, h, d)
		}, testbroker.ErrReplaced},
		"dropped": {func(t *testing.T, h *testbroker.Hub, d hubdata.Device, w *hubtest.Wire) {
			h.Drop("")
		}, testbroker.ErrDropped},
		"disabled": {func(t *testing.T, h *testbroker.Hub, d hubdata.Device, w *hubtest.Wire) {
			require.NoError(t, h.SetEnabled("dev-1", false))
		}, testbroker.ErrDisabled},
		"removed": {func(t *testing.T, h *testbroker.Hub, d hubdata.Device, w *hubtest.Wire) {
			require.NoError(t, h.RemoveDevice("dev-1"))
		}, testbroker.ErrRemoved},
		"parted": {func(t *testing.T, h *testbroker.Hub, d hubdata.Device, w *hubtest.Wire) {
			w.Send([]byte{0xe0, 0})
		}, testbroker.ErrDisconnect},
		"expired": {func(t *testing.T, h *testbroker.Hub, d hubdata.Device, w *hubtest.Wire) {
			time.Sleep(70 * time.Minute)
		}, testbroker.ErrTokenExpired},
	} {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			var rec hubtest.Recorder
			h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: rec.Event})
			con := hubtest.ConnectOf(d)
			con.KeepAlive = 0
			w := hubtest.Dial(t, h)
			require.Equal(t, []byte{0, 0}, w.Connect(con))
			time.Sleep(20 * time.Minute)
			w.Ping()
			if name == "expired" {
				go func() {
					for w.Conn.SetDeadline(time.Time{}) == nil {
						time.Sleep(10 * time.Minute)
						if _, err := w.Conn.Write([]byte{0xc0, 0}); err != nil {
							return
						}
					}
				}()
			}
			c.act(t, h, d, w)
			synctest.Wait()
			ends := 0
			for _, e := range rec.All() {
				if e.Kind == event.Disconnected && e.Connection == 1 {
					require.ErrorIs(t, e.Err, c.want)
					ends++
				}
			}
			require.Equal(t, 1, ends)
			time.Sleep(10 * time.Minute)
		})
	}
}

func TestConnectionGrace(t *testing.T) {
	for name, c := range map[string]struct{ tokens, connections, want time.Duration }{
		"its own":        {5 * time.Minute, 10 * time.Minute, 20 * time.Minute},
		"none":           {5 * time.Minute, -1, 10 * time.Minute},
		"that of tokens": {2 * time.Minute, 0, 12 * time.Minute},
	} {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			h, d := hubtest.NewHub(t, &testbroker.Options{TokenGrace: c.tokens, ConnectionGrace: c.connections})
			con := hubtest.ConnectOf(d)
			con.KeepAlive = 0
			start := time.Now()
			con.Password = hubtest.Sign("hub.example.test%2Fdevices%2Fdev-1", d.PrimaryKey, start.Add(10*time.Minute).Unix())
			w := hubtest.Dial(t, h)
			require.Equal(t, []byte{0, 0}, w.Connect(con))
			require.Equal(t, io.EOF, w.End())
			require.Equal(t, c.want, time.Since(start))
			if c.connections < 0 { // the token is still valid, but too old for a connection
				w = hubtest.Dial(t, h)
				require.Equal(t, []byte{0, 0}, w.Connect(con))
				require.Equal(t, io.EOF, w.End())
				require.Equal(t, c.want, time.Since(start))
			}
		})
	}
}
