package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/internal/policies"
	"github.com/hubline-iot/hubline/retrypolicy"
)

// ownName is the name of the rules that the flags make.
const ownName = "yours"

// ownRules are the flags that make rules of the caller's own: the options of the device client.
type ownRules struct {
	policy, paced string
	made          fleet.Rules
	names         []string // of the flags
}

// register defines the flags.
func (o *ownRules) register(to *flag.FlagSet) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.StringVar(&o.policy, "policy", "", "RetryPolicy of a row \"yours\": `name` or name:parameter=value,...; "+
		"this and each of the following flags adds the row, with the client's defaults for the others")
	flags.StringVar(&o.paced, "paced", "", "PacedPolicy of yours, such as throttled:cmax=2m")
	r := &o.made
	for _, d := range [...]struct {
		to         *time.Duration
		name, help string
	}{
		{&r.ReconnectSpread, "spread", "ReconnectSpread of yours; 0: none"},
		{&r.DialTimeout, "dial-timeout", "DialTimeout of yours"},
		{&r.AckTimeout, "ack-timeout", "AckTimeout of yours"},
		{&r.StableTime, "stable-time", "StableTime of yours"},
		{&r.OutageLimit, "outage-limit", "OutageLimit of yours; 0: none"},
		{&r.TryAgainAfter, "try-again-after", "TryAgainAfter of yours; 0: never"},
		{&r.DialGap, "dial-gap", "least time between two attempts of a process, with -dials"},
	} {
		flags.DurationVar(d.to, d.name, 0, d.help)
	}
	flags.Float64Var(&r.RenewAt, "renew-at", 0, "RenewAt of yours; negative: never")
	flags.IntVar(&r.MaxMessages, "max-messages", 0, "MaxMessages of yours")
	flags.IntVar(&r.Dials, "dials", 0, "concurrent attempts of a process, such as a gateway with many devices")
	flags.VisitAll(func(f *flag.Flag) {
		o.names = append(o.names, f.Name)
		to.Var(f.Value, f.Name, f.Usage)
	})
}

// rules returns the rules, or nil if no flag of them is set.
func (o *ownRules) rules(set map[string]bool) (*fleet.Rules, error) {
	any := false
	for _, name := range o.names {
		any = any || set[name]
	}
	if !any {
		return nil, nil
	}
	r := &o.made
	r.Name = ownName
	if set["spread"] && r.ReconnectSpread == 0 {
		r.ReconnectSpread = -1 // none; 0 is the default of the options
	}
	if set["dial-gap"] && r.Dials == 0 {
		return nil, usageError{fmt.Errorf("-dial-gap needs -dials; give both, or neither")}
	}
	if o.policy != "" {
		if _, err := policies.Parse(o.policy); err != nil {
			return nil, usageError{fmt.Errorf("-policy: %w", err)}
		}
		r.Policy = func() (retrypolicy.Policy, error) { return policies.Parse(o.policy) } // a process may have its own state
	}
	if o.paced != "" {
		var err error
		if r.Paced, err = policies.Parse(o.paced); err != nil {
			return nil, usageError{fmt.Errorf("-paced: %w", err)}
		}
	}
	return r, r.Validate()
}
