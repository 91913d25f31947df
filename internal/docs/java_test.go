package docs

import (
	"crypto/x509"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/amqpclient"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/neterr"
)

// kindNames are the names of the Kinds in the table of Java's exceptions.
var kindNames = map[transport.Kind]string{
	transport.Unknown: "Unknown", transport.Network: "Network", transport.Timeout: "Timeout",
	transport.Unavailable: "Unavailable", transport.Throttled: "Throttled", transport.Quota: "Quota",
	transport.Unauthorized: "Unauthorized", transport.Untrusted: "Untrusted", transport.Forbidden: "Forbidden",
	transport.NotFound: "NotFound", transport.TooLarge: "TooLarge", transport.Invalid: "Invalid",
	transport.Conflict: "Conflict", transport.Unsupported: "Unsupported", transport.Protocol: "Protocol",
}

func dialing(err error) error      { return &net.OpError{Op: "dial", Err: err} }
func reading(err error) error      { return &net.OpError{Op: "read", Err: err} }
func system(n syscall.Errno) error { return os.NewSyscallError("system", n) }

// networkExamples are the examples of the table that have no code.
var networkExamples = map[string]error{
	"unknown host":                       dialing(&net.DNSError{Err: "no such host", IsNotFound: true}),
	"no route to host":                   dialing(system(syscall.EHOSTUNREACH)),
	"time-out":                           reading(os.ErrDeadlineExceeded),
	"end of the stream while connecting": reading(io.EOF),
	"certificate that does not verify":   x509.UnknownAuthorityError{},
	"connection refused":                 dialing(system(syscall.ECONNREFUSED)),
	"connection reset":                   reading(system(syscall.ECONNRESET)),
}

// example returns the error that the transports make of an example in the table.
func example(t *testing.T, text string) *transport.Error {
	code := func(prefix string) (int, bool) {
		number, ok := strings.CutPrefix(text, prefix+" ")
		n, err := strconv.Atoi(number)
		return n, ok && err == nil
	}
	e := &transport.Error{}
	switch {
	case strings.HasPrefix(text, "`"):
		e.Kind = amqpclient.EndKind(&amqpclient.ConditionError{Condition: strings.Trim(text, "`")})
	case text == "end of a connection or link with another condition, or none":
		e.Kind = amqpclient.EndKind(&amqpclient.ConditionError{Condition: "acme:other"})
	case text == "rejection of a message with another condition":
		e.Kind = amqpclient.Conditions["acme:other"]
	case text == "released message":
		e.Kind = transport.Unavailable
	case text == "malformed packet on a live connection":
		e.Kind, e.Err = transport.Protocol, transport.ErrViolation
	default:
		if n, ok := code("CONNACK"); ok {
			e.Kind = mqttwire.ConnackMeaning(byte(n)).Kind
		} else if n, ok := code("SUBACK"); ok {
			e.Kind = mqttwire.SubackMeaning(byte(n)).Kind
		} else if n, ok := code("status"); ok {
			e.Kind = statuscode.Of(n, statuscode.Hub).Kind
		} else {
			err, known := networkExamples[text]
			require.True(t, known, "the test does not know the example %q", text)
			kind, known := neterr.Kind(err)
			require.True(t, known, text)
			e.Kind = kind
		}
	}
	return e
}

// Each row of the table of Java's exceptions says what our transports and filter decide, and a row
// on which both disagree says why.
func TestJavaExceptionsAreJudgedAsTheTableSays(t *testing.T) {
	rows := table(t, read(t, "docs/migrate/java.md"), "| their exception | theirs retries |")
	conditions := map[string]bool{}
	for _, row := range rows {
		require.Len(t, row, 6, row)
		theirs, text, kind, ours, why := row[1], row[2], row[3], row[4], row[5]
		e := example(t, text)
		verdict := "no"
		if rule := errfilter.Of(e); rule.Retry && rule.Pace == errfilter.PaceSlow {
			verdict = "slowly"
		} else if rule.Retry {
			verdict = "yes"
		}
		if kind != kindNames[e.Kind] || ours != verdict {
			t.Errorf("%s, %s: the page says %s, %s; ours is %s, %s", row[0], text, kind, ours, kindNames[e.Kind], verdict)
		}
		if (theirs == "no") != (verdict == "no") && len(why) < 10 {
			t.Errorf("%s, %s: no reason why theirs and ours differ", row[0], text)
		}
		conditions[strings.Trim(text, "`")] = true
	}
	for condition := range amqpclient.Conditions {
		if !conditions[condition] {
			t.Errorf("%s has no row", condition)
		}
	}
}
