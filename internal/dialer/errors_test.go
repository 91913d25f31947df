package dialer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// errOwn is an error of the protocol.
var errOwn = errors.New("the protocol's own")

// proto is a protocol that recognizes one error.
var proto = &Protocol{Name: "example", Secure: "8883", Plain: "1883", Kind: func(err error) (transport.Kind, string,
	bool) {
	return transport.Conflict, "", errors.Is(err, errOwn)
}}

func TestKindsOfDialErrors(t *testing.T) {
	opError := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	sys := func(e syscall.Errno) error { return opError(os.NewSyscallError("connect", e)) }
	for _, c := range []struct {
		err  error
		kind transport.Kind
	}{
		{opError(&net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}), transport.Network},
		{opError(&net.DNSError{Err: "server misbehaving", Name: "x", IsTemporary: true}), transport.Network},
		{opError(&net.DNSError{Err: "i/o timeout", Name: "x", IsTimeout: true}), transport.Timeout},
		{sys(syscall.ECONNREFUSED), transport.Network},
		{sys(syscall.ECONNRESET), transport.Network},
		{sys(syscall.EHOSTUNREACH), transport.Network},
		{sys(syscall.ENETUNREACH), transport.Network},
		{sys(syscall.EPIPE), transport.Network},
		{sys(syscall.EACCES), transport.Network},
		{sys(syscall.EMFILE), transport.Network},
		{sys(syscall.ETIMEDOUT), transport.Timeout},
		{opError(os.ErrDeadlineExceeded), transport.Timeout},
		{context.DeadlineExceeded, transport.Timeout},
		{context.Canceled, transport.Network},
		{io.EOF, transport.Network},
		{io.ErrUnexpectedEOF, transport.Network},
		{net.ErrClosed, transport.Network},
		{errors.New("anything else"), transport.Network},
		{x509.UnknownAuthorityError{}, transport.Untrusted},
		{x509.HostnameError{Host: "x", Certificate: new(x509.Certificate)}, transport.Untrusted},
		{x509.CertificateInvalidError{Cert: new(x509.Certificate), Reason: x509.Expired}, transport.Untrusted},
		{x509.UnhandledCriticalExtension{}, transport.Untrusted},
		{x509.InsecureAlgorithmError(1), transport.Untrusted},
		{x509.ConstraintViolationError{}, transport.Untrusted},
		{x509.SystemRootsError{}, transport.Untrusted},
		{&tls.CertificateVerificationError{Err: errors.New("by the user's VerifyConnection")}, transport.Untrusted},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, transport.Protocol},
		{&tls.ECHRejectionError{}, transport.Unsupported},
		{errOwn, transport.Conflict},
		{opError(&net.AddrError{Err: "missing port", Addr: "x"}), transport.Invalid},
		{opError(net.InvalidAddrError("x")), transport.Invalid},
		{opError(net.UnknownNetworkError("x")), transport.Invalid},
		{&net.ParseError{Type: "IP address", Text: "x"}, transport.Invalid},
		{&transport.Error{Kind: transport.Forbidden, Op: transport.OpSend}, transport.Forbidden},
		{fmt.Errorf("token: %w", &transport.Error{Kind: transport.ClockUnset}), transport.ClockUnset},
	} {
		e := proto.Error(c.err)
		require.Equal(t, c.kind, e.Kind, "%T %v", c.err, c.err)
		require.Equal(t, transport.ScopeConnection, e.Scope)
		require.Equal(t, transport.OpDial, e.Op)
		require.Equal(t, "example", e.Proto)
		if transport.Find(c.err) == nil {
			require.ErrorIs(t, e, c.err, "the cause stays reachable")
		}
	}
}
