package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	azruntime "github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	awsretry "github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	v4 "github.com/cenkalti/backoff/v4"
	"github.com/failsafe-go/failsafe-go"
	failsafebudget "github.com/failsafe-go/failsafe-go/budget"
	failsaferetry "github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/httpretry"
	"github.com/hubline-iot/hubline/transport"
)

// These tests run the real libraries next to the presets named after them. With the same failures,
// in fake time, the delays and ends must be equal. If a library draws, its delays must be between
// those of the preset's lowest and highest draw, and come close to both.

// answer is the outcome of a try: an HTTP status, with the wait that the service asks for. 200 is a
// success.
type answer struct {
	status int
	after  string // header Retry-After
}

func (a answer) Error() string       { return "status " + strconv.Itoa(a.status) }
func (a answer) HTTPStatusCode() int { return a.status }
func (a answer) RetryAfter() time.Duration {
	d, _ := httpretry.RetryAfterHeaders(http.Header{"Retry-After": {a.after}}.Get, time.Now())
	return d
}

func (a answer) response() *http.Response {
	r := &http.Response{StatusCode: a.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(""))}
	if a.after != "" {
		r.Header.Set("Retry-After", a.after)
	}
	return r
}

// run is the result of a call: the times between its tries, and from the last one to the end.
type run struct {
	gaps []time.Duration
	err  error
}

// replay records the time of each try of a call, and answers from a list, whose last item repeats.
type replay struct {
	answers []answer
	at      []time.Time
}

func (p *replay) next() answer {
	p.at = append(p.at, time.Now())
	return p.answers[min(len(p.at), len(p.answers))-1]
}

func (p *replay) ended(err error) run {
	r := run{err: err}
	for i, at := range append(p.at, time.Now())[1:] {
		r.gaps = append(r.gaps, at.Sub(p.at[i]))
	}
	return r
}

// ours runs a policy with a fixed draw.
func ours(p retrypolicy.Policy, judge retrypolicy.Classifier, draw uint64, answers []answer) run {
	rec := replay{answers: answers}
	r := retrypolicy.Retrier{Policy: p, Classify: judge, Rand: func() uint64 { return draw }, Timeout: -1}
	return rec.ended(r.Do(context.Background(), func(context.Context) error {
		if a := rec.next(); a.status != 200 {
			return a
		}
		return nil
	}))
}

const greatest = ^uint64(0)

// doFloor is what Do waits at least from the second retry on, where a library may wait for nothing.
const doFloor = time.Millisecond

// agree compares a library with a preset, repeatedly if the library draws.
func agree(t *testing.T, p retrypolicy.Policy, judge retrypolicy.Classifier, library func(answers []answer) run,
	answers ...answer) {
	t.Helper()
	if err := retrypolicy.Validate(p); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		one, other := ours(p, judge, 0, answers), ours(p, judge, greatest, answers)
		if len(one.gaps) != len(other.gaps) {
			t.Fatalf("%v or %v, by the draw", one.gaps, other.gaps)
		}
		seen := make([][]time.Duration, len(one.gaps))
		for range 300 {
			got := library(answers)
			if len(got.gaps) != len(one.gaps) || (got.err == nil) != (one.err == nil) {
				t.Fatalf("the library: %d tries, %v; ours: %d tries, %v", len(got.gaps), got.err, len(one.gaps), one.err)
			}
			for i, gap := range got.gaps {
				if min(one.gaps[i], other.gaps[i]) == doFloor {
					gap = max(gap, doFloor)
				}
				seen[i] = append(seen[i], gap)
			}
		}
		for i, gaps := range seen {
			least, most := min(one.gaps[i], other.gaps[i]), max(one.gaps[i], other.gaps[i])
			room := (most - least) / 20
			if most-least < most/10 {
				room = most // few draws are below a cap
			}
			if low, high := slices.Min(gaps), slices.Max(gaps); low < least-time.Microsecond || high > most+time.Microsecond ||
				low > least+room || high < most-room {
				t.Errorf("after try %d: the library waits %v to %v, ours %v to %v", i+1, low, high, least, most)
			}
		}
	})
}

