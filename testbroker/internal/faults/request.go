package faults

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// A Request is the effect of a type of messages with which a device requests a fault.
type Request struct {
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

var requests = []Request{
	{Name: "KillTcp", On: hubdata.MQTT | hubdata.AMQP | hubdata.HTTP, Cut: true, Refuses: true},
	{Name: "ShutDownMqtt", On: hubdata.MQTT},
	{Name: "InvokeThrottling", On: hubdata.MQTT | hubdata.AMQP | hubdata.HTTP, Refuses: true, Code: connackUnavailable,
		Condition: "com.microsoft:device-container-throttled", Refusal: 429001},
	{Name: "InvokeMaxMessageQuota", On: hubdata.MQTT | hubdata.AMQP | hubdata.HTTP, Refuses: true,
		Code: connackUnavailable, Condition: "amqp:resource-limit-exceeded", Refusal: 403002},
	{Name: "InvokeAuthError", On: hubdata.MQTT | hubdata.AMQP | hubdata.HTTP, Refuses: true, Code: connackUnauthorized,
		Condition: "amqp:unauthorized-access", Refusal: 401003},
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

// RequestError is the cause of a refusal or an end that a device requested.
type RequestError struct{ Kind, Reason string }

// Error names the type and the reason.
func (e RequestError) Error() string {
	return strings.TrimSuffix("asked for by the device: "+e.Kind+": "+e.Reason, ": ")
}

// A Standing is a requested fault that refuses connects or messages.
type Standing struct {
	Request
	Until  time.Time
	Once   bool // ends with the first rejected message
	Record *fault.Message
}

const maxRequestSeconds = 1 << 31

// CONNACK codes of requests.
const (
	connackUnavailable  = 3
	connackUnauthorized = 5
)

// Stand returns the standing fault of a request; nil if it refuses nothing. once: without a
// duration it refuses the next message.
func (k Request) Stand(f *fault.Message, once bool) *Standing {
	switch {
	case once && f.Duration == 0:
		return &Standing{Request: k, Until: time.Now().Add(maxRequestSeconds * time.Second), Once: true}
	case k.Refuses && f.Duration > 0:
		return &Standing{Request: k, Until: time.Now().Add(f.Duration)}
	}
	return nil
}

// Cause returns the cause of a refusal by the fault.
func (o Standing) Cause() RequestError { return RequestError{o.Name, o.Record.Reason} }

// Requests are the faults that devices have requested.
type Requests struct {
	mu       sync.Mutex // guards the fields below
	log      keep.History[*fault.Message]
	standing map[identity.Identity]Standing
}

// Init makes the requests. most bounds the log, 0 = no bound.
func (r *Requests) Init(most int) {
	r.log.Keep, r.standing = most, make(map[identity.Identity]Standing)
}

// Add adds a request to the log.
func (r *Requests) Add(f *fault.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Add(f)
}

// Obey records the effect of a request. stands, unless nil, refuses the identity from this time on.
func (r *Requests) Obey(id identity.Identity, f *fault.Message, happened bool, stands *Standing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stands != nil {
		stands.Record = f
		r.standing[id] = *stands
	}
	f.Happened = happened
}

// Stands returns the fault that refuses an identity, if right accepts it, and counts the refusal.
func (r *Requests) Stands(id identity.Identity, right func(Standing) bool) (Standing, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, ok := r.standing[id]
	if ok && !o.Until.After(time.Now()) {
		delete(r.standing, id)
		ok = false
	}
	if ok = ok && right(o); ok {
		o.Record.Refused++
		if o.Once {
			delete(r.standing, id)
		}
	}
	return o, ok
}

// Messages returns the requests in order of arrival.
func (r *Requests) Messages() []fault.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]fault.Message, len(r.log.Entries))
	for i, f := range r.log.Entries {
		all[i] = *f
	}
	return all
}

// Forget ends the standing fault of an identity.
func (r *Requests) Forget(id identity.Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.standing, id)
}

// Clear forgets all requests.
func (r *Requests) Clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Clear()
	clear(r.standing)
}

// ReadRequest reads a message that requests a fault; false when it does not.
func ReadRequest(m hubdata.Message) (Request, fault.Message, bool) {
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
		return Request{}, fault.Message{}, false
	}
	i := slices.IndexFunc(requests, func(k Request) bool { return strings.EqualFold(k.Name, text) })
	if i < 0 {
		return Request{}, fault.Message{}, false
	}
	seconds := func(name string) time.Duration {
		n, err := strconv.ParseUint(strings.TrimSpace(property(name)), 10, 64)
		if err != nil {
			return 0
		}
		return time.Duration(min(n, maxRequestSeconds)) * time.Second
	}
	f := fault.Message{DeviceID: m.DeviceID, ModuleID: m.ModuleID, Type: requests[i].Name}
	f.Reason = property("AzIoTHub_FaultOperationCloseReason")
	f.Delay = seconds("AzIoTHub_FaultOperationDelayInSecs")
	f.Duration = seconds("AzIoTHub_FaultOperationDurationInSecs")
	return requests[i], f, true
}
