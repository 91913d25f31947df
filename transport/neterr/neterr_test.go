package neterr

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

func TestTheAlertTableIsComplete(t *testing.T) {
	for code := range 256 {
		// crypto/tls has names for the assigned codes.
		known := tls.AlertError(code).Error() != fmt.Sprintf("tls: alert(%d)", code)
		if known {
			require.NotEqual(t, "unassigned alert", alertTable[code].text, "code %d: %v", code, tls.AlertError(code))
		}
		err := &net.OpError{Op: "remote error", Err: tls.AlertError(code)}
		kind, hint, ok := Explain(err)
		require.True(t, ok)
		require.Equal(t, alertTable[code].kind, kind)
		require.Equal(t, "; "+alertTable[code].text, hint)
	}
	require.Equal(t, transport.Unauthorized, alertTable[116].kind)
	kind, _ := Kind(&net.OpError{Op: "remote error", Err: tls.AlertError(42)})
	require.False(t, errfilter.OfKind(kind).Retry)
}

func TestEachRowHasItsOwnName(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range table {
		require.NotEmpty(t, row.name)
		require.False(t, seen[row.name])
		seen[row.name] = true
	}
}

// Errors that package retrypolicy classifies as Network or Timeout have the same Kind here.
func TestClassifyAgrees(t *testing.T) {
	op := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	sys := func(e syscall.Errno) error { return op(os.NewSyscallError("connect", e)) }
	get := func(err error) error { return &url.Error{Op: "Get", URL: "https://x", Err: err} }
	for _, err := range []error{
		sys(syscall.ECONNREFUSED), sys(syscall.ECONNRESET), sys(syscall.ECONNABORTED), sys(syscall.EPIPE),
		sys(syscall.EHOSTUNREACH), sys(syscall.ENETUNREACH), sys(syscall.ENETDOWN),
		sys(syscall.ETIMEDOUT), op(os.ErrDeadlineExceeded), get(io.EOF), get(io.ErrUnexpectedEOF),
		&net.DNSError{Err: "no such host", IsNotFound: true}, &net.DNSError{Err: "i/o timeout", IsTimeout: true},
		op(&net.DNSError{Err: "server misbehaving", IsTemporary: true}),
	} {
		for _, err := range []error{err, get(err), fmt.Errorf("wrapped: %w", err)} {
			kind, ok := Kind(err)
			require.True(t, ok, err)
			require.Equal(t, kind, retrypolicy.Classify(err).Kind, err)
		}
	}
	for _, err := range []error{context.Canceled, context.DeadlineExceeded,
		fmt.Errorf("own: %w", context.DeadlineExceeded), errors.New("anything else"), nil} {
		kind, ok := Kind(err)
		require.False(t, ok, err)
		require.Equal(t, transport.Unknown, kind)
	}
	kind, ok := Kind(get(context.DeadlineExceeded)) // the http.Client's Timeout has passed
	require.True(t, ok)
	require.Equal(t, transport.Timeout, kind)
}

// A certificate that does not verify ends the retries of an http.Client at once.
func TestAnUntrustedServerIsNotAskedAgain(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: x509.NewCertPool()},
		DisableKeepAlives: true}}
	r := retrypolicy.Retrier{Policy: retrypolicy.MaxAttempts{Total: 5, Policy: retrypolicy.Immediately{}},
		Classify: retrypolicy.FromKind(Kind)}
	tries := 0
	err := r.Do(t.Context(), func(context.Context) error {
		tries++
		answer, err := client.Get(server.URL)
		if err == nil {
			answer.Body.Close()
		}
		return err
	})
	require.ErrorIs(t, err, retrypolicy.ReasonNotRetryable)
	require.Equal(t, 1, tries)
}
