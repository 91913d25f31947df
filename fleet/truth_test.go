package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
)

// world is the network of real clients in fake time: it has the round trips and the faults of a
// scenario, and counts attempts as the simulator does.
type world struct {
	scenario fleet.Scenario
	hub      *testbroker.Hub
	began    time.Time      // of the scenario, when all are connected
	attempts []atomic.Int64 // by second
}

func (w *world) fault() (f fleet.Fault, down bool) {
	now := time.Since(w.began)
	for _, f := range w.scenario.Faults {
		if now >= f.At && now < f.At+f.For {
			return f, true
		}
	}
	return fleet.Fault{}, false
}

// dial connects to the hub, in memory, after the round trips of TCP and TLS.
func (w *world) dial(ctx context.Context) (lean.Conn, error) {
	if at := time.Since(w.began); at >= 0 && at < w.scenario.Duration {
		w.attempts[at/time.Second].Add(1)
	}
	h := &w.scenario.Hub
	pause := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if f, down := w.fault(); down {
		if f.Effect == fleet.Silent {
			return nil, errors.Join(pause(time.Hour), context.DeadlineExceeded)
		}
		if err := pause(h.RTT); err != nil {
			return nil, err
		}
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	if err := pause(time.Duration(h.Trips) * h.RTT); err != nil {
		return nil, err
	}
	return w.hub.Dial(testbroker.PortMQTT)(ctx, "tcp", "hub:1883")
}

// live runs real clients through a scenario and returns the attempts by second, and the devices
// that are connected at the end.
func live(t *testing.T, s fleet.Scenario, rules fleet.Rules) (attempts []int64, connected int) {
	bounded.Test(t, func(t *testing.T) {
		hub, err := testbroker.New(&testbroker.Options{Keep: 1})
		require.NoError(t, err)
		w := &world{scenario: s, hub: hub, began: time.Now().Add(time.Minute),
			attempts: make([]atomic.Int64, s.Duration/time.Second)}
		clients := make([]*device.Client, s.Devices)
		for i := range clients {
			clients[i] = w.client(t, i, rules)
		}
		for _, f := range s.Faults {
			time.Sleep(f.At - time.Since(w.began))
			hub.Drop("")
		}
		time.Sleep(s.Duration - time.Since(w.began))
		for _, c := range clients {
			if c.Status().State == device.Connected {
				connected++
			}
		}
		for i := range w.attempts {
			attempts = append(attempts, w.attempts[i].Load())
		}
		for _, c := range clients {
			require.NoError(t, c.Close())
		}
		require.NoError(t, hub.Close())
	})
	return attempts, connected
}

func (w *world) client(t *testing.T, i int, rules fleet.Rules) *device.Client {
	dev, err := w.hub.AddDevice(fmt.Sprintf("dev-%d", i))
	require.NoError(t, err)
	sign, err := transport.SharedKey(dev.PrimaryKey)
	require.NoError(t, err)
	o := &device.Options{ReconnectSpread: rules.ReconnectSpread}
	if rules.Policy != nil {
		o.RetryPolicy, err = rules.Policy()
		require.NoError(t, err)
	}
	creds := &transport.Credentials{Host: w.hub.HostName(), DeviceID: dev.ID, Sign: sign, TokenLife: 24 * time.Hour}
	c, err := device.New(creds, lean.New(w.dial, nil), o)
	require.NoError(t, err)
	require.NoError(t, c.Start())
	return c
}

// Real clients on a real hub make the attempts that the simulator predicts. Both draw at random, so
// the attempts of a second may differ by chance: by five standard deviations of their difference,
// which is at most that of two Poisson counts, and by a thousandth of the fleet, because a count
// may fall on either side of a second. HUBLINE_FLEET=10000 takes half a minute.
func TestRealClientsDoWhatTheSimulatorPredicts(t *testing.T) {
	devices := 1_000
	if text := os.Getenv("HUBLINE_FLEET"); text != "" {
		var err error
		devices, err = strconv.Atoi(text)
		require.NoError(t, err, "HUBLINE_FLEET")
	}
	s := fleet.Scenario{
		Devices: devices, Duration: 2 * time.Minute, Hub: fleet.Hub{Connects: 1e8, Messages: 1e8, Handshakes: 1e8,
			RTT: 50 * time.Millisecond, Trips: 4},
		Faults: []fleet.Fault{{At: 5 * time.Second, For: 20 * time.Second, Effect: fleet.Refused}},
	}
	recommended := fleet.Recommended(devices)
	for _, rules := range []fleet.Rules{
		{Name: "default"}, recommended, {Name: "fixed", Policy: fixed(3 * time.Second)},
		{Name: "full jitter", Policy: func() (retrypolicy.Policy, error) {
			return retrypolicy.Backoff{Base: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: retrypolicy.FullJitter}, nil
		}},
	} {
		t.Run(rules.Name, func(t *testing.T) {
			predicted := run(t, s, rules, nil)
			attempts, connected := live(t, s, rules)
			require.Equal(t, predicted.Devices.Connected, connected)
			var sum, want int64
			for i, n := range attempts {
				p := predicted.Series.Attempts[i]
				sum, want = sum+n, want+p
				bound := 5*math.Sqrt(float64(n+p)) + float64(devices/1000)
				require.InDelta(t, p, n, bound, "attempts in second %d: predicted %d, seen %d", i, p, n)
			}
			require.InEpsilon(t, want, sum, .01)
			t.Logf("%d attempts predicted, %d seen", want, sum)
		})
	}
}
