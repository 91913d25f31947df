package budget_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// always retries at once.
var always = retrypolicy.Immediately{}

// The published formula and figures.
func TestThrottleProbability(t *testing.T) {
	failsafe := budget.ThrottleOptions{K: 1 / 0.9, Ceiling: 0.9, CountEnded: true, Window: time.Minute,
		Refusals: ^retrypolicy.KindSet(0)}
	low := failsafe
	low.Ceiling = 0.8
	late := failsafe
	late.MinRequests = 2
	for _, c := range []struct {
		name      string
		o         *budget.ThrottleOptions
		n, accept int
		want      float64
	}{
		{"SRE 100 100", nil, 100, 100, 0},
		{"SRE 100 50", nil, 100, 50, 0},
		{"SRE 100 25", nil, 100, 25, 0.495050},
		{"SRE 100 0", nil, 100, 0, 0.990099},
		{"SRE 1 0", nil, 1, 0, 0.5},
		{"SRE 1000 400", nil, 1000, 400, 0.199800},
		{"SRE 0 0", nil, 0, 0, 0},
		{"SRE with K 1.1", &budget.ThrottleOptions{K: 1.1}, 100, 50, 45.0 / 101},
		{"failsafe default, one failure", &failsafe, 1, 0, 0.5},
		{"failsafe 100 95", &low, 100, 95, 0},
		{"failsafe 120 90", &low, 120, 90, 0.165289},
		{"failsafe at its ceiling", &low, 100, 0, 0.8},
		{"failsafe below its threshold", &late, 1, 0, 0},
		{"failsafe at its threshold", &late, 2, 0, 2.0 / 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			th := policytest.Must(budget.NewThrottle(c.o))
			p := newCrowd(th.Wrap(always))
			for i := range c.n {
				a := policytest.At(0)
				a.Rand = math.MaxUint64 // the draw that is rejected last, as the largest
				if !p.LetsIn(a) {
					t.Fatalf("request %d was rejected with the greatest draw", i)
				}
				if i < c.accept {
					p.Observe(policytest.As(policytest.At(0), nil))
				} else {
					p.Observe(policytest.As(policytest.At(0), transport.Unavailable))
				}
			}
			if got := th.Probability(policytest.Epoch); math.Abs(got-c.want) > 5e-7 {
				t.Errorf("probability %v, want %v", got, c.want)
			}
			if n, accept := th.Counts(policytest.Epoch); n != c.n || accept != c.accept {
				t.Errorf("counts %d, %d, want %d, %d", n, accept, c.n, c.accept)
			}
		})
	}
}

func TestThrottleDrawsByRand(t *testing.T) {
	p := newCrowd(policytest.Must(budget.NewThrottle(nil)).Wrap(always))
	p.LetsIn(policytest.At(0)) // requests 1, accepts 0: one half; further calls raise it
	a := policytest.At(0)
	a.Rand = 1<<63 - 1024
	d := p.Admit(a)
	if d.Retry || d.Reason != retrypolicy.ReasonRejected {
		t.Errorf("a draw below one half: %+v, want Rejected", d)
	}
	q := newCrowd(policytest.Must(budget.NewThrottle(nil)).Wrap(always))
	q.LetsIn(policytest.At(0))
	a.Rand = 1 << 63
	if !q.LetsIn(a) {
		t.Error("a draw of one half was rejected; the probability is one half")
	}
}

// The SRE throttle counts a rejected request, that of failsafe-go does not.
func TestThrottleCountsItsRejections(t *testing.T) {
	for _, ended := range []bool{false, true} {
		th := policytest.Must(budget.NewThrottle(&budget.ThrottleOptions{CountEnded: ended}))
		p := newCrowd(th.Wrap(always))
		p.LetsIn(policytest.At(0))
		p.Observe(policytest.As(policytest.At(0), transport.Throttled))
		if p.LetsIn(policytest.At(0)) { // a draw of 0
			t.Fatal("a draw of 0 was let in")
		}
		want := 2
		if ended {
			want = 1
		}
		if n, _ := th.Counts(policytest.Epoch); n != want {
			t.Errorf("CountEnded %v: %d requests, want %d", ended, n, want)
		}
	}
}

