package retrypolicy

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// Do runs op under p until it succeeds, p stops, or ctx ends. It returns nil, an *Error, or, if
// Validate refuses p, an error of Kind Invalid. op receives ctx and runs at least once, unless a
// series of p refuses it. The function Classify judges errors. Do never sleeps past ctx's deadline.
// Without a deadline it makes no retry after 4 minutes (DefaultTimeout), unless a MaxAttempts or a
// MaxElapsed in p decides about every failure; see Retrier.Timeout.
func Do(ctx context.Context, p Policy, op func(context.Context) error) error {
	r := Retrier{Policy: p}
	return r.Do(ctx, op)
}

// DoValue is Do for an operation that returns a value.
func DoValue[T any](ctx context.Context, p Policy, op func(context.Context) (T, error)) (T, error) {
	return Until(ctx, &Retrier{Policy: p}, op, nil)
}

// Retrier runs operations under a policy. Only Policy is required. To run one operation under
// another policy, copy the Retrier and set Policy in the copy. Its methods are safe for concurrent
// use; its fields must not change meanwhile.
type Retrier struct {
	// Policy decides. If it is nil or Validate refuses it, the operation is not run and the error
	// is of Kind Invalid.
	Policy Policy
	// Classify judges errors. The function Classify judges those that it leaves Undecided; nil: all.
	Classify Classifier
	// LongPoll is for an operation in a loop that must not spin: if a refusal carries a delay
	// (ReasonOutOfQuota, or ReasonRejected by a Breaker), Do sleeps for it before it returns.
	LongPoll bool
	// Timeout is the time for all attempts and waits together. After it, Do cancels a running
	// attempt and returns the failure before it with ReasonOutOfTime. Negative: no limit. 0: if ctx
	// has no deadline, and no MaxAttempts, MaxElapsed or NoRetry decides about every failure, no
	// retry begins DefaultTimeout or more after the first attempt; a running attempt is not
	// cancelled.
	Timeout time.Duration
	// AttemptTimeout is the time for one attempt. An attempt that exceeds it counts as a Timeout.
	// 0: no limit.
	AttemptTimeout time.Duration
	// Key names the target, for policies with a state per key.
	Key string
	// Rand returns random draws, concurrently. Nil: each call of Do uses its own generator.
	Rand func() uint64
	// OnRetry, if not nil, is called before each wait, for a retry or at a gate, with the number of
	// the attempt that waits (0 for the first) and the latest failure (nil before the first).
	OnRetry func(retry int, delay time.Duration, err error)
}

// Validate reports the first invalid field, as a *transport.Error of Kind Invalid.
func (r *Retrier) Validate() error {
	if r.AttemptTimeout < 0 {
		return kit.Invalid("Retrier.AttemptTimeout is negative; give a duration, 0 for none")
	}
	return Validate(r.Policy)
}

// DefaultTimeout is the time after which Do makes no further retry if nothing else limits it. It is
// the operation time-out of the Azure device SDKs.
const DefaultTimeout = 4 * time.Minute

// limited reports whether p limits the retries of every failure itself, so that DefaultTimeout does
// not. A limit may stand inside other policies. Policies of other systems, and of programs, say so.
func limited(p Policy) bool {
	switch p := p.(type) {
	case MaxAttempts, MaxElapsed, NoRetry:
		return true
	case interface{ Limited() bool }:
		return p.Limited()
	case ByKind:
		for _, r := range p.Rules {
			if !limited(r.Policy) {
				return false
			}
		}
		return limited(p.Default)
	case interface{ Unwrap() Policy }:
		return limited(p.Unwrap())
	}
	return false
}

// Do is the package function Do with the Retrier's settings.
func (r *Retrier) Do(ctx context.Context, op func(context.Context) error) error {
	_, err := Until(ctx, r, func(ctx context.Context) (struct{}, error) { return struct{}{}, op(ctx) }, nil)
	return err
}

// runner is the state of one call of Do.
type runner struct {
	r      Retrier
	caller context.Context // the caller's
	ctx    context.Context // the same under Timeout
	cancel context.CancelFunc
	untry  context.CancelFunc // releases the context of the running attempt
	op     Operation
	last   error     // the last real failure
	until  time.Time // no retry begins later; zero: no limit
	late   Reason    // why none does: the deadline of the caller, or a time-out
	timer  *time.Timer
	draws  rand.PCG
	seeded bool
}

func (u *runner) begin() error {
	r := &u.r
	if err := r.Validate(); err != nil {
		return err
	}
	if r.Timeout > 0 {
		u.ctx, u.cancel = context.WithTimeout(u.caller, r.Timeout)
	}
	u.op = Begin(r.Policy, r.Key, time.Now())
	deadline, has := u.ctx.Deadline()
	own, callers := u.caller.Deadline()
	switch {
	case has && callers && !own.After(deadline):
		u.until, u.late = own, ReasonPastDeadline
	case has:
		u.until, u.late = deadline, ReasonOutOfTime
	case r.Timeout == 0 && !limited(r.Policy):
		u.until, u.late = u.op.began.Add(DefaultTimeout), ReasonOutOfTime
	}
	return nil
}

func (u *runner) end() {
	u.op.End() // also if op panicked or called Goexit
	if u.timer != nil {
		u.timer.Stop()
	}
	u.tried()
	if u.cancel != nil {
		u.cancel()
	}
}

