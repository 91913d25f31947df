package dpsfront

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/dps"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

const (
	maxAttaches = 64                 // on a connection
	maxMessage  = dps.MaxBody + 4096 // encoded, with its properties
	credits     = 50                 // of a link for requests
	maxWaiting  = 100                // answers that wait for credit
)

var errAttaches = fmt.Errorf("client attached more than %d links", maxAttaches)

// Attach checks a link: both kinds have the address of the registration.
func (a *conn) Attach(l *amqp.Link) error {
	if a.attaches++; a.attaches > maxAttaches {
		a.refused("", errAttaches)
		return wire.Errorf(wire.ResourceLimitExceeded, "%v", errAttaches)
	}
	address, err := a.admit(l)
	if err != nil {
		a.refused(address, err)
		return err
	}
	if in := a.hub.Faults.Take(fault.RefuseAttach, a.c.ID); in != nil {
		a.hub.Happened(in, a.c)
		return wire.Errorf(wire.Symbol(in.Fault.Condition), "%s", in.Fault.Description)
	}
	if in := a.hub.Faults.Take(fault.DropOnAttach, a.c.ID); in != nil {
		a.hub.Happened(in, a.c)
		a.c.CutFor(hub.FaultError(fault.DropOnAttach))
		return hub.FaultError(fault.DropOnAttach)
	}
	if l.Receives() {
		l.Answer.MaxMessageSize = maxMessage
	}
	return nil
}

// admit checks the address of a link, the API version in its properties, and the credentials.
func (a *conn) admit(l *amqp.Link) (address string, err error) {
	var node any
	if l.Receives() {
		node = l.Asked.Target.(*wire.Target).Address
	} else {
		node = l.Asked.Source.Address
	}
	address, ok := node.(string)
	if !ok {
		return "", wire.Errorf(wire.InvalidField, "address that is not a string")
	}
	path := address
	if i := strings.Index(path, "://"); i >= 0 {
		host, rest, _ := strings.Cut(path[i+3:], "/")
		if !a.hub.Knows(host) {
			return address, wire.Errorf(wire.NotFound, "host name %q is not this service", host)
		}
		path = rest
	}
	scope, id, ok := parsePath(path)
	if !ok {
		return address, wire.Errorf(wire.NotFound, "address %q", address)
	}
	if a.who == nil {
		var bad *dps.Error
		if err := a.identify(path, nil, nil); errors.As(err, &bad) && bad.Code == dps.CodeNotEnrolled {
			return address, wire.Errorf(wire.NotFound, "%v", err)
		} else if err != nil {
			return address, wire.Errorf(wire.UnauthorizedAccess, "%v", err)
		}
	}
	if !strings.EqualFold(id, a.who.ID) || a.dps.CheckIdentity(scope, a.who) != nil {
		return address, wire.Errorf(wire.UnauthorizedAccess, "address %q is not of the registration %q", address, a.who.ID)
	}
	if v := l.Asked.Properties.Text("com.microsoft:api-version"); v != "" {
		a.who.APIVersion = v
	}
	if bad := a.dps.CheckVersion(a.who); bad != nil {
		return address, wire.Errorf(wire.NotAllowed, "%v", bad)
	}
	return address, nil
}

// Attached starts the link's service.
func (a *conn) Attached(l *amqp.Link) {
	if l.Receives() {
		l.Allow(credits)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.receiver = l
	a.flushLocked()
}

// Detached forgets a link.
func (a *conn) Detached(l *amqp.Link) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.receiver == l {
		a.receiver = nil
	}
}

// Credit sends answers that wait.
func (a *conn) Credit(*amqp.Link) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flushLocked()
}

// Settled ignores the client's state of an answer.
func (a *conn) Settled(_ *amqp.Link, _ []byte, state wire.DeliveryState) wire.DeliveryState {
	return state
}

