package fleet

import (
	"cmp"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

const (
	maxDevices  = 4_000_000 // at most 1<<(blockBits+deviceBits-1), see blockBits
	maxDuration = 7 * 24 * time.Hour
	maxRate     = 1e9
	maxFaults   = 64
	maxCells    = 100_000
)

func invalid(text string) error {
	return &transport.Error{Kind: transport.Invalid, Err: errors.New("fleet: " + text)}
}

// field is a number with its range.
type field[T int | float64 | time.Duration] struct {
	name        string
	value       T
	least, most T
}

// anyNegative is the least value of a field whose negative values all mean the same.
const anyNegative = -1 << 62

func check[T int | float64 | time.Duration](fields []field[T], text func(T) string) error {
	for _, f := range fields {
		if !(f.value >= f.least && f.value <= f.most) {
			from := text(f.least) + " to "
			if float64(f.least) == anyNegative {
				from = "at most "
			}
			return invalid(f.name + " is " + text(f.value) + "; give " + from + text(f.most))
		}
	}
	return nil
}

func float(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// Validate reports the first field that is out of its range, as a *transport.Error of Kind Invalid.
func (s Scenario) Validate() error {
	s = s.WithDefaults()
	h, p := &s.Hub, &s.Provisioning
	if h.Tier >= tiers {
		return invalid("Hub.Tier is undefined; give S1, S2 or S3")
	}
	if err := check([]field[int]{
		{"Scenario.Devices", s.Devices, 1, maxDevices},
		{"Scenario.Gateway", s.Gateway, 1, blockSize},
		{"Hub.Units", h.Units, 1, 1000},
		{"Hub.Trips", h.Trips, 1, 20},
		{"Hub.Wire.Handshake", h.Wire.Handshake, 0, 1 << 20},
		{"Hub.Wire.Refused", h.Wire.Refused, 0, 1 << 20},
		{"Hub.Wire.Silent", h.Wire.Silent, 0, 1 << 20},
		{"Telemetry.Size", s.Telemetry.Size, 1, 1 << 20},
		{"len(Scenario.Faults)", len(s.Faults), 0, maxFaults},
	}, strconv.Itoa); err != nil {
		return err
	}
	if err := check([]field[time.Duration]{
		{"Scenario.Duration", s.Duration, time.Second, maxDuration},
		{"Scenario.PowerOn", s.PowerOn, anyNegative, s.Duration},
		{"Hub.Burst", h.Burst, 0, time.Hour},
		{"Hub.Queue", h.Queue, anyNegative, time.Hour},
		{"Hub.RetryAfter", h.RetryAfter, -1, 24 * time.Hour},
		{"Hub.RTT", h.RTT, 10 * time.Millisecond, time.Second},
		{"Hub.Accept", h.Accept, 0, time.Hour},
		{"Provisioning.Burst", p.Burst, 0, time.Hour},
		{"Provisioning.RetryAfter", p.RetryAfter, -1, 24 * time.Hour},
		{"Provisioning.Assign", p.Assign, 0, time.Hour},
		{"Radio.Tail", s.Radio.Tail, 0, time.Hour},
	}, time.Duration.String); err != nil {
		return err
	}
	if err := check([]field[float64]{
		{"Hub.Connects", h.Connects, 0.001, maxRate},
		{"Hub.Messages", h.Messages, 0.001, maxRate},
		{"Hub.Handshakes", h.Handshakes, 0.001, maxRate},
		{"Provisioning.Rate", p.Rate, 0, maxRate},
		{"Radio.Promotion", s.Radio.Promotion, 0, 1e6},
		{"Radio.On", s.Radio.On, 0, 1e6},
		{"Radio.Byte", s.Radio.Byte, 0, 1},
	}, float); err != nil {
		return err
	}
	switch {
	case !errfilter.OfKind(h.ConnectKind).Retry:
		return invalid("Hub.ConnectKind is " + h.ConnectKind.String() + "; give a Kind that is retried, such as Unavailable")
	case !errfilter.OfKind(h.MessageKind).Retry:
		return invalid("Hub.MessageKind is " + h.MessageKind.String() + "; give a Kind that is retried, such as Throttled")
	case s.Tokens.Life != 0 && (s.Tokens.Life < time.Minute || s.Tokens.Life > 10*maxDuration):
		return invalid("Tokens.Life is " + s.Tokens.Life.String() + "; give 1 min to 70 days, or 0 for none")
	case s.Telemetry.Every != 0 && (s.Telemetry.Every < time.Second || s.Telemetry.Every > 10*maxDuration):
		return invalid("Telemetry.Every is " + s.Telemetry.Every.String() + "; give 1 s to 70 days, or 0 for none")
	}
	for _, w := range s.Telemetry.Day {
		if !(w >= 0 && w <= 1000) {
			return invalid("Telemetry.Day has " + float(w) + "; give weights of 0 to 1,000")
		}
	}
	for i := range s.Faults {
		if err := s.Faults[i].validate(s.Devices); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fault) validate(devices int) error {
	switch {
	case f.At < 0 || f.At > maxDuration:
		return invalid("Fault.At is " + f.At.String() + "; give 0 to 7 days")
	case f.For <= 0 || f.For > maxDuration:
		return invalid("Fault.For is " + f.For.String() + "; give more than 0, at most 7 days")
	case f.Effect >= effects:
		return invalid("Fault.Effect is undefined; give Refused, Silent or Unavailable")
	case f.Notice < 0 || f.Notice > maxDuration:
		return invalid("Fault.Notice is " + f.Notice.String() + "; give 0 to 7 days")
	case f.First < 0 || f.Count < 0 || f.First > maxDevices || f.Count > maxDevices:
		return invalid("Fault.First or Count is out of range; give numbers of devices")
	case f.Every != 0 && (f.Every <= f.For || f.Every < time.Second || f.Every > maxDuration):
		return invalid("Fault.Every is " + f.Every.String() + "; give more than For, 1 s to 7 days, or 0 for once")
	case f.Cell < 0 || f.Cell > 0 && f.Every == 0:
		return invalid("Fault.Cell needs Every; give both, or neither")
	case f.Cell > 0 && devices/f.Cell > maxCells:
		return invalid("Fault.Cell is " + strconv.Itoa(f.Cell) + "; give larger cells, at most 100,000 of them")
	}
	return nil
}

// Validate reports the first field that is out of its range, as a *transport.Error of Kind Invalid.
func (r Rules) Validate() error {
	r = r.withDefaults()
	if err := check([]field[time.Duration]{
		{"Rules.ReconnectSpread", r.ReconnectSpread, anyNegative, maxDuration},
		{"Rules.DialTimeout", r.DialTimeout, time.Second, time.Hour},
		{"Rules.AckTimeout", r.AckTimeout, time.Second, time.Hour},
		{"Rules.StableTime", r.StableTime, 1, time.Hour},
		{"Rules.OutageLimit", r.OutageLimit, 0, maxDuration},
		{"Rules.TryAgainAfter", r.TryAgainAfter, 0, maxDuration},
		{"Rules.DialGap", r.DialGap, 0, time.Hour},
	}, time.Duration.String); err != nil {
		return err
	}
	if err := check([]field[int]{
		{"Rules.MaxMessages", r.MaxMessages, 1, transport.MaxTags},
		{"Rules.Dials", r.Dials, 0, math.MaxInt32},
	}, strconv.Itoa); err != nil {
		return err
	}
	if r.RenewAt > 0 && r.RenewAt < 0.1 || !(r.RenewAt < 1) {
		return invalid("Rules.RenewAt is " + float(r.RenewAt) + "; give 0.1 to less than 1, 0 for 0.85, or a negative number")
	}
	return nil
}

// validateRollout reports the first field that is out of its range.
func validateRollout(r *Rollout, rules *RolloutRules) error {
	fields := []field[float64]{
		{"Rollout.Devices", float64(r.Devices), 1, maxDevices},
		{"Rollout.Duration in s", r.Duration.Seconds(), 60, maxDuration.Seconds()},
		{"Rollout.Image", r.Image, 1, 1e12},
		{"Rollout.Link", r.Link, 1000, 1e15},
		{"Rollout.Access", r.Access, 1000, 1e15},
		{"Rollout.Downloads", float64(r.Downloads), 1, 10_000},
		{"Rollout.Loss in s", r.Loss.Seconds(), 1, 1e9},
		{"Rollout.Requests", r.Requests, 0.001, maxRate},
		{"Rollout.Failures", r.Failures, 0, 1},
		{"Rollout.Away", r.Away, 0, 1},
		{"RolloutRules.Interval in s", rules.Interval.Seconds(), 60, maxDuration.Seconds()},
		{"RolloutRules.Spread in s", rules.Spread.Seconds(), 0, maxDuration.Seconds()},
		{"RolloutRules.Stop", rules.Stop, 0, 1},
	}
	for _, d := range [...]time.Duration{r.Busy, r.RetryAfter, r.Install, r.Rollback, r.Return} {
		fields = append(fields, field[float64]{"Rollout's time in s", d.Seconds(), 1, maxDuration.Seconds()})
	}
	share := 0.0
	for _, w := range rules.Waves {
		fields = append(fields, field[float64]{"Wave.Share", w.Share, share, 1})
		share = w.Share
	}
	fields = append(fields, field[float64]{"Wave.Share of the last wave", share, 1, 1})
	if err := cmp.Or(check(fields, float), retrypolicy.Validate(rules.Policy)); err != nil {
		return err
	}
	if newProcess(reconnect.Policies{Policy: rules.Policy}).remembers {
		return invalid("RolloutRules.Policy has a memory; give one without")
	}
	return nil
}
