package main

import (
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/examples/internal/setup"
	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/retrypolicy"
)

// rulesOf returns the rules of that name: those of the simulator, so that a real fleet can be
// compared with a simulated one, and "none".
func rulesOf(name string, count int) (fleet.Rules, error) {
	all := append(fleet.Contenders(), fleet.Recommended(count), fleet.Rules{Name: "none",
		Policy: func() (retrypolicy.Policy, error) { return retrypolicy.NoRetry{}, nil }})
	var names []string
	for _, r := range all {
		if r.Name == name {
			return r, nil
		}
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return fleet.Rules{}, setup.Usage("flag -policy: %q is not a name of rules; give one of: %s", name,
		strings.Join(names, ", "))
}

// optionsOf returns the options of one device. Each has a policy of its own, as in the simulation.
func optionsOf(r *fleet.Rules, spread time.Duration, dials *device.DialLimiter) (*device.Options, error) {
	policy, err := r.Policy()
	if err != nil {
		return nil, err
	}
	switch {
	case spread < 0:
		spread = r.ReconnectSpread
	case spread == 0:
		spread = -1 // none; 0 is the default of the options
	}
	return &device.Options{RetryPolicy: policy, PacedPolicy: r.Paced, ReconnectSpread: spread, StableTime: r.StableTime,
		OutageLimit: r.OutageLimit, TryAgainAfter: r.TryAgainAfter, RenewAt: r.RenewAt, Dials: dials}, nil
}
