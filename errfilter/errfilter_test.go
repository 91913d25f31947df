package errfilter_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

func TestTableHasOneRowPerKindAtItsOwnIndex(t *testing.T) {
	rules := errfilter.Rules()
	if k := transport.Kind(len(rules)); k.String() != "undefined kind" {
		t.Errorf("%v has no row", k)
	}
	seen := map[string]transport.Kind{}
	for i, r := range rules {
		k := transport.Kind(i)
		if r.Kind != k {
			t.Errorf("row %d is of %v, want %v", i, r.Kind, k)
		}
		if errfilter.OfKind(k) != r {
			t.Errorf("OfKind(%v) = %+v, want row %+v", k, errfilter.OfKind(k), r)
		}
		if r.Hint() == "" || strings.TrimSpace(r.Hint()) != r.Hint() || strings.HasSuffix(r.Hint(), ".") {
			t.Errorf("%v: reason %q; want text without stop and space around it", k, r.Hint())
		}
		if other, twice := seen[r.Hint()]; twice {
			t.Errorf("%v and %v share the reason %q", k, other, r.Hint())
		}
		seen[r.Hint()] = k
		if r.Pace == errfilter.PaceSlow && !r.Retry {
			t.Errorf("%v is paced but not retried", k)
		}
	}
}

// The intended verdicts, by the situation that a device meets. Each transport's own table maps the
// situation to the kind.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		situation string
		kind      transport.Kind
		retry     bool
		pace      errfilter.Pace
	}{
		// Retryable.
		{"connection refused", transport.Network, true, errfilter.PaceNormal},
		{"connection reset", transport.Network, true, errfilter.PaceNormal},
		{"no route to the host", transport.Network, true, errfilter.PaceNormal},
		{"name look-up failed", transport.Network, true, errfilter.PaceNormal},
		{"TLS handshake cut short", transport.Network, true, errfilter.PaceNormal},
		{"live session lost", transport.Network, true, errfilter.PaceNormal},
		{"time-out of a dial or an answer", transport.Timeout, true, errfilter.PaceNormal},
		{"status 408", transport.Timeout, true, errfilter.PaceNormal},
		{"CONNACK 3", transport.Unavailable, true, errfilter.PaceNormal},
		{"status 500, 502, 503, 504", transport.Unavailable, true, errfilter.PaceNormal},
		{"AMQP connection forced and its like", transport.Unavailable, true, errfilter.PaceNormal},
		{"AMQP released, or modified unless undeliverable here", transport.Unavailable, true, errfilter.PaceNormal},
		{"status 429", transport.Throttled, true, errfilter.PaceSlow},
		{"today's quota used up", transport.Quota, true, errfilter.PaceSlow},
		{"AMQP resource limit exceeded", transport.Quota, true, errfilter.PaceSlow},
		{"clock still in 1970", transport.ClockUnset, true, errfilter.PaceSlow},
		// Terminal.
		{"certificate does not verify", transport.Untrusted, false, errfilter.PaceNormal},
		{"CONNACK 1", transport.Protocol, false, errfilter.PaceNormal},
		{"CONNACK 2", transport.Invalid, false, errfilter.PaceNormal},
		{"CONNACK 4 and 5", transport.Unauthorized, false, errfilter.PaceNormal},
		{"CONNACK 6 to 255, which no table lists", transport.Unknown, false, errfilter.PaceNormal},
		{"bad request", transport.Invalid, false, errfilter.PaceNormal},
		{"not found", transport.NotFound, false, errfilter.PaceNormal},
		{"too large", transport.TooLarge, false, errfilter.PaceNormal},
		{"credentials refused", transport.Unauthorized, false, errfilter.PaceNormal},
		{"no right to do this", transport.Forbidden, false, errfilter.PaceNormal},
		{"version conflict", transport.Conflict, false, errfilter.PaceNormal},
		{"operation that the protocol lacks", transport.Unsupported, false, errfilter.PaceNormal},
		{"the peer broke the protocol", transport.Protocol, false, errfilter.PaceNormal},
		{"answer that no table lists", transport.Unknown, false, errfilter.PaceNormal},
		{"retries ended", transport.RetryExpired, false, errfilter.PaceNormal},
		{"message expired", transport.Expired, false, errfilter.PaceNormal},
		{"message dropped", transport.Dropped, false, errfilter.PaceNormal},
		{"client closed", transport.Closed, false, errfilter.PaceNormal},
		{"the caller's context ended", transport.Cancelled, false, errfilter.PaceNormal},
		{"the peer ends connections for the message", transport.Poison, false, errfilter.PaceNormal},
	} {
		for _, scope := range []transport.Scope{transport.ScopeConnection, transport.ScopeOperation} {
			err := &transport.Error{Kind: c.kind, Scope: scope, Err: errors.New(c.situation)}
			r := errfilter.Of(err)
			if r.Retry != c.retry || r.Pace != c.pace || r.Kind != c.kind {
				t.Errorf("%s (%v, %v): %+v, want retry %v, pace %v", c.situation, c.kind, scope, r, c.retry, c.pace)
			}
			if errfilter.Retryable(err) != c.retry {
				t.Errorf("%s: Retryable disagrees with Of", c.situation)
			}
		}
	}
}

