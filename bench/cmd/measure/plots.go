package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/hubline-iot/hubline/bench"
)

// plots measures how throughput and costs grow, and draws the results.
func plots(args []string) error {
	flags := flag.NewFlagSet("plots", flag.ExitOnError)
	s := bench.GrowthSettings{Log: os.Stdout}
	flags.IntVar(&s.Rounds, "rounds", 5, "rounds, in each of which each sender has a turn")
	flags.DurationVar(&s.Turn, "turn", 300*time.Millisecond, "about how long a turn takes; devices rest 30 times as long")
	flags.IntVar(&s.Devices, "devices", 20_000, "devices in a process, at most; the limit of open files counts, too")
	folder := flags.String("folder", "../docs", "where the pictures go")
	_ = flags.Parse(args) // exits on an error
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pictures, err := bench.Growth(ctx, s)
	if err != nil {
		return err
	}
	for _, p := range pictures {
		svg, err := bench.DrawCharts(p.Rows)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(*folder, p.File), svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}
