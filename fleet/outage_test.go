package fleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/retrypolicy"
)

// A silent fault that ends before a device would notice it does not cost the connection.
func TestAShortSilentFaultIsNotNoticed(t *testing.T) {
	s := fleet.Scenario{
		Devices: 10_000, Duration: 10 * time.Minute, Hub: wideOpen(),
		Faults: []fleet.Fault{{At: time.Minute, For: 10 * time.Second, Effect: fleet.EffectSilent,
			Notice: 100 * time.Second}},
	}
	r := run(t, s, fleet.Rules{}, nil)
	require.InDelta(t, 1000, r.Attempts.Accepted, 150, "a tenth of the devices notices it")
	s.Faults[0].Effect = fleet.EffectRefused
	require.EqualValues(t, 10_000, run(t, s, fleet.Rules{}, nil).Attempts.Accepted)
}

// A fault that meets attempts ends them as its effect says: the answers of a hub that delays them
// by up to 20 s are lost, and the devices wait for them until DialTimeout.
func TestAFaultMeetsAttempts(t *testing.T) {
	const devices = 300
	for _, effect := range []fleet.Effect{fleet.EffectRefused, fleet.EffectSilent, fleet.EffectUnavailable} {
		r := run(t, fleet.Scenario{
			Devices: devices, Duration: 59 * time.Second, PowerOn: -1,
			Hub:    fleet.Hub{Connects: 10, Burst: time.Second, Queue: 20 * time.Second, Handshakes: 1e8},
			Faults: []fleet.Fault{{At: 5 * time.Second, For: time.Minute, Effect: effect}},
		}, inStep(time.Minute), nil)
		require.InDelta(t, 60, r.Attempts.Accepted, 5, "10 at once, and 10 a second")
		require.InDelta(t, devices-10-20*10, sums(r.Series.Rejected)[4], 5, "at once: there is no fault yet")
		ends := map[fleet.Effect][]int64{
			fleet.EffectRefused: r.Series.Refused, fleet.EffectSilent: r.Series.TimedOut,
			fleet.EffectUnavailable: r.Series.Rejected,
		}[effect]
		require.Zero(t, sums(r.Series.Accepted)[58]-sums(r.Series.Accepted)[5], effect)
		waited := sums(ends)
		require.InDelta(t, 150, waited[58]-waited[5], 15, effect)
		if effect == fleet.EffectSilent {
			require.InDelta(t, 150, r.Series.TimedOut[30], 15, "all of them, 30 s after their beginning")
		}
	}
}

// Until a silent fault ends, its messages wait, and so does the end of an old token.
func TestNothingPassesInASilentFaultThatNobodyNotices(t *testing.T) {
	s := fleet.Scenario{
		Devices: 1000, Duration: 5 * time.Minute, Hub: wideOpen(), Telemetry: fleet.Telemetry{Every: time.Second},
		Tokens: fleet.Tokens{Life: 75 * time.Second, Together: true},
		Faults: []fleet.Fault{{At: time.Minute, For: 20 * time.Second, Effect: fleet.EffectSilent,
			Notice: 7 * 24 * time.Hour}},
	}
	r := run(t, s, fleet.Rules{RenewAt: -1, ReconnectSpread: -1}, nil)
	require.InDelta(t, 20*1000, r.Series.Queued[79], 100, "at the end of the fault")
	require.Less(t, r.Series.Queued[82], int64(1000))
	require.Zero(t, sums(r.Series.Attempts)[79])
	require.EqualValues(t, 1000, r.Series.Attempts[80], "the hub's end of the tokens arrives")

	renewed := run(t, s, fleet.Rules{}, nil)
	require.EqualValues(t, 1000, sums(renewed.Series.TimedOut)[99], "a renewal is an attempt, which the fault meets")
}

// Connections that do not last do not reset the delays of the device client. The rules of a client
// that begins anew with each connection make more attempts.
func TestAFlappingFleetBacksOff(t *testing.T) {
	s := fleet.Scenario{
		Devices: 100, Duration: 20 * time.Minute, Hub: wideOpen(),
		Faults: []fleet.Fault{{
			At: time.Minute, For: 400 * time.Millisecond, Every: 2 * time.Second, Effect: fleet.EffectRefused,
		}},
	}
	ours := run(t, s, fleet.Rules{}, nil)
	anew := run(t, s, fleet.Rules{StableTime: 1}, nil)
	require.Greater(t, anew.Attempts.Begun, 3*ours.Attempts.Begun)
}

// A hub that accepts connections and drops each of them within 200 ms is spared, also by devices
// that get a message through now and then.
func TestAHubThatAcceptsAndDropsIsSpared(t *testing.T) {
	for _, every := range []time.Duration{0, 10 * time.Second} {
		s := fleet.Scenario{
			Devices: 10_000, Duration: 20 * time.Minute, Hub: wideOpen(), Telemetry: fleet.Telemetry{Every: every},
		}
		for i := range 5 {
			s.Faults = append(s.Faults, fleet.Fault{
				At: time.Minute + time.Duration(i)*time.Second/5, For: time.Millisecond, Every: time.Second,
				Effect: fleet.EffectRefused,
			})
		}
		r := run(t, s, fleet.Rules{}, nil)
		t.Logf("%d attempts a minute and device", r.Attempts.Begun/10_000/19)
		require.Less(t, r.Attempts.Begun, int64(10_000*19*7), "seven a minute and device, with messages each %v", every)
	}
}

// The time between a silent loss and its notice does not count as uptime.
func TestASilentLossIsNoUptime(t *testing.T) {
	s := fleet.Scenario{
		Devices: 1000, Duration: 3 * time.Hour, Hub: wideOpen(),
		// The connection works for some 20 s, and is believed to work for up to 58 s more.
		Faults: []fleet.Fault{{
			At: time.Minute, For: time.Minute, Every: 80 * time.Second, Effect: fleet.EffectSilent, Notice: 58 * time.Second,
		}},
	}
	r := run(t, s, fleet.Rules{Policy: growing, DialTimeout: time.Second}, nil)
	require.Less(t, r.Attempts.Begun, int64(15*1000), "the delays go on growing")
}

// growing doubles its delays without a limit.
func growing() (retrypolicy.Policy, error) {
	return retrypolicy.Backoff{Base: time.Second, Max: 12 * time.Hour}, nil
}
