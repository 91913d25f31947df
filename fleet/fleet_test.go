package fleet_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/transport"
)

func run(t *testing.T, s fleet.Scenario, r fleet.Rules, o *fleet.Options) *fleet.Result {
	t.Helper()
	result, err := fleet.Run(context.Background(), s, r, o)
	require.NoError(t, err)
	requireConserved(t, result)
	return result
}

// figures skips a test that compares figures of many runs. Other tests have smaller runs of the
// same code.
func figures(t *testing.T) {
	t.Helper()
	if !testkit.Long() {
		t.Skip("SKIPPED: HUBLINE_LONG=1 compares figures")
	}
}

// requireConserved checks that nothing appears or vanishes: each attempt, message and device has
// exactly one end.
func requireConserved(t *testing.T, r *fleet.Result) {
	t.Helper()
	a, m, d := r.Attempts, r.Messages, r.Devices
	require.Equal(t, a.Begun, a.Accepted+a.Rejected+a.Refused+a.TimedOut+a.Pending, "attempts")
	require.Equal(t, m.Generated, m.Acknowledged+m.Queued+m.Lost, "messages")
	require.Equal(t, d.All, d.Connected+d.Connecting+d.Waiting+d.GaveUp, "devices")
	last := len(r.Series.Connected) - 1
	require.EqualValues(t, d.Connected, r.Series.Connected[last], "connected at the end of the series")
	require.Equal(t, m.Queued, r.Series.Queued[last], "messages queued at the end of the series")
	for i, n := range r.Series.Connected { // without require: a day has 86,400 bins
		if queued := r.Series.Queued[i]; n < 0 || n > int64(d.All) || queued < 0 {
			t.Fatalf("bin %d: %d of %d devices connected, %d messages queued", i, n, d.All, queued)
		}
	}
}

func fixed(d time.Duration) func() (retrypolicy.Policy, error) {
	return func() (retrypolicy.Policy, error) { return retrypolicy.Fixed{Delay: d}, nil }
}

// inStep are rules without any random part.
func inStep(d time.Duration) fleet.Rules { return fleet.Rules{Policy: fixed(d), ReconnectSpread: -1} }

// wideOpen is a hub without limits that matter.
func wideOpen() fleet.Hub { return fleet.Hub{Connects: 1e8, Messages: 1e8, Handshakes: 1e8} }

// A fixed delay has a known curve: all devices attempt at once, every delay plus one round trip,
// until the hub is back.
func TestAFixedDelayKeepsTheHerd(t *testing.T) {
	const devices = 20_000
	s := fleet.Scenario{
		Devices: devices, Duration: 3 * time.Minute, Hub: wideOpen(),
		Faults: []fleet.Fault{{At: time.Minute, For: 65 * time.Second, Effect: fleet.EffectRefused}},
	}
	r := run(t, s, inStep(10*time.Second), nil)
	want := make([]int64, 180)
	// Attempt k begins at 60 s + 10 s * k, and later by the 50 ms of each refusal before it.
	for k := 1; k <= 7; k++ {
		want[60+10*k] = devices
	}
	require.Equal(t, want, r.Series.Attempts)
	require.EqualValues(t, 6*devices, r.Attempts.Refused)
	require.EqualValues(t, devices, r.Attempts.Accepted)
	require.EqualValues(t, 6*devices, r.Wasted)
	require.Equal(t, 6*time.Second, r.Back50, "the attempt at 130.3 s, for a recovery at 125 s, in bins of a second")
	require.Equal(t, r.Back50, r.Back100)
	require.EqualValues(t, devices, r.Peak)
	require.EqualValues(t, 6*devices*100+devices*6500, r.Bytes)
}

// A random part of a minute spreads the attempts evenly over that minute.
func TestASpreadIsEven(t *testing.T) {
	const devices = 60_000
	s := fleet.Scenario{
		Devices: devices, Duration: 3 * time.Minute, Hub: wideOpen(),
		Faults: []fleet.Fault{{At: time.Minute, For: time.Millisecond, Effect: fleet.EffectRefused}},
	}
	r := run(t, s, fleet.Rules{Policy: fixed(time.Second), ReconnectSpread: time.Minute}, nil)
	for second, n := range r.Series.Attempts {
		if second >= 61 && second < 121 {
			require.InDelta(t, 1000, n, 200, "second %d", second) // six standard deviations
		} else {
			require.Zero(t, n, "second %d", second)
		}
	}
	require.InDelta(t, 30, r.Back50.Seconds(), 2)
	require.Zero(t, r.Wasted)
}

