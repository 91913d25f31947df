package fleet_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/internal/testkit"
)

// requireNear checks that what was seen in each second is what was predicted for that second, or
// for one beside it, within a bound.
func requireNear(t *testing.T, what string, predicted, seen []int64, bound int64) {
	t.Helper()
	require.Len(t, seen, len(predicted))
	if i := apart(predicted, seen, bound); i >= 0 {
		near := predicted[max(0, i-1):min(len(predicted), i+2)]
		t.Fatalf("%s until second %d: predicted %v, seen %d, bound %d", what, i, near, seen[i], bound)
	}
}

// apart returns the first second whose value is out of the bounds of requireNear, or -1.
func apart(predicted, seen []int64, bound int64) int {
	for i, n := range seen {
		near := predicted[max(0, i-1):min(len(predicted), i+2)]
		if n < slices.Min(near)-bound || n > slices.Max(near)+bound {
			return i
		}
	}
	return -1
}

// sums returns the running sum.
func sums(list []int64) (all []int64) {
	var sum int64
	for _, n := range list {
		sum += n
		all = append(all, sum)
	}
	return all
}

// Real clients come back to a hub with limits as the simulator predicts, whether the limit of
// connects or that of messages holds them up. The bounds are percentages of all attempts, of the
// devices and of the most messages in queues. Both sides draw at random when devices attempt and
// when they generate messages, which moves the values by one or two percent.
//
// One case has wider bounds. Without a spread that is longer than the queue, many devices send
// their backlog in the same second, and the two hubs do not take the same part of it: this one
// admits the first messages of a batch before it closes the connection, and gets them again, while
// the simulator admits a batch or refuses it. For some seconds a tenth of the devices is connected
// here and not there. Nothing is published about how the service does it.
func TestAHubWithLimitsDoesWhatTheSimulatorPredicts(t *testing.T) {
	base := fleet.Scenario{
		Duration: 100 * time.Second,
		Hub: fleet.Hub{Connects: 1e6, Messages: 1e6, Handshakes: 1e8, Burst: 5 * time.Second, Queue: 5 * time.Second,
			RTT: 50 * time.Millisecond, Trips: 4},
		Faults: []fleet.Fault{{At: 5 * time.Second, For: 30 * time.Second, Effect: fleet.EffectRefused}},
	}
	connects, messages := base, base
	connects.Name, connects.Devices, connects.Hub.Connects = "connects", 1000, 20
	messages.Name, messages.Devices, messages.Hub.Messages = "messages", 500, 100
	messages.Telemetry = fleet.Telemetry{Every: 10 * time.Second}
	for _, c := range []struct {
		scenario                    fleet.Scenario
		rules                       fleet.Rules
		attempts, connected, queued int64 // percent
	}{
		{connects, fleet.Rules{Name: "default"}, 2, 4, 0},
		{connects, fleet.Recommended(connects.Devices), 2, 4, 0},
		{messages, fleet.Rules{Name: "default"}, 3, 15, 10},
		{messages, fleet.Recommended(messages.Devices), 3, 4, 4},
	} {
		s, rules := c.scenario, c.rules
		if !testkit.Long() && rules.Name == "default" {
			continue // two of the four take as long as all other tests
		}
		t.Run(s.Name+" "+rules.Name, func(t *testing.T) {
			predicted, seen := run(t, s, rules, nil), live(t, s, rules)
			open := s
			open.Hub.Connects, open.Hub.Messages = 1e6, 1e6
			require.NotEqual(t, run(t, open, rules, nil).Series, predicted.Series, "the limit matters")
			attempts := sums(predicted.Series.Attempts)
			all := attempts[len(attempts)-1]
			requireNear(t, "attempts", attempts, sums(seen.attempts), all*c.attempts/100)
			requireNear(t, "connected", predicted.Series.Connected, seen.connected, int64(s.Devices)*c.connected/100)
			requireNear(t, "queued", predicted.Series.Queued, seen.queued, predicted.Messages.MostQueued*c.queued/100)
			t.Logf("%d attempts predicted, %d seen", all, sums(seen.attempts)[len(attempts)-1])
		})
	}
}
