// Package neterr maps errors of packages net, net/http, crypto/tls and crypto/x509 to a
// transport.Kind. Hubline's transports use the same table for failed connections. A program that
// runs its own requests under a retry policy passes it to the Retrier:
//
//	retrypolicy.Retrier{Policy: p, Classify: retrypolicy.FromKind(neterr.Kind)}
//
// Then a certificate that does not verify ends the retries, and a refused connection, a reset, a
// failed name look-up and a time-out are retried. Package retrypolicy recognizes these four without
// this package, so boards need not link the packages that this one imports.
//
// Kind judges a TLS alert by its code, so an alert that a damaged byte caused ends these retries,
// too. MayBeDamage finds such alerts.
package neterr

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"reflect"

	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/transport"
)

// Kind returns the Kind of an error. For a bare context error, which only the owner of the context
// can judge, and for errors from other packages, it returns Unknown and false.
func Kind(err error) (kind transport.Kind, ok bool) {
	kind, _, ok = Explain(err)
	return kind, ok
}

// Explain returns the Kind and a hint for the reader of the error, which is empty or begins with ";
// ".
func Explain(err error) (kind transport.Kind, hint string, ok bool) {
	if ofContext(err) {
		return transport.Unknown, "", false
	}
	if code, ok := alertOf(err); ok {
		return alertTable[code].kind, "; " + alertTable[code].text, true
	}
	for _, row := range table {
		if row.is(err) {
			return row.kind, row.hint, true
		}
	}
	return transport.Unknown, "", false
}

// MayBeDamage reports whether err may be the result of damaged bytes in the TLS handshake, although
// its Kind is not retryable: an alert that is not about the client's certificate or rights, or a
// first record that is not TLS. Hubline's clients retry such an error errfilter.MaxDamage times in
// a row.
func MayBeDamage(err error) bool {
	code, ok := alertOf(err)
	if !ok {
		return as[tls.RecordHeaderError](err)
	}
	switch alertTable[code].kind {
	case transport.Protocol, transport.Unsupported, transport.NotFound, transport.Unknown:
		return true
	default: // other Kinds are retryable or about the client
	}
	return false
}

// ofContext reports whether err is a context error. A context error inside an error whose Timeout
// method returns true does not count.
func ofContext(err error) (found bool) {
	errchain.Any(err, func(err error) bool {
		//nolint:errorlint // Any walks
		if found = err == context.Canceled || err == context.DeadlineExceeded; found {
			return true
		}
		t, ok := err.(interface{ Timeout() bool })
		return ok && t.Timeout()
	})
	return found
}

// meaning is the meaning of a TLS alert.
type meaning struct {
	kind transport.Kind
	text string
}

// alertTable has a row for each TLS alert that the peer may send, RFC 8446 section 6 and the IANA
// list.
var alertTable = fill(meaning{transport.Unknown, "unassigned alert"}, map[byte]meaning{
	0:  {transport.Network, "closed"},
	10: {transport.Protocol, "unexpected message"},
	20: {transport.Network, "data damaged on the way"},
	21: {transport.Network, "data damaged on the way"},
	22: {transport.Protocol, "record too long"},
	30: {transport.Protocol, "decompression failed"},
	40: {transport.Unsupported, "no parameters in common; check TLS version, cipher suites and whether a client " +
		"certificate is needed"},
	41:  {transport.Unauthorized, "client certificate missing"},
	42:  {transport.Unauthorized, "client certificate bad"},
	43:  {transport.Unauthorized, "client certificate of an unsupported type"},
	44:  {transport.Unauthorized, "client certificate revoked"},
	45:  {transport.Unauthorized, "client certificate expired"},
	46:  {transport.Unauthorized, "client certificate not accepted"},
	47:  {transport.Protocol, "illegal parameter"},
	48:  {transport.Unauthorized, "issuer of the client certificate unknown to the hub"},
	49:  {transport.Forbidden, "access denied"},
	50:  {transport.Protocol, "decoding failed"},
	51:  {transport.Protocol, "decryption failed"},
	52:  {transport.Protocol, "too many messages"},
	60:  {transport.Unsupported, "export restriction"},
	70:  {transport.Unsupported, "TLS version not supported"},
	71:  {transport.Unsupported, "insufficient security"},
	80:  {transport.Unavailable, "internal error of the peer"},
	86:  {transport.Unsupported, "inappropriate fallback"},
	90:  {transport.Network, "cancelled by the peer"},
	100: {transport.Unsupported, "no renegotiation"},
	109: {transport.Protocol, "missing extension"},
	110: {transport.Unsupported, "unsupported extension"},
	111: {transport.Unauthorized, "client certificate not obtainable"},
	112: {transport.NotFound, "host name unknown to the peer"},
	113: {transport.Unauthorized, "bad certificate status response"},
	114: {transport.Unauthorized, "bad certificate hash"},
	115: {transport.Unauthorized, "unknown pre-shared key"},
	116: {transport.Unauthorized, "client certificate required"},
	117: {transport.Protocol, "general error"},
	120: {transport.Unsupported, "no application protocol in common"},
	121: {transport.Unsupported, "encrypted client hello required"},
})

