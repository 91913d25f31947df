package fleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
)

// Real clients whose packets are lost notice it by a message without an answer, and their attempts
// end after DialTimeout, as the simulator predicts. A client notices AckTimeout after its next
// message, so 1 s to 11 s after the loss; the simulator takes a random time of up to Notice. That,
// and chance, are the bounds: 5 % of all attempts and a tenth of the devices, or a second. The
// predictions for an outage that refuses attempts, and for other values of Notice and DialTimeout,
// are out of these bounds.
func TestASilentOutageIsAsTheSimulatorPredicts(t *testing.T) {
	s := fleet.Scenario{
		Devices: 500, Duration: 2 * time.Minute, Telemetry: fleet.Telemetry{Every: 10 * time.Second},
		Hub: fleet.Hub{Connects: 1e6, Messages: 1e6, Handshakes: 1e8, RTT: 50 * time.Millisecond, Trips: 4},
		Faults: []fleet.Fault{{At: 15 * time.Second, For: time.Minute, Effect: fleet.EffectSilent,
			Notice: 11 * time.Second}},
	}
	rules := fleet.Rules{Name: "default", DialTimeout: 5 * time.Second, AckTimeout: time.Second}
	predicted, seen := run(t, s, rules, nil), live(t, s, rules)
	attempts, real := sums(predicted.Series.Attempts), sums(seen.attempts)
	all := attempts[len(attempts)-1]
	t.Logf("%d attempts predicted, %d seen", all, real[len(real)-1])
	bound, devices := all/20, int64(s.Devices/10)
	requireNear(t, "attempts", attempts, real, bound)
	requireNear(t, "connected", predicted.Series.Connected, seen.connected, devices)

	refused, late := s, s
	refused.Faults, late.Faults = []fleet.Fault{s.Faults[0]}, []fleet.Fault{s.Faults[0]}
	refused.Faults[0].Effect, late.Faults[0].Notice = fleet.EffectRefused, 22*time.Second
	longer := rules
	longer.DialTimeout *= 2
	for _, other := range []*fleet.Result{run(t, refused, rules, nil), run(t, late, rules, nil), run(t, s, longer, nil)} {
		require.GreaterOrEqual(t, apart(sums(other.Series.Attempts), real, bound), 0)
	}
}
