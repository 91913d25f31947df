// Package policytest has what the tests of several packages below retrypolicy share.
package policytest

import (
	"context"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat/aws"
	"github.com/hubline-iot/hubline/retrypolicy/compat/grpc"
	"github.com/hubline-iot/hubline/transport"
)

// The three draws of the tables: the least, the middle, and the last one below 1.
const (
	DrawZero = 0
	DrawHalf = 1 << 63
	DrawLast = math.MaxUint64
)

// Again is a policy that always retries after d.
func Again(d time.Duration) retrypolicy.Policy {
	if d == 0 {
		return retrypolicy.Immediately{}
	}
	return retrypolicy.Fixed{Delay: d}
}

// As is a with an outcome; nil is a success.
func As(a retrypolicy.Attempt, err error) retrypolicy.Attempt {
	a.Err, a.Kind = err, transport.KindOf(err)
	return a
}

// At is a question at d after the beginning.
func At(d time.Duration) retrypolicy.Attempt { return retrypolicy.Attempt{Now: Day.Add(d)} }

// Bucketed gives o a bucket that the test can look into, with tokens of 500 in it.
func Bucketed(t testing.TB, o *aws.Options, size, tokens int) *budget.TokenBucket {
	t.Helper()
	b, err := budget.NewTokenBucket(size, size-tokens, 0)
	if err != nil {
		t.Fatal(err)
	}
	o.Quota.Bucket = b
	return b
}

// CheckInvalid wants an error of Kind Invalid with want in its text, none if want is empty.
func CheckInvalid(t *testing.T, p retrypolicy.Policy, want string) {
	t.Helper()
	err := retrypolicy.Validate(p)
	if want == "" {
		if err != nil {
			t.Errorf("Validate: %v, want none", err)
		}
		return
	}
	if !errors.Is(err, transport.Invalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("Validate: %v, want Invalid with %q", err, want)
	}
}

// CheckRefusal wants an error of Kind Invalid that names want; none if want is empty.
func CheckRefusal(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && (!errors.Is(err, transport.Invalid) || !strings.Contains(err.Error(), want)):
		t.Errorf("error %v, want one of Kind Invalid with %q", err, want)
	}
}

// Day is where the clocks of these tests begin.
var Day = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// Draw is the least draw whose fraction is u or more; u is 0 to 1 and is taken as the decimal that
// is written.
func Draw(u float64) uint64 {
	if u >= 1 {
		return DrawLast
	}
	const digits = 1_000_000_000
	n := big.NewInt(int64(math.Round(u * digits)))
	n.Lsh(n, 64).Add(n, big.NewInt(digits-1)).Div(n, big.NewInt(digits))
	return n.Uint64()
}

// Huge are counts far past every cap, among them those where a shift or an addition would overflow
// 32 or 64 bits.
var Huge = []int{21, 31, 32, 33, 62, 63, 64, 65, 66, 127, 128, 1 << 30, math.MaxInt32 - 1, math.MaxInt32}

// LetsIn reports whether an attempt may begin.
func LetsIn(p retrypolicy.Policy, a retrypolicy.Attempt) bool {
	d := retrypolicy.Admit(p, a)
	return d.Retry && d.Delay <= 0
}

// Many is a n times.
func Many(a retrypolicy.Attempt, n int) retrypolicy.Attempt {
	a.Count = n
	return a
}

// Retried is a as the n-th retry.
func Retried(a retrypolicy.Attempt, n int) retrypolicy.Attempt {
	a.Retry = n
	return a
}

// Sequence asks p about the first count retries of a series, with what a remembers kept from one to
// the next.
func Sequence(p retrypolicy.Policy, a retrypolicy.Attempt, count int) []retrypolicy.Decision {
	var all []retrypolicy.Decision
	for n := 1; n <= count; n++ {
		a.Retry = n
		d := p.Decide(a)
		all = append(all, d)
		if !d.Retry {
			break
		}
		a.Last = d
	}
	return all
}

// Throttled is the set for a service that asks for fewer requests.
var Throttled = retrypolicy.ExponentialBackoffWithJitter{
	C: 5 * time.Second, Cmin: 10 * time.Second, Cmax: 60 * time.Second, Jd: 0.5, Ju: 0.25,
}

