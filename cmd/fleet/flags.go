package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/internal/texts"
)

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
	yours    *fleet.Rules // nil: no flag of them is set

	recorded   string
	recordedAt time.Duration

	// For updates.
	image, link, requests float64
	interval              time.Duration
}

const maxWorkers = 1024 // of fleet.Options

const usage = `Usage of fleet: simulates how devices come back to their hub, under one policy or many.

  fleet -devices 100000 -scenario outage -rules default,recommended
  fleet -devices 10000 -scenario all -o report.html
  fleet -devices 100000 -rules default -policy azure:cmax=1m -spread 30s -outage-limit 1h
  fleet -file scenario.json -json -
  fleet -devices 100000 -scenario update,update-bad -rules spread,waves -image 5e6
  fleet -devices 40000 -scenario restart -recorded attempts.csv -recorded-at 5m -o report.html

`

func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	var own ownRules
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.IntVar(&s.devices, "devices", 10_000, "number of devices")
	flags.StringVar(&s.scenario, "scenario", "restart", "`names` of scenarios, with commas; all: every one")
	flags.StringVar(&s.file, "file", "", "JSON `file` with a fleet.Scenario instead of -devices and -scenario")
	flags.StringVar(&s.rules, "rules", "all", "`names` of rules, with commas; all: every one")
	flags.Uint64Var(&s.seed, "seed", 1, "seed of the random numbers; the same seed gives the same result")
	flags.IntVar(&s.workers, "workers", 0, "number of goroutines; 0: one for each processor")
	flags.StringVar(&s.report, "o", "", "`file` for a report in HTML, with plots")
	flags.StringVar(&s.pictures, "svg", "", "`folder` for the plots as SVG")
	flags.StringVar(&s.json, "json", "", "`file` for the results as JSON; -: the standard output, instead of the table")
	flags.BoolVar(&s.list, "list", false, "list scenarios, rules and policies, and stop")
	flags.StringVar(&s.recorded, "recorded", "",
		"CSV `file` with the attempts a second at a real hub: shows how far each of the rules is from them")
	flags.DurationVar(&s.recordedAt, "recorded-at", 0, "simulated `time` of the first row of -recorded")
	flags.StringVar(&s.docs, "docs", "", "draw the plots of the documentation into `folder`, and stop")
	s.registerUpdate(flags)
	own.register(flags)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, usage)
		flags.SetOutput(out)
		flags.PrintDefaults()
		return s, err
	case err != nil:
		return s, usageError{explained(err, flags)}
	}
	set := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if err := s.check(flags.Args(), set); err != nil {
		return s, usageError{err}
	}
	var err error
	s.yours, err = own.rules(set)
	return s, err
}

// explained adds to an error of package flag what helps.
func explained(err error, flags *flag.FlagSet) error {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return fmt.Errorf("%w; -h describes the flag", err)
	}
	var names []string
	flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	return fmt.Errorf("flag -%s: there is none; %s-h lists them all", name, texts.NearestFlag(name, names))
}

// check reports flags that are out of range or contradict each other. set has those of the command
// line.
func (s *settings) check(rest []string, set map[string]bool) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q; give flags only", rest[0])
	}
	if s.devices < 1 {
		return fmt.Errorf("-devices is %d; give at least 1", s.devices)
	}
	if s.workers < 0 || s.workers > maxWorkers {
		return fmt.Errorf("-workers is %d; give 0 to %d", s.workers, maxWorkers)
	}
	for _, f := range [...]struct{ flag, with, fix string }{
		{"devices", "file", "leave it out, and set Devices in the file"},
		{"scenario", "file", "leave one of them out"},
	} {
		if set[f.flag] && set[f.with] {
			return fmt.Errorf("-%s contradicts -%s; %s", f.flag, f.with, f.fix)
		}
	}
	if set["recorded-at"] && !set["recorded"] {
		return fmt.Errorf("-recorded-at needs -recorded; give both, or neither")
	}
	for _, flag := range [...]string{"image", "link", "requests", "interval"} {
		if set[flag] && !s.updates() {
			return fmt.Errorf("-%s is about updates; give -scenario update or update-bad with it", flag)
		}
	}
	return s.checkFiles()
}

// checkFiles reports an output that would replace another file of the flags.
func (s *settings) checkFiles() error {
	flags := map[string]string{}
	for _, f := range [...]struct{ flag, name string }{
		{"-file", s.file}, {"-recorded", s.recorded}, {"-o", s.report}, {"-json", s.json},
	} {
		if f.name == "" {
			continue
		}
		name := filepath.Clean(f.name)
		if other, taken := flags[name]; taken && name != os.DevNull {
			return fmt.Errorf("%s and %s name the same file %s; give two", other, f.flag, f.name)
		}
		flags[name] = f.flag
	}
	return nil
}
