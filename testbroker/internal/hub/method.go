package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// MaxMethodPayload is the size limit of the payload of a method call, and of its answer, in bytes.
const MaxMethodPayload = 128 << 10

// DefaultResponseTimeout is how long a call without a ResponseTimeout waits for its answer.
const DefaultResponseTimeout = 30 * time.Second

// MethodCall is a call of a direct method.
type MethodCall struct {
	// Name is printable ASCII without space and without any of $()<>@,;:\"/[]?={}.
	Name string
	// Payload is JSON, or empty.
	Payload []byte
	// ResponseTimeout is the time limit of the answer, from the delivery on. Default:
	// [DefaultResponseTimeout].
	ResponseTimeout time.Duration
	// ConnectTimeout is how long the call waits for a device that is not connected. Default: no wait.
	ConnectTimeout time.Duration
}

// MethodResult is the answer of a device.
type MethodResult struct {
	// Status is the status code that the device returned.
	Status int
	// Payload is JSON, or empty.
	Payload []byte
}

// MethodRecord is a call and its outcome.
type MethodRecord struct {
	// DeviceID and ModuleID name the target. ModuleID is empty for the device itself.
	DeviceID, ModuleID string
	MethodCall
	// RequestID is the id of the request; empty if the call was not sent.
	RequestID string
	// Protocol and Connection are those of the connection that carried the request.
	Protocol   Protocol
	Connection uint64
	// Deliveries is how often the request was put on the connection. Only a fault makes it more than
	// one.
	Deliveries int
	// Called, Delivered and Ended are times of the hub's clock. Delivered is the time of the first
	// delivery, zero if there was none. Ended is zero while the call is open.
	Called, Delivered, Ended time.Time
	// Result is the accepted answer when the call has ended with a nil Err.
	Result MethodResult
	Err    error
}

// AnswerFate says how the hub treated an answer.
type AnswerFate uint8

const (
	AnswerTaken AnswerFate = iota + 1
	AnswerRefused
	AnswerRepeated
	AnswerLate
	AnswerElsewhere
	AnswerUnknown
	AnswerLost
)

var answerFateNames = [...]string{
	AnswerTaken: "taken", AnswerRefused: "refused", AnswerRepeated: "repeated", AnswerLate: "late",
	AnswerElsewhere: "elsewhere",
	AnswerUnknown:   "unknown", AnswerLost: "lost",
}

// String returns the fate in lower case.
func (f AnswerFate) String() string {
	if f != 0 && int(f) < len(answerFateNames) {
		return answerFateNames[f]
	}
	return fmt.Sprintf("AnswerFate(%d)", uint8(f))
}

// MethodAnswer is an answer as received from a client.
type MethodAnswer struct {
	// DeviceID and ModuleID name the client. ModuleID is empty for the device itself.
	DeviceID, ModuleID string
	RequestID          string
	MethodResult
	Fate AnswerFate
	// Protocol and Connection are those by which it arrived. Received is when, by the hub's clock.
	Protocol   Protocol
	Connection uint64
	Received   time.Time
}

// methodCalls holds the method calls.
type methodCalls struct {
	mu      sync.Mutex // guards the fields below and all calls; never held over a write or an event
	log     history[*methodCall]
	open    map[*methodCall]struct{} // calls that have not ended
	named   map[callName]*methodCall // calls in log, or not returned, that have a request id
	answers history[*MethodAnswer]
	count   uint64 // request ids so far
}

type callName struct {
	id  Identity
	rid string
}

// A methodCall is a call, open or ended. Guarded by methodCalls.mu.
type methodCall struct {
	MethodRecord
	id    Identity
	to    *Conn         // the connection that carried the request
	ended chan struct{} // closed when it has ended

	returned, forgotten bool // the caller has the result; the log has dropped the call
}

// CallMethod calls a direct method of a device, or of a module named "deviceID/moduleID", and waits
// for the answer. The client must have subscribed to methods over MQTT, or have both method links
// over AMQP; the newest connection receives the call. The error is a [*ServiceError]: its Code is
// 404103 if no client can take the call within ConnectTimeout, and 504101 if there is no answer
// within ResponseTimeout. If the context ends first, the error is its cause.
func (h *Hub) CallMethod(ctx context.Context, id string, m MethodCall) (MethodResult, error) {
	return h.InvokeMethod(ctx, SplitIdentity(id), m)
}

