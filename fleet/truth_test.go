package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
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
func (w *world) dial(ctx context.Context, creds *transport.Credentials) (engine.Conn, error) {
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
		if f.Effect == fleet.EffectSilent {
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
	c, err := w.hub.Dial(testbroker.PortMQTT)(ctx, "tcp", "hub:1883")
	if err != nil {
		return nil, err
	}
	return lossy{c, w}, nil
}

// lossy loses what the device sends during a silent fault, so nothing is answered.
type lossy struct {
	net.Conn
	w *world
}

func (c lossy) Write(b []byte) (int, error) {
	if f, down := c.w.fault(); down && f.Effect == fleet.EffectSilent {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// seen is what real clients did: attempts in each second, and states at its end.
type seen struct{ attempts, connected, queued []int64 }

// live runs real clients through a scenario, against a hub with its limits.
func live(t *testing.T, s fleet.Scenario, rules fleet.Rules) (all seen) {
	testkit.Bubble(t, func(t *testing.T) {
		h := &s.Hub
		hub, err := testbroker.New(&testbroker.Options{Keep: 1, Limits: testbroker.LimitOptions{
			Connects: h.Connects, Messages: h.Messages, Burst: h.Burst, Queue: h.Queue,
		}})
		require.NoError(t, err)
		w := &world{scenario: s, hub: hub, began: time.Now().Add(10 * time.Minute),
			attempts: make([]atomic.Int64, s.Duration/time.Second)}
		clients := make([]*device.Client, s.Devices)
		for i := range clients {
			clients[i] = w.client(t, i, rules)
		}
		var sending sync.WaitGroup
		for i, c := range clients {
			if s.Telemetry.Every > 0 {
				sending.Go(func() { w.send(t, c, rand.New(rand.NewPCG(1, uint64(i)))) })
			}
		}
		for second := range s.Duration / time.Second {
			w.sleepTo(second * time.Second)
			if f, down := w.fault(); down && f.Effect != fleet.EffectSilent {
				hub.Drop("")
			}
			w.sleepTo((second+1)*time.Second - time.Microsecond)
			var connected, queued int64
			for _, c := range clients {
				if c.Status().State == device.StateConnected {
					connected++
				}
				queued += int64(c.Stats().Queued)
			}
			all.connected, all.queued = append(all.connected, connected), append(all.queued, queued)
		}
		for i := range w.attempts {
			all.attempts = append(all.attempts, w.attempts[i].Load())
		}
		for _, c := range clients {
			require.NoError(t, c.Close())
		}
		sending.Wait()
		require.NoError(t, hub.Close())
	})
	return all
}

func (w *world) sleepTo(at time.Duration) { time.Sleep(at - time.Since(w.began)) }

// send enqueues the telemetry of a device until the scenario ends.
func (w *world) send(t *testing.T, c *device.Client, draws *rand.Rand) {
	every := w.scenario.Telemetry.Every
	for at := time.Duration(draws.Int64N(int64(every))); at < w.scenario.Duration; at += every {
		w.sleepTo(at)
		if err := c.Enqueue(t.Context(), &transport.Message{Body: []byte("21.5")}, nil); err != nil {
			t.Error(err)
		}
	}
}

func (w *world) client(t *testing.T, i int, rules fleet.Rules) *device.Client {
	t.Helper()
	dev, err := w.hub.AddDevice(fmt.Sprintf("dev-%d", i))
	require.NoError(t, err)
	sign, err := transport.SharedKey(dev.PrimaryKey)
	require.NoError(t, err)
	o := &device.Options{ReconnectSpread: rules.ReconnectSpread, DialTimeout: rules.DialTimeout,
		AckTimeout: rules.AckTimeout}
	if rules.Policy != nil {
		o.RetryPolicy, err = rules.Policy()
		require.NoError(t, err)
	}
	creds := &transport.Credentials{Host: w.hub.HostName(), DeviceID: dev.ID, Sign: sign, TokenLife: 24 * time.Hour}
	c, err := device.New(creds, engine.New(w.dial, nil), o)
	require.NoError(t, err)
	require.NoError(t, c.Start())
	return c
}

// Real clients on a real hub make the attempts that the simulator predicts. Both draw at random, so
// the attempts of a second may differ by chance: by five standard deviations of their difference,
// which is at most that of two Poisson counts, and by a thousandth of the fleet, because a count
// may fall on either side of a second. HUBLINE_FLEET=10000 takes half a minute.
func TestRealClientsDoWhatTheSimulatorPredicts(t *testing.T) {
	devices := 250
	if text := os.Getenv("HUBLINE_FLEET"); text != "" {
		var err error
		devices, err = strconv.Atoi(text)
		require.NoError(t, err, "HUBLINE_FLEET")
	}
	s := fleet.Scenario{
		Devices: devices, Duration: 2 * time.Minute, Hub: fleet.Hub{Connects: 1e8, Messages: 1e8, Handshakes: 1e8,
			RTT: 50 * time.Millisecond, Trips: 4},
		Faults: []fleet.Fault{{At: 5 * time.Second, For: 20 * time.Second, Effect: fleet.EffectRefused}},
	}
	recommended := fleet.Recommended(devices)
	for _, rules := range []fleet.Rules{
		{Name: "default"}, recommended, {Name: "fixed", Policy: fixed(3 * time.Second)},
		{Name: "full jitter", Policy: func() (retrypolicy.Policy, error) {
			return retrypolicy.Backoff{Base: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: retrypolicy.JitterFull}, nil
		}},
	} {
		t.Run(rules.Name, func(t *testing.T) {
			predicted := run(t, s, rules, nil)
			real := live(t, s, rules)
			require.EqualValues(t, predicted.Devices.Connected, real.connected[len(real.connected)-1])
			var sum, want int64
			for i, n := range real.attempts {
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
