//go:build !tinygo

package retrypolicy_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// recorder is a policy with memory that records every call and returns fixed answers.
type recorder struct {
	decide, admit, report []retrypolicy.Attempt
	verdicts              []retrypolicy.Verdict
	key                   string
	ends                  int
	answer, entry         retrypolicy.Decision
}

func (r *recorder) Begin(start retrypolicy.Start) retrypolicy.Series {
	r.key = start.Key
	return r
}

func (r *recorder) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	r.decide = append(r.decide, a)
	return r.answer
}
func (r *recorder) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	r.admit = append(r.admit, a)
	return r.entry
}
func (r *recorder) Report(v retrypolicy.Verdict, a retrypolicy.Attempt) {
	r.report, r.verdicts = append(r.report, a), append(r.verdicts, v)
}
func (r *recorder) End() { r.ends++ }

func open() *recorder {
	return &recorder{answer: retrypolicy.Decision{Retry: true, Delay: time.Second},
		entry: retrypolicy.Decision{Retry: true}}
}

var worthAnother = retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: transport.Network}

func TestOperationReportsEachStepToThePolicy(t *testing.T) {
	r := open()
	s := retrypolicy.Begin(r, "key", policytest.Epoch)
	lost := errors.New("lost")
	if d, err := s.Admit(policytest.Sec(0), 1); err != nil || d != r.entry {
		t.Fatal(d, err)
	}
	info := retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: transport.Throttled, Safe: retrypolicy.SafeYes,
		After: 3 * time.Second}
	d, err := s.Failure(policytest.Sec(1), 2, info, lost)
	if err != nil || d != r.answer {
		t.Fatal(d, err)
	}
	want := retrypolicy.Attempt{
		Retry: 0, Kind: transport.Throttled, Safe: retrypolicy.SafeYes,
		After:   3 * time.Second,
		Elapsed: time.Second, Now: policytest.Sec(1), Err: lost,
	}
	if r.report[0] != want || r.verdicts[0] != retrypolicy.VerdictAgain || r.key != "key" {
		t.Errorf("Report got %v, %+v, want %+v", r.verdicts[0], r.report[0], want)
	}
	want.Retry, want.Rand = 1, 2
	if r.decide[0] != want {
		t.Errorf("Decide got %+v, want %+v", r.decide[0], want)
	}
	if s.Retries() != 0 {
		t.Errorf("%d retries before the first", s.Retries())
	}
	r.entry.Delay = time.Minute
	if d, err := s.Admit(policytest.Sec(2), 3); err != nil || d.Delay != time.Minute {
		t.Fatal(d, err)
	}
	r.entry.Delay = 0
	if _, err := s.Admit(policytest.Sec(62), 3); err != nil {
		t.Fatal(err)
	}
	a := r.admit[2]
	if a.Retry != 1 || a.Kind != transport.Throttled || !errors.Is(a.Err, lost) ||
		a.Elapsed != 62*time.Second || len(r.admit) != 3 {
		t.Errorf("Admit got %+v", a)
	}
	if s.Retries() != 1 {
		t.Errorf("%d retries", s.Retries())
	}
	if err := s.Success(policytest.Sec(63)); err != nil {
		t.Fatal(err)
	}
	a = r.report[1]
	if r.verdicts[1] != retrypolicy.VerdictSucceed || a.Err != nil || a.Kind != transport.Unknown || a.Retry != 1 ||
		a.Elapsed != 63*time.Second || len(r.decide) != 1 || r.ends != 1 {
		t.Errorf("Report of the success got %+v", a)
	}
}

// Report gets a final failure, marked as such; Decide is not called.
func TestOperationFailuresThatAreTheEnd(t *testing.T) {
	for _, c := range []struct {
		info retrypolicy.Info
		want retrypolicy.Reason
	}{
		{retrypolicy.Info{Verdict: retrypolicy.VerdictFail}, retrypolicy.ReasonNotRetryable},
		{retrypolicy.Info{}, retrypolicy.ReasonNotRetryable},
		{retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Safe: retrypolicy.SafeNo}, retrypolicy.ReasonUnsafe},
		{retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, After: -1}, retrypolicy.ReasonPushback},
	} {
		r := open()
		s := retrypolicy.Begin(r, "", policytest.Epoch)
		_, _ = s.Admit(policytest.Epoch, 0)
		d, err := s.Failure(policytest.Epoch, 0, c.info, transport.Network)
		if err != nil || d.Retry || d.Reason != c.want || len(r.decide) != 0 || len(r.report) != 1 {
			t.Errorf("%+v: %v, %v, %d questions", c.info, d, err, len(r.decide))
		}
		if final := c.info.Verdict != retrypolicy.VerdictAgain; (r.verdicts[0] == retrypolicy.VerdictFail) != final {
			t.Errorf("%+v: reported as %v", c.info, r.verdicts[0])
		}
		wantResolved(t, &s)
	}
}

