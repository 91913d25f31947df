package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/internal/policies"
)

// family is a scenario with the results of all rules.
type family struct {
	Scenario fleet.Scenario
	Results  []*fleet.Result
	// Distances are those of the results from the real fleet, if there is one: from 0 to 1.
	Distances []float64 `json:",omitempty"`

	rules []fleet.Rules
	real  *recorded // or nil
}

// plan returns what to simulate. It finds every mistake of the flags that can be seen beforehand.
func (s *settings) plan() ([]family, error) {
	scenarios, err := s.scenarios()
	if err != nil {
		return nil, err
	}
	var real *recorded
	if s.recorded != "" {
		if real, err = readRecorded(s.recorded, s.recordedAt); err != nil {
			return nil, err
		}
	}
	var families []family
	for _, scenario := range scenarios {
		if err := scenario.Validate(); err != nil {
			return nil, err
		}
		f := family{Scenario: scenario.WithDefaults(), real: real}
		if real != nil && !real.covers(cmp.Or(scenario.Duration, time.Hour)) {
			return nil, fmt.Errorf("%s: no row is within the time of %s; give another -recorded-at", s.recorded, scenario.Name)
		}
		if f.rules, err = s.rulesFor(scenario.Devices); err != nil {
			return nil, err
		}
		families = append(families, f)
	}
	return families, nil
}

func allRules(devices int) []fleet.Rules {
	return append(fleet.Contenders(), fleet.Recommended(devices))
}

func nameOf(r fleet.Rules) string { return r.Name }

// rulesFor returns the chosen rules, and the caller's own.
func (s *settings) rulesFor(devices int) ([]fleet.Rules, error) {
	all := allRules(devices)
	if s.yours != nil {
		all = append(all, *s.yours)
	}
	chosen, err := choose(all, nameOf, s.rules, "-rules")
	own := func(r fleet.Rules) bool { return r.Name == ownName }
	if err == nil && s.yours != nil && !slices.ContainsFunc(chosen, own) {
		chosen = append(chosen, *s.yours)
	}
	return chosen, err
}

// scenarios returns the chosen scenarios.
func (s *settings) scenarios() ([]fleet.Scenario, error) {
	if s.file != "" {
		scenario, err := readScenario(s.file)
		return []fleet.Scenario{scenario}, err
	}
	var all []fleet.Scenario
	for _, scenario := range fleet.Scenarios() {
		all = append(all, scenario(s.devices))
	}
	return choose(all, func(x fleet.Scenario) string { return x.Name }, s.scenario, "-scenario")
}

// choose returns the items of the list whose names the text has, each once, in its order.
func choose[T any](items []T, name func(T) string, text, option string) ([]T, error) {
	if text == "all" {
		return items, nil
	}
	var chosen []T
	seen := map[int]bool{}
	for want := range strings.SplitSeq(text, ",") {
		i := slices.IndexFunc(items, func(x T) bool { return name(x) == strings.TrimSpace(want) })
		if i < 0 {
			return nil, usageError{fmt.Errorf("%s: there is no %q; run with -list to see the names", option, want)}
		}
		if seen[i] {
			return nil, usageError{fmt.Errorf("%s: %q is there twice; leave one out", option, want)}
		}
		seen[i] = true
		chosen = append(chosen, items[i])
	}
	return chosen, nil
}

func list(to io.Writer) error {
	out := bufio.NewWriter(to)
	fmt.Fprintln(out, "scenarios:")
	for _, scenario := range fleet.Scenarios() {
		fmt.Fprintln(out, "  "+scenario(1000).Name)
	}
	for _, rollout := range fleet.Rollouts(1000) {
		fmt.Fprintln(out, "  "+rollout.Name)
	}
	fmt.Fprintln(out, "rules:")
	for _, r := range allRules(1000) {
		fmt.Fprintln(out, "  "+r.Name)
	}
	fmt.Fprintln(out, "rules of updates:")
	for _, r := range fleet.RolloutContenders(time.Hour) {
		fmt.Fprintln(out, "  "+r.Name)
	}
	fmt.Fprintln(out, "policies for -policy and -paced, with parameters:")
	for _, p := range policies.All {
		fmt.Fprintln(out, "  "+strings.TrimSpace(p.Name+" "+strings.Join(p.Parameters, ",")))
	}
	return out.Flush()
}
