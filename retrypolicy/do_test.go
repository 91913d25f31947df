//go:build !tinygo

package retrypolicy_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// scripted is an operation that returns these errors in order and then repeats the last. It records
// when it ran.
type scripted struct {
	began   time.Time
	outcome []error
	at      []time.Duration
}

func perform(outcome ...error) *scripted { return &scripted{began: time.Now(), outcome: outcome} }

func (s *scripted) run(context.Context) error {
	n := len(s.at)
	s.at = append(s.at, time.Since(s.began))
	return s.outcome[min(n, len(s.outcome)-1)]
}

func (s *scripted) want(t *testing.T, at ...time.Duration) {
	t.Helper()
	if fmt.Sprint(s.at) != fmt.Sprint(at) {
		t.Errorf("ran at %v, want %v", s.at, at)
	}
}

// every retries after a second each time, for total attempts.
func every(total int) retrypolicy.Policy {
	return retrypolicy.MaxAttempts{Total: total, Policy: policytest.Again(time.Second)}
}

var bg = context.Background()

func TestDoRetriesUntilItSucceeds(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		op := perform(transport.Network, transport.Timeout, nil)
		if err := retrypolicy.Do(bg, every(5), op.run); err != nil {
			t.Error(err)
		}
		op.want(t, 0, time.Second, 2*time.Second)
	})
}

func TestDoStops(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lost := &transport.Error{Kind: transport.Network}
		for _, c := range []struct {
			name    string
			policy  retrypolicy.Policy
			outcome []error
			reason  retrypolicy.Reason
			runs    int
			is      error
		}{
			{"out of attempts", every(3), []error{transport.Timeout, transport.Timeout, lost},
				retrypolicy.ReasonOutOfAttempts, 3,
				lost},
			{"not retryable", every(3), []error{lost, transport.Forbidden}, retrypolicy.ReasonNotRetryable, 2,
				transport.Forbidden},
			{"permanent", every(3), []error{retrypolicy.Permanent(lost)}, retrypolicy.ReasonNotRetryable, 1, lost},
			{"asked not to", every(3), []error{&transport.Error{Kind: transport.Network, RetryAfter: -1}},
				retrypolicy.ReasonPushback,
				1, transport.Network},
			{"a zero delay is a retry", retrypolicy.MaxAttempts{Total: 3, Policy: policytest.Again(0)}, []error{lost},
				retrypolicy.ReasonOutOfAttempts, 3, lost},
			{"no retry", retrypolicy.NoRetry{}, []error{lost}, retrypolicy.ReasonPolicy, 1, lost},
		} {
			op := perform(c.outcome...)
			err := retrypolicy.Do(bg, c.policy, op.run)
			if len(op.at) != c.runs {
				t.Errorf("%s: %d runs, want %d", c.name, len(op.at), c.runs)
			}
			wantError(t, err, c.reason, c.runs-1, c.is)
		}
	})
}

func TestDoRunsNothingWithBadParameters(t *testing.T) {
	op := perform(nil)
	for _, r := range []retrypolicy.Retrier{
		{}, {Policy: every(0)}, {Policy: every(1), AttemptTimeout: -1}, {Policy: retrypolicy.Func(nil)},
	} {
		if err := r.Do(bg, op.run); !errors.Is(err, transport.Invalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	op.want(t)
}

func TestDoValueReturnsTheLastValue(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := 0
		v, err := retrypolicy.DoValue(bg, every(3), func(context.Context) (int, error) {
			if n++; n < 3 {
				return n, transport.Network
			}
			return n, nil
		})
		if v != 3 || err != nil {
			t.Error(v, err)
		}
		v, err = retrypolicy.DoValue(bg, every(3), func(context.Context) (int, error) {
			n++
			return n,
				transport.Network
		})
		if v != 6 {
			t.Error(v)
		}
		wantError(t, err, retrypolicy.ReasonOutOfAttempts, 2, transport.Network)
	})
}

