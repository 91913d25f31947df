package fleet_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/transport"
)

func roll(t *testing.T, r fleet.Rollout, rules fleet.RolloutRules, seed uint64) *fleet.RolloutResult {
	t.Helper()
	result, err := fleet.RunRollout(context.Background(), r, rules, &fleet.Options{Seed: seed})
	require.NoError(t, err)
	return result
}

// rolled runs a declared rollout of 5,000 devices under all contenders. The servers are as small as
// the fleet.
func rolled(t *testing.T, n int) map[string]*fleet.RolloutResult {
	t.Helper()
	r := fleet.Rollouts(5000)[n]
	r.Link, r.Requests, r.Downloads = 50e6, 1, 50
	all := map[string]*fleet.RolloutResult{}
	for _, rules := range fleet.RolloutContenders(4 * time.Hour) {
		all[rules.Name] = roll(t, r, rules, 1)
	}
	return all
}

func TestABadImageStopsWithinTheFirstWave(t *testing.T) {
	bad := rolled(t, 1)
	for name, r := range bad {
		require.Greater(t, r.Failed, 0, name)
		require.NotEqual(t, fleet.Never, r.Stopped, name)
	}
	require.LessOrEqual(t, bad["waves"].Installed, 5000/100)
	require.Greater(t, bad["withdrawn"].Installed, 10*bad["waves"].Installed)
	require.Greater(t, bad["spread"].Installed, 3*bad["withdrawn"].Installed/2)
}

func TestAGoodImageReachesAllDevicesInWaves(t *testing.T) {
	good := rolled(t, 0)
	for name, r := range good {
		require.Equal(t, 5000, r.Installed, name)
		require.Equal(t, fleet.Never, r.Stopped, name)
		require.NotEqual(t, fleet.Never, r.Ended100, name)
		require.InEpsilon(t, 5000*50e6+r.Wasted, r.Sent, 1e-9, name)
	}
	require.Greater(t, good["at once"].PeakRequests, 10*good["spread"].PeakRequests)
	require.Greater(t, good["waves"].Ended95, good["spread"].Ended95)
	require.Zero(t, good["waves"].Wasted)
	require.Greater(t, good["no resume"].Wasted, 0.0)
}

// narrow returns a rollout in which nothing goes wrong: two devices, and 100 s for an image if one
// has the link alone.
func narrow() (fleet.Rollout, fleet.RolloutRules) {
	r := fleet.Rollouts(2)[0]
	r.Image, r.Link, r.Access, r.Install, r.Busy = 125e5, 1e6, 1e6, time.Minute, 5*time.Minute
	r.Loss, r.Failures, r.Away = 1000*time.Hour, 0, 0
	return r, fleet.RolloutContenders(4 * time.Hour)[0]
}

func TestDownloadsShareTheLink(t *testing.T) {
	rollout, rules := narrow()
	r := roll(t, rollout, rules, 1)
	require.InDelta(t, 200+60, r.Ended100.Seconds(), 4)
	require.InDelta(t, 200.0/260, r.Used, 0.02)
	rollout.Access, rollout.Devices = 25e4, 1
	require.InDelta(t, 400+60, roll(t, rollout, rules, 1).Ended100.Seconds(), 4, "a device takes no more than its own")
}

func TestARefusedDownloadWaitsForRetryAfter(t *testing.T) {
	rollout, rules := narrow()
	rollout.Downloads = 1
	r := roll(t, rollout, rules, 1)
	require.InDelta(t, 300+100+60, r.Ended100.Seconds(), 4)
	require.Equal(t, 2, r.PeakFetches)
	rules.Policy = retrypolicy.NoRetry{}
	require.InDelta(t, 4*3600+100+60, roll(t, rollout, rules, 1).Ended100.Seconds(), 4, "the policy stops")
}

func TestARolloutDependsOnItsSeedOnly(t *testing.T) {
	r := fleet.Rollouts(2000)[1]
	rules := fleet.RolloutContenders(time.Hour)[3]
	one := roll(t, r, rules, 1)
	require.Equal(t, one, roll(t, r, rules, 1))
	require.NotEqual(t, one.Sent, roll(t, r, rules, 2).Sent)
}

func TestARolloutNamesItsWrongField(t *testing.T) {
	for name, spoil := range map[string]func(*fleet.Rollout, *fleet.RolloutRules){
		"Rollout.Devices is 0":     func(r *fleet.Rollout, _ *fleet.RolloutRules) { r.Devices = 0 },
		"Rollout's time in s is 0": func(r *fleet.Rollout, _ *fleet.RolloutRules) { r.Busy = 0 },
		"Rollout.Away":             func(r *fleet.Rollout, _ *fleet.RolloutRules) { r.Away = 2 },
		"RolloutRules.Interval":    func(_ *fleet.Rollout, r *fleet.RolloutRules) { r.Interval = 1 },
		"Wave.Share":               func(_ *fleet.Rollout, r *fleet.RolloutRules) { r.Waves = []fleet.Wave{{Share: 0.5}} },
		"policy":                   func(_ *fleet.Rollout, r *fleet.RolloutRules) { r.Policy = nil },
		"memory": func(_ *fleet.Rollout, r *fleet.RolloutRules) {
			breaker, err := budget.NewBreaker(nil)
			require.NoError(t, err)
			r.Policy = breaker.Wrap(retrypolicy.NoRetry{})
		},
	} {
		rollout, rules := narrow()
		spoil(&rollout, &rules)
		_, err := fleet.RunRollout(context.Background(), rollout, rules, nil)
		require.ErrorIs(t, err, transport.Invalid, name)
		require.ErrorContains(t, err, name)
	}
}
