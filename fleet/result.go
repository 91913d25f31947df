package fleet

import (
	"slices"
	"time"
)

// Never is the value of a time that did not come within the simulated time.
const Never time.Duration = -1

// NoSteady is the value of Result.Steady for a scenario without a time before its first fault.
const NoSteady = -1

// Series are counts over time, one for each bin of Result.Resolution.
type Series struct {
	Attempts []int64 // to connect or register, begun
	Accepted []int64
	Rejected []int64 // by the service
	Refused  []int64 // by the network
	TimedOut []int64
	// Registrations are the attempts among Accepted and Rejected that the provisioning service
	// answered; the hub answered the others.
	Registrations []int64
	// Connected and Queued are states at the end of each bin: devices, and messages in queues.
	Connected []int64
	Queued    []int64
}

// Attempts counts attempts to connect or register by their end. Begun is the sum of the others.
type Attempts struct {
	Begun, Accepted, Rejected, Refused, TimedOut int64
	// Pending had no end within the simulated time.
	Pending int64
}

// Messages counts messages by their end. Generated is the sum of Acknowledged, Queued and Lost.
type Messages struct {
	Generated, Acknowledged int64
	// Queued were in queues at the end.
	Queued int64
	// MostQueued is the largest number in all queues together.
	MostQueued int64
	// Lost by overflow of queues, and by rules that stopped to send them.
	Lost int64
}

// Devices counts devices by their state at the end.
type Devices struct {
	All, Connected, Connecting, Waiting int
	// GaveUp have rules that ended the retries.
	GaveUp int
}

// Result is what a run shows.
type Result struct {
	Scenario, Rules string
	Seed            uint64
	Resolution      time.Duration
	Duration        time.Duration

	Devices  Devices
	Attempts Attempts
	Messages Messages

	// Recovery is the reference of the times below: the end of the last single fault, or the beginning
	// if the devices are switched on then. If that fault does not end within Duration, or the scenario
	// has neither, the times below are Never, and PeakAfter is 0. Recovery is Never only if it has
	// neither, as with repeated faults or expiring tokens alone.
	Recovery time.Duration
	// Back50, Back99 and Back100 are the times from Recovery until this share of the devices was
	// connected, to the bin; Never if it did not come to that.
	Back50, Back99, Back100 time.Duration
	// Peak is the largest number of attempts in a second, whatever Resolution is, and PeakAfter the
	// largest from Recovery on. Steady is the mean of attempts a second before the first fault, or
	// NoSteady if no fault begins or the devices are switched on at the beginning.
	Peak, PeakAfter, Steady float64
	// Wasted is the number of attempts that did not lead to a connection or registration.
	Wasted int64
	// Bytes were sent and received by all devices.
	Bytes int64
	// Energy is the mean energy of a device's radio, in joules.
	Energy float64
	// RadioOn is the mean time that a device's radio was on.
	RadioOn time.Duration
	// Limit is the hub's limit of connects a second.
	Limit float64
	// Events is the number of simulated events.
	Events int64

	Series Series
}

