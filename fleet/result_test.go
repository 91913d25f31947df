package fleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
)

// A peak is the number of attempts in a second, however wide the bins of the series are.
func TestAPeakIsThatOfASecond(t *testing.T) {
	for _, resolution := range []time.Duration{100 * time.Millisecond, time.Second, time.Minute} {
		s := fleet.Scenario{
			Devices: 3000, Duration: 10 * time.Minute, Hub: wideOpen(),
			Faults: []fleet.Fault{{At: time.Minute, For: 30 * time.Second, Effect: fleet.EffectRefused}},
		}
		r := run(t, s, inStep(20*time.Second), &fleet.Options{Resolution: resolution})
		require.EqualValues(t, 3000, r.Peak, resolution)
		require.EqualValues(t, 3000, r.PeakAfter, resolution)
	}
	week := fleet.Scenario{
		Devices: 3000, Duration: 7 * 24 * time.Hour, Hub: wideOpen(),
		Faults: []fleet.Fault{{At: 2 * time.Second, For: 30 * time.Second, Effect: fleet.EffectRefused}},
	}
	week.Hub.RTT = time.Second // fewer steps
	r := run(t, week, inStep(20*time.Second), nil)
	require.Equal(t, 7*time.Second, r.Resolution)
	require.EqualValues(t, 3000, r.Peak)
	require.Zero(t, r.Steady, "2 s without an attempt, less than a bin")
}

// A fleet whose fault outlasts the simulated time never comes back in it.
func TestAFaultWithoutAnEndIsNeverOver(t *testing.T) {
	s := fleet.Scenario{
		Devices: 100, Duration: 10 * time.Minute,
		Faults: []fleet.Fault{{At: 5 * time.Minute, For: 15 * time.Minute, Effect: fleet.EffectRefused}},
	}
	r := run(t, s, fleet.Rules{}, nil)
	require.Equal(t, 20*time.Minute, r.Recovery)
	require.Equal(t, fleet.Never, r.Back50)
	require.Equal(t, fleet.Never, r.Back100)
	require.Zero(t, r.PeakAfter)
	s.Faults[0].At = time.Hour
	require.Equal(t, fleet.Never, run(t, s, fleet.Rules{}, nil).Recovery, "it does not begin")
}

// Steady is a mean of what is before the faults, or nothing.
func TestSteadyNeedsATimeBeforeTheFault(t *testing.T) {
	tokens := fleet.SameTokens(1000)
	tokens.Faults = []fleet.Fault{{At: time.Hour, For: time.Second, Effect: fleet.EffectRefused}}
	require.InDelta(t, 1000./3600, run(t, tokens, fleet.Rules{}, nil).Steady, .01, "each token is renewed once")
	starts := fleet.HubRestart(100)
	starts.PowerOn = time.Minute
	for name, s := range map[string]fleet.Scenario{
		"no fault": fleet.SameTokens(100), "switched on": starts, "provisioning": fleet.FirstStart(100),
	} {
		require.EqualValues(t, fleet.NoSteady, run(t, s, fleet.Rules{}, nil).Steady, name)
	}
}