// WantDelays compares the first delays of a series, to the nearest tol.
func WantDelays(t *testing.T, p retrypolicy.Policy, a retrypolicy.Attempt, tol time.Duration, want ...time.Duration) {
	t.Helper()
	got := Sequence(p, a, len(want))
	if len(got) != len(want) {
		t.Fatalf("%+v: %d decisions, the last %+v; want %d retries", p, len(got), got[len(got)-1], len(want))
	}
	for i, d := range got {
		if off := d.Delay - want[i]; !d.Retry || off < -tol || off > tol {
			t.Errorf("%+v: retry %d = %v (%d ns), want after %v", p, i+1, d, d.Delay, want[i])
		}
	}
}

func CheckDelay(t *testing.T, p retrypolicy.Policy, x int, draw uint64, want time.Duration) {
	t.Helper()
	got := p.Decide(retrypolicy.Attempt{Retry: x, Rand: draw})
	if got != (retrypolicy.Decision{Retry: true, Delay: want}) {
		t.Errorf("F(%d) with draw %#x = %+v (%d ns), want a retry after %v (%d ns)", x, draw, got, got.Delay, want, want)
	}
}

func Contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

func NewAWS(t testing.TB, o *aws.Options) retrypolicy.Policy {
	t.Helper()
	p, err := aws.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func NewAdaptive(t testing.TB, o *budget.AdaptiveOptions) *budget.Adaptive {
	t.Helper()
	l, err := budget.NewAdaptive(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func NewBreaker(t testing.TB, o *budget.BreakerOptions) *budget.Breaker {
	t.Helper()
	b, err := budget.NewBreaker(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func NewBucket(t testing.TB, size, spent, refill int) *budget.TokenBucket {
	t.Helper()
	b, err := budget.NewTokenBucket(size, spent, refill)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func NewQuota(t testing.TB, o *budget.QuotaOptions) *budget.Quota {
	t.Helper()
	q, err := budget.NewQuota(o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func NewRetryThrottle(t testing.TB, maxTokens int, ratio float64) *grpc.Throttle {
	t.Helper()
	th, err := grpc.NewThrottle(maxTokens, ratio)
	if err != nil {
		t.Fatal(err)
	}
	return th
}

func NewThrottle(t testing.TB, o *budget.ThrottleOptions) *budget.Throttle {
	t.Helper()
	th, err := budget.NewThrottle(o)
	if err != nil {
		t.Fatal(err)
	}
	return th
}

func Sec(s float64) time.Time { return Epoch.Add(time.Duration(math.Round(s * 1e9))) }

func WantStop(t *testing.T, p retrypolicy.Policy, a retrypolicy.Attempt, reason retrypolicy.Reason) {
	t.Helper()
	if d := p.Decide(a); d.Retry || d.Reason != reason || d.Delay != 0 {
		t.Errorf("%+v, %+v: %+v, want a stop with %v", p, a, d, reason)
	}
}

var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var Lost = &transport.Error{Kind: transport.Network, Scope: transport.Connection}

// StatusError is an answer of an HTTP service as an error.
type StatusError struct {
	Status int
	After  time.Duration
}

func (e *StatusError) Error() string             { return "status" }
func (e *StatusError) HTTPStatusCode() int       { return e.Status }
func (e *StatusError) RetryAfter() time.Duration { return e.After }

// Status returns an answer with that status.
func Status(n int) error { return &StatusError{Status: n} }

// APIError and HTTPError have the methods of the errors of aws-sdk-go-v2.
type APIError struct{ Code string }

func (e *APIError) Error() string     { return e.Code }
func (e *APIError) ErrorCode() string { return e.Code }

// HTTPError wraps an error.
type HTTPError struct {
	Status int
	Err    error
}

func (e *HTTPError) Error() string       { return "http " + e.Err.Error() }
func (e *HTTPError) Unwrap() error       { return e.Err }
func (e *HTTPError) HTTPStatusCode() int { return e.Status }

// Script returns an operation that fails with the errors of the list in turn, the last of them
// again and again, and counts its calls.
func Script(calls *int, list ...error) func(context.Context) error {
	return func(context.Context) error {
		err := list[min(*calls, len(list)-1)]
		*calls++
		return err
	}
}

// Retries runs an operation under r, in a bubble, and returns how often it ran, how long all took,
// and how it ended.
func Retries(t *testing.T, r retrypolicy.Retrier, list ...error) (calls int, took time.Duration, err error) {
	t.Helper()
	bounded.Test(t, func(t *testing.T) {
		began := time.Now()
		err = r.Do(t.Context(), Script(&calls, list...))
		took = time.Since(began)
	})
	return calls, took, err
}
