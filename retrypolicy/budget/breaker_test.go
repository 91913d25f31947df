package budget_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// breakerStep is an event at a time, and the state of the breaker after it.
type breakerStep struct {
	at   time.Duration
	do   byte // see playBreaker
	want string
}

const (
	stepAdmit  = 'a' // admitted
	stepRefuse = 'r' // refused
	stepOK     = '+' // an attempt succeeded
	stepFail   = '-' // an attempt failed
	stepWrong  = 't' // a permanent failure
	stepCancel = 'c' // the caller cancelled an attempt
)

// playBreaker runs a script and compares the state after each step.
func playBreaker(t *testing.T, o budget.BreakerOptions, script []breakerStep) {
	t.Helper()
	b := policytest.Must(budget.NewBreaker(&o))
	p := newCrowd(b.Wrap(always))
	for i, s := range script {
		a := policytest.At(s.at)
		switch s.do {
		case stepAdmit, stepRefuse:
			if d := p.Admit(a); (d.Retry && d.Delay <= 0) != (s.do == stepAdmit) {
				t.Errorf("step %d at %v: Admit %+v", i, s.at, d)
			}
		case stepOK:
			p.Observe(policytest.As(a, nil))
		case stepFail:
			p.Observe(policytest.As(a, transport.Unavailable))
		case stepWrong:
			p.Fail(policytest.As(a, transport.NotFound))
		case stepCancel:
			p.Observe(policytest.As(a, context.Canceled))
		}
		if got := b.Status(a.Now).State.String(); got != s.want {
			t.Errorf("step %d at %v: %v, want %v", i, s.at, got, s.want)
		}
	}
}