func fails(n int) []answer { return slices.Repeat([]answer{{status: 503}}, n) }

// wished is a 503 with a wait in seconds.
func wished(seconds int) answer { return answer{503, strconv.Itoa(seconds)} }

func TestFailsafeAgreesWithItsLibrary(t *testing.T) {
	type builder = failsaferetry.Builder[any]
	library := func(set func(builder) builder) func([]answer) run {
		return func(answers []answer) run {
			rec := replay{answers: answers}
			p := set(failsaferetry.NewBuilder[any]().WithDelayFunc(func(e failsafe.ExecutionAttempt[any]) time.Duration {
				if a, ok := errors.AsType[answer](e.LastError()); ok && a.after != "" {
					return a.RetryAfter()
				}
				return -1
			})).Build()
			return rec.ended(failsafe.With[any](p).Run(func() error {
				if a := rec.next(); a.status != 200 {
					return a
				}
				return nil
			}))
		}
	}
	for _, c := range []struct {
		name    string
		ours    compat.Failsafe
		theirs  func(builder) builder
		answers []answer
	}{
		{"default", compat.Failsafe{}, func(b builder) builder { return b }, fails(4)},
		{"fixed", compat.Failsafe{Retries: 4, Delay: time.Second},
			func(b builder) builder { return b.WithMaxRetries(4).WithDelay(time.Second) }, fails(9)},
		{"backoff", compat.Failsafe{Retries: 6, Delay: time.Second, Max: 10 * time.Second}, func(b builder) builder {
			return b.WithMaxRetries(6).WithBackoff(time.Second, 10*time.Second)
		}, fails(9)},
		{"backoff by 1.7", compat.Failsafe{Retries: 6, Delay: time.Second, Max: 10 * time.Second, Factor: 1.7},
			func(b builder) builder {
				return b.WithMaxRetries(6).WithBackoffFactor(time.Second, 10*time.Second, 1.7)
			}, fails(9)},
		{"a wait that was asked for does not count for the growth", compat.Failsafe{Retries: 6, Delay: time.Second,
			Max: time.Minute}, func(b builder) builder {
			return b.WithMaxRetries(6).WithBackoff(time.Second, time.Minute)
		}, []answer{wished(30), {status: 503}, {status: 503}, wished(7), {status: 503}, {status: 503}, {status: 503}}},
		{"jitter", compat.Failsafe{Retries: 3, Delay: time.Second, Jitter: 300 * time.Millisecond},
			func(b builder) builder {
				return b.WithMaxRetries(3).WithDelay(time.Second).WithJitter(300 * time.Millisecond)
			}, []answer{{status: 503}, wished(3), {status: 503}, {status: 503}}},
		{"jitter wider than the delay", compat.Failsafe{Retries: 3, Delay: time.Second, Jitter: 2 * time.Second},
			func(b builder) builder {
				return b.WithMaxRetries(3).WithDelay(time.Second).WithJitter(2 * time.Second)
			}, fails(4)},
		{"jitter factor", compat.Failsafe{Retries: 3, Delay: time.Second, Max: time.Minute, JitterFactor: 0.25},
			func(b builder) builder {
				return b.WithMaxRetries(3).WithBackoff(time.Second, time.Minute).WithJitterFactor(0.25)
			}, fails(4)},
		{"random", compat.Failsafe{Retries: 3, Delay: time.Second, RandomMax: 5 * time.Second}, func(b builder) builder {
			return b.WithMaxRetries(3).WithRandomDelay(time.Second, 5*time.Second)
		}, fails(4)},
		{"success after two", compat.Failsafe{Retries: 3, Delay: time.Second}, func(b builder) builder {
			return b.WithMaxRetries(3).WithDelay(time.Second)
		}, []answer{{status: 503}, {status: 503}, {status: 200}}},
	} {
		t.Run(c.name, func(t *testing.T) { agree(t, c.ours, httpretry.Classify, library(c.theirs), c.answers...) })
	}

	// Jitter without a delay has no effect. Validate refuses the combination; Decide computes the same
	// as the library.
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			got := library(func(b builder) builder { return b.WithMaxRetries(2).WithJitter(time.Second) })(fails(3))
			d := compat.Failsafe{Retries: 2, Jitter: time.Second}.Decide(retrypolicy.Attempt{Retry: 1,
				Kind: transport.Unavailable})
			if got.gaps[0] != 0 || got.gaps[1] != 0 || d.Delay != 0 {
				t.Fatalf("the library waits %v, ours %v", got.gaps, d)
			}
		}
	})

	// Two independent draws: of the delay and of the jitter.
	synctest.Test(t, func(t *testing.T) {
		p := compat.Failsafe{Retries: 1, Delay: time.Second, RandomMax: 5 * time.Second, Jitter: 2 * time.Second}
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		both := library(func(b builder) builder {
			return b.WithMaxRetries(1).WithRandomDelay(time.Second, 5*time.Second).WithJitter(2 * time.Second)
		})
		var theirs, own []time.Duration
		for i := range 4000 {
			theirs = append(theirs, both(fails(2)).gaps[0])
			own = append(own, p.Decide(retrypolicy.Attempt{Retry: 1, Rand: uint64(i) * (greatest / 4000)}).Delay)
		}
		slices.Sort(theirs)
		slices.Sort(own)
		for i := 200; i < 4000; i += 200 { // the same distribution
			if off := (theirs[i] - own[i]).Abs(); off > 300*time.Millisecond {
				t.Errorf("quantile %d of 4000: the library %v, ours %v", i, theirs[i], own[i])
			}
		}
	})
}

