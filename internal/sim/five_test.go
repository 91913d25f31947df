package sim_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// engineNamed returns an engine.
func engineNamed(t *testing.T, name string) engine {
	t.Helper()
	for _, e := range engines {
		if e.name == name {
			return e
		}
	}
	t.Fatalf("no engine %q", name)
	return engine{}
}

// Enhanced authentication is renewed on the live connection, before the token expires. A
// re-authentication that the broker refuses or leaves unanswered costs a connection, and nothing is
// lost.
func TestEnhancedAuthenticationIsRenewedInPlace(t *testing.T) {
	for name, row := range map[string]struct {
		fault fault.Fault
		lost  bool
	}{
		"accepted":   {fault.Fault{Kind: fault.SlowAuth, Delay: time.Second, After: 1}, false},
		"refused":    {fault.Fault{Kind: fault.RefuseAuth, After: 1}, true},
		"unanswered": {fault.Fault{Kind: fault.SwallowAuth, After: 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				e := engineNamed(t, "mqtt, MQTT 5, enhanced authentication")
				hub, creds := e.openHub(t)
				creds.TokenLife = 10 * time.Minute
				in := hub.Inject(row.fault)
				c, err := device.New(creds, e.make(creds, e.inMemory(hub, false)), nil)
				require.NoError(t, err)
				defer c.Close()
				require.NoError(t, c.Start())
				const n = 120
				for i := range n {
					require.NoError(t, c.Send(t.Context(), &transport.Message{ID: strconv.Itoa(i)}))
					time.Sleep(time.Minute)
					if c.Status().State == device.StateDisconnected {
						require.NoError(t, c.Start())
					}
				}
				require.Equal(t, n, hub.Len())
				require.Equal(t, 1, in.Fired())
				s, _ := hub.Session("dev-1")
				if row.lost {
					require.EqualValues(t, 2, c.Stats().Connections)
					return
				}
				require.EqualValues(t, 1, c.Stats().Connections)
				require.Greater(t, s.Authentications, 12)
			})
		})
	}
}

// A message with QoS 2 is handled once, at whichever step of its exchange the connection is cut.
func TestExactlyOnceAcrossCuts(t *testing.T) {
	const n = 10
	for step := range 2 * n {
		testkit.Run(t, fmt.Sprintf("cut at receipt %d", step), func(t *testing.T) {
			e := engineNamed(t, "mqtt, MQTT 5, QoS 2")
			hub, creds := e.openHub(t)
			in := hub.Inject(fault.Fault{Kind: fault.DropOnReceipt, After: step})
			c, err := device.New(creds, e.make(creds, e.inMemory(hub, false)), nil)
			require.NoError(t, err)
			var mu sync.Mutex
			handled := map[string]int{}
			c.HandleMessages(func(_ context.Context, m *transport.Message) error {
				mu.Lock()
				defer mu.Unlock()
				handled[m.ID]++
				return nil
			})
			defer c.Close()
			require.NoError(t, c.Open(t.Context()))
			for i := range n {
				require.NoError(t, hub.SendC2D("dev-1", hubdata.C2D{MessageID: strconv.Itoa(i)}))
			}
			require.NoError(t, hub.WaitC2D(t.Context(), "dev-1", hubdata.C2DCompleted, n))
			time.Sleep(time.Minute)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, 1, in.Fired())
			require.Len(t, handled, n)
			for id, times := range handled {
				require.Equal(t, 1, times, "message %s", id)
			}
		})
	}
}

// By default a session outlives its connection, so that messages sent while the device was away
// arrive, and the broker keeps what was in flight.
func TestSessionsAreKeptByDefault(t *testing.T) {
	for _, e := range engines {
		if !e.plain {
			continue
		}
		testkit.Run(t, e.name, func(t *testing.T) {
			hub, creds := e.openHub(t)
			c, err := device.New(creds, e.make(creds, e.inMemory(hub, false)), nil)
			require.NoError(t, err)
			defer c.Close()
			for present := range 2 {
				require.NoError(t, c.Open(t.Context()))
				s, ok := hub.Session("dev-1")
				require.True(t, ok && s.Connected && !s.CleanStart)
				require.Equal(t, present == 1, s.Present)
				require.True(t, s.Expiry < 0 || s.Expiry >= 24*time.Hour)
				require.NoError(t, c.Reconnect())
				time.Sleep(time.Second)
			}
		})
	}
}
