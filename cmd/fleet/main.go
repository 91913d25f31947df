// Command fleet simulates how a fleet of devices comes back to its hub, and compares retry
// policies. It prints a table, and writes a report with plots if asked to:
//
//	go run ./cmd/fleet -devices 100000 -scenario outage -o report.html
//
// Package fleet says what is simulated and what is a model.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/transport"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(status(err))
	}
}

// usageError is an error of the command line, or of the scenario that it names.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// status returns the exit status for an error: 2 for a usageError or a wrong scenario, else 1.
func status(err error) int {
	if _, ok := errors.AsType[usageError](err); ok || errors.Is(err, transport.Invalid) {
		return 2
	}
	return 1
}

// settings are the flags.
type settings struct {
	devices  int
	scenario string
	file     string
	rules    string
	seed     uint64
	workers  int
	report   string
	pictures string
	json     string
	list     bool
	docs     string

	recorded   string
	recordedAt time.Duration
}

const usage = `Usage of fleet: simulates how devices come back to their hub, under one policy or many.

  fleet -devices 100000 -scenario outage -rules default,recommended
  fleet -devices 10000 -scenario all -o report.html
  fleet -file scenario.json -json -
  fleet -devices 40000 -scenario restart -recorded attempts.csv -recorded-at 5m -o report.html

`

func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprint(out, usage)
		flags.PrintDefaults()
	}
	flags.IntVar(&s.devices, "devices", 10_000, "number of devices")
	flags.StringVar(&s.scenario, "scenario", "restart", "`names` of scenarios, with commas; all: every one")
	flags.StringVar(&s.file, "file", "", "JSON `file` with a fleet.Scenario instead; durations in nanoseconds")
	flags.StringVar(&s.rules, "rules", "all", "`names` of rules, with commas; all: every one")
	flags.Uint64Var(&s.seed, "seed", 1, "seed of the random numbers; the same seed gives the same result")
	flags.IntVar(&s.workers, "workers", 0, "number of goroutines; 0: one for each processor")
	flags.StringVar(&s.report, "o", "", "`file` for a report in HTML, with plots")
	flags.StringVar(&s.pictures, "svg", "", "`folder` for the plots as SVG")
	flags.StringVar(&s.json, "json", "", "`file` for the results as JSON; -: the standard output, instead of the table")
	flags.BoolVar(&s.list, "list", false, "list scenarios and rules, and stop")
	flags.StringVar(&s.recorded, "recorded", "",
		"CSV `file` with the attempts a second at a real hub: shows how far each of the rules is from them")
	flags.DurationVar(&s.recordedAt, "recorded-at", 0, "simulated `time` of the first row of -recorded")
	flags.StringVar(&s.docs, "docs", "", "draw the plots of the documentation into `folder`, and stop")
	if err := flags.Parse(args); err != nil {
		return s, usageError{err}
	}
	switch {
	case flags.NArg() > 0:
		return s, usageError{fmt.Errorf("unexpected argument %q; give flags only", flags.Arg(0))}
	case s.devices < 1:
		return s, usageError{fmt.Errorf("-devices is %d; give at least 1", s.devices)}
	}
	return s, nil
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	s, err := parse(args, log)
	if err != nil {
		return err
	}
	switch {
	case s.list:
		return list(out)
	case s.docs != "":
		return drawDocs(ctx, s.docs, math.MaxInt)
	}
	scenarios, err := s.scenarios()
	if err != nil {
		return err
	}
	var real *recorded
	if s.recorded != "" {
		if real, err = readRecorded(s.recorded, s.recordedAt); err != nil {
			return err
		}
	}
	var families []family
	for _, scenario := range scenarios {
		f := family{Scenario: scenario, real: real}
		if real != nil && !real.covers(cmp.Or(scenario.Duration, time.Hour)) {
			return fmt.Errorf("%s: no row is within the time of %s; give another -recorded-at", s.recorded, scenario.Name)
		}
		rules, err := choose(allRules(scenario.Devices), func(r fleet.Rules) string { return r.Name }, s.rules, "-rules")
		if err != nil {
			return err
		}
		for _, r := range rules {
			p := newProgress(log, scenario.Name+", "+r.Name)
			result, err := fleet.Run(ctx, scenario, r, &fleet.Options{Seed: s.seed, Workers: s.workers, Progress: p.show})
			p.clear()
			if err != nil {
				return fmt.Errorf("%s, %s: %w", scenario.Name, r.Name, err)
			}
			f.Results = append(f.Results, result)
			if real != nil {
				f.Distances = append(f.Distances, real.distance(result))
			}
		}
		families = append(families, f)
	}
	return s.write(families, out)
}

// family is a scenario with the results of all rules.
type family struct {
	Scenario fleet.Scenario
	Results  []*fleet.Result
	// Distances are those of the results from the real fleet, if there is one: from 0 to 1.
	Distances []float64 `json:",omitempty"`

	real *recorded // or nil
}

func allRules(devices int) []fleet.Rules {
	return append(fleet.Contenders(), fleet.Recommended(devices))
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

// choose returns the items of the list whose names the text has, in its order.
func choose[T any](items []T, name func(T) string, text, option string) ([]T, error) {
	if text == "all" {
		return items, nil
	}
	var chosen []T
	for want := range strings.SplitSeq(text, ",") {
		i := slices.IndexFunc(items, func(x T) bool { return name(x) == strings.TrimSpace(want) })
		if i < 0 {
			return nil, usageError{fmt.Errorf("%s: there is no %q; run with -list to see the names", option, want)}
		}
		chosen = append(chosen, items[i])
	}
	return chosen, nil
}

func list(out io.Writer) error {
	fmt.Fprintln(out, "scenarios:")
	for _, scenario := range fleet.Scenarios() {
		fmt.Fprintln(out, "  "+scenario(1000).Name)
	}
	fmt.Fprintln(out, "rules:")
	for _, r := range allRules(1000) {
		fmt.Fprintln(out, "  "+r.Name)
	}
	return nil
}
