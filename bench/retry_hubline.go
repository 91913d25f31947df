package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
)

const hubline = "Hubline"

func azureFormula(base time.Duration) retrypolicy.ExponentialBackoffWithJitter {
	return retrypolicy.ExponentialBackoffWithJitter{
		C: base, Cmin: base, Cmax: curveMax * base, Jd: 0.5, Ju: 0.25,
	}
}

func hublineRetries() ([]RetryCase, error) {
	direct := azureFormula(decided)
	formula := opaque[retrypolicy.Policy](direct)
	full := opaque[retrypolicy.Policy](retrypolicy.Backoff{Base: decided, Factor: curveFactor, Max: curveMax * decided,
		Jitter: retrypolicy.JitterFull})
	quota, err := budget.NewQuota(nil)
	if err != nil {
		return nil, err
	}
	charged := opaque(quota.Wrap(full))
	ctx := context.Background()
	short := opaque[retrypolicy.Policy](azureFormula(slept))
	succeed := func(context.Context) error { return succeedAtOnce() }
	twice := failTwice()
	fail := func(context.Context) error { return twice() }
	var mixed uint64
	draw := func() uint64 {
		mixed += 0x9e3779b97f4a7c15 // covers all values evenly
		return mixed
	}
	return []RetryCase{
		deciding(Decide, hubline, "Azure formula; draw from math/rand/v2", func(retry int) (time.Duration, error) {
			return formula.Decide(retrypolicy.Attempt{Retry: retry, Rand: rand.Uint64(), Err: refused}).Delay, nil
		}),
		deciding(Decide, hubline, "Azure formula; draw given", func(retry int) (time.Duration, error) {
			return formula.Decide(retrypolicy.Attempt{Retry: retry, Rand: draw(), Err: refused}).Delay, nil
		}),
		deciding(Decide, hubline, "Azure formula; draw given, called directly, not through Policy",
			func(retry int) (time.Duration, error) {
				return direct.Decide(retrypolicy.Attempt{Retry: retry, Rand: draw(), Err: refused}).Delay, nil
			}),
		deciding(Decide, hubline, "Backoff with full jitter; draw from math/rand/v2", func(retry int) (time.Duration, error) {
			return full.Decide(retrypolicy.Attempt{Retry: retry, Rand: rand.Uint64(), Err: refused}).Delay, nil
		}),
		deciding(Judge, hubline, "Classify and Decide; a refused connection",
			func(retry int) (time.Duration, error) { return judged(full, retry, refused) }),
		deciding(Judge, hubline, "Classify and Decide; an error with a method RetryableError",
			func(retry int) (time.Duration, error) { return judged(full, retry, told) }),
		deciding(Charge, hubline, "a series with a Quota: Classify, Decide, Admit, Report", func(retry int) (
			time.Duration, error) {
			s := retrypolicy.Inner(charged, retrypolicy.Start{})
			defer s.End()
			info := retrypolicy.Classify(refused)
			a := retrypolicy.Attempt{Retry: retry, Kind: info.Kind, Rand: rand.Uint64(), Err: refused}
			d := s.Decide(a)
			if info.Verdict != retrypolicy.VerdictAgain || !d.Retry {
				return 0, errNoRetry
			}
			s.Admit(a)
			a.Err = nil
			s.Report(retrypolicy.VerdictSucceed, a)
			return d.Delay, nil
		}),
		running(Succeed, hubline, "Do", func() error { return retrypolicy.Do(ctx, formula, succeed) }),
		running(RetryTwice, hubline, "Do", func() error { return retrypolicy.Do(ctx, short, fail) }),
	}, nil
}

func judged(p retrypolicy.Policy, retry int, err error) (time.Duration, error) {
	info := retrypolicy.Classify(err)
	if info.Verdict != retrypolicy.VerdictAgain {
		return 0, errNoRetry
	}
	return p.Decide(retrypolicy.Attempt{Retry: retry, Kind: info.Kind, Safe: info.Safe,
		Rand: rand.Uint64(), Err: err}).Delay, nil
}

var errNoRetry = errors.New("no retry, where one should have been granted")
