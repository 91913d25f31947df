package hub

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// FaultRequest is the effect of a type.
type FaultRequest struct {
	Name    string
	On      hubdata.Protocol // the protocols on which it has an effect
	Cut     bool             // by RST
	Refuses bool             // for the duration
	Code    byte             // the CONNACK with which it refuses

	// For AMQP.
	Condition string         // with which messages are rejected
	Session   bool           // end the session
	Link      fault.LinkKind // kind of links that it detaches

	Refusal int // the service's code with which messages over HTTP are refused
}

var faultRequests = []FaultRequest{
	{Name: "KillTcp", On: hubdata.MQTT | hubdata.AMQP | hubdata.HTTP, Cut: true, Refuses: true},
	{Name: "ShutDownMqtt", On: hubdata.MQTT},
	{Name: "InvokeThrottling", On: hubdata.MQTT | hubdata.AMQP | hubdata.HTTP, Refuses: true, Code: serverUnavailable,
		Condition: "com.microsoft:device-container-throttled", Refusal: 429001},
	{Name: "InvokeMaxMessageQuota", On: hubdata.MQTT | hubdata.AMQP | hubdata.HTTP, Refuses: true, Code: serverUnavailable,
		Condition: limitExceeded, Refusal: 403002},
	{Name: "InvokeAuthError", On: hubdata.MQTT | hubdata.AMQP | hubdata.HTTP, Refuses: true, Code: notAuthorized,
		Condition: Unauthorized, Refusal: 401003},
	{Name: "ShutDownAmqp", On: hubdata.AMQP},
	{Name: "KillAmqpConnection", On: hubdata.AMQP},
	{Name: "KillAmqpSession", On: hubdata.AMQP, Session: true},
	{Name: "KillAmqpCBSLinkReq", On: hubdata.AMQP, Link: fault.LinkCBSSender},
	{Name: "KillAmqpCBSLinkResp", On: hubdata.AMQP, Link: fault.LinkCBSReceiver},
	{Name: "KillAmqpD2CLink", On: hubdata.AMQP, Link: fault.LinkTelemetry},
	{Name: "KillAmqpC2DLink", On: hubdata.AMQP, Link: fault.LinkC2D},
	{Name: "KillAmqpTwinLinkReq", On: hubdata.AMQP, Link: fault.LinkTwinSender},
	{Name: "KillAmqpTwinLinkResp", On: hubdata.AMQP, Link: fault.LinkTwinReceiver},
	{Name: "KillAmqpMethodReqLink", On: hubdata.AMQP, Link: fault.LinkMethodReceiver},
	{Name: "KillAmqpMethodRespLink", On: hubdata.AMQP, Link: fault.LinkMethodSender},
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
	Record *fault.Message
}

const MaxFaultSeconds = 1 << 31

// readFaultMessage reads a message that requests a fault; false when it does not.
func readFaultMessage(m hubdata.Message) (FaultRequest, fault.Message, bool) {
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
		return FaultRequest{}, fault.Message{}, false
	}
	i := slices.IndexFunc(faultRequests, func(k FaultRequest) bool { return strings.EqualFold(k.Name, text) })
	if i < 0 {
		return FaultRequest{}, fault.Message{}, false
	}
	seconds := func(name string) time.Duration {
		n, err := strconv.ParseUint(strings.TrimSpace(property(name)), 10, 64)
		if err != nil {
			return 0
		}
		return time.Duration(min(n, MaxFaultSeconds)) * time.Second
	}
	f := fault.Message{DeviceID: m.DeviceID, ModuleID: m.ModuleID, Type: faultRequests[i].Name}
	f.Reason = property("AzIoTHub_FaultOperationCloseReason")
	f.Delay = seconds("AzIoTHub_FaultOperationDelayInSecs")
	f.Duration = seconds("AzIoTHub_FaultOperationDurationInSecs")
	return faultRequests[i], f, true
}

// Take applies the fault that a message requests, after it has called acknowledge. It returns false
// if the message is telemetry.
func (h *Hub) Take(m hubdata.Message, acknowledge func(FaultRequest), obey func(FaultRequest, *fault.Message)) bool {
	if h.FaultMessageMode == fault.StoreMessages {
		return false
	}
	kind, f, ok := readFaultMessage(m)
	if !ok {
		return false
	}
	f.Received = h.Now()
	h.mu.Lock()
	h.orders.Add(&f)
	h.mu.Unlock()
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
func (h *Hub) Stands(id identity.Identity, right func(StandingFault) bool) (StandingFault, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, ok := h.standing[id]
	if ok && !o.Until.After(time.Now()) {
		delete(h.standing, id)
		ok = false
	}
	if ok = ok && right(o); ok {
		o.Record.Refused++
		if o.Once {
			delete(h.standing, id)
		}
	}
	return o, ok
}

// FaultMessages returns the faults that devices have requested with messages, in order of arrival.
func (h *Hub) FaultMessages() []fault.Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]fault.Message, len(h.orders.Entries))
	for i, f := range h.orders.Entries {
		all[i] = *f
	}
	return all
}

// Obey records the effect of a requested fault. stands, unless nil, refuses the identity from this
// time on.
func (h *Hub) Obey(id identity.Identity, f *fault.Message, happened bool, stands *StandingFault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if stands != nil {
		stands.Record = f
		h.standing[id] = *stands
	}
	f.Happened = happened
}
