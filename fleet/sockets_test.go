package fleet_test

import (
	"context"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// liveOverTCP runs real clients over loopback, in real time, through the single fault of the
// scenario.
func liveOverTCP(t *testing.T, s fleet.Scenario, rules fleet.Rules) (all seen) {
	hub, err := testbroker.New(&testbroker.Options{Keep: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, hub.Close()) }()
	address, err := hub.Listen(testbroker.PortMQTT, "127.0.0.1:0")
	require.NoError(t, err)
	var attempts atomic.Int64
	dial := func(ctx context.Context, _ *transport.Credentials) (engine.Conn, error) {
		attempts.Add(1)
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address.String())
	}
	w := &world{scenario: s, hub: hub}
	clients := make([]*device.Client, s.Devices)
	for i := range clients {
		clients[i] = w.client(t, i, rules, dial)
		defer func() { require.NoError(t, clients[i].Close()) }()
	}
	for _, c := range clients {
		require.NoError(t, c.Open(t.Context())) // waits
	}
	before := attempts.Load()

	f, absent := &s.Faults[0], (*testbroker.Injected)(nil)
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for n := range s.Duration / time.Second {
		switch at := n * time.Second; at {
		case f.At:
			absent = hub.Inject(fault.Fault{Kind: fault.Absent})
		case f.At + f.For:
			absent.Remove()
		}
		<-second.C
		var connected int64
		for _, c := range clients {
			if c.Status().State == device.StateConnected {
				connected++
			}
		}
		all.connected = append(all.connected, connected)
		all.attempts = append(all.attempts, attempts.Load()-before)
	}
	return all
}

// Real clients over TCP come back as the simulator predicts. HUBLINE_FLEET_TCP is their number;
// 2,000 take half a minute. Time is real: a busy machine delays dials, and each delay shifts all
// later attempts of its device. So the bounds are wide, and include the second beside: a fifth of
// all attempts, and a fifth of the devices. Predictions for other rules are out of them. Rules
// without a spread are not compared, because they make more attempts a second than a small machine
// carries.
func TestClientsOverTCPDoWhatTheSimulatorPredicts(t *testing.T) {
	text := os.Getenv("HUBLINE_FLEET_TCP")
	if text == "" {
		t.Skip("HUBLINE_FLEET_TCP is not set: the test takes half a minute of real time")
	}
	devices, err := strconv.Atoi(text)
	require.NoError(t, err, "HUBLINE_FLEET_TCP")
	s := fleet.Scenario{
		Devices: devices, Duration: 30 * time.Second,
		Hub:    fleet.Hub{Connects: 1e8, Messages: 1e8, Handshakes: 1e8, RTT: 10 * time.Millisecond, Trips: 1},
		Faults: []fleet.Fault{{At: 2 * time.Second, For: 10 * time.Second, Effect: fleet.EffectRefused}},
	}
	rules := fleet.Recommended(devices)
	predicted, seen := run(t, s, rules, nil), liveOverTCP(t, s, rules)
	attempts := sums(predicted.Series.Attempts)
	requireNear(t, "attempts", attempts, seen.attempts, attempts[len(attempts)-1]/5)
	requireNear(t, "connected", predicted.Series.Connected, seen.connected, int64(devices)/5)
	require.EqualValues(t, devices, seen.connected[len(seen.connected)-1])
	t.Logf("%d attempts predicted, %d seen", attempts[len(attempts)-1], seen.attempts[len(seen.attempts)-1])
	for _, other := range []fleet.Rules{{ReconnectSpread: time.Minute}, inStep(10 * time.Second)} {
		far := run(t, s, other, nil)
		require.True(t, apart(sums(far.Series.Attempts), seen.attempts, attempts[len(attempts)-1]/5) >= 0 ||
			apart(far.Series.Connected, seen.connected, int64(devices)/5) >= 0, "other rules are out of the bounds")
	}
}
