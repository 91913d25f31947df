// Package policytest has helpers for the tests of several packages below retrypolicy.
package policytest

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/transport"
)

// The three draws of the tables: the smallest, the middle, and the largest, which is just below 1.
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

// As returns a with the outcome err; nil is a success.
func As(a retrypolicy.Attempt, err error) retrypolicy.Attempt {
	a.Err, a.Kind = err, transport.KindOf(err)
	return a
}

// At returns an attempt at the time Epoch+d.
func At(d time.Duration) retrypolicy.Attempt { return retrypolicy.Attempt{Now: Epoch.Add(d)} }

// Bucketed gives o a bucket that the test can inspect, of the given size and with the given tokens.
func Bucketed(o *compat.AWSOptions, size, tokens int) *budget.TokenBucket {
	o.Quota.Bucket = Must(budget.NewTokenBucket(size, size-tokens, 0))
	return o.Quota.Bucket
}

// CheckInvalid is CheckRefusal for the parameters of p.
func CheckInvalid(t *testing.T, p retrypolicy.Policy, want string) {
	t.Helper()
	CheckRefusal(t, retrypolicy.Validate(p), want)
}

// CheckRefusal expects an error of Kind Invalid that contains want, or no error if want is empty.
func CheckRefusal(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && (!errors.Is(err, transport.Invalid) || !strings.Contains(err.Error(), want)):
		t.Errorf("error %v, want one of Kind Invalid with %q", err, want)
	}
}

// Huge are counts far beyond every cap, including those where a shift or an addition would overflow
// 32 or 64 bits.
var Huge = []int{21, 31, 32, 33, 62, 63, 64, 65, 66, 127, 128, 1 << 30, math.MaxInt32 - 1, math.MaxInt32}

// Series begins a series of p.
func Series(p retrypolicy.Policy) retrypolicy.Series {
	return retrypolicy.Inner(p, retrypolicy.Start{})
}

// Retried returns a as the n-th retry.
func Retried(a retrypolicy.Attempt, n int) retrypolicy.Attempt {
	a.Retry = n
	return a
}

// Must returns v, the result of a constructor that must not fail.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Sec returns the time s seconds after Epoch.
func Sec(s float64) time.Time { return Epoch.Add(time.Duration(math.Round(s * 1e9))) }

// Epoch is the start time of these tests' clocks.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Lost is the loss of a connection.
var Lost = &transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection}

// StatusError is an error with the status of an HTTP answer.
type StatusError struct {
	Status int
	After  time.Duration
}

func (e *StatusError) Error() string             { return "status" }
func (e *StatusError) HTTPStatusCode() int       { return e.Status }
func (e *StatusError) RetryAfter() time.Duration { return e.After }

// Status returns a StatusError with the status n.
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
