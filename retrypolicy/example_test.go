//go:build !tinygo

package retrypolicy_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// The zero value is the documented back-off. The draw is an input, so every delay can be computed
// exactly.
func ExampleExponentialBackoffWithJitter() {
	var p retrypolicy.ExponentialBackoffWithJitter
	for x := 1; x <= 9; x++ {
		least := p.Decide(retrypolicy.Attempt{Retry: x, Rand: 0})
		middle := p.Decide(retrypolicy.Attempt{Retry: x, Rand: 1 << 63})
		fmt.Println(x, least.Delay, middle.Delay)
	}
	// Output:
	// 1 100ms 100ms
	// 2 150ms 162.5ms
	// 3 250ms 287.5ms
	// 4 450ms 537.5ms
	// 5 850ms 1.0375s
	// 6 1.65s 2.0375s
	// 7 3.25s 4.0375s
	// 8 6.45s 8.0375s
	// 9 10s 10s
}

// Validate checks the parameters and names the wrong one.
func ExampleValidate() {
	slow := retrypolicy.ExponentialBackoffWithJitter{C: 5 * time.Second, Cmin: 10 * time.Second, Cmax: time.Minute,
		Jd: 0.5, Ju: 0.25}
	fmt.Println(retrypolicy.Validate(slow))
	slow.Cmax = time.Second
	fmt.Println(retrypolicy.Validate(slow))
	// Output:
	// <nil>
	// invalid: retry policy: ExponentialBackoffWithJitter.Cmax is below Cmin; give Cmin or more (0 is 100 ms for Cmin and 10 s for Cmax)
}

// A hub that throttles is left alone for a minute, an unreachable one only for seconds.
func ExampleByKind() {
	p := retrypolicy.ByKind{
		Rules: []retrypolicy.Rule{{
			Kinds: retrypolicy.Kinds(transport.Throttled, transport.Quota), Policy: retrypolicy.Fixed{Delay: time.Minute},
		}},
		Default: retrypolicy.Incremental{Step: time.Second, Max: 10 * time.Second},
	}
	fmt.Println(p.Decide(retrypolicy.Attempt{Retry: 1, Kind: transport.Network}))
	fmt.Println(p.Decide(retrypolicy.Attempt{Retry: 2, Kind: transport.Throttled}))
	fmt.Println(p.Decide(retrypolicy.Attempt{Retry: 3, Kind: transport.Network}))
	// Output:
	// retry after 1s
	// retry after 1m0s
	// retry after 3s
}

// patient retries a lost connection for a day and a refused message three times.
type patient struct{}

func (patient) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	if a.Scope == transport.ScopeConnection {
		return retrypolicy.Decision{Retry: a.Elapsed < 24*time.Hour, Delay: time.Minute}
	}
	return retrypolicy.Decision{Retry: a.Retry <= 3, Delay: time.Duration(a.Retry) * time.Second}
}

// A custom policy is a type with one method that computes and never sleeps.
func ExamplePolicy() {
	var p retrypolicy.Policy = patient{}
	fmt.Println(p.Decide(retrypolicy.Attempt{Retry: 700, Scope: transport.ScopeConnection, Elapsed: 12 * time.Hour}))
	fmt.Println(p.Decide(retrypolicy.Attempt{Retry: 1}))
	fmt.Println(p.Decide(retrypolicy.Attempt{Retry: 2}))
	// Output:
	// retry after 1m0s
	// retry after 1s
	// retry after 2s
}

// tickets is a quota of one's own: each retry takes a ticket, and one that succeeds returns it.
type tickets struct {
	retrypolicy.Policy
	left atomic.Int64
}

// Begin begins the series of an operation, around that of the policy inside.
func (q *tickets) Begin(start retrypolicy.Start) retrypolicy.Series {
	return &ticketSeries{Series: retrypolicy.Inner(q.Policy, start), quota: q}
}

// Unwrap shows Do the limits inside, such as a MaxElapsed.
func (q *tickets) Unwrap() retrypolicy.Policy { return q.Policy }

// Validate checks the policy inside.
func (q *tickets) Validate() error { return retrypolicy.Validate(q.Policy) }

// ticketSeries is an operation under a quota. What it does not override, the policy inside does.
type ticketSeries struct {
	retrypolicy.Series
	quota   *tickets
	pending bool // a retry was decided on and has not ended
}

// Decide takes a ticket for a retry that the policy inside wants.
func (s *ticketSeries) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	d := s.Series.Decide(a)
	if !d.Retry {
		return d
	}
	if s.quota.left.Add(-1) < 0 {
		s.quota.left.Add(1)
		return retrypolicy.Decision{Reason: retrypolicy.ReasonOutOfQuota}
	}
	s.pending = true
	return d
}

// Report returns the ticket of a retry that succeeded.
func (s *ticketSeries) Report(v retrypolicy.Verdict, a retrypolicy.Attempt) {
	if s.pending && v == retrypolicy.VerdictSucceed {
		s.quota.left.Add(1)
	}
	s.pending = false
	s.Series.Report(v, a)
}

// End returns the ticket of a retry that was not made.
func (s *ticketSeries) End() {
	if s.pending {
		s.quota.left.Add(1)
	}
	s.Series.End()
}

// A quota that all operations share: each of them has a series, which takes tickets from it.
func ExampleStateful() {
	quota := &tickets{Policy: retrypolicy.Fixed{Delay: time.Millisecond}}
	quota.left.Store(3)
	for range 2 {
		fmt.Println(retrypolicy.Do(context.Background(), quota, func(context.Context) error { return errors.New("down") }))
	}
	// Output:
	// retry quota exceeded after 3 retries: down
	// retry quota exceeded: down
}
