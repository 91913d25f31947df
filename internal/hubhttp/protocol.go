package hubhttp

import (
	"errors"
	"strings"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/httpguard"
	"github.com/hubline-iot/hubline/transport"
)

// Protocol parameterizes the dialer and its errors.
var Protocol = dialer.Protocol{Name: "http", Secure: "443", Plain: "80", HTTP: true, Kind: protocolKind}

// Texts of net/http errors that have no type. A test fails when they change.
const (
	malformed   = "malformed HTTP"
	longHeaders = "response headers exceeded"
)

// protocolKind classifies the error of a failed exchange while dialing, for dialer.Protocol.
func protocolKind(err error) (kind transport.Kind, hint string, known bool) {
	if e, is := errors.AsType[*transport.StatusError](err); is {
		return VerdictOf(e).Kind, "", true
	}
	if noHTTP(err) || strings.Contains(err.Error(), longHeaders) {
		return transport.Protocol, "; check host and port", true
	}
	return 0, "", false
}

// PeerKind classifies errors that show that the peer does not speak HTTP, for dialer.Protocol.
func PeerKind(err error) (kind transport.Kind, hint string, known bool) {
	if noHTTP(err) {
		return transport.Protocol, "; the peer does not speak HTTP: check host and port", true
	}
	return 0, "", false
}

func noHTTP(err error) bool {
	return errors.Is(err, httpguard.ErrUnsolicited) || errors.Is(err, httpguard.ErrUpgraded) ||
		strings.Contains(err.Error(), malformed)
}
