package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/neterr"
)

// bad returns the row of a failure: its kind as the figure, and as the hint the error with the
// sentence that the client has for that kind. The one about a network says only why the client
// tries again. An answer of a proxy or a portal in place of the service is not the service's, so
// the sentence is about them.
func bad(err error) []Row {
	kind := kindOf(err)
	hint := cause(err).Error()
	if advice, ok := OfProxy(err); ok {
		return []Row{{Mark: Bad, Figure: "the proxy: " + kind.String(), Hint: hint + "; " + advice, Kind: transport.Network}}
	}
	switch {
	case isPortal(err):
		hint += "; " + substitute
	case kind != transport.Network && kind != transport.Timeout:
		hint += "; " + errfilter.OfKind(kind).Hint()
	}
	return []Row{{Mark: Bad, Figure: kind.String(), Hint: hint, Kind: kind}}
}

// Advice returns what helps after a failure where the client's sentence about its kind would
// mislead: one of a proxy, and an answer of MQTT 3.1.1 that has several meanings.
func Advice(err error) (hint string, ok bool) {
	if hint, ok := OfProxy(err); ok {
		return hint, true
	}
	var refused *mqtt.ConnackError
	const unavailable = 3
	if errors.As(err, &refused) && refused.Code == unavailable {
		return strings.Replace(ambiguous, "(http says", "(at a hub, -transport http says", 1), true
	}
	return "", false
}

// substitute is the hint about an answer that the service never gives.
const substitute = "a captive portal or a proxy on the way answers in place of the service: open a web page on this " +
	"network and log in, or get the device exempted"

// isPortal reports whether err is an answer that no service gives to a device, and a portal does: a
// page, a redirection, or status 511.
func isPortal(err error) bool {
	var status *transport.StatusError
	return errors.As(err, &status) && !errors.Is(err, transport.ErrProxy) && substituted(status.Status)
}

func substituted(status int) bool {
	return status >= 200 && status < 400 || status == http.StatusNetworkAuthenticationRequired
}

// cause returns the failure behind the end of retries, of which the clients here make none.
func cause(err error) error {
	for e := transport.Find(err); e != nil && e.Kind == transport.RetryExpired; {
		if e = transport.Find(e.Err); e != nil {
			err = e
		}
	}
	return err
}

// wrong returns the row of a fault that is no error.
func wrong(kind transport.Kind, figure, hint string) []Row {
	return []Row{{Mark: Bad, Figure: figure, Hint: hint, Kind: kind}}
}

// notTried returns the row of a step that depends on a failed one.
func notTried(first string) []Row {
	return []Row{{Mark: Skipped, Figure: "not tried", Hint: "first: " + first}}
}

// interrupted is the row of a step that Ctrl-C ended.
var interrupted = Row{Mark: Skipped, Figure: "interrupted", Hint: "it needs more time"}

func warn(figure, hint string) []Row { return []Row{{Mark: Warn, Figure: figure, Hint: hint}} }

func fine(figure string) []Row { return []Row{{Mark: OK, Figure: figure}} }

// kindOf returns the Kind behind the end of retries or of a wait.
func kindOf(err error) transport.Kind {
	for e := transport.Find(err); e != nil; e = transport.Find(e.Err) {
		if e.Kind != transport.RetryExpired && e.Kind != transport.Cancelled && e.Kind != transport.Closed {
			return e.Kind
		}
	}
	if kind, ok := neterr.Kind(err); ok {
		return kind
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return transport.Timeout
	}
	return transport.Network
}

// took returns a duration as the table shows it.
func took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "<1ms"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	return d.Round(100 * time.Millisecond).String()
}

// brokerWords are texts about hubs, with those for a broker.
var brokerWords = strings.NewReplacer(
	errfilter.OfKind(transport.Unauthorized).Hint(), "the same credentials would be refused again; check user name, "+
		"password, client id and certificate",
	errfilter.OfKind(transport.Forbidden).Hint(), "the identity lacks the right; grant it at the broker",
	errfilter.OfKind(transport.Quota).Hint(), "the allowance is refilled with time; raise it, or send less",
	throttleHelp, "send less often, in larger messages",
	" (http says which)", "",
	"the hub", "the broker",
)