// TestConcurrencyBudgetAgreesWithFailsafe makes a number of calls fail at the same time, and counts
// the admitted retries.
func TestConcurrencyBudgetAgreesWithFailsafe(t *testing.T) {
	for _, calls := range []int{1, 3, 5, 20, 50} {
		letIn := func(do func(op func() error) error) int {
			retries := 0
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var wg sync.WaitGroup
				for i := range calls {
					wg.Go(func() {
						first := true
						_ = do(func() error {
							mu.Lock()
							if !first {
								retries++
							}
							mu.Unlock()
							if first {
								first = false
								time.Sleep(time.Second + time.Duration(i)) // staggered, to avoid a race
								return answer{status: 503}
							}
							time.Sleep(time.Minute)
							return nil
						})
					})
				}
				wg.Wait()
			})
			return retries
		}
		b := failsafebudget.New()
		p := failsaferetry.NewBuilder[any]().WithMaxRetries(1).WithDelay(time.Second).WithBudget(b).Build()
		theirs := letIn(func(op func() error) error { return failsafe.With[any](p).Run(op) })
		own, err := budget.NewConcurrencyBudget(nil)
		if err != nil {
			t.Fatal(err)
		}
		r := retrypolicy.Retrier{Policy: own.Wrap(retrypolicy.MaxAttempts{Total: 2,
			Policy: retrypolicy.Fixed{Delay: time.Second}})}
		if got := letIn(func(op func() error) error {
			return r.Do(context.Background(), func(context.Context) error { return op() })
		}); got != theirs {
			t.Errorf("%d calls fail together: failsafe-go lets %d retries in, ours %d", calls, theirs, got)
		} else {
			t.Logf("%d calls: %d retries", calls, got)
		}
	}
}