// fill returns a table of all codes.
func fill(rest meaning, known map[byte]meaning) *[256]meaning {
	var t [256]meaning
	for i := range t {
		t[i] = rest
		if v, ok := known[byte(i)]; ok {
			t[i] = v
		}
	}
	return &t
}

// table maps errors by the type of their cause. The first matching row counts.
var table = []struct {
	name string
	kind transport.Kind
	is   func(error) bool
	hint string
}{
	// TLS alerts are looked up in alertTable first.
	{"certificate of an unknown issuer", transport.Untrusted, as[x509.UnknownAuthorityError], ""},
	{"certificate for another host", transport.Untrusted, as[x509.HostnameError], ""},
	{"certificate invalid or out of its time", transport.Untrusted, as[x509.CertificateInvalidError],
		"; check the clock too"},
	{"certificate with an unknown critical extension", transport.Untrusted, as[x509.UnhandledCriticalExtension], ""},
	{"certificate with an insecure algorithm", transport.Untrusted, as[x509.InsecureAlgorithmError], ""},
	{"certificate against a constraint", transport.Untrusted, as[x509.ConstraintViolationError], ""},
	{"no trusted roots on this system", transport.Untrusted, as[x509.SystemRootsError],
		"; set netopt.Options.TLS.RootCAs"},
	{"certificate not verified, any other reason", transport.Untrusted, as[*tls.CertificateVerificationError], ""},
	{"the peer does not speak TLS", transport.Protocol, as[tls.RecordHeaderError],
		"; the peer does not speak TLS: check host and port, and the proxy if there is one"},
	{"encrypted client hello refused", transport.Unsupported, as[*tls.ECHRejectionError], ""},
	{"time-out in the name look-up", transport.Timeout,
		func(err error) bool { e, ok := errors.AsType[*net.DNSError](err); return ok && e.IsTimeout }, ""},
	{"name look-up", transport.Network, as[*net.DNSError], ""},
	{"address malformed", transport.Invalid, as[*net.AddrError], ""},
	{"address of an invalid kind", transport.Invalid, as[net.InvalidAddrError], ""},
	{"unknown network", transport.Invalid, as[net.UnknownNetworkError], ""},
	{"address not parsed", transport.Invalid, as[*net.ParseError], ""},
	{"deadline", transport.Timeout, is(os.ErrDeadlineExceeded), ""},
	{"any other time-out", transport.Timeout,
		func(err error) bool { e, ok := errors.AsType[net.Error](err); return ok && e.Timeout() }, ""},
	{"refused, reset, no route and all else that a connection reports", transport.Network, as[*net.OpError], ""},
	{"closed", transport.Network, is(net.ErrClosed), ""},
	{"closed by the peer", transport.Network, is(io.EOF), ""},
	{"closed by the peer too early", transport.Network, is(io.ErrUnexpectedEOF), ""},
}

func as[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// alertOf returns the TLS alert in err. crypto/tls exports only the *net.OpError around the alert,
// not its type, which is a number.
func alertOf(err error) (byte, bool) {
	e, ok := errors.AsType[*net.OpError](err)
	if !ok || e.Op != "remote error" || e.Err == nil {
		return 0, false
	}
	if v := reflect.ValueOf(e.Err); v.Kind() == reflect.Uint8 {
		return byte(v.Uint()), true
	}
	return 0, false
}
