package fleet

import "time"

// Never is the value of a time that did not come within the simulated time.
const Never time.Duration = -1

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
	// Connected and Queued are states at the end of each bin: devices, and messages in outboxes.
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
	// Queued were in outboxes at the end.
	Queued int64
	// MostQueued is the largest number in all outboxes together.
	MostQueued int64
	// Lost by overflow of outboxes, and by rules that stopped to send them.
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
	// if the devices are switched on then. Never if the scenario has neither, as with repeated faults
	// or expiring tokens alone; the times below are then Never, and PeakAfter is 0.
	Recovery time.Duration
	// Back50, Back99 and Back100 are the times from Recovery until this share of the devices was
	// connected, to the bin; Never if it did not come to that.
	Back50, Back99, Back100 time.Duration
	// Peak is the largest number of attempts a second, and PeakAfter the largest from Recovery on, in
	// attempts a second. Steady is the mean before the first fault.
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
	for _, n := range r.Series.Queued {
		r.Messages.MostQueued = max(r.Messages.MostQueued, n)
	}
	r.Wasted = r.Attempts.Begun - r.Attempts.Accepted - r.Attempts.Pending
	radio := &s.scenario.Radio
	joules := float64(t.radioOn)/1e6*radio.On + float64(t.promotions)*radio.Promotion + float64(t.bytes)*radio.Byte
	r.Energy = joules / float64(s.scenario.Devices)
	r.RadioOn = time.Duration(t.radioOn/int64(s.scenario.Devices)) * time.Microsecond
	s.recovery(r)
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

// recovery computes how the fleet came back.
func (s *simulation) recovery(r *Result) {
	first := s.scenario.Duration
	r.Recovery = Never
	if s.scenario.PowerOn != 0 || s.scenario.Provisioning.Rate > 0 {
		r.Recovery = 0
	}
	for i := range s.scenario.Faults {
		f := &s.scenario.Faults[i]
		first = min(first, f.At)
		if f.Every == 0 && f.At+f.For < s.scenario.Duration {
			r.Recovery = max(r.Recovery, f.At+f.For)
		}
	}
	from := len(r.Series.Attempts)
	if r.Recovery != Never {
		from = int(r.Recovery / r.Resolution)
	}
	perSecond := 1 / r.Resolution.Seconds()
	var steady int64
	for i, n := range r.Series.Attempts {
		r.Peak = max(r.Peak, float64(n)*perSecond)
		if i >= from {
			r.PeakAfter = max(r.PeakAfter, float64(n)*perSecond)
		}
		if i < int(first/r.Resolution) {
			steady += n
		}
	}
	if first >= r.Resolution {
		r.Steady = float64(steady) / first.Truncate(r.Resolution).Seconds()
	}
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
