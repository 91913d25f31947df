//go:build !tinygo

package retrypolicy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

func TestClassifyKnowsFailuresOfTheNetwork(t *testing.T) {
	sys := func(op string, n syscall.Errno) error {
		return &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(op, n)}
	}
	get := func(err error) error { return &url.Error{Op: "Get", URL: "http://x", Err: err} }
	name := &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}
	for _, c := range []struct {
		err  error
		kind transport.Kind
		safe retrypolicy.Safe
	}{
		{sys("connect", syscall.ECONNREFUSED), transport.Network, retrypolicy.SafeYes},
		{get(sys("connect", syscall.ECONNREFUSED)), transport.Network, retrypolicy.SafeYes},
		{fmt.Errorf("fetch: %w", get(sys("connect", syscall.EHOSTUNREACH))), transport.Network, retrypolicy.SafeYes},
		{get(sys("read", syscall.ECONNRESET)), transport.Network, retrypolicy.SafeUnknown},
		{get(sys("write", syscall.EPIPE)), transport.Network, retrypolicy.SafeUnknown},
		{get(sys("connect", 10061)), transport.Network, retrypolicy.SafeYes},     // WSAECONNREFUSED
		{get(sys("wsarecv", 10054)), transport.Network, retrypolicy.SafeUnknown}, // WSAECONNRESET
		{name, transport.Network, retrypolicy.SafeYes},
		{get(&net.OpError{Op: "dial", Err: name}), transport.Network, retrypolicy.SafeYes},
		{get(io.EOF), transport.Network, retrypolicy.SafeUnknown},
		{get(sys("connect", syscall.ETIMEDOUT)), transport.Timeout, retrypolicy.SafeUnknown},
		{&net.DNSError{Err: "i/o timeout", IsTimeout: true}, transport.Timeout, retrypolicy.SafeUnknown},
		{errors.Join(errors.New("one"), sys("read", syscall.ECONNRESET)), transport.Network, retrypolicy.SafeUnknown},
		// These are not network failures.
		{io.EOF, transport.Unknown, retrypolicy.SafeUnknown},
		{get(errors.New("unsupported protocol scheme")), transport.Unknown, retrypolicy.SafeUnknown},
		{get(&fs.PathError{Op: "read", Path: "body", Err: syscall.EIO}), transport.Unknown, retrypolicy.SafeUnknown},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, transport.Unknown, retrypolicy.SafeUnknown},
		{get(&net.OpError{Op: "dial", Err: &net.AddrError{Err: "missing port", Addr: "x"}}), transport.Unknown,
			retrypolicy.SafeUnknown},
	} {
		want := retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: c.kind, Safe: c.safe}
		if got := retrypolicy.Classify(c.err); got != want {
			t.Errorf("%v: %+v, want %+v", c.err, got, want)
		}
	}
	for _, err := range []error{context.Canceled, get(context.Canceled), &net.DNSError{UnwrapErr: context.Canceled}} {
		if got := retrypolicy.Classify(err); got.Verdict != retrypolicy.VerdictFail {
			t.Errorf("%v: %+v, want a failure", err, got)
		}
	}
}

// The common use: Do around an http.Client. A dead backend trips a Throttle and a Breaker, and a
// Quota charges for Network.
func TestADeadBackendTripsThrottleAndCharges(t *testing.T) {
	const dead = "http://127.0.0.1:1" // nobody listens there
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	// MinRequests: the throttle admits the first three calls.
	throttle := policytest.Must(budget.NewThrottle(&budget.ThrottleOptions{MinRequests: 6}))
	b := policytest.Must(budget.NewTokenBucket(500, 0, 0))
	quota := policytest.Must(budget.NewQuota(&budget.QuotaOptions{Bucket: b, Retry: 1,
		Costs: []budget.Cost{{Kinds: retrypolicy.Kinds(transport.Network), Tokens: 7}}}))
	p := quota.Wrap(throttle.Wrap(retrypolicy.MaxAttempts{Total: 2, Policy: retrypolicy.Immediately{}}))
	rejected, charged := 0, 0
	for range 40 {
		before := b.Tokens(time.Now())
		err := retrypolicy.Do(t.Context(), p, func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, dead, nil)
			if err != nil {
				return err
			}
			answer, err := client.Do(request)
			if err != nil {
				return err
			}
			return answer.Body.Close()
		})
		switch {
		case errors.Is(err, retrypolicy.ReasonRejected):
			rejected++
		case errors.Is(err, retrypolicy.ReasonOutOfAttempts):
			if charged = before - b.Tokens(time.Now()); charged != 7 {
				t.Fatalf("a retry after a refused connection cost %d, want the cost of Network, 7", charged)
			}
		default:
			t.Fatal(err)
		}
	}
	if requests, accepts := throttle.Counts(time.Now()); rejected < 10 || charged == 0 || accepts != 0 {
		t.Errorf("%d of 40 calls rejected, %d of %d requests accepted", rejected, accepts, requests)
	}
}

// A name that does not exist costs as Network too, and the look-up is safe to repeat.
func TestAFailedLookUpIsSafeToRepeat(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "udp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}}
	_, err := (&net.Dialer{Resolver: resolver}).DialContext(ctx, "tcp", "hub.invalid:443")
	if err == nil {
		t.Fatal("found")
	}
	if info := retrypolicy.Classify(err); info.Kind != transport.Network || info.Safe != retrypolicy.SafeYes {
		t.Errorf("%v: %+v", err, info)
	}
}

func TestClassifyReadsRetryAfterOfAnyError(t *testing.T) {
	busy := busyError{time.Minute}
	if info := retrypolicy.Classify(fmt.Errorf("busy: %w", busy)); info.After != time.Minute ||
		info.Verdict != retrypolicy.VerdictAgain {
		t.Errorf("%+v", info)
	}
	if err := retrypolicy.Do(t.Context(), retrypolicy.Immediately{},
		func(context.Context) error { return busyError{-1} }); !errors.Is(err, retrypolicy.ReasonPushback) {
		t.Error(err)
	}
}

// busyError is an error without a Kind and with a RetryAfter.
type busyError struct{ after time.Duration }

func (busyError) Error() string               { return "busy" }
func (w busyError) RetryAfter() time.Duration { return w.after }