// wrapped is a custom error type around a cause.
type wrapped struct{ cause error }

func (w wrapped) Error() string { return "wrapped: " + w.cause.Error() }
func (w wrapped) Unwrap() error { return w.cause }

// ended is an error of a series of attempts that its context ended, as that of retrypolicy.Do.
type ended struct{ wrapped }

func (ended) EndedByContext() bool { return true }

// incomparable makes a comparison of interface values panic if the types are the same.
type incomparable []error

func (incomparable) Error() string { return "incomparable" }

func TestOfLooksThroughWraps(t *testing.T) {
	throttled := &transport.Error{Kind: transport.Throttled, RetryAfter: time.Minute}
	for _, c := range []struct {
		name   string
		err    error
		kind   transport.Kind
		retry  bool
		reason string // part of it
	}{
		{"nil", nil, transport.Unknown, false, "there is no error"},
		{"an error", throttled, transport.Throttled, true, "wait"},
		{"wrapped twice", wrapped{wrapped{throttled}}, transport.Throttled, true, "wait"},
		{"a bare kind", transport.Network, transport.Network, true, "connections come back"},
		{"a wrapped bare kind", wrapped{transport.Unauthorized}, transport.Unauthorized, false, "same credentials"},
		{"the outermost of two decides", &transport.Error{Kind: transport.RetryExpired, Err: throttled},
			transport.RetryExpired, false,
			"outage limit"},
		{"an error of kind Unknown", &transport.Error{Kind: transport.Unknown}, transport.Unknown, false,
			"answer that is not known"},
		{"an error without kind", errors.New("?"), transport.Unknown, false, "answer that is not known"},
		{"an error that cannot be compared", incomparable{nil}, transport.Unknown, false, "answer that is not known"},
		{"a kind past the table", transport.Kind(200), transport.Unknown, false, "answer that is not known"},
		{"cancelled by the caller", context.Canceled, transport.Cancelled, false, "caller's context"},
		{"cancelled, wrapped", wrapped{context.Canceled}, transport.Cancelled, false, "caller's context"},
		{"the caller's deadline", context.DeadlineExceeded, transport.Cancelled, false, "caller's context"},
		{"the caller's deadline, wrapped", wrapped{wrapped{context.DeadlineExceeded}}, transport.Cancelled, false,
			"caller's context"},
		{"a transport's own time limit is a time-out", &transport.Error{Kind: transport.Timeout,
			Err: context.DeadlineExceeded}, transport.Timeout, true,
			"slow network"},
		{"the same, wrapped", wrapped{&transport.Error{Kind: transport.Timeout, Err: wrapped{context.DeadlineExceeded}}},
			transport.Timeout, true, "slow network"},
		{"a time-out that was a cancellation", &transport.Error{Kind: transport.Timeout,
			Err: wrapped{context.Canceled}}, transport.Cancelled, false, "caller's context"},
		{"cancelled inside a time-out", &transport.Error{Kind: transport.Timeout,
			Err: &transport.Error{Kind: transport.Cancelled, Err: context.DeadlineExceeded}}, transport.Cancelled, false,
			"caller's context"},
		{"cancelled inside a network error", &transport.Error{Kind: transport.Network, Err: wrapped{transport.Cancelled}},
			transport.Cancelled, false, "caller's context"},
		{"a series that its context ended", wrapped{ended{wrapped{transport.Network}}}, transport.Cancelled, false,
			"caller's context"},
		{"the same, as the cause of a transport's error", &transport.Error{Kind: transport.Network,
			Err: ended{wrapped{transport.Network}}}, transport.Network, true, "come back"},
		{"a session that its client ended", &transport.Error{Kind: transport.Network, Err: context.Canceled},
			transport.Network, true, "connections come back"},
		{"terminal keeps its own reason when cancelled", &transport.Error{Kind: transport.NotFound,
			Err: transport.Cancelled}, transport.NotFound, false, "does not exist"},
		{"an unknown answer with a context's error behind it", &transport.Error{Err: context.Canceled}, transport.Unknown,
			false,
			"answer that is not known"},
		{"the service asked not to be tried again", &transport.Error{Kind: transport.Throttled, RetryAfter: -1},
			transport.Throttled, false,
			"no further attempt"},
		{"the same, wrapped", wrapped{&transport.Error{Kind: transport.Unavailable, RetryAfter: -time.Second}},
			transport.Unavailable, false,
			"no further attempt"},
		{"a violation on a working connection", &transport.Error{Kind: transport.Protocol,
			Err: wrapped{transport.ErrViolation}}, transport.Protocol, true,
			"another connection"},
		{"an answer of a proxy", &transport.Error{Kind: transport.Unauthorized, Err: wrapped{transport.ErrProxy}},
			transport.Unauthorized, false,
			"its URL, user name and password"},
		{"an answer of a proxy that may pass", &transport.Error{Kind: transport.Unavailable,
			Err: wrapped{transport.ErrProxy}}, transport.Unavailable, true,
			"allows the hub's name"},
		{"a refusal that the service may lift", &transport.Error{Kind: transport.Unauthorized,
			Err: wrapped{transport.ErrMayBeLifted}}, transport.Unauthorized, true, "less and less often"},
		{"a lifted refusal of another kind", &transport.Error{Kind: transport.Forbidden,
			Err: wrapped{transport.ErrMayBeLifted}}, transport.Forbidden, false, "lacks the right"},
		{"a session that is taken over for good", &transport.Error{Kind: transport.Conflict,
			Err: wrapped{transport.ErrTakenOver}}, transport.Conflict, false, "two devices with one identity"},
		{"a session that is taken over", &transport.Error{Kind: transport.Unavailable,
			Err: wrapped{transport.ErrTakenOver}}, transport.Unavailable, true, "will be back"},
		{"a violation of another kind", &transport.Error{Kind: transport.NotFound, Err: wrapped{transport.ErrViolation}},
			transport.NotFound, false,
			"does not exist"},
		{"terminal keeps its own reason", &transport.Error{Kind: transport.NotFound, RetryAfter: -1}, transport.NotFound,
			false,
			"does not exist"},
		{"a wait asked for does not make it retryable", &transport.Error{Kind: transport.NotFound, RetryAfter: time.Minute},
			transport.NotFound, false,
			"does not exist"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := errfilter.Of(c.err)
			if r.Kind != c.kind || r.Retry != c.retry || !strings.Contains(r.Hint(), c.reason) {
				t.Errorf("Of = %+v, want kind %v, retry %v, reason with %q", r, c.kind, c.retry, c.reason)
			}
			if errfilter.Retryable(c.err) != c.retry {
				t.Errorf("Retryable = %v", !c.retry)
			}
		})
	}
}

func TestRulesIsACopyThatCannotChangeTheTable(t *testing.T) {
	rules := errfilter.Rules()
	for i := range rules {
		rules[i].Retry = !rules[i].Retry
	}
	_ = append(rules[:1], errfilter.Rule{Kind: transport.Closed})
	if !errfilter.Retryable(transport.Network) || errfilter.Retryable(transport.Invalid) ||
		errfilter.OfKind(transport.Network).Kind != transport.Network {
		t.Error("the table was changed from outside")
	}
}
