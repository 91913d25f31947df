package hub

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FaultMessages says how the hub treats a message with which a device requests a fault: one whose
// application property "AzIoTHub_FaultOperationType" has a known type, in any letter case.
//
// "KillTcp" cuts the connection, and with a duration also every new one until the duration ends.
// "ShutDownMqtt" ends the connection in order. "InvokeThrottling", "InvokeMaxMessageQuota" and
// "InvokeAuthError" end it in order and refuse new ones, with CONNACK 3, 3 and 5, for the duration.
//
// Over AMQP, the three "Invoke" types keep the connection. They reject messages for the duration,
// or the next message if there is no duration. "ShutDownAmqp" and "KillAmqpConnection" close the
// connection with "amqp:connection:forced". "KillAmqpSession" ends the session. The other types
// detach the link that they name with "amqp:link:detach-forced". A type for another protocol does
// nothing. The hub recognizes a new connection of a device that requested "KillTcp" by its
// put-token, or by SASL PLAIN.
//
// Over HTTP, "KillTcp" cuts the connections that the device has used, and with a duration every new
// one at its request. The three "Invoke" types answer the device's messages with 429, 403 and 401,
// for as long as over AMQP.
//
// The other properties are "AzIoTHub_FaultOperationCloseReason", which becomes part of the cause,
// "AzIoTHub_FaultOperationDelayInSecs" and "AzIoTHub_FaultOperationDurationInSecs". Such a message
// is not telemetry: it is not in the log, and faults declared with [Hub.Inject] ignore it. See
// [Hub.FaultMessages].
type FaultMessages uint8

const (
	ObeyFaultMessages FaultMessages = iota
	ObeyFaultMessagesUnacked
	StoreFaultMessages
)

// FaultMessage is a fault that a device requested with a message.
type FaultMessage struct {
	// DeviceID and ModuleID name the device that sent the request. The fault happens to the same
	// device.
	DeviceID, ModuleID string
	// Type is the type in the service's spelling. Reason is the text that comes with it.
	Type, Reason string
	// Delay and Duration are whole seconds. A value that is not a number counts as zero.
	Delay, Duration time.Duration
	// Received is when the message arrived, by the hub's clock.
	Received time.Time
	// Happened reports that the fault has ended a connection, session or link, or has begun to refuse.
	// It stays false for types of another protocol.
	Happened bool
	// Refused counts the connects that the fault refused or cut, or the messages that it rejected.
	Refused int
}

// FaultRequest is the effect of a type.
type FaultRequest struct {
	Name    string
	On      Protocol // the protocols on which it has an effect
	Cut     bool     // by RST
	Refuses bool     // for the duration
	Code    byte     // the CONNACK with which it refuses

	// For AMQP.
	Condition string   // with which messages are rejected
	Session   bool     // end the session
	Link      LinkKind // kind of links that it detaches

	Refusal int // the service's code with which messages over HTTP are refused
}

var faultRequests = []FaultRequest{
	{Name: "KillTcp", On: MQTT | AMQP | HTTP, Cut: true, Refuses: true},
	{Name: "ShutDownMqtt", On: MQTT},
	{Name: "InvokeThrottling", On: MQTT | AMQP | HTTP, Refuses: true, Code: serverUnavailable,
		Condition: "com.microsoft:device-container-throttled", Refusal: 429001},
	{Name: "InvokeMaxMessageQuota", On: MQTT | AMQP | HTTP, Refuses: true, Code: serverUnavailable,
		Condition: limitExceeded, Refusal: 403002},
	{Name: "InvokeAuthError", On: MQTT | AMQP | HTTP, Refuses: true, Code: notAuthorized,
		Condition: Unauthorized, Refusal: 401003},
	{Name: "ShutDownAmqp", On: AMQP},
	{Name: "KillAmqpConnection", On: AMQP},
	{Name: "KillAmqpSession", On: AMQP, Session: true},
	{Name: "KillAmqpCBSLinkReq", On: AMQP, Link: LinkCBSSender},
	{Name: "KillAmqpCBSLinkResp", On: AMQP, Link: LinkCBSReceiver},
	{Name: "KillAmqpD2CLink", On: AMQP, Link: LinkTelemetry},
	{Name: "KillAmqpC2DLink", On: AMQP, Link: LinkC2D},
	{Name: "KillAmqpTwinLinkReq", On: AMQP, Link: LinkTwinSender},
	{Name: "KillAmqpTwinLinkResp", On: AMQP, Link: LinkTwinReceiver},
	{Name: "KillAmqpMethodReqLink", On: AMQP, Link: LinkMethodReceiver},
	{Name: "KillAmqpMethodRespLink", On: AMQP, Link: LinkMethodSender},
}

