package budget_test

import (
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
)

// crowd is many operations under one policy. Each first attempt, retry and decision is one of
// another operation; outcomes are those of the attempts in flight, in order.
type crowd struct {
	retrypolicy.Policy
	inFlight [2][]retrypolicy.Series // first attempts, retries
}

// newCrowd returns a crowd under p.
func newCrowd(p retrypolicy.Policy) *crowd { return &crowd{Policy: p} }

// Begin begins a series of the policy.
func (c *crowd) Begin(s retrypolicy.Start) retrypolicy.Series {
	return retrypolicy.BeginSeries(c.Policy, s)
}

// Decide asks about the failure of an operation, which makes the retry.
func (c *crowd) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	return policytest.Series(c.Policy).Decide(a)
}

// Admit asks whether an attempt may begin.
func (c *crowd) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	s := policytest.Series(c.Policy)
	d := s.Admit(a)
	if d.Retry && d.Delay <= 0 {
		of := c.of(a)
		*of = append(*of, s)
	} else {
		s.End()
	}
	return d
}

// LetsIn reports whether an attempt may begin.
func (c *crowd) LetsIn(a retrypolicy.Attempt) bool {
	d := c.Admit(a)
	return d.Retry && d.Delay <= 0
}

func (c *crowd) of(a retrypolicy.Attempt) *[]retrypolicy.Series {
	if a.Retry > 0 {
		return &c.inFlight[1]
	}
	return &c.inFlight[0]
}

// Observe ends an attempt with a.Err; nil is a success, and any other error may be repeated.
func (c *crowd) Observe(a retrypolicy.Attempt) {
	if a.Err == nil {
		c.report(retrypolicy.VerdictSucceed, a)
		return
	}
	c.report(retrypolicy.VerdictAgain, a)
}

// Fail ends an attempt with a.Err, which is final.
func (c *crowd) Fail(a retrypolicy.Attempt) { c.report(retrypolicy.VerdictFail, a) }

func (c *crowd) report(v retrypolicy.Verdict, a retrypolicy.Attempt) {
	of := c.of(a)
	s := policytest.Series(c.Policy)
	if len(*of) > 0 {
		s, *of = (*of)[0], (*of)[1:]
	}
	s.Report(v, a)
	if v != retrypolicy.VerdictAgain {
		s.End()
	}
}

// report reports the end of an attempt with a.Err to s: nil is a success, and any other error may
// be repeated.
func report(s retrypolicy.Series, a retrypolicy.Attempt) {
	v := retrypolicy.VerdictAgain
	if a.Err == nil {
		v = retrypolicy.VerdictSucceed
	}
	s.Report(v, policytest.As(a, a.Err))
}