// The quota that ExampleStateful shows has the method by which Do finds a limit inside.
func TestTheLimitInsideAQuotaOfOnesOwnReplacesTheDefault(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		q := &tickets{Policy: retrypolicy.MaxElapsed{Limit: time.Hour, Policy: retrypolicy.Fixed{Delay: time.Minute}}}
		q.left.Store(1000)
		err := retrypolicy.Do(bg, q, func(context.Context) error { return transport.Network })
		wantError(t, err, retrypolicy.ReasonOutOfTime, 61, transport.Network)
	})
}

// A delay that would end at the deadline or later is skipped: the error comes at once.
func TestDoNeverSleepsPastADeadline(t *testing.T) {
	for _, c := range []struct {
		deadline time.Duration
		at       []time.Duration
	}{
		{time.Hour, []time.Duration{0, time.Second, 2 * time.Second}},
		{2*time.Second + 1, []time.Duration{0, time.Second, 2 * time.Second}},
		{2 * time.Second, []time.Duration{0, time.Second}},
		{1500 * time.Millisecond, []time.Duration{0, time.Second}},
		{time.Second, []time.Duration{0}},
		{1, []time.Duration{0}},
	} {
		testkit.Bubble(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(bg, c.deadline)
			defer cancel()
			told := 0
			r := retrypolicy.Retrier{Policy: every(3), OnRetry: func(int, time.Duration, error) { told++ }}
			op := perform(transport.Network)
			err := r.Do(ctx, op.run)
			op.want(t, c.at...)
			reason := retrypolicy.ReasonPastDeadline
			if len(c.at) == 3 {
				reason = retrypolicy.ReasonOutOfAttempts
			}
			wantError(t, err, reason, len(c.at)-1, transport.Network)
			if ended := time.Since(op.began); ended != c.at[len(c.at)-1] {
				t.Errorf("deadline %v: returned after %v", c.deadline, ended)
			}
			if told != len(c.at)-1 {
				t.Errorf("deadline %v: %d retries announced, %d made", c.deadline, told, len(c.at)-1)
			}
		})
	}
}

func TestDoEndsDuringADelay(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(bg)
		time.AfterFunc(1300*time.Millisecond, func() { cancel(why) })
		op := perform(transport.Network)
		err := retrypolicy.Do(ctx, every(5), op.run)
		op.want(t, 0, time.Second)
		wantError(t, err, retrypolicy.ReasonCancelled, 1, context.Canceled, transport.Network)
		if ended := time.Since(op.began); ended != 1300*time.Millisecond {
			t.Errorf("returned after %v", ended)
		}
	})
}

// An attempt that the context ended has its own error; Do returns the real failure before it.
func TestDoEndsDuringAnAttempt(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(bg, 1300*time.Millisecond)
		defer cancel()
		runs := 0
		err := retrypolicy.Do(ctx, every(5), func(ctx context.Context) error {
			if runs++; runs == 1 {
				return transport.Unavailable
			}
			<-ctx.Done()
			return fmt.Errorf("read: %w", ctx.Err())
		})
		wantError(t, err, retrypolicy.ReasonCancelled, 1, context.DeadlineExceeded, transport.Unavailable)
		if strings.Contains(err.Error(), "read:") {
			t.Errorf("%v: the echo of the context hides the failure", err)
		}
		// Without an earlier failure Do returns the attempt's own error.
		err = retrypolicy.Do(ctx, every(5), func(ctx context.Context) error {
			return fmt.Errorf("read: %w", ctx.Err())
		})
		wantError(t, err, retrypolicy.ReasonCancelled, 0, context.DeadlineExceeded)
		// A success counts even if the context has ended.
		if err := retrypolicy.Do(ctx, every(5), func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

func TestRetrierTimeoutEndsARunningAttempt(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		r := retrypolicy.Retrier{Policy: every(9), Timeout: 2500 * time.Millisecond}
		began, runs := time.Now(), 0
		err := r.Do(bg, func(ctx context.Context) error {
			if runs++; runs < 3 {
				return transport.Throttled
			}
			<-ctx.Done() // begun at 2 s
			return ctx.Err()
		})
		wantError(t, err, retrypolicy.ReasonOutOfTime, 2, transport.Throttled, context.DeadlineExceeded)
		if ended := time.Since(began); ended != 2500*time.Millisecond {
			t.Errorf("ended after %v", ended)
		}
		// Do does not sleep past the limit either. A failure that is not the context's replaces the
		// earlier one.
		op := perform(transport.Network)
		err = r.Do(bg, op.run)
		op.want(t, 0, time.Second, 2*time.Second)
		wantError(t, err, retrypolicy.ReasonOutOfTime, 2, transport.Network)
		// The earlier of the two counts: the caller's deadline keeps its own reason.
		ctx, cancel := context.WithTimeout(bg, 1500*time.Millisecond)
		defer cancel()
		wantError(t, r.Do(ctx, perform(transport.Network).run), retrypolicy.ReasonPastDeadline, 1, transport.Network)
	})
}