// FaultRequestError is the cause of a refusal or an end that a device requested.
type FaultRequestError struct{ Kind, Reason string }

// Error names the type and the reason.
func (e FaultRequestError) Error() string {
	return strings.TrimSuffix("asked for by the device: "+e.Kind+": "+e.Reason, ": ")
}

// A StandingFault is a requested fault that refuses connects. Guarded by Hub.mu.
type StandingFault struct {
	FaultRequest
	Until  time.Time
	Once   bool // ends with the first rejected message
	Record *FaultMessage
}

const MaxFaultSeconds = 1 << 31

// readFaultMessage reads a message that requests a fault; false when it does not.
func readFaultMessage(m Message) (FaultRequest, FaultMessage, bool) {
	property := func(name string) string { // over HTTP names are in lower case
		for _, p := range m.Properties {
			if strings.EqualFold(p.Name, name) {
				return p.Value
			}
		}
		return ""
	}
	text := property("AzIoTHub_FaultOperationType")
	if text == "" {
		return FaultRequest{}, FaultMessage{}, false
	}
	i := slices.IndexFunc(faultRequests, func(k FaultRequest) bool { return strings.EqualFold(k.Name, text) })
	if i < 0 {
		return FaultRequest{}, FaultMessage{}, false
	}
	seconds := func(name string) time.Duration {
		n, err := strconv.ParseUint(strings.TrimSpace(property(name)), 10, 64)
		if err != nil {
			return 0
		}
		return time.Duration(min(n, MaxFaultSeconds)) * time.Second
	}
	f := FaultMessage{DeviceID: m.DeviceID, ModuleID: m.ModuleID, Type: faultRequests[i].Name}
	f.Reason = property("AzIoTHub_FaultOperationCloseReason")
	f.Delay = seconds("AzIoTHub_FaultOperationDelayInSecs")
	f.Duration = seconds("AzIoTHub_FaultOperationDurationInSecs")
	return faultRequests[i], f, true
}

// Take applies the fault that a message requests, after it has called acknowledge. It returns false
// if the message is telemetry.
func (h *Hub) Take(m Message, acknowledge func(FaultRequest), obey func(FaultRequest, *FaultMessage)) bool {
	if h.Obedient == StoreFaultMessages {
		return false
	}
	kind, f, ok := readFaultMessage(m)
	if !ok {
		return false
	}
	f.Received = h.Now()
	h.Mu.Lock()
	h.orders.add(&f)
	h.Mu.Unlock()
	acknowledge(kind)
	h.Changed.Wake()
	switch {
	case kind.On&m.Protocol == 0:
	case f.Delay == 0:
		obey(kind, &f)
	default:
		due := time.NewTimer(f.Delay)
		h.Wg.Go(func() {
			defer due.Stop()
			select {
			case <-due.C:
				obey(kind, &f)
			case <-h.Done:
			}
		})
	}
	return true
}

// Stands returns the fault that refuses an identity, if right accepts it, and counts the refusal.
func (h *Hub) Stands(id Identity, right func(StandingFault) bool) (StandingFault, bool) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	o, ok := h.Standing[id]
	if ok && !o.Until.After(time.Now()) {
		delete(h.Standing, id)
		ok = false
	}
	if ok = ok && right(o); ok {
		o.Record.Refused++
		if o.Once {
			delete(h.Standing, id)
		}
	}
	return o, ok
}

// FaultMessages implements testbroker.Hub.FaultMessages.
func (h *Hub) FaultMessages() []FaultMessage {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	all := make([]FaultMessage, len(h.orders.entries))
	for i, f := range h.orders.entries {
		all[i] = *f
	}
	return all
}

// String returns the name of the constant.
func (f FaultMessages) String() string {
	names := [...]string{"ObeyFaultMessages", "ObeyFaultMessagesUnacked", "StoreFaultMessages"}
	if int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("FaultMessages(%d)", uint8(f))
}
