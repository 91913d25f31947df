package testbroker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FaultMessages says what the hub does with a message by which a device asks for a fault: one with
// the application property "AzIoTHub_FaultOperationType" of a type that is known, in any letter
// case.
//
// "KillTcp" cuts the connection, and with a duration every new one until that has passed.
// "ShutDownMqtt" ends the connection in order. "InvokeThrottling", "InvokeMaxMessageQuota" and
// "InvokeAuthError" end it in order and refuse new ones, with CONNACK 3, 3 and 5, for the duration.
//
// Over AMQP, the three that begin with "Invoke" leave the connection as it is and reject messages
// for the duration, or the next message if there is none. "ShutDownAmqp" and "KillAmqpConnection"
// close the connection with "amqp:connection:forced", "KillAmqpSession" ends the session, and the
// other types detach the link that they name with "amqp:link:detach-forced". A type that is about
// another protocol does nothing. A new connection of a device that asked for "KillTcp" is known by
// its put-token, or by SASL PLAIN.
//
// Over HTTP, "KillTcp" cuts the connections that the device has used, and with a duration every new
// one at its request. The three that begin with "Invoke" answer its messages with 429, 403 and 401,
// as long as over AMQP.
//
// The other properties are "AzIoTHub_FaultOperationCloseReason", which is put into the cause,
// "AzIoTHub_FaultOperationDelayInSecs" and "AzIoTHub_FaultOperationDurationInSecs". Such a message
// is no telemetry: it is not in the log, and faults declared with [Hub.Inject] pass it by. See
// [Hub.FaultMessages].
type FaultMessages uint8

const (
	// ObeyFaultMessages acknowledges the message at once and does what it asks. A client that sends at
	// least once would otherwise ask again after each reconnect.
	ObeyFaultMessages FaultMessages = iota
	// ObeyFaultMessagesUnacked does what the message asks and never acknowledges it, as the service
	// may.
	ObeyFaultMessagesUnacked
	// StoreFaultMessages takes it for telemetry.
	StoreFaultMessages
)

// FaultMessage is a fault that a device asked for by a message.
type FaultMessage struct {
	// DeviceID and ModuleID name the device that asked, which is also the one that it happens to.
	DeviceID, ModuleID string
	// Type is the type in the service's spelling, and Reason the text that goes with it.
	Type, Reason string
	// Delay and Duration are whole seconds. What is no number counts as zero.
	Delay, Duration time.Duration
	// Received is when the message came, by the hub's clock.
	Received time.Time
	// Happened says that it has ended a connection, session or link, or began to refuse what comes. It
	// stays false for types about another protocol.
	Happened bool
	// Refused is how many connects were refused or cut because of it, or messages rejected.
	Refused int
}

// orderKind is what a type does.
type orderKind struct {
	name    string
	on      Protocol // it does something
	cut     bool     // by RST
	refuses bool     // for the duration
	code    byte     // the CONNACK with which it refuses

	// Over AMQP.
	condition string   // with which it rejects messages
	session   bool     // it ends the session
	link      LinkKind // it detaches the links of a kind

	refusal int // the service's code with which it refuses messages over HTTP
}

var orderKinds = []orderKind{
	{name: "KillTcp", on: MQTT | AMQP | HTTP, cut: true, refuses: true},
	{name: "ShutDownMqtt", on: MQTT},
	{name: "InvokeThrottling", on: MQTT | AMQP | HTTP, refuses: true, code: serverUnavailable,
		condition: "com.microsoft:device-container-throttled", refusal: 429001},
	{name: "InvokeMaxMessageQuota", on: MQTT | AMQP | HTTP, refuses: true, code: serverUnavailable,
		condition: limitExceeded, refusal: 403002},
	{name: "InvokeAuthError", on: MQTT | AMQP | HTTP, refuses: true, code: notAuthorized,
		condition: unauthorized, refusal: 401003},
	{name: "ShutDownAmqp", on: AMQP},
	{name: "KillAmqpConnection", on: AMQP},
	{name: "KillAmqpSession", on: AMQP, session: true},
	{name: "KillAmqpCBSLinkReq", on: AMQP, link: LinkCBSSender},
	{name: "KillAmqpCBSLinkResp", on: AMQP, link: LinkCBSReceiver},
	{name: "KillAmqpD2CLink", on: AMQP, link: LinkTelemetry},
	{name: "KillAmqpC2DLink", on: AMQP, link: LinkC2D},
	{name: "KillAmqpTwinLinkReq", on: AMQP, link: LinkTwinSender},
	{name: "KillAmqpTwinLinkResp", on: AMQP, link: LinkTwinReceiver},
	{name: "KillAmqpMethodReqLink", on: AMQP, link: LinkMethodReceiver},
	{name: "KillAmqpMethodRespLink", on: AMQP, link: LinkMethodSender},
}

