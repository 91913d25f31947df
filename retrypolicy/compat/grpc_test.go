package compat_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// a6 is the example of gRFC A6, with the highest number of attempts.
var a6 = compat.GRPC{Attempts: 5, Initial: 100 * time.Millisecond, Max: time.Second, Multiplier: 2}

// A caller that counts anew begins the growth anew.
func TestGRPCGrowthBeginsAnewWithTheCount(t *testing.T) {
	series := policytest.Series(a6)
	series.Decide(retrypolicy.Attempt{Retry: 4, After: time.Second})
	if d := series.Decide(retrypolicy.Attempt{Retry: 2, Rand: policytest.DrawHalf}); d.Delay < 199*time.Millisecond ||
		d.Delay > 201*time.Millisecond {
		t.Errorf("after counting anew: %v", d)
	}
}

func TestPushback(t *testing.T) {
	for _, c := range []struct {
		header string
		want   time.Duration
	}{
		{"", 0}, {"0", 1}, {"1", time.Millisecond}, {"1500", 1500 * time.Millisecond},
		{"2147483647", 2147483647 * time.Millisecond},
		{"-1", -1}, {"-2147483648", -1}, {"2147483648", -1}, {"99999999999999999999", -1}, {"abc", -1}, {"1.5", -1},
		{" 1", -1}, {"1s", -1}, {"0x10", -1}, {"1_000", -1},
	} {
		if got := compat.GRPCPushback(c.header); got != c.want {
			t.Errorf("%q: %d, want %d", c.header, got, c.want)
		}
	}
}

// rpcCode stands for codes.Code.
type rpcCode uint32

// rpc is an error with a status.
type rpc struct {
	code     rpcCode
	pushback string
}

func (rpc) Error() string { return "rpc failed" }

func rpcStatus(err error) (rpcCode, string, bool) {
	for ; err != nil; err = errors.Unwrap(err) {
		if e, ok := err.(rpc); ok {
			return e.code, e.pushback, true
		}
	}
	return 0, "", false
}

func TestGRPCClassifier(t *testing.T) {
	judge, err := compat.NewGRPCClassifier(rpcStatus, 14, 8)
	if err != nil {
		t.Fatal(err)
	}
	again, fail := retrypolicy.VerdictAgain, retrypolicy.VerdictFail
	for _, c := range []struct {
		err  error
		want retrypolicy.Info
	}{
		{rpc{14, ""}, retrypolicy.Info{Verdict: again, Kind: transport.Unavailable}},
		{rpc{14, "250"}, retrypolicy.Info{Verdict: again, Kind: transport.Unavailable, After: 250 * time.Millisecond}},
		{rpc{14, "0"}, retrypolicy.Info{Verdict: again, Kind: transport.Unavailable, After: 1}},
		{rpc{14, "-1"}, retrypolicy.Info{Verdict: again, Kind: transport.Unavailable, After: -1}},
		{rpc{8, ""}, retrypolicy.Info{Verdict: again, Kind: transport.Throttled}},
		{rpc{4, ""}, retrypolicy.Info{Verdict: fail, Kind: transport.Timeout}},
		{rpc{3, "x"}, retrypolicy.Info{Verdict: fail, Kind: transport.Invalid, After: -1}},
		{rpc{5, ""}, retrypolicy.Info{Verdict: fail, Kind: transport.NotFound}},
		{rpc{16, ""}, retrypolicy.Info{Verdict: fail, Kind: transport.Unauthorized}},
		{rpc{17, ""}, retrypolicy.Info{Verdict: fail, Kind: transport.Unknown}},
		{rpc{255, ""}, retrypolicy.Info{Verdict: fail, Kind: transport.Unknown}},
		{rpc{0, ""}, retrypolicy.Info{}},
		{errors.New("no status"), retrypolicy.Info{}},
		{&retrypolicy.Error{Err: rpc{14, ""}}, retrypolicy.Info{Verdict: again, Kind: transport.Unavailable}},
	} {
		if got := judge(c.err); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.err, got, c.want)
		}
	}
	for _, c := range []struct {
		status func(error) (rpcCode, string, bool)
		codes  []rpcCode
		want   string
	}{
		{nil, []rpcCode{14}, "status is nil"},
		{rpcStatus, nil, "retryable is empty"},
		{rpcStatus, []rpcCode{14, 0}, "no failure"},
		{rpcStatus, []rpcCode{17}, "no failure"},
		{rpcStatus, []rpcCode{1, 16}, ""},
	} {
		_, err := compat.NewGRPCClassifier(c.status, c.codes...)
		policytest.CheckRefusal(t, err, c.want)
	}
}

