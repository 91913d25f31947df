package agent

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// call is a call of the Service that is repeated until it is over.
type call struct {
	at    time.Time // of the next attempt
	least time.Time // the Service wants none before
	op    retrypolicy.Operation
	open  bool // op has begun
}

// soon makes the next attempt at once, unless the Service or the policy asked for a delay.
func (c *call) soon(now time.Time) {
	if !c.open {
		c.at = now
		c.notBefore(c.least)
	}
}

// notBefore delays the next attempt to the time that the Service asked for.
func (c *call) notBefore(t time.Time) {
	c.least = t
	if c.at.Before(t) {
		c.at = t
	}
}

// try makes an attempt, and reports whether the call is over: it succeeded, or a repetition cannot
// help. Otherwise c.at is the time of the next attempt.
func (a *Agent) try(ctx context.Context, c *call, f func(context.Context) error) (over bool, err error) {
	now := time.Now()
	if !c.open {
		c.op, c.open = retrypolicy.Begin(a.opt.Policy, "", now), true
	}
	d, err := c.op.Admit(now, a.opt.Rand())
	if err != nil || !d.Retry || d.Delay > 0 {
		if !d.Retry {
			c.open, d.Delay = false, a.pause()
		}
		c.at = now.Add(d.Delay)
		return false, err
	}
	err = bounded(ctx, f)
	now = time.Now()
	if err == nil {
		c.open = false
		return true, c.op.Success(now)
	}
	if ctx.Err() != nil {
		c.op.End()
		c.open = false
		return false, ctx.Err()
	}
	info, draw := a.judge(err), a.opt.Rand()
	d, wrong := c.op.Failure(now, draw, info, err)
	if wrong != nil {
		err = wrong
	}
	delay := reconnect.AtLeast(&c.op, d.Delay)
	switch {
	case d.Retry && a.paced && reconnect.IsSlow(info.Kind):
		delay = max(delay, reconnect.MinDelay(retrypolicy.Attempt{Retry: c.op.Retries() + 1, Rand: draw}))
	case !d.Retry:
		c.open, delay = false, max(delay, a.pause())
	}
	c.at = now.Add(times.Cap(delay))
	c.notBefore(now.Add(info.After))
	return info.Verdict == retrypolicy.VerdictFail, err
}

// guard runs f, which calls the policy, Rand or Wake. If one of them panics or ends its goroutine,
// the error is of Kind Invalid, and the calls of the Service begin anew. The turn is held.
func (a *Agent) guard(f func() error) (err error) {
	failed := callback.Run("Options.Policy, Options.Rand or Service.Wake of package agent", func() { err = f() })
	if failed == nil {
		return err
	}
	for _, c := range []*call{&a.check, &a.report} {
		c.open = false
		_ = callback.Run("Options.Policy", c.op.End) // it may panic, too
	}
	return &transport.Error{Kind: transport.Invalid, Scope: transport.ScopeConnection, Proto: proto, Err: failed}
}

// callTime limits a call of the Service: meanwhile no phase of an update ends, and an image without
// a network must be undone without it.
const callTime = 2 * time.Minute

var errCallTime = fault(transport.Timeout, "the service did not answer within 2 minutes")

// bounded calls f with a limit.
func bounded(ctx context.Context, f func(context.Context) error) error {
	limited, cancel := lifetime.WithinTime(ctx, callTime)
	defer cancel()
	err := callback.Call("Service of package agent", func() error { return f(limited) })
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return errCallTime
	}
	return err
}

// pause returns the time from one Check to the next one.
func (a *Agent) pause() time.Duration {
	return times.Cap(a.opt.Interval + times.Drawn(a.opt.Spread, a.opt.Rand()))
}

// judge is a retrypolicy.Classifier: package errfilter decides.
func (a *Agent) judge(err error) retrypolicy.Info {
	info := retrypolicy.Info{Verdict: retrypolicy.VerdictFail, Kind: transport.KindOf(err), Safe: retrypolicy.SafeYes}
	if errfilter.Of(err).Retry {
		info.Verdict = retrypolicy.VerdictAgain
	}
	if e := transport.Find(err); e != nil {
		info.After = min(e.RetryAfter, times.MaxRetryAfter)
	}
	return info
}
