package fleet_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/transport"
)

func TestBadFieldsAreNamed(t *testing.T) {
	good := func() fleet.Scenario { return fleet.HubRestart(10) }
	for name, spoil := range map[string]func(*fleet.Scenario, *fleet.Rules, *fleet.Options){
		"Scenario.Devices":  func(s *fleet.Scenario, _ *fleet.Rules, _ *fleet.Options) { s.Devices = 0 },
		"Scenario.Gateway":  func(s *fleet.Scenario, _ *fleet.Rules, _ *fleet.Options) { s.Gateway = 1 << 20 },
		"Scenario.Duration": func(s *fleet.Scenario, _ *fleet.Rules, _ *fleet.Options) { s.Duration = -1 },
		"Hub.Connects":      func(s *fleet.Scenario, _ *fleet.Rules, _ *fleet.Options) { s.Hub.Connects = math.NaN() },
		"Hub.Tier":          func(s *fleet.Scenario, _ *fleet.Rules, _ *fleet.Options) { s.Hub.Tier = 9 },
		"Hub.RTT":           func(s *fleet.Scenario, _ *fleet.Rules, _ *fleet.Options) { s.Hub.RTT = time.Microsecond },
		"Hub.ConnectKind": func(s *fleet.Scenario, _ *fleet.Rules, _ *fleet.Options) {
			s.Hub.ConnectKind = transport.Unauthorized
		},
		"Fault.For":         func(s *fleet.Scenario, _ *fleet.Rules, _ *fleet.Options) { s.Faults[0].For = 0 },
		"Fault.Every":       func(s *fleet.Scenario, _ *fleet.Rules, _ *fleet.Options) { s.Faults[0].Every = time.Second },
		"Fault.Cell":        func(s *fleet.Scenario, _ *fleet.Rules, _ *fleet.Options) { s.Faults[0].Cell = 5 },
		"Telemetry.Every":   func(s *fleet.Scenario, _ *fleet.Rules, _ *fleet.Options) { s.Telemetry.Every = 1 },
		"Telemetry.Day":     func(s *fleet.Scenario, _ *fleet.Rules, _ *fleet.Options) { s.Telemetry.Day[3] = -1 },
		"Tokens.Life":       func(s *fleet.Scenario, _ *fleet.Rules, _ *fleet.Options) { s.Tokens.Life = time.Second },
		"Rules.DialTimeout": func(_ *fleet.Scenario, r *fleet.Rules, _ *fleet.Options) { r.DialTimeout = 1 },
		"Rules.RenewAt":     func(_ *fleet.Scenario, r *fleet.Rules, _ *fleet.Options) { r.RenewAt = 1 },
		"Rules.MaxMessages": func(_ *fleet.Scenario, r *fleet.Rules, _ *fleet.Options) { r.MaxMessages = -1 },
		"Options.Workers":   func(_ *fleet.Scenario, _ *fleet.Rules, o *fleet.Options) { o.Workers = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			s, rules, options := good(), fleet.Rules{}, fleet.Options{}
			spoil(&s, &rules, &options)
			_, err := fleet.Run(context.Background(), s, rules, &options)
			require.ErrorIs(t, err, transport.Invalid)
			require.ErrorContains(t, err, name)
			require.ErrorContains(t, err, "; give ")
		})
	}
}

func TestNumbersAreNotShownAsTimes(t *testing.T) {
	for want, o := range map[string]fleet.Options{
		"Options.Workers is -1; give 1 to 1024":         {Workers: -1},
		"Options.MaxEvents is -1; give 1 to 1000000000": {MaxEvents: -1},
	} {
		_, err := fleet.Run(context.Background(), fleet.HubRestart(10), fleet.Rules{}, &o)
		require.ErrorContains(t, err, want)
	}
	_, err := fleet.Run(context.Background(), fleet.HubRestart(10), fleet.Rules{ReconnectSpread: math.MaxInt64}, nil)
	require.ErrorContains(t, err, "; give at most 168h0m0s")
}