// unsafe is an error of something that must not happen twice.
type unsafe struct{ error }

func (unsafe) RetrySafe() (safe, known bool) { return false, true }
func (e unsafe) Unwrap() error               { return e.error }

func TestRetrierAttemptTimeout(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		rec := open()
		r := retrypolicy.Retrier{Policy: rec, AttemptTimeout: 300 * time.Millisecond}
		began, runs := time.Now(), 0
		err := r.Do(bg, func(ctx context.Context) error {
			if runs++; runs == 3 {
				return nil
			}
			<-ctx.Done()
			return fmt.Errorf("read: %w", ctx.Err())
		})
		if err != nil || time.Since(began) != 2*(300*time.Millisecond+time.Second) {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if len(rec.decide) != 2 || rec.decide[0].Kind != transport.Timeout {
			t.Errorf("asked %d times, first about %v", len(rec.decide), rec.decide[0].Kind)
		}
		// The context of an attempt is released when it ends.
		var of context.Context
		r.Policy = retrypolicy.NoRetry{}
		if err := r.Do(bg, func(ctx context.Context) error { of = ctx; return nil }); err != nil || of.Err() == nil {
			t.Errorf("%v; the try's context lives on", err)
		}
		// What the error says of itself counts for this time-out, too.
		for _, mark := range []func(error) error{retrypolicy.Permanent, func(err error) error { return unsafe{err} }} {
			r.Policy = every(3)
			runs := 0
			err := r.Do(bg, func(ctx context.Context) error {
				runs++
				<-ctx.Done()
				return mark(ctx.Err())
			})
			if runs != 1 || !errors.Is(err, retrypolicy.ReasonNotRetryable) {
				t.Errorf("%d runs, %v; want one", runs, err)
			}
		}
		// A DeadlineExceeded of the operation's own context, not of the attempt's, is not retried.
		wantError(t, r.Do(bg, func(context.Context) error {
			return context.DeadlineExceeded
		}), retrypolicy.ReasonNotRetryable, 0, context.DeadlineExceeded)
	})
}

func TestSafeOnlyUnderDo(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		dial := &transport.Error{Kind: transport.Network, Op: transport.OpDial}
		for _, c := range []struct {
			err    error
			reason retrypolicy.Reason
			runs   int
		}{
			{transport.Network, retrypolicy.ReasonUnsafe, 1}, // the service may have acted
			{dial, retrypolicy.ReasonOutOfAttempts, 3},       // the request was never sent
			{transport.Throttled, retrypolicy.ReasonOutOfAttempts, 3},
			{transport.Forbidden, retrypolicy.ReasonNotRetryable, 1},
		} {
			r := retrypolicy.Retrier{Policy: retrypolicy.SafeOnly{Policy: every(3)}}
			op := perform(c.err)
			wantError(t, r.Do(bg, op.run), c.reason, c.runs-1, c.err)
			if len(op.at) != c.runs {
				t.Errorf("%v: %d runs", c.err, len(op.at))
			}
		}
	})
}

