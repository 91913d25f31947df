package main

import (
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// RetryCase is a task of a retry library, measured next to other libraries.
type RetryCase struct {
	Task    RetryTask
	Library string
	Does    string // in one iteration of Run
	// Run repeats the task n times, in one goroutine.
	Run func(n int) error
	// Curve decides about the eight retries of one series. It is nil if the library decides only
	// within a run.
	Curve func() ([]time.Duration, error)
}

// RetryTask is the common task of the cases in one table.
type RetryTask string

const (
	// Decide computes the delay before a retry, for attempts 1 to 8 in turn.
	Decide RetryTask = "decide"
	// Judge decides whether an error is retryable, and after what delay.
	Judge RetryTask = "judge"
	// Charge is Judge with a quota that pays for the retry and gets the cost back.
	Charge RetryTask = "charge"
	// Succeed runs an operation that succeeds at once.
	Succeed RetryTask = "succeed"
	// RetryTwice runs an operation that fails twice, with delays so short that only the timer's work
	// remains.
	RetryTwice RetryTask = "retry twice"
)

// RetryTasks are all tasks.
var RetryTasks = []RetryTask{Decide, Judge, Charge, Succeed, RetryTwice}

// The curve of all libraries, each with its own randomness: it starts at the first delay and
// doubles, up to a hundred times the first delay.
const (
	curveFactor = 2
	curveMax    = 100
	retries     = 8
)

// First delays. In cases that really sleep, the delay is over when the timer checks it. So they
// compare the work for a sleep, not how soon the scheduler wakes a sleeper.
const (
	decided = 100 * time.Millisecond
	slept   = 2 * time.Nanosecond
)

// RetryCases returns all cases, grouped by task, with Hubline's first.
func RetryCases() ([]RetryCase, error) {
	var all []RetryCase
	for _, library := range []func() ([]RetryCase, error){hublineRetries, cenkaltiRetries, failsafeRetries, awsRetries} {
		cases, err := library()
		if err != nil {
			return nil, err
		}
		all = append(all, cases...)
	}
	slices.SortStableFunc(all, func(a, b RetryCase) int {
		return slices.Index(RetryTasks, a.Task) - slices.Index(RetryTasks, b.Task)
	})
	return all, nil
}

// deciding makes a case from a function that decides about the retry with that number.
func deciding(task RetryTask, library, does string, decide func(retry int) (time.Duration, error)) RetryCase {
	return RetryCase{
		Task: task, Library: library, Does: does,
		Run: func(n int) error {
			for i := range n {
				if _, err := decide(i%retries + 1); err != nil {
					return err
				}
			}
			return nil
		},
		Curve: func() ([]time.Duration, error) {
			var delays []time.Duration
			for i := range retries {
				d, err := decide(i + 1)
				if err != nil {
					return nil, err
				}
				delays = append(delays, d)
			}
			return delays, nil
		},
	}
}

// running makes a case from a function that runs one operation.
func running(task RetryTask, library, does string, run func() error) RetryCase {
	return RetryCase{Task: task, Library: library, Does: does, Run: func(n int) error {
		for range n {
			if err := run(); err != nil {
				return err
			}
		}
		return nil
	}}
}

// opaque is v, of which the compiler knows no more than T: programs hold policies as interfaces, so
// calls are measured through these.
//
//go:noinline
func opaque[T any](v T) T { return v }

// refused is the error to judge, as the operating system returns it.
var refused error = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}

// told is an error with the method that the AWS SDK checks first: its fastest case.
var told error = retryable{}

type retryable struct{}

func (retryable) Error() string        { return "try again" }
func (retryable) RetryableError() bool { return true }

// succeedAtOnce is the operation for Succeed.
func succeedAtOnce() error { return nil }

// failTwice makes the operation for RetryTwice: the first two of three calls fail.
func failTwice() func() error {
	calls := 0
	return func() error {
		calls++
		if calls%3 != 0 {
			return refused
		}
		return nil
	}
}

// retryCosts measures decisions and runs of retry libraries, in one process and in turns, and
// prints a table for each task.
func retryCosts(args []string) error {
	flags := flag.NewFlagSet("retries", flag.ExitOnError)
	rounds := flags.Int("rounds", 101, "counted rounds of each case")
	length := flags.Duration("length", 5*time.Millisecond, "about how long a case runs in a round")
	_ = flags.Parse(args) // exits on an error
	return decisions(max(*rounds, 1), *length)
}

// retryFigures are the values of one case, one per round, each per decision or run.
type retryFigures struct {
	RetryCase
	n                    int
	ns, bytes, allocated []float64
}

func decisions(rounds int, length time.Duration) error {
	cases, err := RetryCases()
	if err != nil {
		return err
	}
	all := make([]retryFigures, len(cases))
	for i, c := range cases {
		all[i].RetryCase = c
		if all[i].n, err = repeats(c, length); err != nil {
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
	for _, task := range RetryTasks {
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

// repeats returns the number of runs of c that take about as long as length. It warms c up.
func repeats(c RetryCase, length time.Duration) (int, error) {
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
