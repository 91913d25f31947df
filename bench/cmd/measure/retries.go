package main

import (
	"flag"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/bench"
)

// retries measures decisions and runs of retry libraries, in one process and in turns, and prints a
// table for each task.
func retries(args []string) error {
	flags := flag.NewFlagSet("retries", flag.ExitOnError)
	rounds := flags.Int("rounds", 101, "counted rounds of each case")
	length := flags.Duration("length", 5*time.Millisecond, "about how long a case runs in a round")
	_ = flags.Parse(args) // exits on an error
	return decisions(max(*rounds, 1), *length)
}

// retryFigures are the values of one case, one per round, each per decision or run.
type retryFigures struct {
	bench.RetryCase
	n                    int
	ns, bytes, allocated []float64
}

func decisions(rounds int, length time.Duration) error {
	cases, err := bench.RetryCases()
	if err != nil {
		return err
	}
	all := make([]retryFigures, len(cases))
	for i, c := range cases {
		all[i].RetryCase = c
		if all[i].n, err = enough(c, length); err != nil {
			return fmt.Errorf("%s %s: %w", c.Library, c.Task, err)
		}
	}
	for range rounds {
		for i := range all {
			if err := all[i].measure(); err != nil {
				return fmt.Errorf("%s %s: %w", all[i].Library, all[i].Task, err)
			}
		}
	}
	fmt.Printf("%s, %d CPUs, %d rounds of about %v in turns\n", runtime.Version(), runtime.NumCPU(), rounds, length)
	for _, task := range bench.RetryTasks {
		fmt.Printf("\n%s:\n\n| library | what it does in one | ns (median) | middle half | least | B | allocations "+
			"|\n|--|--|--|--|--|--|--|\n", task)
		for _, f := range all {
			if f.Task == task {
				fmt.Printf("| %s | %s | %.0f | %.0f to %.0f | %.0f | %.0f | %s |\n", f.Library, f.Does, quantile(f.ns, 0.5),
					quantile(f.ns, 0.25), quantile(f.ns, 0.75),
					quantile(f.ns, 0), quantile(f.bytes, 0.5), tenths(quantile(f.allocated, 0.5)))
			}
		}
	}
	return nil
}

// enough returns the number of runs of c that take about as long as length. It warms c up.
func enough(c bench.RetryCase, length time.Duration) (int, error) {
	for n := 8; ; n *= 2 {
		start := time.Now()
		if err := c.Run(n); err != nil {
			return 0, err
		}
		if took := time.Since(start); took >= length || n >= 1<<30 {
			return n, nil
		}
	}
}

func (f *retryFigures) measure() error {
	var before, after runtime.MemStats
	runtime.GC() // garbage of other cases must not count for this one
	runtime.ReadMemStats(&before)
	start := time.Now()
	err := f.Run(f.n)
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	n := float64(f.n)
	f.ns = append(f.ns, float64(took)/n)
	f.bytes = append(f.bytes, float64(after.TotalAlloc-before.TotalAlloc)/n)
	f.allocated = append(f.allocated, float64(after.Mallocs-before.Mallocs)/n)
	return err
}

// tenths prints v with one decimal, if there is one.
func tenths(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }
