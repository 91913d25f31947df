package bench

import (
	"net"
	"os"
	"slices"
	"syscall"
	"time"
)

// RetryCase is something that a retry library does for its callers, to be measured next to what
// others do.
type RetryCase struct {
	Task    RetryTask
	Library string
	Does    string // in one of what Run repeats
	// Run does it n times, in one goroutine.
	Run func(n int) error
	// Curve makes the decisions about the eight retries of one series. It is nil where the library
	// decides within a run only.
	Curve func() ([]time.Duration, error)
}

// RetryTask is what the cases of one table have in common.
type RetryTask string

const (
	// Decide: the delay before a retry, attempts 1 to 8 in turn.
	Decide RetryTask = "decide"
	// Judge: is this error worth a retry, and after what delay.
	Judge RetryTask = "judge"
	// Charge: the same, paid for from a quota, which gets it back.
	Charge RetryTask = "charge"
	// Succeed: run an operation that succeeds at once.
	Succeed RetryTask = "succeed"
	// RetryTwice: run an operation that fails twice, with delays so short that no more of them is left
	// than the timer's work.
	RetryTwice RetryTask = "retry twice"
)

// RetryTasks are all tasks.
var RetryTasks = []RetryTask{Decide, Judge, Charge, Succeed, RetryTwice}

// The curve that all libraries are set to, each with its own randomness: its first delay, twice as
// much each time, up to a hundred times as much.
const (
	curveFactor = 2
	curveMax    = 100
	retries     = 8
)

// First delays. What really sleeps has delays that are over when the timer is looked at: it is the
// work for a sleep that is compared, not how soon the scheduler wakes who slept.
const (
	decided = 100 * time.Millisecond
	slept   = 2 * time.Nanosecond
)

// RetryCases are all cases, those of the same task together and Hubline's first.
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

// deciding makes a case of a function that decides about the retry of that number.
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

// running makes a case of a function that runs one operation.
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

// refused is the error that is judged, as the operating system makes it.
var refused error = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}

// told is an error that tells by itself what the AWS SDK asks errors first: the one it is quickest
// with.
var told error = retryable{}

type retryable struct{}

func (retryable) Error() string        { return "try again" }
func (retryable) RetryableError() bool { return true }

// succeedAtOnce is the operation for Succeed.
func succeedAtOnce() error { return nil }

// failTwice makes the operation for RetryTwice: of three calls the first two fail.
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
