package way

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"reflect"

	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

// meaning is what a TLS alert means.
type meaning struct {
	kind transport.Kind
	text string
}

// alertTable has a row for each TLS alert that the peer may send, RFC 8446 section 6 and the IANA list.
var alertTable = fill(meaning{transport.Unknown, "unassigned alert"}, map[byte]meaning{
	0:   {transport.Network, "closed"},
	10:  {transport.Protocol, "unexpected message"},
	20:  {transport.Network, "data damaged on the way"},
	21:  {transport.Network, "data damaged on the way"},
	22:  {transport.Protocol, "record too long"},
	30:  {transport.Protocol, "decompression failed"},
	40:  {transport.Unsupported, "no parameters in common; check TLS version, cipher suites and whether a client certificate is needed"},
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

// fill makes a table of all codes.
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

// dialTable is what a failed dial means, by the type of its cause. The first row that fits counts; when none does it is Network:
// a dial that fails for a reason unknown is worth another try.
var dialTable = []struct {
	name string
	kind transport.Kind
	is   func(error) bool
	hint string
}{
	// What the protocol's own errors mean is asked of the Protocol, TLS alerts are looked up in alertTable: see dialKind.
	{"certificate of an unknown issuer", transport.Untrusted, as[x509.UnknownAuthorityError], ""},
	{"certificate for another host", transport.Untrusted, as[x509.HostnameError], ""},
	{"certificate invalid or out of its time", transport.Untrusted, as[x509.CertificateInvalidError], "; check the clock too"},
	{"certificate with an unknown critical extension", transport.Untrusted, as[x509.UnhandledCriticalExtension], ""},
	{"certificate with an insecure algorithm", transport.Untrusted, as[x509.InsecureAlgorithmError], ""},
	{"certificate against a constraint", transport.Untrusted, as[x509.ConstraintViolationError], ""},
	{"no trusted roots on this system", transport.Untrusted, as[x509.SystemRootsError], "; set Options.TLS.RootCAs"},
	{"certificate not verified, any other reason", transport.Untrusted, as[*tls.CertificateVerificationError], ""},
	{"the peer does not speak TLS", transport.Protocol, as[tls.RecordHeaderError], "; the peer does not speak TLS: check host and port"},
	{"encrypted client hello refused", transport.Unsupported, as[*tls.ECHRejectionError], ""},
	{"time-out in the name look-up", transport.Timeout, func(err error) bool { e, ok := errors.AsType[*net.DNSError](err); return ok && e.IsTimeout }, ""},
	{"name look-up", transport.Network, as[*net.DNSError], ""},
	{"address malformed", transport.Invalid, as[*net.AddrError], ""},
	{"address of an invalid kind", transport.Invalid, as[net.InvalidAddrError], ""},
	{"unknown network", transport.Invalid, as[net.UnknownNetworkError], ""},
	{"address not parsed", transport.Invalid, as[*net.ParseError], ""},
	{"context's deadline", transport.Timeout, is(context.DeadlineExceeded), ""},
	{"deadline", transport.Timeout, is(os.ErrDeadlineExceeded), ""},
	{"any other time-out", transport.Timeout, func(err error) bool { e, ok := errors.AsType[net.Error](err); return ok && e.Timeout() }, ""},
	{"refused, reset, no route, closed early and all else", transport.Network, func(error) bool { return true }, ""},
}

func as[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// Error is the *transport.Error for a dial that failed. An *Error (of the token source, or of a user's own dial function) keeps its Kind.
func (p *Protocol) Error(err error) *transport.Error {
	if e := transport.Find(err); e != nil {
		kept := *e
		kept.Scope, kept.Op, kept.Proto, kept.Err = transport.Connection, transport.OpDial, p.Name, scrub.Cause(kept.Err)
		return &kept
	}
	kind, hint := p.dialKind(err)
	if hint != "" {
		err = &hintError{err, hint}
	}
	return &transport.Error{Kind: kind, Scope: transport.Connection, Op: transport.OpDial, Proto: p.Name, Err: scrub.Cause(err)}
}

// Invalid is the error of a dial with wrong options or credentials.
func (p *Protocol) Invalid(text string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Scope: transport.Connection, Op: transport.OpDial, Proto: p.Name, Err: errors.New(text)}
}

// hintError adds what helps to a cause.
type hintError struct {
	error
	hint string
}

func (e *hintError) Error() string { return e.error.Error() + e.hint }
func (e *hintError) Unwrap() error { return e.error }

func (p *Protocol) dialKind(err error) (transport.Kind, string) {
	if kind, hint, ok := p.Kind(err); ok {
		return kind, hint
	}
	if code, ok := alertOf(err); ok {
		return alertTable[code].kind, "; " + alertTable[code].text
	}
	for _, row := range dialTable {
		if row.is(err) {
			return row.kind, row.hint
		}
	}
	return transport.Network, ""
}

// alertOf finds the TLS alert that the peer sent. crypto/tls does not export its type, a number, only the *net.OpError around it.
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
