package fleet_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/internal/testkit"
)

// The same seed gives the same result on any number of workers, whatever the rules share.
func TestTheNumberOfWorkersDoesNotMatter(t *testing.T) {
	const devices = 40_000 // three blocks
	type pair struct {
		scenario fleet.Scenario
		rules    fleet.Rules
	}
	pairs := []pair{
		{fleet.HubRestart(devices), fleet.Recommended(devices)},
		{fleet.Gateways(devices), limited()},
	}
	if testkit.Long() {
		pairs = append(pairs, pair{fleet.Gateways(devices), contender(t, "adaptive")},
			pair{fleet.FlappingCells(devices), fleet.Recommended(devices)},
			pair{fleet.FirstStart(devices), contender(t, "adaptive")})
	}
	for _, c := range pairs {
		c.scenario.Duration = 5 * time.Second
		workers := []int{7}
		if testkit.Long() {
			c.scenario.Duration = 3 * time.Minute
			workers = []int{2, 7}
		}
		for i := range c.scenario.Faults {
			f := &c.scenario.Faults[i]
			if f.At = time.Second; f.Cell > 0 { // each cell has its turn within the time
				f.For, f.Every, f.Notice = 2*time.Second, 4*time.Second, time.Second
			}
		}
		t.Run(c.scenario.Name+" "+c.rules.Name, func(t *testing.T) {
			one := run(t, c.scenario, c.rules, &fleet.Options{Seed: 7, Workers: 1})
			require.Greater(t, one.Attempts.Begun, int64(devices/100), "something happens")
			for _, n := range workers {
				require.Equal(t, one, run(t, c.scenario, c.rules, &fleet.Options{Seed: 7, Workers: n}), "%d workers", n)
			}
			require.NotEqual(t, one, run(t, c.scenario, c.rules, &fleet.Options{Seed: 8, Workers: 2}))
		})
	}
}

// limited are the rules of gateways that dial one after the other.
func limited() fleet.Rules {
	r := fleet.Recommended(1)
	r.Name, r.Dials, r.DialGap = "limited", 4, 20*time.Millisecond
	return r
}

func contender(t *testing.T, name string) fleet.Rules {
	t.Helper()
	for _, r := range fleet.Contenders() {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no contender %q", name)
	return fleet.Rules{}
}

// A limiter of dials bounds the concurrent attempts of a gateway, and how close they follow.
func TestAGatewayDialsInTurn(t *testing.T) {
	s := fleet.Scenario{
		Devices: 1000, Gateway: 1000, Duration: 5 * time.Minute, PowerOn: -1, Hub: wideOpen(),
	}
	r := run(t, s, fleet.Rules{Dials: 1000, DialGap: 100 * time.Millisecond}, nil)
	require.InDelta(t, 100, r.Back100.Seconds(), 2, "1,000 attempts, 100 ms apart")
	r = run(t, s, fleet.Rules{Dials: 4}, nil)
	require.InDelta(t, 50, r.Back100.Seconds(), 2, "250 rounds of four attempts of 200 ms")
}

// Every declared scenario and every contender runs, and nothing is lost on the way.
func TestEveryScenarioWithEveryContender(t *testing.T) {
	for i, scenario := range fleet.Scenarios() {
		s := scenario(100)
		for j, rules := range append(fleet.Contenders(), fleet.Recommended(100)) {
			if !testkit.Long() && (i+j)%4 != 0 {
				continue
			}
			if !testkit.Long() && s.Duration > 3*time.Hour {
				s.Hub.RTT = time.Second // fewer steps
			}
			t.Run(s.Name+" "+rules.Name, func(t *testing.T) {
				r := run(t, s, rules, nil)
				require.Zero(t, r.Devices.GaveUp)
			})
		}
	}
}

func TestAContextEndsARun(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	calls := 0
	_, err := fleet.Run(ctx, fleet.HubRestart(1000), fleet.Rules{}, &fleet.Options{
		Progress: func(at, of time.Duration) {
			if calls++; calls == 3 {
				cancel()
			}
		},
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3, calls)
}

// Rules without delays do not run for ever.
func TestTheNumberOfEventsIsBounded(t *testing.T) {
	s := fleet.RefusedOutage(10)
	_, err := fleet.Run(context.Background(), s, fleet.Rules{}, &fleet.Options{MaxEvents: 50})
	require.ErrorContains(t, err, "MaxEvents")

	s.Devices = 1 // MaxEvents is exact
	whole, err := fleet.Run(context.Background(), s, fleet.Rules{}, nil)
	require.NoError(t, err)
	again, err := fleet.Run(context.Background(), s, fleet.Rules{}, &fleet.Options{MaxEvents: int(whole.Events)})
	require.NoError(t, err)
	require.Equal(t, whole, again)
	_, err = fleet.Run(context.Background(), s, fleet.Rules{}, &fleet.Options{MaxEvents: int(whole.Events) - 1})
	require.ErrorContains(t, err, "MaxEvents")
}