// N16 and N17 of the published sequences: a long poll that the quota refuses is slowed down, any
// other operation is not.
func TestRetrierLongPoll(t *testing.T) {
	for _, c := range []struct {
		name   string
		preset func() *compat.AWSOptions
		poll   bool
		total  int
		spent  int
		kind   transport.Kind
		runs   int
		took   time.Duration
		reason retrypolicy.Reason
	}{
		{"N16", compat.AWSStandard.Options, true, 3, 500, transport.Unavailable, 1, 50 * time.Millisecond,
			retrypolicy.ReasonOutOfQuota},
		{"N17", compat.AWSPython.Options, true, 3, 500, transport.Throttled, 1, time.Second,
			retrypolicy.ReasonOutOfQuota},
		{"N17, Go", compat.AWSStandard.Options,
			true, 3, 500, transport.Throttled, 1, time.Second, retrypolicy.ReasonOutOfQuota},
		{"no long poll", compat.AWSStandard.Options,
			false, 3, 500, transport.Unavailable, 1, 0, retrypolicy.ReasonOutOfQuota},
		{"out of attempts", compat.AWSStandard.Options, true, 2, 0, transport.Unavailable, 2, 50 * time.Millisecond,
			retrypolicy.ReasonOutOfAttempts},
		{"not retryable", compat.AWSStandard.Options,
			true, 3, 500, transport.Forbidden, 1, 0, retrypolicy.ReasonNotRetryable},
	} {
		testkit.Bubble(t, func(t *testing.T) {
			o := c.preset()
			o.Attempts = c.total
			policytest.Bucketed(o, 500, 500-c.spent)
			r := retrypolicy.Retrier{
				Policy: policytest.Must(compat.NewAWS(o)), LongPoll: c.poll, Rand: func() uint64 { return policytest.DrawLast },
				Classify: func(err error) retrypolicy.Info {
					info := retrypolicy.Classify(err)
					info.Safe = retrypolicy.SafeYes
					return info
				},
			}
			op := perform(c.kind)
			wantError(t, r.Do(bg, op.run), c.reason, c.runs-1, c.kind)
			if took := time.Since(op.began); len(op.at) != c.runs || took != c.took {
				t.Errorf("%s: %d runs, %v; want %d, %v", c.name, len(op.at), took, c.runs, c.took)
			}
		})
	}
	testkit.Bubble(t, func(t *testing.T) { // N19, and a success: no delay
		r := retrypolicy.Retrier{Policy: policytest.Must(compat.NewAWS(compat.AWSStandard.Options())),
			LongPoll: true, Rand: func() uint64 { return policytest.DrawLast }}
		op := perform(transport.Unavailable, nil)
		if err := r.Do(bg, op.run); err != nil || time.Since(op.began) != 50*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(op.began))
		}
		ctx, cancel := context.WithTimeout(bg, 10*time.Millisecond) // the poller's own end comes first
		defer cancel()
		o := compat.AWSStandard.Options()
		policytest.Bucketed(o, 500, 0)
		r.Policy = policytest.Must(compat.NewAWS(o))
		began := time.Now()
		wantError(t, r.Do(ctx, perform(transport.Unavailable).run), retrypolicy.ReasonOutOfQuota, 0,
			transport.Unavailable)
		if time.Since(began) != 0 {
			t.Errorf("slept %v towards a deadline that is nearer", time.Since(began))
		}
	})
}