func TestThrottleForgetsAfterTheWindow(t *testing.T) {
	th := policytest.Must(budget.NewThrottle(nil))
	p := newCrowd(th.Wrap(always))
	for i := range 10 {
		a := policytest.At(time.Duration(i) * 6 * time.Second)
		a.Rand = math.MaxUint64
		p.LetsIn(a)
	}
	for _, c := range []struct {
		after time.Duration
		want  int
	}{
		{54 * time.Second, 10}, {120*time.Second - 1, 10}, {120 * time.Second, 9}, {126 * time.Second, 8},
		{173 * time.Second, 1}, {174 * time.Second, 0}, {time.Hour, 0},
	} {
		if n, _ := th.Counts(policytest.Epoch.Add(c.after)); n != c.want {
			t.Errorf("after %v: %d requests, want %d", c.after, n, c.want)
		}
	}
}

// After the clock is set back, old failures must still age out in time.
func TestThrottleForgetsAlthoughTheClockWasSetBack(t *testing.T) {
	th := policytest.Must(budget.NewThrottle(nil))
	p := newCrowd(th.Wrap(always))
	p.LetsIn(policytest.At(0))
	year := -365 * 24 * time.Hour
	if n, _ := th.Counts(policytest.Epoch.Add(year)); n != 1 {
		t.Fatalf("%d requests right after the step, want 1", n)
	}
	if n, _ := th.Counts(policytest.Epoch.Add(year + 2*time.Minute)); n != 0 {
		t.Errorf("%d requests two minutes after the step, want 0", n)
	}
	if n, _ := th.Counts(policytest.Epoch.Add(year + 2*time.Minute - time.Second)); n != 0 {
		// slightly older than the latest
		t.Errorf("%d requests, want 0", n)
	}
}

// Every answer of the service counts as accepted.
func TestThrottleAccepts(t *testing.T) {
	// The last two are not answers.
	refused := map[transport.Kind]bool{transport.Throttled: true, transport.Unavailable: true,
		transport.Network: true,
		transport.Timeout: true, transport.Closed: true, transport.Cancelled: true}
	for _, r := range errfilter.Rules() {
		k := r.Kind
		th := policytest.Must(budget.NewThrottle(nil))
		newCrowd(th.Wrap(always)).Observe(policytest.As(policytest.At(0), k))
		if _, accepts := th.Counts(policytest.Epoch); accepts != 0 == refused[k] {
			t.Errorf("%v: %d accepts", k, accepts)
		}
	}
	for _, c := range []struct {
		name string
		err  error
		want int
	}{
		{"success", nil, 3}, {"an error of the operation's own", errors.New("no"), 3},
		{"a deadline", context.DeadlineExceeded, 0},
		{"a cancelled try", &retrypolicy.Error{Err: context.Canceled}, 0},
	} {
		th := policytest.Must(budget.NewThrottle(nil))
		for range 3 {
			newCrowd(th.Wrap(always)).Observe(policytest.As(policytest.At(0), c.err))
		}
		if _, accepts := th.Counts(policytest.Epoch); accepts != c.want {
			t.Errorf("%s: %d accepts, want %d", c.name, accepts, c.want)
		}
	}
}

// A failure that arose on this side is neither accepted nor refused.
func TestThrottleIgnoresUninformativeOutcomes(t *testing.T) {
	for name, c := range ownFailures {
		th := policytest.Must(budget.NewThrottle(&budget.ThrottleOptions{CountEnded: true}))
		a := policytest.As(policytest.At(0), c.err)
		newCrowd(th.Wrap(always)).Fail(a)
		want := 1
		if c.silent {
			want = 0
		}
		if requests, accepts := th.Counts(policytest.Epoch); requests != want || accepts != want {
			t.Errorf("%s: %d requests, %d accepts, want %d", name, requests, accepts, want)
		}
	}
}
