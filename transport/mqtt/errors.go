package mqtt

import (
	"errors"
	"os"

	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

const proto = wire.Proto

// ConnackError is a CONNECT that the hub refused: the cause of the *transport.Error of a failed
// dial, reachable with errors.As. Its field Code is the CONNACK's return code, 1 to 255. Package
// lean has the same type.
type ConnackError = wire.ConnackError

// SubackError is a subscription that the hub refused: the cause of the *transport.Error in the
// Reply to OpSubscribe, reachable with errors.As. Its fields are Filter, the topic filter refused,
// and Code, its return code in the SUBACK. Package lean has the same type.
type SubackError = wire.SubackError

// lossError returns the *transport.Error for the end of a live session, which is always worth a
// retry: Timeout when the hub answers no ping or accepts no data, else Network.
func lossError(err error) *transport.Error {
	kind := transport.Network
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, errNoPong) {
		kind = transport.Timeout
	}
	return wire.Loss(kind, scrub.Cause(err))
}

var errUnsupported = errors.New("not available with this dialect; messages need Commands in a topic map")

var errNoPong = wire.ErrNoPong

type errHubClosed = wire.HubClosed

func violation(text string) error { return wire.NewViolation(text) }