// A long poll that a gate refuses is slowed down too.
func TestRetrierLongPollAtABreaker(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := policytest.Must(budget.NewBreaker(&budget.BreakerOptions{Failures: 1}))
		r := retrypolicy.Retrier{Policy: b.Wrap(retrypolicy.NoRetry{}), LongPoll: true}
		op := perform(transport.Network)
		for range 5 {
			_ = r.Do(bg, op.run)
		}
		op.want(t, 0, 30*time.Second, 60*time.Second) // a poll that runs and one that is refused, in turn
		if took := time.Since(op.began); took != time.Minute {
			t.Errorf("5 polls in %v", took)
		}
		ctx, cancel := context.WithTimeout(bg, time.Second) // the poller's own end comes first
		defer cancel()
		wantError(t, r.Do(ctx, op.run), retrypolicy.ReasonRejected, 0)
		if took := time.Since(op.began); took != time.Minute {
			t.Errorf("slept %v towards a deadline that is nearer", took-time.Minute)
		}
	})
}

// 200 callers wait at a breaker. After a successful probe they must not all return at once.
func TestABreakerThatClosesSpreadsItsCallers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const callers = 200
		b := policytest.Must(budget.NewBreaker(&budget.BreakerOptions{Failures: 1, Cooldown: 10 * time.Second,
			Wait: true}))
		p := b.Wrap(policytest.Again(time.Second))
		policytest.Series(p).Report(retrypolicy.VerdictAgain,
			policytest.As(retrypolicy.Attempt{Now: time.Now()}, transport.Network))
		began := time.Now()
		var lock sync.Mutex
		var came []time.Duration
		var all sync.WaitGroup
		for i := range uint64(callers) {
			all.Go(func() {
				draws := rand.New(rand.NewPCG(15, i))
				r := retrypolicy.Retrier{Policy: p, Rand: draws.Uint64}
				err := r.Do(bg, func(context.Context) error {
					lock.Lock()
					came = append(came, time.Since(began))
					lock.Unlock()
					time.Sleep(time.Second)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		slices.Sort(came)
		most := 0
		for i := range came {
			n, _ := slices.BinarySearch(came[i:], came[i]+100*time.Millisecond)
			most = max(most, n)
		}
		if len(came) != callers || most > callers/10 {
			t.Errorf("%d came, %d of them within 100 ms", len(came), most)
		}
		if came[0] < 10*time.Second || came[1] < came[0]+time.Second || came[callers-1] > 20*time.Second {
			t.Errorf("the first at %v, the second at %v, the last at %v", came[0], came[1], came[callers-1])
		}
		t.Logf("%d of %d within 100 ms, from %v to %v", most, callers, came[0], came[callers-1])
	})
}

// The context ends during an attempt that returns an answer all the same: the policy observes the
// answer and is not asked to decide.
func TestDoReportsAnAnswerAfterTheContextEnded(t *testing.T) {
	invalid := retrypolicy.Permanent(errors.New("bad"))
	why := errors.New("why")
	for _, c := range []struct {
		name     string
		err      error
		reason   retrypolicy.Reason
		told     error
		kind     transport.Kind
		terminal bool
	}{
		{"throttled", transport.Throttled, retrypolicy.ReasonCancelled, transport.Throttled,
			transport.Throttled, false},
		{"permanent", invalid, retrypolicy.ReasonNotRetryable, invalid, 0, true},
		{"no more than an echo", fmt.Errorf("read: %w", context.Canceled), retrypolicy.ReasonCancelled, nil, 0,
			false},
		{"an echo of another context", context.DeadlineExceeded, retrypolicy.ReasonCancelled, nil, 0, false},
		{"an echo of the cause", fmt.Errorf("read: %w", why), retrypolicy.ReasonCancelled, nil, 0, false},
	} {
		ctx, cancel := context.WithCancelCause(bg)
		rec := open()
		err := retrypolicy.Do(ctx, rec, func(context.Context) error { cancel(why); return c.err })
		wantError(t, err, c.reason, 0, c.err)
		if errors.Is(err, context.Canceled) != (c.reason == retrypolicy.ReasonCancelled) {
			t.Errorf("%s: %v", c.name, err)
		}
		if len(rec.decide) != 0 || (len(rec.report) == 1) != (c.told != nil) || rec.ends != 1 {
			t.Errorf("%s: asked %d times, told %+v, ended %d times", c.name, len(rec.decide), rec.report, rec.ends)
		}
		if c.told != nil && (!errors.Is(rec.report[0].Err, c.told) || rec.report[0].Kind != c.kind ||
			(rec.verdicts[0] == retrypolicy.VerdictFail) != c.terminal) {
			t.Errorf("%s: told %v, %+v", c.name, rec.verdicts, rec.report)
		}
	}
	a := budget.NewAdaptive()
	ctx, cancel := context.WithCancel(bg)
	_ = retrypolicy.Do(ctx, a.Wrap(retrypolicy.Immediately{}),
		func(context.Context) error { cancel(); return transport.Throttled })
	if _, on := a.Rate(); !on {
		t.Error("Adaptive did not see the throttling")
	}
}

func TestRetrierReportsRetriesAndPassesTheKey(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		rec := open()
		var told []string
		n := uint64(0)
		began := time.Now()
		r := retrypolicy.Retrier{
			Policy: rec, Key: "tenant", Rand: func() uint64 { n++; return n },
			OnRetry: func(retry int, delay time.Duration, err error) {
				told = append(told, fmt.Sprint(retry, delay, err, time.Since(began)))
			},
		}
		op := perform(transport.Network, transport.Timeout, nil)
		if err := r.Do(bg, op.run); err != nil {
			t.Error(err)
		}
		if want := "[1 1s network failure 0s 2 1s timed out 1s]"; fmt.Sprint(told) != want {
			t.Errorf("%v, want %v", told, want)
		}
		if rec.key != "tenant" {
			t.Errorf("key %q", rec.key)
		}
		// Three attempts: each has one Admit and one Report, the two failures a Decide.
		if len(rec.admit) != 3 || len(rec.report) != 3 || len(rec.decide) != 2 || rec.report[2].Err != nil {
			t.Errorf("%d, %d, %d calls", len(rec.admit), len(rec.report), len(rec.decide))
		}
		if rec.decide[0].Rand != 2 || rec.decide[1].Rand != 4 {
			t.Errorf("draws %d, %d", rec.decide[0].Rand, rec.decide[1].Rand)
		}
	})
}