func TestAzcoreAgreesWithItsLibrary(t *testing.T) {
	library := func(o policy.RetryOptions) func([]answer) run {
		return func(answers []answer) run {
			rec := replay{answers: answers}
			got, err := azget(context.Background(), o, &rec)
			if err == nil && got != 200 {
				err = answer{status: got}
			}
			return rec.ended(err)
		}
	}
	judge := httpretry.ClassifyStatuses(compat.AzcoreStatuses()...)
	for _, c := range []struct {
		name    string
		ours    compat.Azcore
		theirs  policy.RetryOptions
		answers []answer
	}{
		{"default", compat.Azcore{}, policy.RetryOptions{}, fails(9)},
		{"longer", compat.Azcore{MaxRetries: 9, Max: 20 * time.Second}, policy.RetryOptions{MaxRetries: 9,
			MaxRetryDelay: 20 * time.Second}, fails(12)},
		{"none", compat.Azcore{MaxRetries: -1}, policy.RetryOptions{MaxRetries: -1}, fails(2)},
		{"a wait is kept", compat.Azcore{}, policy.RetryOptions{}, []answer{wished(7), {status: 429}, {status: 200}}},
		{"too long a wait ends it", compat.Azcore{}, policy.RetryOptions{}, []answer{wished(61), {status: 200}}},
		{"not in the list", compat.Azcore{}, policy.RetryOptions{}, []answer{{status: 500}, {status: 501}}},
	} {
		t.Run(c.name, func(t *testing.T) { agree(t, c.ours, judge, library(c.theirs), c.answers...) })
	}

	// The error of a deadline.
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, theirs := azget(ctx, policy.RetryOptions{}, &replay{answers: fails(9)})
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := retrypolicy.Retrier{Policy: compat.Azcore{}, Classify: judge}
		own := r.Do(ctx, func(context.Context) error { return answer{status: 503} })
		if !errors.Is(theirs, context.DeadlineExceeded) || !errors.Is(own, context.DeadlineExceeded) {
			t.Errorf("the library: %v, ours: %v", theirs, own)
		}
	})
}

// azget makes a request through a pipeline with only the retry policy.
func azget(ctx context.Context, o policy.RetryOptions, rec *replay) (status int, err error) {
	pipeline := azruntime.NewPipeline("", "", azruntime.PipelineOptions{}, &policy.ClientOptions{Retry: o,
		Transport: sender(func(*http.Request) (*http.Response, error) {
			return rec.next().response(), nil
		})})
	request, err := azruntime.NewRequest(ctx, http.MethodGet, "https://x.invalid")
	if err != nil {
		return 0, err
	}
	response, err := pipeline.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, nil
}

type sender func(*http.Request) (*http.Response, error)

func (s sender) Do(r *http.Request) (*http.Response, error)        { return s(r) }
func (s sender) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

func TestRetryableHTTPAgreesWithItsLibrary(t *testing.T) {
	library := func(backoff retryablehttp.Backoff) func([]answer) run {
		return func(answers []answer) run {
			rec := replay{answers: answers}
			c := retryablehttp.NewClient()
			c.Logger, c.Backoff = nil, backoff
			c.HTTPClient = &http.Client{Transport: sender(func(*http.Request) (*http.Response, error) {
				return rec.next().response(), nil
			})}
			response, err := c.Get("http://x.invalid")
			if err == nil && response.StatusCode != 200 {
				err = answer{status: response.StatusCode}
			}
			return rec.ended(err)
		}
	}
	for _, c := range []struct {
		name    string
		ours    compat.RetryableHTTP
		backoff retryablehttp.Backoff
		answers []answer
	}{
		{"default", compat.RetryableHTTP{}, retryablehttp.DefaultBackoff, fails(9)},
		{"a wait beyond the longest delay", compat.RetryableHTTP{}, retryablehttp.DefaultBackoff,
			[]answer{wished(100), {429,
				"2"}, {status: 200}}},
		{"a wait after 502 does not count", compat.RetryableHTTP{}, retryablehttp.DefaultBackoff,
			[]answer{{502, "100"}, {status: 200}}},
		{"linear", compat.RetryableHTTP{Linear: true}, retryablehttp.RateLimitLinearJitterBackoff, fails(9)},
	} {
		t.Run(c.name, func(t *testing.T) { agree(t, c.ours, httpretry.Classify, library(c.backoff), c.answers...) })
	}
}

func TestCenkaltiAgreesWithItsLibrary(t *testing.T) {
	agree(t, compat.CenkaltiV4(), httpretry.Classify, func(answers []answer) run {
		rec := replay{answers: answers}
		return rec.ended(v4.Retry(func() error {
			if a := rec.next(); a.status != 200 {
				return a
			}
			return nil
		}, v4.NewExponentialBackOff()))
	}, append(fails(5), answer{status: 200})...)
}