// orderError is the cause of what happens because a device asked for it.
type orderError struct{ kind, reason string }

// Error names the type and the reason.
func (e orderError) Error() string {
	return strings.TrimSuffix("asked for by the device: "+e.kind+": "+e.reason, ": ")
}

// A standingOrder is one that refuses connects. Guarded by Hub.mu.
type standingOrder struct {
	orderKind
	until  time.Time
	once   bool // it ends with the first message that it rejects
	record *FaultMessage
}

const maxOrderSeconds = 1 << 31

// readOrder reads a message that asks for a fault; false when it does not.
func readOrder(m Message) (orderKind, FaultMessage, bool) {
	property := func(name string) string { // over HTTP they are in lower case
		for _, p := range m.Properties {
			if strings.EqualFold(p.Name, name) {
				return p.Value
			}
		}
		return ""
	}
	text := property("AzIoTHub_FaultOperationType")
	if text == "" {
		return orderKind{}, FaultMessage{}, false
	}
	i := slices.IndexFunc(orderKinds, func(k orderKind) bool { return strings.EqualFold(k.name, text) })
	if i < 0 {
		return orderKind{}, FaultMessage{}, false
	}
	seconds := func(name string) time.Duration {
		n, err := strconv.ParseUint(strings.TrimSpace(property(name)), 10, 64)
		if err != nil {
			return 0
		}
		return time.Duration(min(n, maxOrderSeconds)) * time.Second
	}
	f := FaultMessage{DeviceID: m.DeviceID, ModuleID: m.ModuleID, Type: orderKinds[i].name}
	f.Reason = property("AzIoTHub_FaultOperationCloseReason")
	f.Delay = seconds("AzIoTHub_FaultOperationDelayInSecs")
	f.Duration = seconds("AzIoTHub_FaultOperationDurationInSecs")
	return orderKinds[i], f, true
}

// take has a fault happen that a message asks for, after telling who can acknowledge the message.
func (h *Hub) take(m Message, acknowledge func(orderKind), obey func(orderKind, *FaultMessage)) bool {
	if h.obedient == StoreFaultMessages {
		return false
	}
	kind, f, ok := readOrder(m)
	if !ok {
		return false
	}
	f.Received = h.now()
	h.mu.Lock()
	h.orders.add(&f)
	h.mu.Unlock()
	acknowledge(kind)
	h.changed.wake()
	switch {
	case kind.on&m.Protocol == 0:
	case f.Delay == 0:
		obey(kind, &f)
	default:
		due := time.NewTimer(f.Delay)
		h.wg.Go(func() {
			defer due.Stop()
			select {
			case <-due.C:
				obey(kind, &f)
			case <-h.done:
			}
		})
	}
	return true
}

// stands returns the order because of which an identity is refused, if it is of the right kind, and
// counts that.
func (h *Hub) stands(id identity, right func(standingOrder) bool) (standingOrder, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, ok := h.standing[id]
	if ok && !o.until.After(time.Now()) {
		delete(h.standing, id)
		ok = false
	}
	if ok = ok && right(o); ok {
		o.record.Refused++
		if o.once {
			delete(h.standing, id)
		}
	}
	return o, ok
}

// FaultMessages returns the faults that devices have asked for by message, in order of arrival.
func (h *Hub) FaultMessages() []FaultMessage {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]FaultMessage, len(h.orders.entries))
	for i, f := range h.orders.entries {
		all[i] = *f
	}
	return all
}

// String names the constant.
func (f FaultMessages) String() string {
	names := [...]string{"ObeyFaultMessages", "ObeyFaultMessagesUnacked", "StoreFaultMessages"}
	if int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("FaultMessages(%d)", uint8(f))
}