// wantResolved expects every call to be refused.
func wantResolved(t *testing.T, s *retrypolicy.Operation) {
	t.Helper()
	_, admit := s.Admit(policytest.Epoch, 0)
	_, failure := s.Failure(policytest.Epoch, 0, worthAnother, transport.Network)
	for _, err := range []error{admit, failure, s.Success(policytest.Epoch)} {
		policytest.CheckRefusal(t, err, "Operation is over")
	}
}

func TestOperationIsResolvedOnce(t *testing.T) {
	for name, resolve := range map[string]func(*retrypolicy.Operation) error{
		"success": func(s *retrypolicy.Operation) error { return s.Success(policytest.Epoch) },
		"failure": func(s *retrypolicy.Operation) error {
			_, err := s.Failure(policytest.Epoch, 0, retrypolicy.Info{Verdict: retrypolicy.VerdictFail}, transport.Invalid)
			return err
		},
	} {
		r := open()
		s := retrypolicy.Begin(r, "", policytest.Epoch)
		_, _ = s.Admit(policytest.Epoch, 0)
		if err := resolve(&s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantResolved(t, &s)
		s.End()
		if len(r.report) != 1 || r.ends != 1 {
			t.Errorf("%s: %d outcomes reported for one attempt, ended %d times", name, len(r.report), r.ends)
		}
	}
	// The policy's stop and the gate's refusal end the series too.
	r := open()
	r.answer = retrypolicy.Decision{Reason: retrypolicy.ReasonOutOfTime, Delay: time.Second}
	s := retrypolicy.Begin(r, "", policytest.Epoch)
	_, _ = s.Admit(policytest.Epoch, 0)
	if d, err := s.Failure(policytest.Epoch, 0, worthAnother, transport.Network); err != nil || d != r.answer {
		t.Error(d, err)
	}
	wantResolved(t, &s)
	r = open()
	r.entry = retrypolicy.Decision{Reason: retrypolicy.ReasonRejected}
	s = retrypolicy.Begin(r, "", policytest.Epoch)
	if d, err := s.Admit(policytest.Epoch, 0); err != nil || d != r.entry {
		t.Error(d, err)
	}
	wantResolved(t, &s)
	if len(r.report) != 0 {
		t.Error("a try that was refused was reported as ended")
	}
}

func TestOperationRefusesCallsOutOfOrder(t *testing.T) {
	r := open()
	s := retrypolicy.Begin(r, "", policytest.Epoch)
	for range 2 { // before the first attempt, and before the second
		_, err := s.Failure(policytest.Epoch, 0, worthAnother, transport.Network)
		policytest.CheckRefusal(t, err, "no attempt in flight")
		policytest.CheckRefusal(t, s.Success(policytest.Epoch), "no attempt in flight")
		r.entry.Delay = time.Second
		if _, err := s.Admit(policytest.Epoch, 0); err != nil {
			t.Error(err)
		}
		policytest.CheckRefusal(t, s.Success(policytest.Epoch), "no attempt in flight") // a gate has it wait
		r.entry.Delay = 0
		if _, err := s.Admit(policytest.Epoch, 0); err != nil {
			t.Error(err)
		}
		_, err = s.Admit(policytest.Epoch, 0)
		policytest.CheckRefusal(t, err, "has an attempt in flight")
		if d, err := s.Failure(policytest.Epoch, 0, worthAnother, transport.Network); err != nil || !d.Retry {
			t.Error(d, err)
		}
	}
	if len(r.report) != 2 || len(r.decide) != 2 {
		t.Errorf("%d outcomes, %d questions", len(r.report), len(r.decide))
	}
}

func TestOperationEndsUnfinished(t *testing.T) {
	for _, inFlight := range []bool{true, false} {
		r := open()
		s := retrypolicy.Begin(r, "", policytest.Epoch)
		if inFlight {
			_, _ = s.Admit(policytest.Epoch, 0)
		}
		s.End()
		s.End()
		if len(r.report) != 0 || r.ends != 1 {
			t.Fatalf("%d outcomes reported, ended %d times", len(r.report), r.ends)
		}
		wantResolved(t, &s)
	}
	var none retrypolicy.Operation
	none.End()
}

// A policy without memory admits every attempt.
func TestOperationOfAPlainPolicy(t *testing.T) {
	s := retrypolicy.Begin(retrypolicy.Fixed{Delay: time.Second}, "", policytest.Epoch)
	for i := range 100 {
		if d, err := s.Admit(time.Time{}, 0); err != nil || d != (retrypolicy.Decision{Retry: true}) {
			t.Fatal(d, err)
		}
		if s.Retries() != i {
			t.Fatalf("%d retries, want %d", s.Retries(), i)
		}
		if d, err := s.Failure(policytest.Epoch, 0, worthAnother, transport.Network); err != nil || d.Delay != time.Second {
			t.Fatal(d, err)
		}
	}
	_, _ = s.Admit(time.Time{}, 0)
	if err := s.Success(time.Time{}); err != nil {
		t.Error(err)
	}
}

func TestAnOperationWithoutMemoryAllocatesNothing(t *testing.T) {
	byKind := retrypolicy.ByKind{
		Rules: []retrypolicy.Rule{{Kinds: 1, Policy: retrypolicy.NoRetry{}}}, Default: retrypolicy.Backoff{Base: 1}}
	var p retrypolicy.Policy = retrypolicy.MaxAttempts{Total: math.MaxInt32,
		Policy: retrypolicy.RetryAfter{Policy: byKind}}
	var err error = transport.Throttled
	if allocs := testing.AllocsPerRun(200, func() {
		s := retrypolicy.Begin(p, "k", policytest.Epoch)
		for range 3 {
			_, sinkErr = s.Admit(policytest.Epoch, 0)
			sink, sinkErr = s.Failure(policytest.Epoch, 0, worthAnother, err)
		}
		_, sinkErr = s.Admit(policytest.Epoch, 0)
		sinkErr = s.Success(policytest.Epoch)
		sinkErr = s.Success(policytest.Epoch)
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	sinkErr = nil
}

func TestReasonsHaveTexts(t *testing.T) {
	seen := map[string]bool{}
	for r := retrypolicy.ReasonPolicy; r <= retrypolicy.ReasonNegativeDelay; r++ {
		text := r.Error()
		if text == "" || seen[text] || text != r.String() || text == "undefined reason" {
			t.Errorf("reason %d: %q", r, text)
		}
		seen[text] = true
		for other := retrypolicy.ReasonPolicy; other <= retrypolicy.ReasonNegativeDelay; other++ {
			if errors.Is(&retrypolicy.Error{Reason: r}, other) != (r == other) {
				t.Errorf("errors.Is(%v, %v)", r, other)
			}
		}
	}
	if got := (retrypolicy.ReasonNegativeDelay + 1).String(); got != "undefined reason" {
		t.Error(got)
	}
}

func TestErrorText(t *testing.T) {
	for _, c := range []struct {
		err  retrypolicy.Error
		want string
	}{
		{retrypolicy.Error{Reason: retrypolicy.ReasonRejected}, "rejected before the attempt"},
		{retrypolicy.Error{Reason: retrypolicy.ReasonOutOfAttempts, Retries: 1, Err: transport.Network},
			"out of attempts after 1 retry: network failure"},
		{retrypolicy.Error{Reason: retrypolicy.ReasonOutOfQuota, Retries: 2, Err: transport.Throttled},
			"retry quota exceeded after 2 retries: throttled"},
		{retrypolicy.Error{Reason: retrypolicy.ReasonCancelled, Cause: errors.New("why"), Err: transport.Network},
			"cancelled: why: network failure"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// wantError expects an *Error with reason. errors.Is must match reason and all of is.
func wantError(t *testing.T, err error, reason retrypolicy.Reason, retries int, is ...error) {
	t.Helper()
	var e *retrypolicy.Error
	if !errors.As(err, &e) || e.Reason != reason || e.Retries != retries || !errors.Is(err, reason) {
		t.Errorf("%v; want %v after %d retries", err, reason, retries)
		return
	}
	for _, target := range is {
		if !errors.Is(err, target) {
			t.Errorf("%v: errors.Is does not find %v", err, target)
		}
	}
}
