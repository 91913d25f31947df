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

// MaxMethodPayload is the size limit of the payload of a method, and of its answer, in bytes.
const MaxMethodPayload = 128 << 10

// DefaultResponseTimeout is how long a call waits for its answer when it does not say.
const DefaultResponseTimeout = 30 * time.Second

// MethodCall is a call of a direct method.
type MethodCall struct {
	// Name is printable ASCII without space and any of $()<>@,;:\"/[]?={}.
	Name string
	// Payload is JSON, or empty.
	Payload []byte
	// ResponseTimeout is how long the answer may take from the delivery on. Default:
	// [DefaultResponseTimeout].
	ResponseTimeout time.Duration
	// ConnectTimeout is how long the call waits for a device that is not there. Default: not at all.
	ConnectTimeout time.Duration
}

// MethodResult is the answer of a device.
type MethodResult struct {
	// Status is what the device chose.
	Status int
	// Payload is JSON, or empty.
	Payload []byte
}

// MethodRecord is a call and what has become of it.
type MethodRecord struct {
	// DeviceID and ModuleID name whom it was for. ModuleID is empty for the device itself.
	DeviceID, ModuleID string
	MethodCall
	// RequestID is the id under which it was sent, empty as long as it was not.
	RequestID string
	// Protocol and Connection tell on which connection that was.
	Protocol   Protocol
	Connection uint64
	// Deliveries is how often the request was put on the connection, more than once only by a fault.
	Deliveries int
	// Called, Delivered and Ended are times by the hub's clock. Delivered is that of the first
	// delivery, zero if there was none. Ended is zero while the call lasts.
	Called, Delivered, Ended time.Time
	// Result is the answer that counted, when the call has ended without Err.
	Result MethodResult
	Err    error
}

// AnswerFate says what became of an answer.
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

// MethodAnswer is an answer as it came from a client.
type MethodAnswer struct {
	// DeviceID and ModuleID name the client. ModuleID is empty for the device itself.
	DeviceID, ModuleID string
	RequestID          string
	MethodResult
	Fate AnswerFate
	// Protocol and Connection tell how it came, and Received when, by the hub's clock.
	Protocol   Protocol
	Connection uint64
	Received   time.Time
}

// methodCalls is what was called.
type methodCalls struct {
	mu      sync.Mutex // guards what follows and all calls; never held over a write or an event
	log     history[*methodCall]
	open    map[*methodCall]struct{} // those that have not ended
	named   map[callName]*methodCall // those in log, or not returned, that have a request id
	answers history[*MethodAnswer]
	count   uint64 // request ids so far
}

type callName struct {
	id  Identity
	rid string
}

// A methodCall is a call from its beginning on. Guarded by methodCalls.mu.
type methodCall struct {
	MethodRecord
	id    Identity
	to    *Conn         // the connection that it was sent on
	ended chan struct{} // closed when it has ended

	returned, forgotten bool // its caller has the result; it is not in the log any more
}

// CallMethod calls a direct method of a device, or of a module named "deviceID/moduleID", and waits
// for its answer. The client must have subscribed to methods over MQTT, or have both links for them
// over AMQP; the newest connection has the call. The error is a [*ServiceError]: its Code is 404103
// if nobody can take the call within the ConnectTimeout, and 504101 if there is no answer within
// the ResponseTimeout. It is the cause of the context if that ends before.
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

// releaseLocked lets go of the request id of a call that nobody can ask for any more.
func (m *methodCalls) releaseLocked(call *methodCall) {
	if call.returned && call.forgotten {
		delete(m.named, callName{call.id, call.RequestID})
	}
}

// checkCall says why a call cannot be made.
func (h *Hub) checkCall(id Identity, m MethodCall) error {
	if _, err := h.TwinState(id); err != nil { // of a device or module that does not exist
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

// perform delivers a call and waits for its end; it returns why it has ended without an answer.
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

// endCall ends a call that has not ended; false if it has.
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

// A MethodTarget is a client that takes calls.
type MethodTarget interface {
	// Request sends a request; false when the client cannot get it.
	Request(rid, name string, payload []byte) bool
	// NewID makes a request id of the n-th request, in the form that the protocol has.
	NewID(n uint64) string
	// OtherID makes another of the same form.
	OtherID(rid string) string
	Protocol() Protocol
	Client() *Conn
}

// methodTarget returns the client that takes calls of a method, the newest if there are several;
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

// deliverCall sends a call to who can take it; false when nobody can.
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

// takeMethod is take for faults that are about one method.
func (h *Hub) takeMethod(kind FaultKind, call *methodCall, c *Conn) *Injected {
	in := h.Faults.TakeIf(kind, call.id, func(f *Fault) bool { return f.Method == "" || f.Method == call.Name })
	if in != nil {
		h.HappenedTo(in, c, call.id)
	}
	return in
}

// sendCall puts a request on the connection; false when not even one could be. It counts first: who
// has a request finds it in the log.
func (h *Hub) sendCall(call *methodCall, to MethodTarget, rid string, payload []byte, times int) (sent bool) {
	defer func() {
		if sent { // else nothing has changed, and the caller, which waits for a change, would ask again at once
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

// Answered takes an answer of a client. What is wrong with it as a packet was found before.
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

// CutOnAnswer lets a fault cut the connection on which an answer comes, before that counts.
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

// judge says what becomes of an answer. The call is nil when there is none.
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

// noteAnswer decides the fate of an answer, unless that was done, and logs it. What is wrong with
// it, if anything, is in refused.
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

// DisplaceCalls ends the calls that were sent to an identity on a connection whose place another
// has taken.
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

// MethodLog is testbroker.Hub.MethodLog.
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

// MethodAnswers is testbroker.Hub.MethodAnswers.
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
