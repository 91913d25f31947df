package httpretry

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport/neterr"
)

// Transport is an http.RoundTripper that repeats requests under a policy.
//
// A request is repeated if three things hold: Classify says Again for its failure or answer; its
// body can be sent again (there is none, or the request has GetBody); and its method is idempotent
// (RFC 9110, 9.2.2), or the request has a header Idempotency-Key or X-Idempotency-Key. Others are
// repeated only after a failure that proves that the service did not act, such as 429 or a refused
// connection; see AnyMethod. If a request without an answer is not repeated for its body or its
// method, its error has retrypolicy.ReasonUnsafe.
//
// The service's Retry-After counts if the policy has a retrypolicy.RetryAfter. Waits end with the
// request's context. The body of an answer is read to its end, up to 64 KB and for 250 ms, and
// closed before the next attempt, so that the connection is used again.
//
// After the last attempt RoundTrip returns its response, whatever the status, with the body to
// read, or else a *retrypolicy.Error. RoundTrip is safe for concurrent use; the fields must not
// change meanwhile.
type Transport struct {
	// Policy decides. Its key, for budget.PerKey, is the host of the request's URL.
	Policy retrypolicy.Policy
	// Base makes the attempts. Nil: http.DefaultTransport. For a time-out of one attempt set
	// ResponseHeaderTimeout there.
	Base http.RoundTripper
	// Classify judges failures, and answers as a *ResponseError; it must not read the body. Answers
	// other than Again are results. Failures that it leaves Undecided are judged by
	// retrypolicy.Classify and package neterr. Nil: the function Classify.
	Classify retrypolicy.Classifier
	// AnyMethod repeats requests of every method, also if the service may have acted.
	AnyMethod bool
	// AttemptHeader is the name of a header that tells the service the number of the attempt, 1 for
	// the first. Empty: none.
	AttemptHeader string
	// OnRetry, if not nil, is called before each wait; see retrypolicy.Retrier.
	OnRetry func(retry int, delay time.Duration, err error)
	// OnLimit, if not nil, is called with the limit that an answer announces (see ParseRateLimit). The
	// method Announce of a budget.Adaptive fits.
	OnLimit func(perSecond float64, now time.Time)
}

// ResponseError is an answer as a failure: for policies, classifiers and OnRetry of a Transport,
// and for operations of your own.
type ResponseError struct {
	Response *http.Response
}

// Error gives the status.
func (e *ResponseError) Error() string { return "http: answer " + e.Response.Status }

// HTTPStatusCode returns the status.
func (e *ResponseError) HTTPStatusCode() int { return e.Response.StatusCode }

// RetryAfter returns the wait that the service asked for by RetryAfterHeaders, or by a RateLimit
// that has nothing left. 0: none.
func (e *ResponseError) RetryAfter() time.Duration {
	if wait, ok := RetryAfterHeaders(e.Response.Header.Get, time.Now()); ok {
		return wait
	}
	limit, _ := ParseRateLimit(e.Response.Header)
	return limit.Wait
}

// RoundTrip makes the attempts.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	x := exchange{t: t, req: req, safe: t.AnyMethod || repeatable(req)}
	r := retrypolicy.Retrier{
		Policy: t.Policy, Key: req.URL.Host, Classify: x.judge,
		OnRetry: func(retry int, delay time.Duration, err error) {
			if t.OnRetry != nil {
				t.OnRetry(retry, delay, err)
			}
			x.discard()
		},
	}
	err := r.Do(req.Context(), x.attempt)
	if x.attempts == 0 && req.Body != nil {
		req.Body.Close()
	}
	if x.response != nil {
		return x.response, nil
	}
	return nil, err
}

// exchange is a request with its attempts.
type exchange struct {
	t        *Transport
	req      *http.Request
	safe     bool // may be repeated if the service has acted
	attempts int
	response *http.Response // of the latest attempt, until it is discarded
}

func (x *exchange) attempt(ctx context.Context) error {
	req, err := x.next(ctx)
	if err != nil {
		return retrypolicy.Permanent(err)
	}
	base := x.t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if x.response, err = base.RoundTrip(req); err != nil {
		return err
	}
	if f := x.t.OnLimit; f != nil {
		if limit, ok := ParseRateLimit(x.response.Header); ok {
			f(limit.PerSecond, time.Now())
		}
	}
	return &ResponseError{x.response}
}

// next returns the request of the next attempt.
func (x *exchange) next(ctx context.Context) (*http.Request, error) {
	x.attempts++
	req := x.req
	if x.attempts > 1 || x.t.AttemptHeader != "" {
		req = req.WithContext(ctx)
	}
	if x.attempts > 1 && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		req.Body = body
	}
	if name := x.t.AttemptHeader; name != "" {
		if req.Header = req.Header.Clone(); req.Header == nil {
			req.Header = http.Header{}
		}
		req.Header.Set(name, strconv.Itoa(x.attempts))
	}
	return req, nil
}

// ofNetwork fails an error such as a certificate that does not verify.
var ofNetwork = retrypolicy.FromKind(neterr.Kind)

// judge says whether another attempt may follow.
func (x *exchange) judge(err error) retrypolicy.Info {
	classify := x.t.Classify
	if classify == nil {
		classify = Classify
	}
	info := classify(err)
	answer := x.response != nil
	switch {
	case answer && info.Verdict != retrypolicy.VerdictAgain:
		return retrypolicy.Info{Verdict: retrypolicy.VerdictSucceed}
	case info.Verdict == retrypolicy.VerdictUndecided:
		if info = ofNetwork(err); info.Verdict != retrypolicy.VerdictFail {
			info = retrypolicy.Classify(err)
		}
	}
	body := x.req.Body != nil && x.req.Body != http.NoBody && x.req.GetBody == nil
	if body || !x.safe && info.Safe == retrypolicy.SafeUnknown {
		info.Safe = retrypolicy.SafeNo
	}
	return info
}

// drainTime is how long the rest of an answer may take. A connection that takes longer is not worth
// the wait.
const drainTime = 250 * time.Millisecond

// discard frees the connection of an answer that another attempt replaces.
func (x *exchange) discard() {
	if x.response == nil {
		return
	}
	body := x.response.Body
	late := time.AfterFunc(drainTime, func() { body.Close() }) // which ends the read
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	late.Stop()
	body.Close()
	x.response = nil
}

// repeatable reports whether a request may be repeated if the service has acted.
func repeatable(req *http.Request) bool {
	idempotent := []string{"", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut,
		http.MethodDelete}
	return slices.Contains(idempotent, req.Method) ||
		req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != ""
}