// The AWS SDK looks for codes and time-outs in errors.
var (
	awsThrottled = &smithy.GenericAPIError{Code: "Throttling"}
	awsServer    = &smithy.GenericAPIError{Code: "RequestTimeout"} // by its code: not a time-out of the client
)

type awsTimeout struct{ error }

func (awsTimeout) Timeout() bool { return true }

// awsCall is a call of the AWS SDK that fails with these errors and then succeeds, and the Kinds of
// the same failures here.
type awsCall struct {
	failures []error
	kinds    []transport.Kind
}

func TestAWSQuotasAgreeWithTheSDK(t *testing.T) {
	server, timeout, throttled := transport.Unavailable, transport.Timeout, transport.Throttled
	calls := []awsCall{
		{nil, nil},
		{[]error{awsServer}, []transport.Kind{server}},
		{[]error{awsServer, awsServer}, []transport.Kind{server, server}},
		{[]error{awsTimeout{awsServer}}, []transport.Kind{timeout}},
		{[]error{awsThrottled, awsServer}, []transport.Kind{throttled, server}},
		{[]error{awsServer, awsServer, awsServer}, []transport.Kind{server, server, server}}, // out of attempts
		{[]error{awsTimeout{awsServer}, awsThrottled}, []transport.Kind{timeout, throttled}},
		{nil, nil},
	}
	synctest.Test(t, func(t *testing.T) {
		for _, start := range []int{500, 400, 9, 0} {
			tokens := ratelimit.NewTokenRateLimit(500)
			if _, err := tokens.GetToken(t.Context(), uint(500-start)); err != nil {
				t.Fatal(err)
			}
			standard := awsretry.NewStandard(func(o *awsretry.StandardOptions) { o.RateLimiter = tokens })
			bucket, err := budget.NewTokenBucket(500, 500-start, 0)
			if err != nil {
				t.Fatal(err)
			}
			o := compat.AWSStandard.Options()
			o.Quota.Bucket = bucket
			p, err := compat.NewAWS(o)
			if err != nil {
				t.Fatal(err)
			}
			for i, call := range calls {
				theirs := awsRun(t.Context(), standard, call.failures)
				n := 0
				own := retrypolicy.Do(t.Context(), p, func(context.Context) error {
					if n++; n > len(call.kinds) {
						return nil
					}
					return call.kinds[n-1]
				})
				if got, want := bucket.Tokens(time.Now()), int(tokens.Remaining()); got != want ||
					(own == nil) != (theirs == nil) {
					t.Fatalf("from %d tokens, call %d: the SDK has %d tokens (%v), ours %d (%v)", start, i, want, theirs, got, own)
				}
			}
		}
	})
}

// awsRun runs a call through the SDK's retry middleware.
func awsRun(ctx context.Context, r *awsretry.Standard, failures []error) error {
	m := awsretry.NewAttemptMiddleware(r, func(request any) any { return request })
	n := 0
	next := middleware.FinalizeHandlerFunc(func(context.Context, middleware.FinalizeInput) (middleware.FinalizeOutput,
		middleware.Metadata, error) {
		if n++; n > len(failures) {
			return middleware.FinalizeOutput{}, middleware.Metadata{}, nil
		}
		return middleware.FinalizeOutput{}, middleware.Metadata{}, failures[n-1]
	})
	_, _, err := m.HandleFinalize(ctx, middleware.FinalizeInput{}, next)
	return err
}