// Message handles a request: it settles the request, then sends the answer on the other link.
func (a *conn) Message(l *amqp.Link, d amqp.Delivery) error {
	m, err := wire.DecodeMessage(d.Payload)
	if d.Format != 0 && err == nil {
		err = wire.Errorf(wire.NotImplemented, "message format 0x%x", d.Format)
	}
	var bad *wire.Error
	if errors.As(err, &bad) || err != nil {
		if bad == nil {
			bad = wire.Errorf(wire.InternalError, "%v", err)
		}
		a.settle(l, d, bad)
		return nil
	}
	body := m.Body()
	switch v := m.Value.(type) {
	case string:
		body = []byte(v)
	case []byte:
		body = v
	}
	op, ok := operations[m.ApplicationProperties.Text("iotdps-operation-type")]
	if !ok {
		a.settle(l, d, wire.Errorf(wire.NotImplemented, "iotdps-operation-type is not that of a request"))
		return nil
	}
	answer := a.dps.Serve(a.who, a.c, op, m.ApplicationProperties.Text("iotdps-operation-id"), body)
	if answer.Cut != 0 {
		a.c.CutFor(hub.FaultError(answer.Cut))
		return hub.FaultError(answer.Cut)
	}
	var correlation any
	if m.Properties != nil {
		correlation = m.Properties.CorrelationID
	}
	if answer.Misname {
		correlation = fmt.Sprint(correlation, "-other")
	}
	switch {
	case answer.Silent:
	case answer.Delay > 0:
		a.hub.Later(answer.Delay, a.c.Closed, func() { a.answer(l, d, answer, correlation) })
	default:
		a.answer(l, d, answer, correlation)
	}
	return nil
}

// operations maps the types of requests to operations.
var operations = map[string]dpsdata.Operation{
	"iotdps-register": dpsdata.OperationRegister, "iotdps-get-operationstatus": dpsdata.OperationPoll,
	"iotdps-get-registration": dpsdata.OperationLookup,
}

// settle accepts a request, or rejects it if there is an error. A request that was sent settled
// cannot be rejected: the link is detached instead.
func (a *conn) settle(l *amqp.Link, d amqp.Delivery, err *wire.Error) {
	switch {
	case err == nil && !d.Settled:
		l.Settle(d.ID, &wire.Accepted{})
	case err != nil && !d.Settled:
		l.Settle(d.ID, &wire.Rejected{Error: err})
	case err != nil:
		l.Detach(err, true)
	}
}

// conditions maps statuses of refusals to the conditions of rejections. The SDK for Node.js waits
// and tries again only after that of 429 and after internal errors.
var conditions = map[int]wire.Symbol{
	400: wire.InvalidField, 401: wire.UnauthorizedAccess, 404: wire.NotFound,
	429: "com.microsoft:device-container-throttled",
}

// answer rejects the request with the error, or accepts it and sends the answer.
func (a *conn) answer(l *amqp.Link, d amqp.Delivery, answer dps.Answer, correlation any) {
	hints := retryHints(answer.RetryAfter)
	if answer.Err != nil {
		condition := conditions[answer.Status]
		if condition == "" {
			condition = wire.InternalError
		}
		a.settle(l, d, &wire.Error{Condition: condition, Description: string(answer.Body), Info: symbols(hints)})
		return
	}
	a.settle(l, d, nil)
	payload, err := wire.AppendMessage(nil, &wire.Message{
		Properties: &wire.Properties{CorrelationID: correlation}, ApplicationProperties: hints, Data: [][]byte{answer.Body},
	})
	if err != nil {
		l.Detach(wire.Errorf(wire.InternalError, "answer that cannot be encoded"), true)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) >= maxWaiting {
		a.waiting = a.waiting[1:]
	}
	a.waiting = append(a.waiting, payload)
	if answer.Twice {
		a.waiting = append(a.waiting, payload)
	}
	a.flushLocked()
}

// retryHints returns the delay in both spellings that clients look for: as an integer if it is one.
func retryHints(text string) wire.Map {
	if text == "" {
		return nil
	}
	var value any = text
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		value = int32(n)
	}
	return wire.Map{{Key: "Retry-After", Value: value}, {Key: "retry-after", Value: value}}
}

// symbols returns the map with symbols as keys, as error information needs it.
func symbols(m wire.Map) wire.Map {
	all := make(wire.Map, 0, len(m))
	for _, p := range m {
		p.Key = wire.Symbol(p.Key.(string))
		all = append(all, p)
	}
	return all
}

// flushLocked sends answers as far as there is a link with credit.
func (a *conn) flushLocked() {
	for len(a.waiting) > 0 && a.receiver != nil {
		a.number++
		settled := a.receiver.Asked.SndSettleMode != wire.SendUnsettled
		tag := binary.BigEndian.AppendUint64(nil, a.number)
		if !a.receiver.Send(amqp.Outgoing{Tag: tag, Settled: settled, Payload: a.waiting[0]}) {
			return
		}
		a.waiting = a.waiting[1:]
	}
}