func TestRetryThrottleTokens(t *testing.T) {
	type end struct {
		verdict retrypolicy.Verdict
		attempt retrypolicy.Attempt
	}
	unavailable := end{retrypolicy.VerdictAgain, policytest.As(policytest.At(0), transport.Unavailable)}
	good := end{verdict: retrypolicy.VerdictSucceed}
	wrong := end{retrypolicy.VerdictFail, policytest.As(policytest.At(0), transport.Invalid)}
	told := wrong
	told.attempt.After = -1
	cancelled := end{retrypolicy.VerdictAgain, policytest.As(policytest.At(0), context.Canceled)}
	for _, c := range []struct {
		name   string
		ratio  float64
		seen   []end
		tokens float64
	}{
		{"full stays full", 0.5, []end{good}, 10},
		{"never below 0", 0.5, slices.Repeat([]end{unavailable}, 11), 0},
		{"and back", 0.5, append(slices.Repeat([]end{unavailable}, 11), good, good, good), 1.5},
		{"never above the most", 1000, []end{unavailable, good, good}, 10},
		{"a failure that no retry mends does not count", 0.5, []end{wrong}, 10},
		{"unless it asks not to be tried again", 0.5, []end{told}, 9},
		{"what the caller cancelled does not count", 0.5, []end{cancelled}, 10},
		{"thousandths", 0.5466, []end{unavailable, unavailable, good}, 8.546},
		{"exact where floating point is not", 1.001, []end{unavailable, unavailable, good}, 9.001},
	} {
		th := policytest.Must(budget.NewRetryThrottle(10, c.ratio))
		for _, e := range c.seen {
			policytest.Series(th.Wrap(retrypolicy.Immediately{})).Report(e.verdict, e.attempt)
		}
		if th.Tokens() != c.tokens {
			t.Errorf("%s: %v tokens, want %v", c.name, th.Tokens(), c.tokens)
		}
	}
}

// Under Do the throttle allows retries of the first failures and then none; first attempts
// continue.
func TestGRPCUnderDo(t *testing.T) {
	judge, err := compat.NewGRPCClassifier(rpcStatus, 14)
	if err != nil {
		t.Fatal(err)
	}
	th := policytest.Must(budget.NewRetryThrottle(10, 0.1))
	r := retrypolicy.Retrier{Policy: th.Wrap(a6), Classify: judge}
	runs := 0
	call := func(code rpcCode) error {
		return r.Do(context.Background(), func(context.Context) error {
			runs++
			return rpc{code, "0"} // at once, to keep the test fast
		})
	}
	for i, c := range []struct {
		code   rpcCode
		runs   int
		reason retrypolicy.Reason
		tokens float64
	}{
		{3, 1, retrypolicy.ReasonNotRetryable, 10},
		{14, 5, retrypolicy.ReasonOutOfAttempts, 5},
		{14, 1, retrypolicy.ReasonOutOfQuota, 4},
		{14, 1, retrypolicy.ReasonOutOfQuota, 3},
	} {
		runs = 0
		if err := call(c.code); !errors.Is(err, c.reason) || runs != c.runs || th.Tokens() != c.tokens {
			t.Errorf("call %d: %v after %d runs, %v tokens; want %v, %d, %v", i, err, runs, th.Tokens(), c.reason, c.runs,
				c.tokens)
		}
	}
}