// result adds up what the workers counted.
func (s *simulation) result() *Result {
	t := s.tallies[0]
	for _, other := range s.tallies[1:] {
		t.add(other)
	}
	r := &Result{
		Scenario: s.scenario.Name, Rules: s.rules.Name, Seed: s.options.Seed, Resolution: s.options.Resolution,
		Duration: s.scenario.Duration, Limit: s.scenario.Hub.Connects, Events: t.events, Bytes: t.bytes,
		Series: Series{
			Attempts: t.series[cAttempt], Accepted: t.series[cAccepted], Rejected: t.series[cRejected],
			Refused: t.series[cRefused], TimedOut: t.series[cTimedOut],
			Registrations: t.series[cRegistration],
			Connected:     level(t.series[cUp], t.series[cDown]),
			Queued:        level(t.series[cGenerated], t.series[cAcknowledged], t.series[cOverflow]),
		},
		Attempts: Attempts{
			Begun: t.sum(cAttempt), Accepted: t.sum(cAccepted), Rejected: t.sum(cRejected), Refused: t.sum(cRefused),
			TimedOut: t.sum(cTimedOut),
		},
		Messages: Messages{Generated: t.sum(cGenerated), Acknowledged: t.sum(cAcknowledged), Lost: t.sum(cOverflow)},
	}
	s.states(r)
	r.Messages.MostQueued = slices.Max(r.Series.Queued)
	r.Wasted = r.Attempts.Begun - r.Attempts.Accepted - r.Attempts.Pending
	radio := &s.scenario.Radio
	joules := float64(t.radioOn)/1e6*radio.On + float64(t.promotions)*radio.Promotion + float64(t.bytes)*radio.Byte
	r.Energy = joules / float64(s.scenario.Devices)
	r.RadioOn = time.Duration(t.radioOn/int64(s.scenario.Devices)) * time.Microsecond
	s.recovery(r, t.seconds)
	return r
}

// states counts the devices by their final state.
func (s *simulation) states(r *Result) {
	r.Devices.All = s.scenario.Devices
	for _, b := range s.blocks {
		for i := range b.devices {
			d := &b.devices[i]
			r.Messages.Queued += int64(d.queue)
			switch {
			case d.state == up || d.state == sending || d.state == arriving && d.batch > 0:
				r.Devices.Connected++
			case d.state == arriving || d.state == answering:
				r.Devices.Connecting++
				r.Attempts.Pending++
			case d.state == ended:
				r.Devices.GaveUp++
			default:
				r.Devices.Waiting++
			}
		}
	}
}

// recovery computes how the fleet came back from the attempts in each second.
func (s *simulation) recovery(r *Result, attempts []int64) {
	var first time.Duration
	first, r.Recovery = s.scenario.references()
	r.Steady = NoSteady
	if first >= time.Second {
		r.Steady = float64(sum(attempts[:first/time.Second])) / first.Truncate(time.Second).Seconds()
	}
	r.Peak = float64(slices.Max(attempts))
	if r.Recovery == Never || r.Recovery >= s.scenario.Duration {
		r.Back50, r.Back99, r.Back100 = Never, Never, Never
		return
	}
	r.PeakAfter = float64(slices.Max(attempts[r.Recovery/time.Second:]))
	from := int(r.Recovery / r.Resolution)
	for _, share := range [...]struct {
		back    *time.Duration
		percent int
	}{{&r.Back50, 50}, {&r.Back99, 99}, {&r.Back100, 100}} {
		*share.back = Never
		for i := from; i < len(r.Series.Connected); i++ {
			if r.Series.Connected[i]*100 >= int64(s.scenario.Devices*share.percent) {
				*share.back = max(0, time.Duration(i+1)*r.Resolution-r.Recovery)
				break
			}
		}
	}
}

// references returns when the first fault begins, after a time with connected devices, and
// Result.Recovery. Both are Never if there is none.
func (s *Scenario) references() (first, recovery time.Duration) {
	first, recovery = s.Duration, Never
	for i := range s.Faults {
		f := &s.Faults[i]
		if f.At >= s.Duration {
			continue
		}
		first = min(first, f.At)
		if f.Every == 0 {
			recovery = max(recovery, f.At+f.For)
		}
	}
	switch {
	case s.PowerOn != 0 || s.Provisioning.Rate > 0:
		return Never, max(recovery, 0)
	case first == s.Duration:
		return Never, recovery
	}
	return first, recovery
}

// level returns the running sum of up, less those of the others.
func level(up []int64, others ...[]int64) []int64 {
	out := make([]int64, len(up))
	var n int64
	for i := range up {
		n += up[i]
		for _, o := range others {
			n -= o[i]
		}
		out[i] = n
	}
	return out
}