// Draws differ between two calls of Do and within one call.
func TestDoDrawsItsOwnNumbers(t *testing.T) {
	seen := map[uint64]bool{}
	for range 20 {
		rec := &recorder{entry: retrypolicy.Decision{Retry: true}, answer: retrypolicy.Decision{Retry: true}}
		count := 0
		_ = retrypolicy.Do(bg, rec, func(context.Context) error {
			if count++; count > 5 {
				return nil
			}
			return transport.Network
		})
		for _, a := range rec.decide {
			if seen[a.Rand] {
				t.Fatalf("%#x twice", a.Rand)
			}
			seen[a.Rand] = true
		}
	}
	if len(seen) != 100 {
		t.Errorf("%d draws", len(seen))
	}
}

func TestRetrierClassifyFallsThrough(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		odd := errors.New("odd")
		r := retrypolicy.Retrier{Policy: every(3), Classify: func(err error) retrypolicy.Info {
			if errors.Is(err, odd) { // overrides single errors
				return retrypolicy.Info{Verdict: retrypolicy.VerdictFail}
			}
			return compat.NewAWSClassifier(compat.AWSStandardRules().Judge, nil)(err)
		}}
		for _, c := range []struct {
			err    error
			reason retrypolicy.Reason
			runs   int
		}{
			{odd, retrypolicy.ReasonNotRetryable, 1},
			{&policytest.APIError{Code: "SlowDown"}, retrypolicy.ReasonOutOfAttempts, 3},
			{&policytest.APIError{Code: "NoSuchKey"}, retrypolicy.ReasonNotRetryable, 1},
			{transport.Network, retrypolicy.ReasonOutOfAttempts, 3}, // no classifier knows it: the package's Classify
			{transport.Forbidden, retrypolicy.ReasonNotRetryable, 1},
		} {
			op := perform(c.err)
			wantError(t, r.Do(bg, op.run), c.reason, c.runs-1, c.err)
		}
		// A classifier can call an error a success.
		r.Classify = func(error) retrypolicy.Info { return retrypolicy.Info{Verdict: retrypolicy.VerdictSucceed} }
		if err := r.Do(bg, perform(odd).run); err != nil {
			t.Error(err)
		}
	})
}