// The delays of the SDK. A long poll waits for them also when the quota is empty.
func TestAWSDelaysAgreeWithTheSDK(t *testing.T) {
	standard := awsretry.NewStandard()
	o := compat.AWSStandard.Options()
	o.Attempts, o.Quota = 20, nil
	p, err := compat.NewAWS(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct {
		err  error
		kind transport.Kind
	}{{awsServer, transport.Unavailable}, {awsThrottled, transport.Throttled}} {
		for retry := 1; retry <= 12; retry++ {
			most := p.Decide(retrypolicy.Attempt{Retry: retry, Kind: f.kind, Rand: greatest}).Delay
			least := p.Decide(retrypolicy.Attempt{Retry: retry, Kind: f.kind}).Delay
			var drawn []time.Duration
			for range 400 {
				d, err := standard.RetryDelay(retry, f.err)
				if err != nil {
					t.Fatal(err)
				}
				drawn = append(drawn, d)
			}
			room := (most - least) / 20
			if low, high := slices.Min(drawn), slices.Max(drawn); low < least || high > most+1 || low > least+room ||
				high < most-room {
				t.Errorf("retry %d after %v: the SDK waits %v to %v, ours %v to %v", retry, f.kind, low, high, least, most)
			}
		}
	}
	// A refusal by the quota carries the delay of its class.
	o = compat.AWSStandard.Options()
	empty, err := budget.NewTokenBucket(500, 500, 0)
	if err != nil {
		t.Fatal(err)
	}
	o.Quota = &budget.QuotaOptions{Bucket: empty, Retry: 14}
	if p, err = compat.NewAWS(o); err != nil {
		t.Fatal(err)
	}
	series := retrypolicy.Inner(p, retrypolicy.Start{})
	d := series.Decide(retrypolicy.Attempt{Retry: 1, Kind: transport.Throttled, Rand: greatest})
	if d.Retry || d.Delay < 999*time.Millisecond {
		t.Errorf("%+v, want a refusal with a second", d)
	}
}

// The older delays are still in the SDK, under a function of their own. It counts from 1.
func TestAWSGo2025DelaysAgreeWithTheSDK(t *testing.T) {
	theirs, ours := awsretry.NewExponentialJitterBackoff(20*time.Second), compat.AWSGo2025.Options().Backoff
	for retry := 1; retry <= 12; retry++ {
		most := ours.Decide(retrypolicy.Attempt{Retry: retry, Rand: greatest}).Delay
		least := ours.Decide(retrypolicy.Attempt{Retry: retry}).Delay
		for range 100 {
			if d, err := theirs.BackoffDelay(retry, awsServer); err != nil || d < least || d > most+1 {
				t.Errorf("retry %d: the SDK waits %v (%v), ours %v to %v", retry, d, err, least, most)
			}
		}
	}
}

// smithyStatus is the answer of a service with an error that its model may describe.
type smithyStatus struct {
	err    smithy.APIError
	status int
}

func (s smithyStatus) Error() string       { return s.err.Error() }
func (s smithyStatus) Unwrap() error       { return s.err }
func (s smithyStatus) HTTPStatusCode() int { return s.status }

// modeled is an error that the model of a service describes.
type modeled struct{ smithy.GenericAPIError }

func TestAWSStandardRulesAgreeWithTheSDK(t *testing.T) {
	standard := awsretry.NewStandard()
	throttles := awsretry.IsErrorThrottles(awsretry.DefaultThrottles)
	rules := compat.AWSStandardRules()
	for _, status := range []int{400, 403, 404, 408, 429, 500, 501, 502, 503, 504, 509} {
		for _, code := range []string{"Other", "SlowDown", "RequestTimeout", "TooManyRequestsException"} {
			for _, isModeled := range []bool{false, true} {
				answer := smithyStatus{&smithy.GenericAPIError{Code: code}, status}
				if isModeled {
					answer.err = &modeled{smithy.GenericAPIError{Code: code}}
				}
				info := rules.Judge(compat.AWSFailure{Code: code, Status: status, Modeled: isModeled})
				again, throttled := standard.IsErrorRetryable(answer), throttles.IsErrorThrottle(answer).Bool()
				if (info.Verdict == retrypolicy.VerdictAgain) != again || (info.Kind == transport.Throttled) != throttled {
					t.Errorf("%d %s, modeled %v: the SDK retries %v as throttling %v, ours %+v", status, code, isModeled, again,
						throttled, info)
				}
			}
		}
	}
}
