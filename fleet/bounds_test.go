package fleet_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// firstAtOnce retries at once, and then each second.
type firstAtOnce struct{}

func (firstAtOnce) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	d := retrypolicy.Decision{Retry: true}
	if a.Retry > 1 {
		d.Delay = time.Second
	}
	return d
}

// A device whose next event is behind the step that begins a turn of the calendar is not forgotten.
func TestADeviceAtTheTurnOfTheCalendarComesBack(t *testing.T) {
	for _, at := range []time.Duration{4093_500, 4094_500, 4095_500} { // a turn has 4,096 steps
		r := run(t, fleet.Scenario{
			Devices: 200, Duration: 70 * time.Minute,
			Hub:       fleet.Hub{RTT: time.Second, Connects: 1e6, Messages: 1e6, Handshakes: 1e6},
			Telemetry: fleet.Telemetry{Every: 2 * time.Second},
			Faults:    []fleet.Fault{{At: at * time.Millisecond, For: 100 * time.Millisecond}},
		}, fleet.Rules{Policy: func() (retrypolicy.Policy, error) { return firstAtOnce{}, nil }}, nil)
		require.Equal(t, 200, r.Devices.Connected)
		require.Less(t, r.Back100, 10*time.Second)
	}
}

// A context ends a run in the middle of a step: devices run ahead 64 at a time, by ten minutes.
func TestAContextEndsAStep(t *testing.T) {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	s := fleet.Scenario{
		Devices: 10_000, Duration: 24 * time.Hour, Faults: []fleet.Fault{{For: 24 * time.Hour, Effect: fleet.EffectRefused}},
	}
	asked := 0
	policy := counting(func() {
		if asked++; asked == 1000 {
			end()
		}
	})
	_, err := fleet.Run(ctx, s, fleet.Rules{
		Policy: func() (retrypolicy.Policy, error) { return policy, nil }, ReconnectSpread: -1,
	}, &fleet.Options{Workers: 1})
	require.ErrorIs(t, err, context.Canceled)
	require.LessOrEqual(t, asked, 1000+64*600, "an attempt a second")
}

// counting retries each second, and calls the function for each question.
type counting func()

func (c counting) Decide(retrypolicy.Attempt) retrypolicy.Decision {
	c()
	return retrypolicy.Decision{Retry: true, Delay: time.Second}
}

// Messages that nobody sends are events, too: MaxEvents and the context bound a run with them.
func TestMessagesOfAFleetThatGaveUpAreBounded(t *testing.T) {
	s := fleet.Scenario{
		Devices: 300, Duration: 7 * 24 * time.Hour, PowerOn: -1, Hub: fleet.Hub{RTT: time.Second},
		Telemetry: fleet.Telemetry{Every: time.Second}, Faults: []fleet.Fault{{For: 7 * 24 * time.Hour}},
	}
	rules := fleet.Rules{Policy: func() (retrypolicy.Policy, error) { return retrypolicy.NoRetry{}, nil }}
	_, err := fleet.Run(context.Background(), s, rules, &fleet.Options{MaxEvents: 1000})
	require.Equal(t, transport.Invalid, transport.Find(err).Kind)
	require.ErrorContains(t, err, "MaxEvents")

	ctx, end := context.WithCancel(context.Background())
	defer end()
	_, err = fleet.Run(ctx, s, rules, &fleet.Options{Progress: func(at, _ time.Duration) {
		if at > 6*24*time.Hour {
			end()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
}
