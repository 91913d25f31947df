// Command fleet simulates how a fleet of devices comes back to its hub, and compares retry
// policies. It prints a table, and writes a report with plots if asked to:
//
//	go run ./cmd/fleet -devices 100000 -scenario outage -o report.html
//
// Package fleet says what is simulated and what is a model.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"syscall"

	"github.com/hubline-iot/hubline/fleet"
	"github.com/hubline-iot/hubline/transport"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
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
	case s.updates():
		return s.simulateUpdates(ctx, out, log)
	}
	families, err := s.plan()
	if err != nil {
		return err
	}
	if err := s.openOutputs(); err != nil {
		return err
	}
	table := out
	if s.json == "-" {
		table = io.Discard
	}
	err = s.simulate(ctx, families, table, log)
	return errors.Join(err, s.write(families, out))
}

// simulate runs everything and prints each row when it is there. After an error the families have
// the results before it.
func (s *settings) simulate(ctx context.Context, families []family, table, log io.Writer) error {
	for i := range families {
		f := &families[i]
		for _, r := range f.rules {
			p := newProgress(log, f.Scenario.Name+", "+r.Name)
			result, err := fleet.Run(ctx, f.Scenario, r, &fleet.Options{Seed: s.seed, Workers: s.workers, Progress: p.show})
			p.clear()
			switch {
			case ctx.Err() != nil:
				return fmt.Errorf("interrupted during %s, %s; the results before it are complete: %w", f.Scenario.Name, r.Name,
					ctx.Err())
			case err != nil:
				return fmt.Errorf("%s, %s: %w", f.Scenario.Name, r.Name, err)
			}
			f.Results = append(f.Results, result)
			if f.real != nil {
				f.Distances = append(f.Distances, f.real.distance(result))
			}
			if err := f.printLast(table); err != nil {
				return err
			}
		}
		fmt.Fprintln(table)
	}
	return nil
}