func TestGateBeforeTheFirstAttempt(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		rec := open()
		op := perform(nil)
		for _, c := range []struct{ says, want retrypolicy.Reason }{
			{retrypolicy.ReasonPolicy, retrypolicy.ReasonRejected}, {retrypolicy.ReasonRejected,
				retrypolicy.ReasonRejected}, {retrypolicy.ReasonOutOfQuota,
				retrypolicy.ReasonOutOfQuota},
		} {
			rec.entry = retrypolicy.Decision{Reason: c.says}
			err := retrypolicy.Do(bg, rec, op.run)
			wantError(t, err, c.want, 0)
			if errors.Unwrap(err) != nil || len(rec.report) != 0 {
				t.Errorf("%v: a try that never was has a failure, or %d outcomes", err, len(rec.report))
			}
		}
		// A wait that exceeds the deadline is not made.
		rec.entry = retrypolicy.Decision{Retry: true, Delay: time.Hour}
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		wantError(t, retrypolicy.Do(ctx, rec, op.run), retrypolicy.ReasonPastDeadline, 0)
		r := retrypolicy.Retrier{Policy: rec, Timeout: time.Minute}
		wantError(t, r.Do(bg, op.run), retrypolicy.ReasonOutOfTime, 0)
		op.want(t)
		if time.Since(op.began) != 0 {
			t.Errorf("took %v", time.Since(op.began))
		}
	})
}

func TestDoAsksTheGateAgainAfterItsDelay(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		op, left := perform(transport.Network, nil), 3
		gate := &gateOf{Fixed: second, admit: func() time.Duration {
			left--
			return time.Duration(min(max(left+1, 0), 1)) * 100 * time.Millisecond
		}}
		if err := retrypolicy.Do(bg, gate, op.run); err != nil {
			t.Error(err)
		}
		op.want(t, 300*time.Millisecond, 1300*time.Millisecond)
	})
}

// A limiter that always returns a few nanoseconds, such as a number without a unit, makes no loop
// spin.
func TestDoAsksAGateAtMostOnceInAMillisecond(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		began, asked := time.Now(), 100
		gate := &gateOf{Fixed: second, admit: func() time.Duration { asked--; return time.Duration(min(max(asked, 0), 5)) }}
		op := perform(nil)
		if err := retrypolicy.Do(bg, gate, op.run); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 98*time.Millisecond || took > 100*time.Millisecond {
			t.Error("asked 100 times in", took)
		}
	})
}

// gateOf is a policy that delays an attempt as admit says.
type gateOf struct {
	retrypolicy.Fixed
	admit func() time.Duration
}

func (g *gateOf) Begin(retrypolicy.Start) retrypolicy.Series { return gateSeries{gateOf: g} }

type gateSeries struct {
	*gateOf
	retrypolicy.Free
}

func (g gateSeries) Admit(retrypolicy.Attempt) retrypolicy.Decision {
	return retrypolicy.Decision{Retry: true, Delay: g.admit()}
}

// The series of an operation that panics or calls Goexit ends, so a policy that counts attempts in
// flight stays correct. Its contexts are released.
func TestDoEndsTheSeriesOfAnAttemptThatPanics(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("oh") }, "Goexit": runtime.Goexit} {
		rec := open()
		var of context.Context
		r := retrypolicy.Retrier{Policy: rec, AttemptTimeout: time.Hour}
		done := make(chan any)
		go func() {
			defer func() { done <- recover() }()
			_ = r.Do(bg, func(ctx context.Context) error { of = ctx; leave(); return nil })
		}()
		got := <-done
		if (got == "oh") != (name == "panic") {
			t.Errorf("%s: recovered %v", name, got)
		}
		if len(rec.report) != 0 || rec.ends != 1 {
			t.Errorf("%s: outcomes %+v, %d ends", name, rec.report, rec.ends)
		}
		if of.Err() == nil {
			t.Errorf("%s: the try's context lives on", name)
		}
	}
}

