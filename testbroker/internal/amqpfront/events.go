package amqpfront

import (
	"strings"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/eventhub"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// eventsPath is the hub's own address of its events, which redirects to the event hub.
const eventsPath = "messages/events"

// eventsLink opens the links of the endpoint compatible with Event Hubs.
func eventsLink(l *hubLink, path string) (backLink, error) {
	events := &l.conn.hub.Telemetry
	rest, below := strings.CutPrefix(strings.ToLower(path), eventsPath)
	switch {
	case below && (rest == "" || rest[0] == '/') && !l.Receives():
		l.kind = fault.LinkEvents
		return &eventsRedirect{eventsEnd{l, path}}, nil
	case path == eventhub.Management:
		path = events.Path + "/" + eventhub.Management
	case !events.Owns(path):
		return nil, nil
	}
	end := eventsEnd{l, path}
	switch {
	case strings.EqualFold(path, events.Path+"/"+eventhub.Management):
		l.kind = fault.LinkEventsManagement
		return &eventsQuestions{end}, nil
	case l.Receives():
		return nil, amqp.Bare(wire.Errorf(wire.UnauthorizedAccess, "Unauthorized access. 'Send' claim(s) are required to "+
			"perform this operation. Resource: '%s'. Only the hub sends to its event hub.", path))
	}
	l.kind = fault.LinkEvents
	return newEventsReader(end), nil
}

// An eventsEnd is what all links of the endpoint have in common. It ignores everything that its
// kind of link does not handle.
type eventsEnd struct {
	link *hubLink
	path string
}

func (e *eventsEnd) resource() string { return e.path }

// permit requires the right of back ends.
func (e *eventsEnd) permit() error {
	l := e.link
	if err := l.conn.allowed(e.path, hubdata.RightServiceConnect); err != nil {
		return e.refuse(wire.Errorf(wire.UnauthorizedAccess, "Unauthorized access. 'Listen' claim(s) are required to "+
			"perform this operation: %v", err))
	}
	return nil
}

// refuse reports a refused link. Clients of Event Hubs know a refusal by the absence of both ends.
func (e *eventsEnd) refuse(why *wire.Error) error {
	l := e.link
	l.conn.refusedLink(l.Link, l.id, why)
	return amqp.Bare(why)
}

func (*eventsEnd) attached()                   {}
func (*eventsEnd) credit()                     {}
func (*eventsEnd) message(amqp.Delivery) error { return nil }
func (*eventsEnd) detached()                   {}

func (*eventsEnd) settled(_ []byte, state wire.DeliveryState) wire.DeliveryState { return state }

// eventConditions maps the reasons of package eventhub to conditions.
var eventConditions = map[eventhub.Reason]wire.Symbol{
	eventhub.NotFound:    wire.NotFound,
	eventhub.OutOfRange:  "com.microsoft:argument-out-of-range",
	eventhub.BadArgument: "com.microsoft:argument-error",
	eventhub.GeoOffset:   "com.microsoft:georeplication:invalid-offset",
	eventhub.TooMany:     wire.ResourceLimitExceeded,
	eventhub.Stolen:      wire.LinkStolen,
}

func eventError(e *eventhub.Error) *wire.Error {
	return &wire.Error{Condition: eventConditions[e.Reason], Description: strings.ToValidUTF8(e.Error(), "?")}
}

// eventsPort is the port of AMQP over TLS that clients of a redirect dial, whatever it says.
const eventsPort = 5671

// An eventsRedirect is a link to the hub's own address.
type eventsRedirect struct{ eventsEnd }

// permit refuses the link with the address of the event hub. Tools cut that address between the
// port and the rest of the path, which is the one that was asked.
func (e *eventsRedirect) permit() error {
	if err := e.eventsEnd.permit(); err != nil {
		return err
	}
	h := e.link.conn.hub
	to := h.Host + "/" + h.Telemetry.Path
	e.link.conn.served()
	return amqp.Bare(&wire.Error{
		Condition: wire.LinkRedirect, Description: "The events are at amqps://" + to,
		Info: wire.Map{
			{Key: wire.Symbol("hostname"), Value: h.Host}, {Key: wire.Symbol("network-host"), Value: h.Host},
			{Key: wire.Symbol("port"), Value: int32(eventsPort)},
			{Key: wire.Symbol("address"), Value: "amqps://" + h.Host + ":5671/" + h.Telemetry.Path + e.path[len(eventsPath):]},
		},
	})
}