// admit waits until the gates let an attempt begin.
func (u *runner) admit() error {
	if u.op.series == nil {
		_, err := u.op.Admit(time.Time{}, 0)
		return err
	}
	for {
		now := time.Now()
		d, err := u.op.Admit(now, u.draw())
		switch {
		case err != nil:
			return err
		case !d.Retry:
			if d.Reason == ReasonPolicy {
				d.Reason = ReasonRejected
			}
			return u.refused(now, d)
		case d.Delay <= 0:
			return nil
		}
		if err := u.pause(now, d.Delay); err != nil {
			return err
		}
	}
}

// try returns the context for an attempt.
func (u *runner) try() context.Context {
	if u.r.AttemptTimeout <= 0 {
		return u.ctx
	}
	try, cancel := context.WithTimeout(u.ctx, u.r.AttemptTimeout)
	u.untry = cancel
	return try
}

// tried releases the context of an attempt.
func (u *runner) tried() {
	if u.untry != nil {
		u.untry()
		u.untry = nil
	}
}

// ended processes the outcome of an attempt. If another attempt follows, it waits for its delay.
func (u *runner) ended(try context.Context, info Info, failure error) (over bool, err error) {
	if info.Verdict == VerdictUndecided {
		info = u.judge(try, failure)
	}
	u.tried()
	if info.Verdict == VerdictSucceed {
		return true, u.op.Success(time.Now())
	}
	now := time.Now()
	if cause := u.ctx.Err(); cause != nil {
		return true, u.cutShort(now, info, failure, cause)
	}
	u.last = failure
	d, err := u.op.Failure(now, u.draw(), info, failure)
	switch {
	case err != nil:
	case !d.Retry:
		err = u.refused(now, d)
	default:
		err = u.pause(now, d.Delay)
	}
	return err != nil, err
}

// cutShort processes the outcome of an attempt during which the context ended. The failure may only
// reflect the end of the context; any other failure is an answer, from which the policy may learn.
func (u *runner) cutShort(now time.Time, info Info, outcome, cause error) error {
	if kit.EndedByContext(outcome) || errors.Is(outcome, cause) || errors.Is(outcome, lifetime.Cause(u.ctx)) {
		if u.last == nil {
			u.last = outcome
		}
		return u.failed(u.ending())
	}
	u.last = outcome
	u.op.failed(now, info, outcome)
	if info.Verdict == VerdictFail {
		return u.failed(ReasonNotRetryable)
	}
	return u.failed(u.ending())
}

// judge classifies an outcome.
func (u *runner) judge(try context.Context, outcome error) Info {
	if outcome == nil {
		return Info{Verdict: VerdictSucceed}
	}
	var info Info
	switch {
	case kit.IsPermanent(outcome):
	case try != u.ctx && u.ctx.Err() == nil && errors.Is(outcome, context.DeadlineExceeded) &&
		(try.Err() != nil || errors.Is(outcome, ReasonPastDeadline)): // AttemptTimeout ended it, or a nested Do in it
		info = Info{Verdict: VerdictAgain, Kind: transport.Timeout}
	case u.r.Classify != nil:
		info = u.r.Classify(outcome)
	}
	if info.Verdict == VerdictUndecided {
		return Classify(outcome)
	}
	info.ask(outcome)
	return info
}

// refused ends the series after a refusal d. With LongPoll it sleeps first, if there is time.
func (u *runner) refused(now time.Time, d Decision) error {
	if u.r.LongPoll && d.Delay > 0 && u.reaches(now, d.Delay) == nil {
		_ = u.sleep(d.Delay)
	}
	return u.failed(d.Reason)
}

// pause calls OnRetry for a wait before the next attempt, then waits. It returns the error that
// ends the series if the context has ended, or would end during the wait, in which case it does not
// wait.
func (u *runner) pause(now time.Time, d time.Duration) error {
	if err := u.reaches(now, d); err != nil {
		return err
	}
	if u.r.OnRetry != nil {
		u.r.OnRetry(u.op.next, d, u.last)
	}
	return u.sleep(d)
}

// reaches returns nil if the time lasts until now+d.
func (u *runner) reaches(now time.Time, d time.Duration) error {
	if u.ctx.Err() != nil {
		return u.failed(u.ending())
	}
	if u.until.IsZero() || d < u.until.Sub(now) {
		return nil
	}
	e := u.failed(u.late)
	if _, has := u.ctx.Deadline(); has {
		e.ended = context.DeadlineExceeded
	}
	return e
}

func (u *runner) sleep(d time.Duration) error {
	if d > 0 {
		if u.timer == nil {
			u.timer = time.NewTimer(d)
		} else {
			u.timer.Reset(d)
		}
		select {
		case <-u.timer.C:
		case <-u.ctx.Done():
		}
	}
	if u.ctx.Err() != nil {
		return u.failed(u.ending())
	}
	return nil
}

// ending returns the Reason why u.ctx has ended.
func (u *runner) ending() Reason {
	if u.caller.Err() == nil {
		return ReasonOutOfTime
	}
	return ReasonCancelled
}

func (u *runner) failed(reason Reason) *Error {
	e := &Error{Reason: reason, Retries: u.op.Retries(), Err: u.last}
	switch reason {
	case ReasonCancelled, ReasonOutOfTime, ReasonPastDeadline:
		if e.ended = u.ctx.Err(); e.ended != nil {
			e.Cause = lifetime.Cause(u.ctx)
		}
	default: // the context has no part in it
	}
	return e
}

func (u *runner) draw() uint64 {
	if u.r.Rand != nil {
		return u.r.Rand()
	}
	if !u.seeded {
		u.seeded = true
		u.draws.Seed(entropy(), entropy())
	}
	return u.draws.Uint64()
}
