package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// stores measures how many messages a second stores in files take, in turns.
func stores(args []string) error {
	flags := flag.NewFlagSet("outbox", flag.ExitOnError)
	rounds := flags.Int("rounds", 5, "rounds, in each of which each store has a turn")
	turn := flags.Duration("turn", 300*time.Millisecond, "about how long a turn takes")
	callers := flags.String("callers", "1,16,64,256", "how many callers store messages, each one after the other")
	_ = flags.Parse(args) // exits on an error
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var counts []int
	for text := range strings.SplitSeq(*callers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-callers: %q is no number of callers", text)
		}
		counts = append(counts, n)
	}
	fmt.Printf("%s, %d CPUs, messages a second, median of %d rounds of about %v in turns, and times the first row\n",
		runtime.Version(), runtime.NumCPU(), max(*rounds, 1), *turn)
	for _, synced := range []bool{true, false} {
		if err := compareStores(ctx, synced, counts, max(*rounds, 1), *turn); err != nil {
			return err
		}
	}
	return nil
}

// compareStores prints the table with or without syncs.
func compareStores(ctx context.Context, synced bool, callers []int, rounds int, turn time.Duration) error {
	rates := make([][]float64, len(allStores)*len(callers)) // by store and callers
	for range rounds {
		for i, s := range allStores {
			for j, n := range callers {
				if synced && s.noSync {
					continue
				}
				rate, err := s.fill(ctx, synced, n, turn)
				if err != nil {
					return fmt.Errorf("%s, synced %v: %w", s.name, synced, err)
				}
				rates[i*len(callers)+j] = append(rates[i*len(callers)+j], rate)
			}
		}
	}
	how := "without syncs"
	if synced {
		how = "stored means synced"
	}
	fmt.Printf("\n| %s |", how)
	for _, n := range callers {
		fmt.Printf(" callers: %d |", n)
	}
	fmt.Printf("\n|--|%s\n", strings.Repeat("--|", len(callers)))
	for i, s := range allStores {
		if synced && s.noSync {
			continue
		}
		fmt.Printf("| %s |", s.name)
		for j := range callers {
			rate := quantile(rates[i*len(callers)+j], 0.5)
			fmt.Printf(" %.0f (%.2f) |", rate, rate/quantile(rates[j], 0.5))
		}
		fmt.Println()
	}
	return nil
}
