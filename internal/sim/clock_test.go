package sim_test

import (
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
)

// A device starts with an unset clock: at zero, at the default of a clock chip, or at the build
// time of its image. It connects once its clock is set, over every protocol, however long that
// takes.
func TestADeviceWaitsForItsClock(t *testing.T) { withEachEngine(t, aDeviceWaitsForItsClock) }

func aDeviceWaitsForItsClock(t *testing.T, with engine) {
	for name, boot := range map[string]time.Time{
		"1970": time.Unix(1000, 0), "2000": time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC),
		"the image's build time": time.Date(2029, 3, 1, 12, 0, 0, 0, time.UTC),
	} {
		for way, secure := range map[string]bool{"TLS": true, "plain": false} {
			t.Run(name+"/"+way, func(t *testing.T) {
				if with.next && !secure {
					t.Skip("without tokens and certificates nothing depends on the clock")
				}
				testkit.In2030(t, func(t *testing.T) {
					hub, creds := with.openHub(t)
					start := time.Now()
					var set atomic.Bool
					creds.Earliest = time.Date(2029, 3, 2, 12, 0, 0, 0, time.UTC)
					creds.Now = func() time.Time {
						if set.Load() {
							return time.Now()
						}
						return boot.Add(time.Since(start))
					}
					w := with.inMemory(hub, secure)
					if secure {
						w.TLS.Time = creds.Now // the default; the hub's helper sets the right time already
					}
					c, err := device.New(creds, with.make(creds, w), nil)
					require.NoError(t, err)
					defer c.Close()
					require.NoError(t, c.Start())
					time.Sleep(10 * time.Minute)
					require.Equal(t, device.StateDisconnectedRetrying, c.Status().State, "%v", c.Status().Err)
					require.ErrorIs(t, c.Status().Err, transport.ClockUnset)
					set.Store(true)
					began := time.Now()
					require.NoError(t, c.Open(t.Context()))
					require.LessOrEqual(t, time.Since(began), 31*time.Second)
				})
			})
		}
	}
}

// The longest durations mean no limit: nothing ends at once, and nothing is repeated in a tight
// loop.
func TestTheLongestDurationsAreNoLimit(t *testing.T) {
	withEachEngine(t, theLongestDurationsAreNoLimit)
}

func theLongestDurationsAreNoLimit(t *testing.T, with engine) {
	testkit.In2030(t, func(t *testing.T) {
		hub, creds := with.openHub(t)
		w := with.inMemory(hub, false)
		w.PingTimeout, w.Poll = math.MaxInt64, math.MaxInt64
		statuses := 0
		o := &device.Options{OnStatus: func(device.Status) {
			if statuses++; statuses == 1000 {
				panic("the client spins: 1000 statuses")
			}
		}, RetryPolicy: retrypolicy.NoRetry{}, Rand: func() uint64 { return 1<<63 - 1 }}
		require.NotEmpty(t, testkit.FillDurations(o))
		c, err := device.New(creds, with.make(creds, w), o)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Open(t.Context()))
		for range 10 {
			require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("x")}))
			time.Sleep(time.Minute)
		}
		require.Equal(t, uint64(1), c.Stats().Connections)

		hub.Inject(fault.Fault{Kind: fault.Absent, For: time.Hour})
		_ = c.Reconnect()
		time.Sleep(24 * time.Hour)
		require.NoError(t, c.Close())
		synctest.Wait()
		require.LessOrEqual(t, statuses, 8, "it rests for 100 years")
	})
}
