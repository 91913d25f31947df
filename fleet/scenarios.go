package fleet

import (
	"math"
	"slices"
	"time"
)

// telemetryEvery is the interval of messages in the declared scenarios.
const telemetryEvery = 5 * time.Minute

// HubFor returns the smallest hub whose limit of messages is twice what so many devices send, with
// one message each in every interval: the cheapest tier that has enough units.
func HubFor(devices int, every time.Duration) Hub {
	need := 2 * float64(devices) / every.Seconds()
	for tier := range tiers {
		l := limits[tier]
		units := 1
		if need > l.least {
			units = int(math.Ceil(need / l.unit))
		}
		if float64(units) <= l.most || tier == tiers-1 {
			return Hub{Tier: tier, Units: units}
		}
	}
	return Hub{}
}

// base returns a connected fleet that sends telemetry to a hub of its size.
func base(name string, devices int, duration time.Duration) Scenario {
	return Scenario{
		Name: name, Devices: devices, Duration: duration, Hub: HubFor(devices, telemetryEvery),
		Telemetry: Telemetry{Every: telemetryEvery},
	}
}

// HubRestart resets all connections and refuses attempts for 20 s.
func HubRestart(devices int) Scenario {
	s := base("restart", devices, time.Hour)
	s.Faults = []Fault{{At: 5 * time.Minute, For: 20 * time.Second, Effect: EffectRefused}}
	return s
}

// RegionalOutage loses all packets for an hour.
func RegionalOutage(devices int) Scenario {
	s := base("outage", devices, 150*time.Minute)
	s.Faults = []Fault{{At: 5 * time.Minute, For: time.Hour, Effect: EffectSilent}}
	return s
}

// RefusedOutage refuses attempts at once for an hour: the cheapest attempt, and so the most of
// them.
func RefusedOutage(devices int) Scenario {
	s := RegionalOutage(devices)
	s.Name, s.Faults[0].Effect = "outage-refused", EffectRefused
	return s
}

// ThrottledHub restarts a hub with a quarter of the connects and three quarters of the messages
// that HubFor gives: too small for its fleet.
func ThrottledHub(devices int) Scenario {
	s := HubRestart(devices)
	s.Name = "throttled"
	full := s.Hub.withDefaults()
	s.Hub.Connects, s.Hub.Messages = full.Connects/4, full.Messages*3/4
	return s
}

// FlappingCells takes cells of 10,000 devices off the network for a minute, each twice an hour.
func FlappingCells(devices int) Scenario {
	s := base("cells", devices, 90*time.Minute)
	s.Faults = []Fault{{
		At: time.Minute, For: time.Minute, Every: 30 * time.Minute, Cell: min(10_000, devices), Effect: EffectSilent,
	}}
	return s
}

// SameTokens is a fleet whose tokens of an hour were all issued at once.
func SameTokens(devices int) Scenario {
	s := base("tokens", devices, 2*time.Hour)
	s.Tokens = Tokens{Life: time.Hour, Together: true}
	return s
}

// FirstStart switches on devices that must register first, all at the same moment, with a service
// that takes 1,000 registrations a minute.
func FirstStart(devices int) Scenario {
	rate := 1000.0 / 60
	needed := time.Duration(float64(devices) / rate * float64(time.Second))
	s := base("provisioning", devices, min(30*time.Minute+needed*3/2, maxDuration))
	s.PowerOn = -1
	s.Provisioning = Provisioning{Rate: rate, RetryAfter: 5 * time.Second}
	return s
}

// Gateways restarts the hub of gateways that serve 1,000 devices each.
func Gateways(devices int) Scenario {
	s := HubRestart(devices)
	s.Name, s.Gateway = "gateways", 1000
	return s
}

// Day is a day with two peaks of telemetry, and a restart of the hub in the higher one. The hub's
// limit is twice what that peak needs.
func Day(devices int) Scenario {
	s := base("day", devices, 24*time.Hour)
	s.Telemetry.Every = 15 * time.Minute
	s.Telemetry.Day = [24]float64{
		.3, .2, .2, .2, .3, .5, 1, 1.6, 1.8, 1.4, 1.2, 1.1, 1.1, 1.1, 1.1, 1.2, 1.5, 2, 2.2, 2, 1.5, 1, .7, .5,
	}
	s.Hub = HubFor(devices, time.Duration(float64(s.Telemetry.Every)/slices.Max(s.Telemetry.Day[:])))
	s.Faults = []Fault{{At: 18 * time.Hour, For: 20 * time.Second, Effect: EffectRefused}}
	return s
}

// Scenarios returns all declared scenarios.
func Scenarios() []func(devices int) Scenario {
	return []func(int) Scenario{
		HubRestart, RegionalOutage, RefusedOutage, ThrottledHub, FlappingCells, SameTokens, FirstStart, Gateways, Day,
	}
}
