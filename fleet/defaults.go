package fleet

import (
	"time"

	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// fallback replaces a zero value.
func fallback[T comparable](value *T, preset T) {
	var zero T
	if *value == zero {
		*value = preset
	}
}

// WithDefaults returns the scenario that Run simulates: zero fields have their defaults.
func (s Scenario) WithDefaults() Scenario {
	fallback(&s.Gateway, 1)
	fallback(&s.Duration, time.Hour)
	fallback(&s.Telemetry.Size, 512)
	fallback(&s.Provisioning.Burst, time.Minute)
	fallback(&s.Provisioning.Assign, 5*time.Second)
	fallback(&s.Radio.Promotion, 0.315)
	fallback(&s.Radio.On, 1.06)
	fallback(&s.Radio.Tail, 11576*time.Millisecond)
	fallback(&s.Radio.Byte, 3.5e-6)
	s.Faults = append([]Fault(nil), s.Faults...)
	for i := range s.Faults {
		fallback(&s.Faults[i].Notice, 30*time.Second)
	}
	s.Hub = s.Hub.withDefaults()
	return s
}

func (h Hub) withDefaults() Hub {
	fallback(&h.Units, 1)
	if h.Tier < tiers {
		l := limits[h.Tier]
		rate := max(l.least, l.unit*float64(h.Units))
		fallback(&h.Connects, rate)
		fallback(&h.Messages, rate)
	}
	fallback(&h.Burst, 10*time.Second)
	fallback(&h.Queue, 10*time.Second)
	fallback(&h.ConnectKind, transport.Unavailable)
	fallback(&h.MessageKind, transport.Network)
	fallback(&h.RTT, 50*time.Millisecond)
	fallback(&h.Trips, 4)
	fallback(&h.Handshakes, 10*h.Connects)
	fallback(&h.Accept, 5*time.Second)
	fallback(&h.Wire.Handshake, 6500)
	fallback(&h.Wire.Refused, 100)
	fallback(&h.Wire.Silent, 300)
	return h
}

func (r Rules) withDefaults() Rules {
	if r.Policy == nil {
		r.Policy = func() (retrypolicy.Policy, error) { return retrypolicy.ExponentialBackoffWithJitter{}, nil }
	}
	fallback(&r.DialTimeout, reconnect.DialTimeout)
	fallback(&r.AckTimeout, reconnect.AckTimeout)
	fallback(&r.StableTime, reconnect.StableTime)
	fallback(&r.RenewAt, reconnect.RenewAt)
	fallback(&r.MaxMessages, reconnect.MaxMessages)
	return r
}
