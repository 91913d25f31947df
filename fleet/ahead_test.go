package fleet_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// busy are scenarios in which devices meet faults and all limits of their hub.
func busy() []fleet.Scenario {
	all := []fleet.Scenario{
		fleet.HubRestart(2000), fleet.RegionalOutage(500), fleet.FlappingCells(500), fleet.SameTokens(500),
		fleet.FirstStart(500),
	}
	throttled := fleet.HubRestart(2000)
	throttled.Name = "over AMQP"
	throttled.Hub.ConnectKind, throttled.Hub.MessageKind = transport.Throttled, transport.Throttled
	throttled.Hub.RetryAfter = 20 * time.Second
	throttled.Hub.Connects, throttled.Hub.Messages = 20, 20
	return append(all, throttled)
}

// A device that runs ahead to its next request does what it does step by step. A limiter that
// admits every dial has the devices of a process take turns, and that has an event for each dial.
func TestRunningAheadChangesNothing(t *testing.T) {
	for _, s := range busy() {
		t.Run(s.Name, func(t *testing.T) {
			ahead := run(t, s, fleet.Rules{}, nil)
			inTurn := run(t, s, fleet.Rules{Dials: math.MaxInt32}, nil)
			require.Equal(t, ahead.Attempts.Begun, inTurn.Events-ahead.Events)
			inTurn.Events = ahead.Events
			require.Equal(t, ahead, inTurn)
		})
	}
}

// ordered is a policy with state. It notes how far the times of its questions go back.
type ordered struct {
	last time.Time
	back time.Duration
}

func (o *ordered) note(now time.Time) {
	o.back = max(o.back, o.last.Sub(now))
	o.last = now
}

func (o *ordered) Begin(retrypolicy.Start) retrypolicy.Series { return orderedSeries{ordered: o} }

type orderedSeries struct {
	retrypolicy.Free
	*ordered
}

func (s orderedSeries) Report(_ retrypolicy.Verdict, a retrypolicy.Attempt) { s.note(a.Now) }

func (o *ordered) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	o.note(a.Now)
	return retrypolicy.ExponentialBackoffWithJitter{}.Decide(a)
}

// Devices that share a policy ask it in the order of time, to a step.
func TestAGatewayAsksInOrder(t *testing.T) {
	s := fleet.HubRestart(1000)
	s.Gateway = 1000
	var policy ordered
	run(t, s, fleet.Rules{Policy: func() (retrypolicy.Policy, error) { return &policy, nil }}, nil)
	require.False(t, policy.last.IsZero())
	require.LessOrEqual(t, policy.back, 50*time.Millisecond, "the round trip")
}

// wrapped is a curve as any other policy: asked through the interface.
type wrapped struct {
	retrypolicy.ExponentialBackoffWithJitter
}

func TestACurveIsAskedLikeAnyOtherPolicy(t *testing.T) {
	always := func(p retrypolicy.Policy) fleet.Rules {
		return fleet.Rules{Policy: func() (retrypolicy.Policy, error) { return p, nil }}
	}
	fast := retrypolicy.ExponentialBackoffWithJitter{C: time.Millisecond, Cmin: 1, Cmax: 10 * time.Millisecond}
	for _, s := range busy() {
		t.Run(s.Name, func(t *testing.T) {
			require.Equal(t, run(t, s, fleet.Rules{}, nil), run(t, s, always(wrapped{}), nil))
			require.Equal(t, run(t, s, always(fast), nil), run(t, s, always(wrapped{fast}), nil))
		})
	}
}

// outcomes is a policy that counts what it is told.
type outcomes struct {
	retrypolicy.ExponentialBackoffWithJitter
	failed, succeeded uint64
}

func (c *outcomes) Begin(retrypolicy.Start) retrypolicy.Series { return outcomesSeries{outcomes: c} }

type outcomesSeries struct {
	retrypolicy.Free
	*outcomes
}

func (s outcomesSeries) Report(v retrypolicy.Verdict, _ retrypolicy.Attempt) {
	if v == retrypolicy.VerdictSucceed {
		s.succeeded++
	} else {
		s.failed++
	}
}

func TestAPolicyIsToldTheOutcomeOfEveryAttempt(t *testing.T) {
	s := fleet.Scenario{
		Devices: 1, Duration: 10 * time.Minute, Hub: wideOpen(),
		Faults: []fleet.Fault{{At: time.Minute, For: time.Minute, Effect: fleet.EffectRefused}},
	}
	var policy outcomes
	r := run(t, s, fleet.Rules{Policy: func() (retrypolicy.Policy, error) { return &policy, nil }}, nil)
	require.EqualValues(t, 1, policy.succeeded, "the one after the fault: the scenario begins with a connection")
	require.Greater(t, policy.failed, uint64(3))
	require.EqualValues(t, r.Attempts.Begun, policy.failed+policy.succeeded)
}