func (h *Hub) InvokeMethod(ctx context.Context, who Identity, m MethodCall) (MethodResult, error) {
	if err := h.checkCall(who, m); err != nil {
		return MethodResult{}, err
	}
	if m.ResponseTimeout <= 0 {
		m.ResponseTimeout = DefaultResponseTimeout
	}
	m.Payload = slices.Clone(m.Payload)
	call := &methodCall{
		MethodRecord: MethodRecord{DeviceID: who.Device, ModuleID: who.Module, MethodCall: m, Called: h.Now()},
		id:           who, ended: make(chan struct{}),
	}
	h.calls.mu.Lock()
	if old, forgot := h.calls.log.add(call); forgot {
		old.forgotten = true
		h.calls.releaseLocked(old)
	}
	h.calls.open[call] = struct{}{}
	h.calls.mu.Unlock()
	told := Event{Kind: MethodCalled, DeviceID: who.Device, ModuleID: who.Module, Name: m.Name}
	h.Event(told, nil)
	h.endCall(call, MethodResult{}, h.perform(ctx, call)) // unless an answer has ended it
	h.calls.mu.Lock()
	result, err := MethodResult{call.Result.Status, slices.Clone(call.Result.Payload)}, call.Err
	call.returned = true
	h.calls.releaseLocked(call)
	h.calls.mu.Unlock()
	if err != nil {
		told.Kind, told.Err = MethodFailed, err
		h.Event(told, nil)
	}
	return result, err
}

// releaseLocked frees the request id of a call that is both returned and forgotten.
func (m *methodCalls) releaseLocked(call *methodCall) {
	if call.returned && call.forgotten {
		delete(m.named, callName{call.id, call.RequestID})
	}
}

// checkCall returns why a call is invalid.
func (h *Hub) checkCall(id Identity, m MethodCall) error {
	if _, err := h.TwinState(id); err != nil { // the device or module does not exist
		return err
	}
	switch {
	case !isMethodName(m.Name):
		return h.ServiceError(CodeArgumentInvalid, "method name %q", m.Name)
	case len(m.Payload) > MaxMethodPayload:
		return h.ServiceError(codeMessageTooLarge, "payload of %d bytes, at most %d are allowed", len(m.Payload),
			MaxMethodPayload)
	case len(m.Payload) > 0 && !json.Valid(m.Payload):
		return h.ServiceError(CodeArgumentInvalid, "payload that is not JSON")
	}
	return nil
}

func isMethodName(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || strings.IndexByte(`$()<>@,;:\"/[]?={}`, s[i]) >= 0 {
			return false
		}
	}
	return s != ""
}

