//go:build !tinygo

package retrypolicy_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/httpretry"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

func TestClassify(t *testing.T) {
	const (
		again = retrypolicy.VerdictAgain
		fail  = retrypolicy.VerdictFail
		open  = retrypolicy.SafeUnknown
		yes   = retrypolicy.SafeYes
	)
	wrap := func(err error) error { return fmt.Errorf("wrapped: %w", err) }
	dial := &transport.Error{Kind: transport.Network, Op: transport.OpDial}
	for _, c := range []struct {
		name string
		err  error
		want retrypolicy.Info
	}{
		{"no error", nil, retrypolicy.Info{Verdict: retrypolicy.VerdictSucceed}},
		{"unknown", errors.New("?"), retrypolicy.Info{Verdict: again}},
		{"a kind", transport.Network, retrypolicy.Info{Verdict: again, Kind: transport.Network}},
		{"throttled", wrap(transport.Throttled), retrypolicy.Info{Verdict: again, Kind: transport.Throttled, Safe: yes}},
		{"unavailable", transport.Unavailable, retrypolicy.Info{Verdict: again, Kind: transport.Unavailable}},
		{"forbidden", transport.Forbidden, retrypolicy.Info{Verdict: fail, Kind: transport.Forbidden, Safe: yes}},
		{"an answer that no table lists", transport.Unknown, retrypolicy.Info{Verdict: fail}},
		{"a kind that does not exist", transport.Kind(200), retrypolicy.Info{Verdict: fail, Kind: 200}},
		{"a failed dial did nothing", wrap(dial), retrypolicy.Info{Verdict: again, Kind: transport.Network, Safe: yes}},
		{"the wait asked for", &transport.Error{Kind: transport.Timeout, RetryAfter: time.Minute},
			retrypolicy.Info{Verdict: again, Kind: transport.Timeout, After: time.Minute}},
		{"not again", &transport.Error{Kind: transport.Timeout, RetryAfter: -1}, retrypolicy.Info{Verdict: again,
			Kind: transport.Timeout, After: -1}},
		{"cancelled", wrap(context.Canceled), retrypolicy.Info{Verdict: fail}},
		{"cancelled in a time-out", wrap(&transport.Error{Kind: transport.Timeout, Err: context.Canceled}),
			retrypolicy.Info{Verdict: fail, Kind: transport.Cancelled}},
		{"a client's call whose context ended", &transport.Error{Kind: transport.Cancelled, Err: context.DeadlineExceeded},
			retrypolicy.Info{Verdict: fail, Kind: transport.Cancelled}},
		{"a transport's own time limit", &transport.Error{Kind: transport.Timeout, Err: context.DeadlineExceeded},
			retrypolicy.Info{Verdict: again, Kind: transport.Timeout}},
		{"deadline", wrap(context.DeadlineExceeded), retrypolicy.Info{Verdict: fail}},
		{"a time-out of the system's", wrap(os.ErrDeadlineExceeded), retrypolicy.Info{Verdict: again,
			Kind: transport.Timeout}},
		{"a time-out made of a deadline", wrap(&url.Error{Op: "Get", Err: context.DeadlineExceeded}),
			retrypolicy.Info{Verdict: again, Kind: transport.Timeout}},
		{"cancelled in an error that can time out", &url.Error{Op: "Get", Err: context.Canceled},
			retrypolicy.Info{Verdict: fail}},
		{"cancelled, among several", errors.Join(errors.New("?"), context.Canceled), retrypolicy.Info{Verdict: fail}},
		{"a deadline before a time-out", errors.Join(context.DeadlineExceeded, os.ErrDeadlineExceeded),
			retrypolicy.Info{Verdict: fail}},
		{"a time-out before a deadline", errors.Join(wrap(os.ErrDeadlineExceeded), context.DeadlineExceeded),
			retrypolicy.Info{Verdict: again, Kind: transport.Timeout}},
		{"a broken answer of a service that has worked", &transport.Error{Kind: transport.Protocol,
			Err: wrap(transport.ErrViolation)}, retrypolicy.Info{Verdict: again, Kind: transport.Protocol}},
		{"a refusal that may be lifted", &transport.Error{Kind: transport.Unauthorized, Err: transport.ErrMayBeLifted},
			retrypolicy.Info{Verdict: again, Kind: transport.Unauthorized, Safe: yes}},
		{"permanent, and what the clean-up said", fmt.Errorf("%w (clean-up: %w)", retrypolicy.Permanent(errors.New("no")),
			errors.New("?")), retrypolicy.Info{Verdict: fail}},
		{"permanent, the last of several", errors.Join(transport.Network, wrap(retrypolicy.Permanent(errors.New("no")))),
			retrypolicy.Info{Verdict: fail, Kind: transport.Network}},
		{"a kind among several", fmt.Errorf("%w: %w", &transport.Error{Kind: transport.NotFound}, errors.New("?")),
			retrypolicy.Info{Verdict: fail, Kind: transport.NotFound, Safe: yes}},
		{"the wait asked for, among several", errors.Join(errors.New("?"),
			wrap(&transport.Error{Kind: transport.Timeout, RetryAfter: s})), retrypolicy.Info{Verdict: again,
			Kind: transport.Timeout, After: s}},
		{"permanent", wrap(retrypolicy.Permanent(transport.Network)), retrypolicy.Info{Verdict: fail,
			Kind: transport.Network}},
		{"permanent inside an error with a kind", &transport.Error{Kind: transport.Network,
			Err: retrypolicy.Permanent(errors.New("?"))}, retrypolicy.Info{Verdict: fail, Kind: transport.Network}},
	} {
		if got := retrypolicy.Classify(c.err); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// Walking errors that wrap several others allocates nothing.
func TestClassifyAllocatesNothing(t *testing.T) {
	err := error(&transport.Error{Kind: transport.Throttled})
	for range 4 {
		err = errors.Join(errors.New("?"), fmt.Errorf("%w, %w", errors.New("?"), err))
	}
	late := errors.Join(errors.New("?"), context.DeadlineExceeded)
	var info, other retrypolicy.Info
	if n := testing.AllocsPerRun(100,
		func() { info, other = retrypolicy.Classify(err), retrypolicy.Classify(late) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if info.Kind != transport.Throttled || other.Verdict != retrypolicy.VerdictFail {
		t.Errorf("%+v, %+v", info, other)
	}
	if info, n := httpretry.Classify(errors.Join(errors.New("?"), &policytest.HTTPError{Status: 503,
		Err: errors.New("?")})),
		httpretry.Classify(errors.New("?")); info.Kind != transport.Unavailable || n.Verdict != retrypolicy.VerdictUndecided {
		t.Errorf("a status among several: %+v, %+v", info, n)
	}
}

// Classify judges every Kind as package errfilter does, and no Kind is outside the tables.
func TestClassifyFollowsErrfilter(t *testing.T) {
	for _, r := range errfilter.Rules() {
		k := r.Kind
		got := retrypolicy.Classify(&transport.Error{Kind: k})
		if (got.Verdict == retrypolicy.VerdictAgain) != errfilter.OfKind(k).Retry || got.Kind != k ||
			got.Safe == retrypolicy.SafeNo || got != retrypolicy.OfKind(k) {
			t.Errorf("%v: %+v", k, got)
		}
	}
}

func TestPermanent(t *testing.T) {
	if retrypolicy.Permanent(nil) != nil {
		t.Error("Permanent(nil) is an error")
	}
	cause := &transport.Error{Kind: transport.Network}
	err := retrypolicy.Permanent(cause)
	if err.Error() != cause.Error() || !errors.Is(err, transport.Network) || transport.Find(err) != cause {
		t.Errorf("%v hides its cause", err)
	}
}

func TestKindSet(t *testing.T) {
	set := retrypolicy.Kinds(transport.Network, transport.Closed)
	kinds := []transport.Kind{31, 32, 255}
	for _, r := range errfilter.Rules() {
		kinds = append(kinds, r.Kind)
	}
	for _, k := range kinds {
		if set.Has(k) != (k == transport.Network || k == transport.Closed) {
			t.Errorf("%v in the set: %v", k, set.Has(k))
		}
	}
}

// sayer is an error that says by methods whether it is retried.
type sayer struct {
	safe, known, throttling, timeout bool
	fault                            retrypolicy.Fault
	after                            time.Duration
	err                              error
}

func (*sayer) Error() string                       { return "?" }
func (s *sayer) RetrySafe() (safe, known bool)     { return s.safe, s.known }
func (s *sayer) Throttling() bool                  { return s.throttling }
func (s *sayer) RetryAfter() (after time.Duration) { return s.after }
func (s *sayer) Fault() retrypolicy.Fault          { return s.fault }
func (s *sayer) Timeout() bool                     { return s.timeout }
func (s *sayer) Unwrap() error                     { return s.err }

func TestClassifyAsksTheErrorItself(t *testing.T) {
	for _, c := range []struct {
		err  sayer
		want retrypolicy.Info
	}{
		{sayer{}, retrypolicy.Info{Verdict: retrypolicy.VerdictAgain}},
		{sayer{safe: true, known: true, after: time.Second}, retrypolicy.Info{Verdict: retrypolicy.VerdictAgain,
			Safe: retrypolicy.SafeYes, After: time.Second}},
		{sayer{known: true}, retrypolicy.Info{Verdict: retrypolicy.VerdictFail, Safe: retrypolicy.SafeNo}},
		{sayer{throttling: true, fault: retrypolicy.FaultServer}, retrypolicy.Info{Verdict: retrypolicy.VerdictAgain,
			Kind: transport.Throttled}},
		{sayer{fault: retrypolicy.FaultServer}, retrypolicy.Info{Verdict: retrypolicy.VerdictAgain,
			Kind: transport.Unavailable}},
		{sayer{fault: retrypolicy.FaultClient}, retrypolicy.Info{Verdict: retrypolicy.VerdictAgain,
			Kind: transport.Conflict}},
		// A time-out of the client is safe and its own fault.
		{sayer{timeout: true, safe: true, known: true, fault: retrypolicy.FaultClient, after: time.Second},
			retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: transport.Timeout, Safe: retrypolicy.SafeYes,
				After: time.Second}},
		{sayer{timeout: true, known: true}, retrypolicy.Info{Verdict: retrypolicy.VerdictFail, Kind: transport.Timeout,
			Safe: retrypolicy.SafeNo}},
		// Around an error with a Kind it can only say more about safety
		{sayer{known: true, throttling: true, err: transport.Unavailable}, retrypolicy.Info{
			Verdict: retrypolicy.VerdictFail, Kind: transport.Unavailable, Safe: retrypolicy.SafeNo}},
		// and how long to wait, unless the error with the Kind does.
		{sayer{after: time.Second, err: transport.Throttled}, retrypolicy.Info{Verdict: retrypolicy.VerdictAgain,
			Kind: transport.Throttled, Safe: retrypolicy.SafeYes, After: time.Second}},
		{sayer{after: time.Second, err: &transport.Error{Kind: transport.Network, RetryAfter: time.Minute}},
			retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: transport.Network, After: time.Minute}},
		{sayer{safe: true, known: true, err: transport.Forbidden}, retrypolicy.Info{Verdict: retrypolicy.VerdictFail,
			Kind: transport.Forbidden, Safe: retrypolicy.SafeYes}},
	} {
		if got := retrypolicy.Classify(errors.Join(errors.New("first"), &c.err)); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.err, got, c.want)
		}
	}
	again := func(error) retrypolicy.Info { return retrypolicy.Info{Verdict: retrypolicy.VerdictAgain} }
	for _, own := range []retrypolicy.Classifier{nil, again} {
		calls, _, err := policytest.Retries(t, retrypolicy.Retrier{Policy: second, Classify: own}, &sayer{known: true})
		if calls != 1 || !errors.Is(err, retrypolicy.ReasonNotRetryable) {
			t.Errorf("%d calls, %v", calls, err)
		}
	}
}