// A dial without an answer takes DialTimeout.
func TestASilentOutageIsSlow(t *testing.T) {
	s := fleet.Scenario{
		Devices: 1000, Duration: 30 * time.Minute, Hub: wideOpen(),
		Faults: []fleet.Fault{{At: 0, For: 20 * time.Minute, Effect: fleet.EffectSilent, Notice: time.Nanosecond}},
	}
	r := run(t, s, inStep(10*time.Second), nil)
	require.EqualValues(t, 30*1000, r.Attempts.TimedOut, "one attempt every 40 s for 20 minutes")
	require.EqualValues(t, 1000, r.Devices.Connected)
}

// The hub's limit bounds how fast a fleet comes back, and a refused connect is rejected.
func TestALimitOfConnectsIsKept(t *testing.T) {
	s := fleet.Scenario{
		Devices: 10_000, Duration: 10 * time.Minute, PowerOn: -1,
		Hub: fleet.Hub{Connects: 100, Burst: time.Second, Queue: -1, Handshakes: 1e8},
	}
	r := run(t, s, inStep(time.Second), nil)
	require.EqualValues(t, 10_000, r.Devices.Connected)
	require.Positive(t, r.Attempts.Rejected)
	var sum int64
	for second, n := range r.Series.Accepted {
		sum += n
		require.LessOrEqual(t, sum, int64(100*(second+2)+2), "second %d", second)
	}
	// The herd comes every 1.2 s: the delay and four round trips. The burst of a second is full again
	// by then, and 100 devices get in each time.
	require.InDelta(t, 120, r.Back100.Seconds(), 3)
}

// A hub over MQTT ends connections that send too many messages. They come back, without any fault.
func TestTooManyMessagesEndTheConnection(t *testing.T) {
	s := fleet.Scenario{
		Devices: 100, Duration: 5 * time.Minute, Telemetry: fleet.Telemetry{Every: time.Second},
		Hub: fleet.Hub{Connects: 1e6, Messages: 10, Burst: time.Second, Queue: -1, Handshakes: 1e8},
	}
	r := run(t, s, fleet.Rules{}, nil)
	require.Greater(t, r.Attempts.Accepted, int64(100))
	s.Hub.Messages = 1e6
	require.Zero(t, run(t, s, fleet.Rules{}, nil).Attempts.Begun)
}

// Throttled has the minimum delays of the device client; a policy of its own replaces them.
func TestThrottlingIsPaced(t *testing.T) {
	s := fleet.Scenario{
		Devices: 1000, Duration: 5 * time.Minute, PowerOn: -1,
		Hub: fleet.Hub{Connects: 1, Burst: time.Second, Queue: -1, Handshakes: 1e8, ConnectKind: transport.Throttled},
	}
	paced := run(t, s, inStep(time.Second), nil)
	for second := 1; second < 10; second++ {
		require.Zero(t, paced.Series.Attempts[second], "second %d", second)
	}
	alone := run(t, s, fleet.Rules{Policy: fixed(time.Second), Paced: retrypolicy.Fixed{Delay: time.Second}}, nil)
	require.Greater(t, alone.Attempts.Begun, 10*paced.Attempts.Begun)
	s.Hub.RetryAfter = 2 * time.Minute
	asked := run(t, s, inStep(time.Second), nil)
	require.EqualValues(t, 1000, asked.Series.Attempts[0])
	for second := 1; second < 120; second++ {
		require.Zero(t, asked.Series.Attempts[second], "second %d", second)
	}
}

