package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hubline-iot/hubline/fleet"
)

// registerUpdate defines the flags of updates.
func (s *settings) registerUpdate(flags *flag.FlagSet) {
	preset := fleet.Rollouts(1)[0]
	flags.Float64Var(&s.image, "image", preset.Image, "bytes of the image of an update")
	flags.Float64Var(&s.link, "link", preset.Link, "capacity of the file server of an update, in bits a second")
	flags.Float64Var(&s.requests, "requests", preset.Requests, "requests a second that the update service takes")
	flags.DurationVar(&s.interval, "interval", 4*time.Hour, "time between two checks for an update")
}

// updates reports whether the scenarios are updates.
func (s *settings) updates() bool { return strings.HasPrefix(s.scenario, "update") }

// update is a rollout with the results of all rules.
type update struct {
	Rollout fleet.Rollout
	Results []*fleet.RolloutResult
}

// simulateUpdates runs the chosen rollouts, and prints the table of each when it is there.
func (s *settings) simulateUpdates(ctx context.Context, out, log io.Writer) error {
	if s.report != "" || s.pictures != "" || s.recorded != "" || s.yours != nil {
		return usageError{fmt.Errorf("-scenario %s: an update has a table and JSON only; leave out the flags of reports, "+
			"plots, records and options of devices", s.scenario)}
	}
	rollouts, err := choose(fleet.Rollouts(s.devices), func(r fleet.Rollout) string { return r.Name }, s.scenario,
		"-scenario")
	if err != nil {
		return err
	}
	rules, err := choose(fleet.RolloutContenders(s.interval), func(r fleet.RolloutRules) string { return r.Name }, s.rules,
		"-rules")
	if err != nil {
		return err
	}
	var updates []update
	for _, rollout := range rollouts {
		rollout.Image, rollout.Link, rollout.Requests = s.image, s.link, s.requests
		u := update{Rollout: rollout}
		for _, r := range rules {
			p := newProgress(log, rollout.Name+", "+r.Name)
			result, err := fleet.RunRollout(ctx, rollout, r, &fleet.Options{Seed: s.seed, Progress: p.show})
			p.clear()
			if err != nil {
				return fmt.Errorf("%s, %s: %w", rollout.Name, r.Name, err)
			}
			u.Results = append(u.Results, result)
		}
		if updates = append(updates, u); s.json != "-" {
			u.print(out)
		}
	}
	switch s.json {
	case "":
		return nil
	case "-":
		return writeJSON(out, updates)
	}
	return writeFile(s.json, func(w io.Writer) error { return writeJSON(w, updates) })
}

// print prints the table.
func (u *update) print(out io.Writer) {
	fmt.Fprintf(out, "%s: %s devices, %g MB over %g Mbit/s, %.1f requests/s\n", u.Rollout.Name,
		count(float64(u.Rollout.Devices)), u.Rollout.Image/1e6, u.Rollout.Link/1e6, u.Rollout.Requests)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "rules\t50 %\t95 %\tall\tstopped\tinstalled\tfailed\tlink used\trequests each\tpeak/s\t"+
		"peak/s files\tGB sent\tGB wasted\t")
	for _, r := range u.Results {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f %%\t%.1f\t%s\t%s\t%s\t%.1f\t\n", r.Rules, span(r.Ended50),
			span(r.Ended95), span(r.Ended100), span(r.Stopped), count(float64(r.Installed)), count(float64(r.Failed)),
			100*r.Used, float64(r.Requests)/float64(r.Devices), count(float64(r.PeakRequests)),
			count(float64(r.PeakFetches)), count(r.Sent/1e9), r.Wasted/1e9)
	}
	table.Flush()
	fmt.Fprintln(out)
}
