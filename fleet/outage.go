package fleet

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// failed decides what follows a failed attempt or a lost connection, as the client's loop does.
// paid counts toward the delay.
func (b *block) failed(i int32, t int64, result outcome, paid time.Duration) {
	d, f := &b.devices[i], &b.sim.failures[result]
	b.observe(i, t, f)
	if !f.rule.Retry {
		if f.err.Kind == transport.Unauthorized && !d.renewed {
			d.renewed = true
			d.retry++
			d.state, d.at = waiting, t
			return
		}
		b.giveUp(i, t, f.err.RetryAfter)
		return
	}
	d.retry++
	answer := &d.last
	if result == registerRefused {
		b.decideRegister(i, t, f)
	} else {
		b.decide(i, t, f)
	}
	if !answer.Retry {
		b.giveUp(i, t, f.err.RetryAfter)
		return
	}
	if f.err.RetryAfter > 0 { // the service asked for a pause
		paid = 0
	}
	b.wait(i, t, max(0, answer.Delay-paid), f.err.RetryAfter)
}

// wait has device i wait for a delay and its spread, or gives up if that exceeds OutageLimit.
func (b *block) wait(i int32, t int64, delay, after time.Duration) {
	d, limit := &b.devices[i], b.sim.rules.OutageLimit
	delay = min(delay, maxDuration) + b.spread(d)
	if limit > 0 && delay > limit-time.Duration(t-d.since) {
		b.giveUp(i, t, after)
		return
	}
	d.state, d.at = waiting, later(t, delay)
}

// decide asks the policy about a failed attempt of device i.
func (b *block) decide(i int32, t int64, f *failure) {
	d, p := &b.devices[i], b.process(i)
	if p.curve != nil && !f.bounded {
		d.last = p.curve.Decide(retrypolicy.Attempt{Retry: int(d.retry), Rand: d.draw()})
		if d.retry > 1 {
			d.last.Delay = max(d.last.Delay, reconnect.LeastDelay)
		}
		return
	}
	d.last = p.policies.Decide(d.series, b.ask(i, t, f))
}

// ask returns a question to a policy about the failure f of device i, see attempt.
func (b *block) ask(i int32, t int64, f *failure) *retrypolicy.Attempt {
	a := b.attempt(i, t)
	a.Err, a.Kind, a.After = f.err, f.err.Kind, f.err.RetryAfter
	return a
}

// decideRegister decides about a throttled registration, as package provisioning does.
func (b *block) decideRegister(i int32, t int64, f *failure) {
	d, policy := &b.devices[i], b.sim.rules.Register
	a := b.ask(i, t, f)
	if policy == nil {
		policy = reconnect.Register
	}
	answer := policy.Decide(*a)
	answer.Delay = max(answer.Delay, min(a.After, times.MaxRetryAfter), 0)
	if b.sim.rules.Register == nil {
		answer.Delay = max(answer.Delay, reconnect.MinDelay(*a))
		answer.Delay += reconnect.Stagger(answer.Delay, true, d.again, d.draw())
		d.again = true
	}
	d.last = answer
}

// giveUp ends the device, or starts over after TryAgainAfter.
func (b *block) giveUp(i int32, t int64, after time.Duration) {
	d := &b.devices[i]
	d.endSeries()
	again := b.sim.rules.TryAgainAfter
	if again <= 0 {
		d.state = ended
		return
	}
	d.at = later(t, max(again, min(after, times.MaxRetryAfter))+b.spread(d))
	d.retry, d.last, d.renewed, d.since, d.state = 0, retrypolicy.Decision{}, false, d.at, waiting
}

// observe reports the end of an attempt to the policy, once. f is nil for success.
func (b *block) observe(i int32, t int64, f *failure) {
	d := &b.devices[i]
	if d.series == nil || d.reported {
		return
	}
	d.reported = true
	a, verdict := b.attempt(i, t), retrypolicy.VerdictSucceed
	if f != nil {
		a.Err, a.Kind, a.After, verdict = f.err, f.err.Kind, f.err.RetryAfter, retrypolicy.VerdictFail
		if f.rule.Retry {
			verdict = retrypolicy.VerdictAgain
		}
	}
	d.series.Report(verdict, *a)
	if verdict != retrypolicy.VerdictAgain {
		d.endSeries()
	}
}

// endSeries ends the series of an outage that is over.
func (d *device) endSeries() {
	if d.series != nil {
		d.series.End()
		d.series = nil
	}
}

// down records the end of a connection that worked until the given time. paid counts toward the
// next delay.
func (b *block) down(i int32, t, worked int64, pace errfilter.Pace) (paid time.Duration) {
	d := &b.devices[i]
	b.count(cDown, t, 1)
	lasted := time.Duration(worked - d.upAt)
	switch {
	case lasted >= b.sim.rules.StableTime:
		b.observe(i, t, nil)
		d.retry, d.last, d.renewed = 0, retrypolicy.Decision{}, false
	case reconnect.Useful(lasted, d.last.Delay, uint64(d.came), pace):
		d.retry, d.last, paid = 0, retrypolicy.Decision{}, lasted
	}
	d.since, d.batch, d.noticing = t, 0, false
	return paid
}

// lose ends a connection that failed at t and worked until the given time.
func (b *block) lose(i int32, t, worked int64, result outcome) {
	b.failed(i, t, result, b.down(i, t, worked, b.sim.failures[result].rule.Pace))
}