// A queue holds MaxMessages; the rest is lost and counted.
func TestQueuesOverflow(t *testing.T) {
	s := fleet.Scenario{
		Devices: 100, Duration: time.Hour, Hub: wideOpen(), Telemetry: fleet.Telemetry{Every: time.Second},
		Faults: []fleet.Fault{{At: 10 * time.Minute, For: 20 * time.Minute, Effect: fleet.EffectRefused}},
	}
	r := run(t, s, fleet.Rules{Policy: fixed(time.Second), MaxMessages: 1000}, nil)
	require.EqualValues(t, 100*3600, r.Messages.Generated)
	require.EqualValues(t, 100*1000, r.Messages.MostQueued)
	require.InDelta(t, 100*200, r.Messages.Lost, 200)
}

// Rules that stop end the device; TryAgainAfter starts over.
func TestRulesThatGiveUp(t *testing.T) {
	s := fleet.Scenario{
		Devices: 100, Duration: 30 * time.Minute, Hub: wideOpen(),
		Faults: []fleet.Fault{{At: 0, For: 20 * time.Minute, Effect: fleet.EffectRefused}},
	}
	limited := func() (retrypolicy.Policy, error) {
		return retrypolicy.MaxAttempts{Total: 3, Policy: retrypolicy.Fixed{Delay: time.Second}}, nil
	}
	r := run(t, s, fleet.Rules{Policy: limited}, nil)
	require.Equal(t, 100, r.Devices.GaveUp)
	require.EqualValues(t, 200, r.Attempts.Begun)
	require.Equal(t, fleet.Never, r.Back50)
	r = run(t, s, fleet.Rules{Policy: fixed(time.Second), OutageLimit: time.Minute}, nil)
	require.Equal(t, 100, r.Devices.GaveUp)
	gate := func() (retrypolicy.Policy, error) {
		b, err := budget.NewBreaker(&budget.BreakerOptions{Wait: true, Cooldown: time.Hour})
		return b.Wrap(retrypolicy.Fixed{Delay: time.Second}), err
	}
	for _, policy := range []func() (retrypolicy.Policy, error){gate, fixed(math.MaxInt64)} {
		r = run(t, s, fleet.Rules{Policy: policy, OutageLimit: time.Minute, ReconnectSpread: time.Second}, nil)
		require.Equal(t, 100, r.Devices.GaveUp)
	}
	r = run(t, s, fleet.Rules{Policy: limited, TryAgainAfter: time.Minute}, nil)
	require.Equal(t, 100, r.Devices.Connected)
}

// Tokens that were issued together are renewed within 5 % of their life. Without renewal the hub
// ends all connections at once.
func TestTokensThatWereIssuedTogether(t *testing.T) {
	s := fleet.Scenario{
		Devices: 18_000, Duration: 70 * time.Minute, Hub: wideOpen(),
		Tokens: fleet.Tokens{Life: time.Hour, Together: true},
	}
	r := run(t, s, fleet.Rules{}, nil)
	require.EqualValues(t, 18_000, r.Attempts.Begun)
	for second, n := range r.Series.Attempts {
		if second >= 48*60 && second < 51*60 {
			require.InDelta(t, 100, n, 60, "second %d", second)
		} else {
			require.Zero(t, n, "second %d", second)
		}
	}
	require.Equal(t, fleet.Never, r.Recovery, "there is no fault to come back from")
	require.Equal(t, fleet.Never, r.Back50)
	never := run(t, s, fleet.Rules{RenewAt: -1, ReconnectSpread: -1}, nil)
	require.EqualValues(t, 18_000, never.Peak)
}

// A device that must register does so before it connects, at the rate of the service.
func TestProvisioningComesFirst(t *testing.T) {
	s := fleet.FirstStart(5000)
	r := run(t, s, fleet.Recommended(5000), nil)
	require.Equal(t, 5000, r.Devices.Connected)
	require.EqualValues(t, 2*5000, r.Attempts.Accepted, "one registration and one connection for each")
	require.Positive(t, r.Attempts.Rejected)
	var registrations int64
	for _, n := range r.Series.Registrations {
		registrations += n
	}
	require.Equal(t, 5000+r.Attempts.Rejected, registrations, "the hub rejects none")
	require.Zero(t, r.Recovery)
	require.Greater(t, r.Back100, 4*time.Minute, "1,000 a minute, and 1,000 at once")
}