func TestBreaker(t *testing.T) {
	const s = time.Second
	type steps = []breakerStep
	type options = budget.BreakerOptions
	for _, c := range []struct {
		name   string
		o      options
		script steps
	}{
		{"opens after failures in a row, probes once, closes", options{Failures: 3, Cooldown: 10 * s}, steps{
			{0, stepFail, "closed"}, {0, stepFail, "closed"}, {0, stepOK, "closed"},
			{1 * s, stepFail, "closed"}, {1 * s, stepFail, "closed"}, {2 * s, stepFail, "open"},
			{2 * s, stepRefuse, "open"}, {12*s - 1, stepRefuse, "open"}, {12 * s, stepAdmit, "half-open"},
			{12 * s, stepRefuse, "half-open"},
			{13 * s, stepOK, "closed"}, {13 * s, stepAdmit, "closed"}, {13 * s, stepAdmit, "closed"},
			{13 * s, stepFail, "closed"}, {13 * s, stepFail, "closed"}, {13 * s, stepFail, "open"},
		}},
		{"a probe that fails opens it for longer, up to ten times; closing forgets that",
			options{Failures: 1, Cooldown: 10 * s, Growth: 5}, steps{
				{0, stepFail, "open"}, {10*s - 1, stepRefuse, "open"},
				{10 * s, stepAdmit, "half-open"}, {10 * s, stepFail, "open"}, {60*s - 1, stepRefuse, "open"}, // 50 s
				{60 * s, stepAdmit, "half-open"}, {60 * s, stepFail, "open"}, {160*s - 1, stepRefuse, "open"}, // 100 s
				{160 * s, stepAdmit, "half-open"}, {160 * s, stepFail, "open"}, {260*s - 1, stepRefuse, "open"}, // 100 s
				{260 * s, stepAdmit, "half-open"}, {260 * s, stepOK, "closed"},
				{260 * s, stepFail, "open"}, {270*s - 1, stepRefuse, "open"}, {270 * s, stepAdmit, "half-open"}, // 10 s
			}},
		{"several successes close it, several probes at a time", options{Failures: 1, Cooldown: 10 * s, Probes: 2,
			Successes: 3}, steps{
			{0, stepAdmit, "closed"}, {0, stepFail, "open"},
			{10 * s, stepAdmit, "half-open"}, {10 * s, stepAdmit, "half-open"}, {10 * s, stepRefuse, "half-open"},
			{11 * s, stepOK, "half-open"}, {11 * s, stepAdmit, "half-open"}, {11 * s, stepRefuse, "half-open"},
			{12 * s, stepOK, "half-open"}, {12 * s, stepOK, "closed"},
		}},
		{"what was begun before it opened neither closes it nor makes room for a second probe",
			options{Failures: 1, Cooldown: 10 * s, Successes: 2}, steps{
				{0, stepAdmit, "closed"}, {0, stepAdmit, "closed"}, {0, stepAdmit, "closed"}, {0, stepAdmit, "closed"},
				{0, stepAdmit, "closed"}, {0, stepFail, "open"}, {1 * s, stepOK, "open"}, {1 * s, stepFail, "open"},
				{10 * s, stepAdmit, "half-open"}, {11 * s, stepOK, "half-open"}, {11 * s, stepFail, "half-open"},
				{11 * s, stepRefuse, "half-open"},
				{12 * s, stepOK, "half-open"}, {12 * s, stepAdmit, "half-open"}, {12 * s, stepOK, "closed"},
			}},
		{"successes before the last failure do not help to close it", options{Failures: 1, Cooldown: 10 * s,
			Successes: 2},
			steps{
				{0, stepFail, "open"}, {10 * s, stepAdmit, "half-open"}, {10 * s, stepOK, "half-open"}, {10 * s,
					stepAdmit,
					"half-open"}, {10 * s, stepFail, "open"},
				{20 * s, stepAdmit, "half-open"}, {20 * s, stepOK, "half-open"}, {20 * s, stepAdmit,
					"half-open"}, {20 * s, stepOK,
					"closed"},
			}},
		{"a probe that outlasts a cooldown takes a place in the next round", options{Failures: 1, Cooldown: 10 * s,
			Probes: 2}, steps{
			{0, stepFail, "open"}, {10 * s, stepAdmit, "half-open"}, {11 * s, stepAdmit, "half-open"},
			{11 * s, stepFail, "open"},
			{21 * s, stepAdmit, "half-open"}, {21 * s, stepRefuse, "half-open"}, {22 * s, stepOK, "closed"},
		}},
		{"a probe that ends after it has closed takes no place in a later round", options{Failures: 1,
			Cooldown: 10 * s,
			Probes:   2}, steps{
			{0, stepFail, "open"}, {10 * s, stepAdmit, "half-open"}, {10 * s, stepAdmit, "half-open"},
			{10 * s, stepOK, "closed"},
			{10 * s, stepAdmit, "closed"}, {10 * s, stepAdmit, "closed"}, {10 * s, stepOK, "closed"}, {10 * s,
				stepFail, "open"},
			{20 * s, stepAdmit, "half-open"}, {20 * s, stepAdmit, "half-open"}, {20 * s, stepRefuse, "half-open"},
		}},
		{"a lost probe is replaced after a cooldown", options{Failures: 1, Cooldown: 10 * s}, steps{
			{0, stepFail, "open"}, {15 * s, stepAdmit, "half-open"}, {25*s - 1, stepRefuse, "half-open"},
			{25 * s, stepAdmit, "half-open"},
			{25 * s, stepRefuse, "half-open"}, {26 * s, stepOK, "closed"},
		}},
		{"cancelled tries count neither way", options{Failures: 2, Cooldown: 10 * s}, steps{
			{0, stepFail, "closed"}, {0, stepCancel, "closed"}, {0, stepCancel, "closed"}, {0, stepFail, "open"},
			{10 * s, stepAdmit, "half-open"}, {10 * s, stepRefuse, "half-open"}, {11 * s, stepCancel, "half-open"},
			{11 * s, stepAdmit, "half-open"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) { playBreaker(t, c.o, c.script) })
	}
}

func TestBreakerInSpecialCases(t *testing.T) {
	const s = time.Second
	type steps = []breakerStep
	type options = budget.BreakerOptions
	for _, c := range []struct {
		name   string
		o      options
		script steps
	}{
		{"an answer that no retry mends is one of a service that works", options{Failures: 2, Cooldown: 10 * s},
			steps{
				{0, stepFail, "closed"}, {0, stepWrong, "closed"}, {0, stepFail, "closed"}, {0, stepFail, "open"},
				{10 * s, stepAdmit, "half-open"}, {10 * s, stepWrong, "closed"},
			}},
		{"only the Kinds that count", options{Failures: 1, Kinds: retrypolicy.Kinds(transport.Throttled)},
			steps{{0, stepFail,
				"closed"}}},
		{"in a window, successes or not", options{Failures: 3, Window: 20 * s, Cooldown: 10 * s}, steps{
			{0, stepFail, "closed"}, {0, stepOK, "closed"}, {10 * s, stepFail, "closed"}, {21 * s, stepFail, "closed"},
			{22 * s, stepOK, "closed"}, {23 * s, stepFail, "open"},
			// earlier ones are forgotten
			{33 * s, stepAdmit, "half-open"}, {33 * s, stepOK, "closed"}, {33 * s, stepFail, "closed"}, {33 * s,
				stepFail,
				"closed"},
		}},
		{"in a window, and a share of all", options{Failures: 2, Window: 20 * s, Share: 0.5}, steps{
			{0, stepOK, "closed"}, {0, stepOK, "closed"}, {0, stepOK, "closed"}, {0, stepFail, "closed"},
			{0, stepFail, "closed"}, {0, stepFail, "open"},
		}},
		{"the clock is set back by a year", options{Failures: 1, Cooldown: 10 * s}, steps{
			{0, stepFail, "open"}, {-8760 * time.Hour, stepRefuse, "open"}, {-8760*time.Hour + 10*s - 1,
				stepRefuse, "open"},
			{-8760*time.Hour + 10*s, stepAdmit, "half-open"},
			{-9000 * time.Hour, stepRefuse, "half-open"}, {-9000*time.Hour + 10*s, stepAdmit, "half-open"},
			{-9000*time.Hour + 11*s, stepOK, "closed"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) { playBreaker(t, c.o, c.script) })
	}
}

// ownFailures are permanent failures, and whether they say nothing about the service.
var ownFailures = map[string]struct {
	err    error
	silent bool
}{
	"own deadline": {fmt.Errorf("read: %w", context.DeadlineExceeded), true},
	"own context":  {errors.Join(errors.New("?"), context.Canceled), true},
	"permanent":    {retrypolicy.Permanent(errors.New("local")), true},
	"permanent among several": {fmt.Errorf("%w: %w", errors.New("?"),
		retrypolicy.Permanent(errors.New("local"))), true},
	"client closed":           {&transport.Error{Kind: transport.Closed}, true},
	"wrong input":             {&transport.Error{Kind: transport.Invalid}, true},
	"an answer":               {transport.NotFound, false},
	"an answer with a status": {fmt.Errorf("%w", &policytest.HTTPError{Status: 400, Err: errors.New("?")}), false},
	"a status, permanent": {retrypolicy.Permanent(&policytest.HTTPError{Status: 404,
		Err: errors.New("?")}), false},
	"an answer nobody can tell": {errors.New("?"), false},
}

// A failure that arose on this side does not close a half-open breaker, and it frees the place of
// the probe.
func TestBreakerIgnoresUninformativeOutcomes(t *testing.T) {
	for name, c := range ownFailures {
		b := policytest.Must(budget.NewBreaker(&budget.BreakerOptions{Failures: 1}))
		p := newCrowd(b.Wrap(always))
		p.Observe(policytest.As(policytest.At(0), transport.Network))
		p.LetsIn(policytest.At(30 * time.Second))
		a := policytest.As(policytest.At(30*time.Second), c.err)
		p.Fail(a)
		want := budget.BreakerStatus{Openings: 1}
		if c.silent {
			want.State = budget.BreakerHalfOpen
		}
		if got := b.Status(a.Now); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// A retryable time-out counts as a failure of the service, although it wraps a context's error. So
// does a deadline that passed meanwhile.
func TestBreakerCountsTimeouts(t *testing.T) {
	for _, err := range []error{&transport.Error{Kind: transport.Timeout, Err: context.DeadlineExceeded},
		context.DeadlineExceeded} {
		b := policytest.Must(budget.NewBreaker(&budget.BreakerOptions{Failures: 1}))
		newCrowd(b.Wrap(always)).Observe(policytest.As(policytest.At(0), err))
		if s := b.Status(policytest.Epoch); s.State != budget.BreakerOpen {
			t.Errorf("%v: %+v", err, s)
		}
	}
}

func TestBreakerRefuses(t *testing.T) {
	breaker := policytest.Must(budget.NewBreaker(&budget.BreakerOptions{Failures: 1}))
	p := newCrowd(breaker.Wrap(retrypolicy.Fixed{Delay: 5 * time.Second}))
	p.Observe(policytest.As(policytest.At(0), transport.Network))
	if d := p.Admit(policytest.At(10 * time.Second)); d != (retrypolicy.Decision{Reason: retrypolicy.ReasonRejected,
		Delay: 20 * time.Second}) {
		t.Errorf("Admit: %+v", d)
	}
	for _, c := range []struct {
		at   time.Duration
		want retrypolicy.Decision
	}{
		{0, retrypolicy.Decision{Reason: retrypolicy.ReasonRejected, Delay: 30 * time.Second}},
		{25*time.Second - 1, retrypolicy.Decision{Reason: retrypolicy.ReasonRejected, Delay: 5*time.Second + 1}},
		{25 * time.Second, retrypolicy.Decision{Retry: true, Delay: 5 * time.Second}}, // it ends with the cooldown
		{40 * time.Second, retrypolicy.Decision{Retry: true, Delay: 5 * time.Second}},
	} {
		if d := p.Decide(policytest.Retried(policytest.As(policytest.At(c.at), transport.Network), 1)); d != c.want {
			t.Errorf("Decide at %v: %+v, want %+v", c.at, d, c.want)
		}
	}
}

func TestBreakerWaits(t *testing.T) {
	b := policytest.Must(budget.NewBreaker(&budget.BreakerOptions{Failures: 1, Cooldown: 8 * time.Second,
		Wait: true}))
	p := newCrowd(b.Wrap(retrypolicy.Fixed{Delay: time.Second}))
	p.Observe(policytest.As(policytest.At(0), transport.Network))
	for _, c := range []struct {
		at, wait time.Duration
	}{
		{0, 8 * time.Second}, {7 * time.Second, time.Second}, {8 * time.Second, 0},
		// an eighth at a time, until the probe is considered lost
		{9 * time.Second, time.Second}, {15500 * time.Millisecond, 500 * time.Millisecond},
		{16 * time.Second, 0},
	} {
		if d := p.Admit(policytest.At(c.at)); d != (retrypolicy.Decision{Retry: true, Delay: c.wait}) {
			t.Errorf("at %v: %+v, want a wait of %v", c.at, d, c.wait)
		}
	}
	p.Observe(policytest.As(policytest.At(17*time.Second), transport.Network))
	again := policytest.Retried(policytest.As(policytest.At(17*time.Second), transport.Network), 1)
	if d := p.Decide(again); d != (retrypolicy.Decision{Retry: true, Delay: time.Second}) {
		t.Errorf("Decide of a breaker that waits: %+v", d)
	}
}

// A random part of half the cooldown is added to a wait.
func TestBreakerSpreadsWaitingCallers(t *testing.T) {
	for _, c := range []struct {
		name       string
		at         time.Duration
		rand       uint64
		wait       time.Duration
		halfOpened bool
	}{
		{"none drawn", 0, 0, 8 * time.Second, false},
		{"half of half the cooldown", 0, policytest.DrawHalf, 10 * time.Second, false},
		{"later", 7 * time.Second, policytest.DrawHalf, 3 * time.Second, false},
		{"the same while others probe", 8 * time.Second, policytest.DrawHalf, 3 * time.Second, true},
	} {
		b := policytest.Must(budget.NewBreaker(&budget.BreakerOptions{Failures: 1, Cooldown: 8 * time.Second,
			Wait: true}))
		p := newCrowd(b.Wrap(always))
		p.Observe(policytest.As(policytest.At(0), transport.Network))
		if c.halfOpened {
			p.LetsIn(policytest.At(c.at))
		}
		a := policytest.At(c.at)
		a.Rand = c.rand
		if d := p.Admit(a); d != (retrypolicy.Decision{Retry: true, Delay: c.wait}) {
			t.Errorf("%s: %+v, want a wait of %v", c.name, d, c.wait)
		}
	}
	b := policytest.Must(budget.NewBreaker(&budget.BreakerOptions{Failures: 1, Cooldown: math.MaxInt64, Wait: true}))
	p := newCrowd(b.Wrap(always))
	p.Observe(policytest.As(policytest.At(0), transport.Network))
	for _, draw := range []uint64{1, policytest.DrawHalf, policytest.DrawLast} {
		a := policytest.At(time.Hour)
		a.Rand = draw
		if d := p.Admit(a); d.Delay <= 0 {
			t.Errorf("%+v at the end of time", d)
		}
	}
}

func TestBreakerStatus(t *testing.T) {
	b := policytest.Must(budget.NewBreaker(&budget.BreakerOptions{Failures: 3, Successes: 2}))
	p := newCrowd(b.Wrap(always))
	check := func(d time.Duration, want budget.BreakerStatus) {
		t.Helper()
		if got := b.Status(policytest.Epoch.Add(d)); got != want {
			t.Errorf("at %v: %+v, want %+v", d, got, want)
		}
	}
	check(0, budget.BreakerStatus{})
	for range 4 {
		p.LetsIn(policytest.At(0))
	}
	for range 2 {
		p.Observe(policytest.As(policytest.At(0), transport.Network))
	}
	check(0, budget.BreakerStatus{Failures: 2, InFlight: 2})
	p.Observe(policytest.As(policytest.At(0), transport.Network))
	check(time.Second, budget.BreakerStatus{State: budget.BreakerOpen, InFlight: 1, Cooldown: 29 * time.Second,
		Openings: 1})
	p.LetsIn(policytest.At(30 * time.Second))
	check(30*time.Second, budget.BreakerStatus{State: budget.BreakerHalfOpen, InFlight: 2, Probes: 1, Openings: 1})
	for range 2 {
		p.Observe(policytest.As(policytest.At(30*time.Second), nil))
	}
	check(30*time.Second, budget.BreakerStatus{State: budget.BreakerHalfOpen, Openings: 1})
	p.LetsIn(policytest.At(30 * time.Second))
	p.Observe(policytest.As(policytest.At(30*time.Second), nil))
	check(30*time.Second, budget.BreakerStatus{Openings: 1})
	if s := budget.BreakerState(9).String(); s != "undefined state" {
		t.Error(s)
	}
}

func TestBreakerUnderDo(t *testing.T) {
	b := policytest.Must(budget.NewBreaker(&budget.BreakerOptions{Failures: 2, Cooldown: time.Hour}))
	p := newCrowd(retrypolicy.MaxAttempts{Total: 10, Policy: b.Wrap(always)})
	runs := 0
	err := retrypolicy.Do(context.Background(), p, func(context.Context) error {
		runs++
		return transport.Unavailable
	})
	if runs != 2 || !errors.Is(err, retrypolicy.ReasonRejected) || !errors.Is(err, transport.Unavailable) {
		t.Errorf("%d runs, %v", runs, err)
	}
	err = retrypolicy.Do(context.Background(), p, func(context.Context) error {
		t.Error("it ran")
		return nil
	})
	if !errors.Is(err, retrypolicy.ReasonRejected) {
		t.Error(err)
	}
}