func TestRetrierIsForManyGoroutines(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		o := compat.AWSStandard.Options()
		b := policytest.Bucketed(o, 500, 500)
		r := retrypolicy.Retrier{Policy: policytest.Must(compat.NewAWS(o))}
		var all sync.WaitGroup
		var failed atomic.Int64
		for i := range 200 {
			all.Go(func() {
				n := 0
				err := r.Do(bg, func(context.Context) error {
					if n++; i%2 == 0 && n == 1 {
						return transport.Unavailable
					}
					return nil
				})
				if err != nil {
					failed.Add(1)
				}
			})
		}
		all.Wait()
		// 100 operations want a retry for 14 each; only as many as the quota allows get one.
		if f := failed.Load(); f < 30 || f > 70 {
			t.Errorf("%d of 100 were refused", f)
		}
		if n := b.Tokens(time.Now()); n < 400 || n > 500 {
			t.Errorf("%d tokens at the end: refunds were lost or made up", n)
		}
	})
}

// A policy without memory allocates nothing. One with memory allocates an object for each of its
// policies that has memory, and for each policy around one.
func TestDoAllocatesWhatThePolicyRemembers(t *testing.T) {
	ctx := context.Background()
	op := func(context.Context) error { return nil }
	p := policytest.Must(compat.NewAWS(compat.AWSStandard.Options()))
	adaptive := budget.NewAdaptive().Wrap(p)
	r := retrypolicy.Retrier{Policy: p, Key: "k"}
	for name, c := range map[string]struct {
		f      func()
		allocs float64
	}{
		"plain":                       {func() { sinkErr = retrypolicy.Do(ctx, retrypolicy.NoRetry{}, op) }, 0},
		"MaxAttempts around a quota":  {func() { sinkErr = retrypolicy.Do(ctx, p, op) }, 2},
		"adaptive around these":       {func() { sinkErr = retrypolicy.Do(ctx, adaptive, op) }, 3},
		"Retrier, MaxAttempts, quota": {func() { sinkErr = r.Do(ctx, op) }, 2},
	} {
		if allocs := testing.AllocsPerRun(200, c.f); allocs != c.allocs || sinkErr != nil {
			t.Errorf("%s: %v allocations, %v", name, allocs, sinkErr)
		}
	}
	value := func(context.Context) (int, error) { return 7, nil }
	if allocs := testing.AllocsPerRun(200,
		func() { sinkInt, sinkErr = retrypolicy.DoValue(ctx, p, value) }); allocs != 2 || sinkInt != 7 {
		t.Errorf("DoValue: %v allocations", allocs)
	}
	// A retry without a delay allocates nothing either.
	flat := retrypolicy.MaxAttempts{Total: math.MaxInt32, Policy: retrypolicy.Immediately{}}
	var asPolicy retrypolicy.Policy = flat
	n := 0
	again := func(context.Context) error {
		if n++; n%5 != 0 {
			return transport.Network
		}
		return nil
	}
	if allocs := testing.AllocsPerRun(200,
		func() { sinkErr = retrypolicy.Do(ctx, asPolicy, again) }); allocs != 0 || sinkErr != nil {
		t.Errorf("four retries: %v allocations, %v", allocs, sinkErr)
	}
}

var sinkInt int

func BenchmarkDo(b *testing.B) {
	p := policytest.Must(compat.NewAWS(compat.AWSStandard.Options()))
	op := func(context.Context) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		sinkErr = retrypolicy.Do(bg, p, op)
	}
}