// perform delivers a call and waits for its end. It returns why the call ended without an answer.
func (h *Hub) perform(ctx context.Context, call *methodCall) error {
	offline := h.ServiceError(codeDeviceNotOnline, "%s is not connected, or takes no methods", call.id)
	connect, cancel := context.WithTimeoutCause(ctx, call.ConnectTimeout, offline)
	defer cancel()
	if err := h.until(connect, func() bool { return h.deliverCall(call) }); err != nil {
		select {
		case <-h.Done:
			return ErrClosed
		default:
			return err
		}
	}
	timeout := time.NewTimer(call.ResponseTimeout)
	defer timeout.Stop()
	select {
	case <-call.ended:
		return nil
	case <-timeout.C:
		return h.ServiceError(codeGatewayTimeout, "%s gave no answer within %s", call.id, call.ResponseTimeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-h.Done:
		return ErrClosed
	}
}

// endCall ends an open call; false if it has ended before.
func (h *Hub) endCall(call *methodCall, r MethodResult, err error) bool {
	defer h.Changed.Wake()
	h.calls.mu.Lock()
	defer h.calls.mu.Unlock()
	return h.endCallLocked(call, r, err)
}

func (h *Hub) endCallLocked(call *methodCall, r MethodResult, err error) bool {
	if !call.Ended.IsZero() {
		return false
	}
	call.Ended, call.Result, call.Err = h.Now(), r, err
	delete(h.calls.open, call)
	close(call.ended)
	return true
}

// A MethodTarget is a client that accepts calls.
type MethodTarget interface {
	// Request sends a request; false when it cannot be sent.
	Request(rid, name string, payload []byte) bool
	// NewID returns the request id of the n-th request in the protocol's form.
	NewID(n uint64) string
	// OtherID returns a different id of the same form.
	OtherID(rid string) string
	Protocol() Protocol
	Client() *Conn
}

// methodTarget returns the client that accepts calls of a method, the newest if there are several;
// nil if there is none.
func (h *Hub) methodTarget(id Identity, name string) MethodTarget {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	var to MethodTarget
	for _, f := range h.Fronts {
		if t := f.MethodTargetLocked(id, name); t != nil && (to == nil || t.Client().Number > to.Client().Number) {
			to = t
		}
	}
	return to
}

// deliverCall sends a call to a client that accepts it; false when there is none.
func (h *Hub) deliverCall(call *methodCall) bool {
	to := h.methodTarget(call.id, call.Name)
	if to == nil {
		return false
	}
	c := to.Client()
	h.calls.mu.Lock()
	h.calls.count++
	rid := to.NewID(h.calls.count)
	h.calls.named[callName{call.id, rid}] = call
	call.RequestID, call.to = rid, c
	call.Protocol, call.Connection = to.Protocol(), c.Number
	h.calls.mu.Unlock()

	take := func(kind FaultKind) *Injected { return h.takeMethod(kind, call, c) }
	if take(DropBeforeMethod) != nil {
		c.CutFor(FaultError(DropBeforeMethod))
		return true
	}
	if in := take(RefuseMethod); in != nil {
		h.endCall(call, MethodResult{}, h.declared(&in.Fault))
		return true
	}
	if take(SwallowMethod) != nil {
		return true
	}
	if take(MisnameMethod) != nil {
		rid = to.OtherID(rid)
	}
	payload := call.Payload
	if in := take(GarbleMethod); in != nil {
		payload = garbled(in)
	}
	times := 1
	if take(DuplicateMethod) != nil {
		times = 2
	}
	if in := take(SlowMethod); in != nil {
		h.later(in.Fault.Delay, c.Closed, func() { h.sendCall(call, to, rid, payload, times) })
		return true
	}
	if !h.sendCall(call, to, rid, payload, times) {
		h.calls.mu.Lock()
		delete(h.calls.named, callName{call.id, call.RequestID})
		call.RequestID, call.to, call.Protocol, call.Connection = "", nil, 0, 0
		h.calls.mu.Unlock()
		return false
	}
	if take(DropAfterMethod) != nil {
		c.CloseGracefully(FaultError(DropAfterMethod))
	}
	return true
}

// takeMethod is Faults.Take for faults of one method.
func (h *Hub) takeMethod(kind FaultKind, call *methodCall, c *Conn) *Injected {
	in := h.Faults.TakeIf(kind, call.id, func(f *Fault) bool { return f.Method == "" || f.Method == call.Name })
	if in != nil {
		h.HappenedTo(in, c, call.id)
	}
	return in
}

// sendCall sends a request times times; false when none could be sent. It counts before sending, so
// that a client with a request finds it in the log.
func (h *Hub) sendCall(call *methodCall, to MethodTarget, rid string, payload []byte, times int) (sent bool) {
	defer func() {
		if sent { // otherwise nothing has changed, and waking the caller would make it retry at once
			h.Changed.Wake()
		}
	}()
	for i := range times {
		h.calls.mu.Lock()
		before := call.Delivered
		if i == 0 {
			call.Delivered = h.Now()
		}
		call.Deliveries++
		h.calls.mu.Unlock()
		if to.Request(rid, call.Name, payload) {
			continue
		}
		h.calls.mu.Lock()
		call.Delivered = before
		call.Deliveries--
		h.calls.mu.Unlock()
		return i > 0
	}
	return true
}

// Answered handles an answer of a client. Its packet was checked before.
func (h *Hub) Answered(c *Conn, a MethodAnswer) {
	a.Connection = c.Number
	id := Identity{a.DeviceID, a.ModuleID}
	h.calls.mu.Lock()
	call := h.calls.named[callName{id, a.RequestID}]
	h.calls.mu.Unlock()
	drop := (*Injected)(nil)
	if call != nil {
		if h.takeMethod(SwallowMethodAnswer, call, c) != nil {
			a.Fate = AnswerLost
		} else if in := h.takeMethod(SlowMethodAnswer, call, c); in != nil {
			h.later(in.Fault.Delay, nil, func() { h.judge(c, call, a) })
			return
		}
		drop = h.takeMethod(DropAfterMethodAnswer, call, c)
	}
	h.judge(c, call, a)
	if drop != nil {
		c.CutFor(FaultError(DropAfterMethodAnswer))
	}
}

// CutOnAnswer applies the fault that cuts the connection of an answer before the answer counts.
func (h *Hub) CutOnAnswer(c *Conn, a MethodAnswer) bool {
	h.calls.mu.Lock()
	call := h.calls.named[callName{Identity{a.DeviceID, a.ModuleID}, a.RequestID}]
	h.calls.mu.Unlock()
	if call == nil || h.takeMethod(DropOnMethodAnswer, call, c) == nil {
		return false
	}
	a.Fate = AnswerLost
	a.Connection = c.Number
	h.judge(c, call, a)
	c.CutFor(FaultError(DropOnMethodAnswer))
	return true
}

// judge decides how to treat an answer. call is nil when there is no such call.
func (h *Hub) judge(c *Conn, call *methodCall, a MethodAnswer) {
	defer h.Changed.Wake()
	a.Received = h.Now()
	if len(a.Payload) == 0 {
		a.Payload = nil
	}
	var refused error
	switch {
	case len(a.Payload) > MaxMethodPayload:
		refused = h.ServiceError(codeMessageTooLarge, "answer of %d bytes, at most %d are allowed", len(a.Payload),
			MaxMethodPayload)
	case len(a.Payload) > 0 && !json.Valid(a.Payload):
		refused = h.ServiceError(codeBadDeviceResponse, "answer that is not JSON")
	}
	h.noteAnswer(c, call, &a, refused)
	told := Event{Kind: MethodAnswered, DeviceID: a.DeviceID, ModuleID: a.ModuleID, Detail: a.Fate.String(),
		Status: a.Status, Protocol: a.Protocol}
	if call != nil {
		told.Name = call.Name
	}
	h.Event(told, c)
}

// noteAnswer sets the fate of an answer, unless it is set, and logs the answer. refused says why
// the answer is invalid, if it is.
func (h *Hub) noteAnswer(c *Conn, call *methodCall, a *MethodAnswer, refused error) {
	h.calls.mu.Lock()
	defer h.calls.mu.Unlock()
	switch {
	case a.Fate == AnswerLost:
	case call == nil:
		a.Fate = AnswerUnknown
	case call.to != c:
		a.Fate = AnswerElsewhere
	case refused != nil && h.endCallLocked(call, MethodResult{}, refused):
		a.Fate = AnswerRefused
	case refused == nil && h.endCallLocked(call, a.MethodResult, nil):
		a.Fate = AnswerTaken
	case call.Err == nil:
		a.Fate = AnswerRepeated
	default:
		a.Fate = AnswerLate
	}
	h.calls.answers.add(a)
}

// DisplaceCalls ends the open calls that were sent to an identity on a connection that another has
// replaced.
func (h *Hub) DisplaceCalls(c *Conn, id Identity) {
	err := h.ServiceError(codeDisplaced, "a newer connection of the device has closed the one that had the request")
	h.calls.mu.Lock()
	defer h.Changed.Wake()
	defer h.calls.mu.Unlock()
	for call := range h.calls.open {
		if call.to == c && call.id == id {
			h.endCallLocked(call, MethodResult{}, err)
		}
	}
}

// MethodLog implements testbroker.Hub.MethodLog.
func (h *Hub) MethodLog(device string) []MethodRecord {
	h.calls.mu.Lock()
	defer h.calls.mu.Unlock()
	var all []MethodRecord
	for _, call := range h.calls.log.entries {
		if call.id.Matches(device) {
			r := call.MethodRecord
			r.Payload, r.Result.Payload = slices.Clone(r.Payload), slices.Clone(r.Result.Payload)
			all = append(all, r)
		}
	}
	return all
}

// MethodAnswers implements testbroker.Hub.MethodAnswers.
func (h *Hub) MethodAnswers(device string) []MethodAnswer {
	h.calls.mu.Lock()
	defer h.calls.mu.Unlock()
	var all []MethodAnswer
	for _, a := range h.calls.answers.entries {
		if (Identity{a.DeviceID, a.ModuleID}).Matches(device) {
			r := *a
			r.Payload = slices.Clone(r.Payload)
			all = append(all, r)
		}
	}
	return all
}
