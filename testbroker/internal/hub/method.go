package hub

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

const defaultResponseTimeout = 30 * time.Second

// methodCalls holds the method calls.
type methodCalls struct {
	mu      sync.Mutex // guards the fields below and all calls; never held over a write or an event
	log     keep.History[*methodCall]
	open    map[*methodCall]struct{} // calls that have not ended
	named   map[callName]*methodCall // calls in log, or not returned, that have a request id
	answers keep.History[*hubdata.MethodAnswer]
	count   uint64 // request ids so far
}

type callName struct {
	id  identity.Identity
	rid string
}

// A methodCall is a call, open or ended. Guarded by methodCalls.mu.
type methodCall struct {
	hubdata.MethodRecord
	id    identity.Identity
	to    *Conn         // the connection that carried the request
	ended chan struct{} // closed when it has ended

	local bool // by a module of the gateway

	// Of a call about which the client is asked first; agreed is nil for others.
	payload []byte        // what the client gets when it has agreed
	agreed  chan struct{} // closed when it has agreed

	returned, forgotten bool // the caller has the result; the log has dropped the call
}

// InvokeMethod calls a method for a back end. An off-line gateway does not get the call.
func (h *Hub) InvokeMethod(ctx context.Context, who identity.Identity,
	m hubdata.MethodCall) (hubdata.MethodResult, error) {
	return h.invoke(ctx, who, m, false)
}

// InvokeLocal calls a method for a module of the gateway.
func (h *Hub) InvokeLocal(ctx context.Context, who identity.Identity,
	m hubdata.MethodCall) (hubdata.MethodResult, error) {
	return h.invoke(ctx, who, m, true)
}

func (h *Hub) invoke(
	ctx context.Context, who identity.Identity, m hubdata.MethodCall, local bool,
) (hubdata.MethodResult, error) {
	if err := h.checkCall(who, m); err != nil {
		return hubdata.MethodResult{}, err
	}
	if m.ResponseTimeout <= 0 {
		m.ResponseTimeout = defaultResponseTimeout
	}
	m.Payload = slices.Clone(m.Payload)
	call := &methodCall{
		MethodRecord: hubdata.MethodRecord{DeviceID: who.Device, ModuleID: who.Module, MethodCall: m, Called: h.Now()},
		id:           who, ended: make(chan struct{}), local: local,
	}
	h.calls.mu.Lock()
	if old, forgot := h.calls.log.Add(call); forgot {
		old.forgotten = true
		h.calls.releaseLocked(old)
	}
	h.calls.open[call] = struct{}{}
	h.calls.mu.Unlock()
	report := event.Event{Kind: event.MethodCalled, DeviceID: who.Device, ModuleID: who.Module, Name: m.Name}
	h.Event(report, nil)
	h.endCall(call, hubdata.MethodResult{}, h.perform(ctx, call)) // unless an answer has ended it
	h.calls.mu.Lock()
	result, err := hubdata.MethodResult{Status: call.Result.Status, Payload: slices.Clone(call.Result.Payload)}, call.Err
	call.returned = true
	h.calls.releaseLocked(call)
	h.calls.mu.Unlock()
	if err != nil {
		report.Kind, report.Err = event.MethodFailed, err
		h.Event(report, nil)
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
func (h *Hub) checkCall(id identity.Identity, m hubdata.MethodCall) error {
	if _, err := h.TwinState(id); err != nil { // the device or module does not exist
		return err
	}
	return h.CheckMethod(m)
}

// CheckMethod returns why a call is invalid for any device.
func (h *Hub) CheckMethod(m hubdata.MethodCall) error {
	switch {
	case !isMethodName(m.Name):
		return h.ServiceError(CodeArgumentInvalid, "method name %q", m.Name)
	case len(m.Payload) > hubdata.MaxMethodPayload:
		return h.ServiceError(codeMessageTooLarge, "payload of %d bytes, at most %d are allowed", len(m.Payload),
			hubdata.MaxMethodPayload)
	case len(m.Payload) > 0 && !document.Valid(m.Payload):
		return h.ServiceError(CodeArgumentInvalid, "payload that is not JSON in UTF-8")
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
	if err := h.Until(connect, func() bool { return h.deliverCall(call) }); err != nil {
		select {
		case <-h.Done:
			return ErrClosed
		default:
			return err
		}
	}
	if call.agreed != nil {
		// Decision: a device that does not answer the question counts as one that is not there.
		err := h.await(ctx, call, call.agreed, codeDeviceNotOnline, call.connectTimeout())
		if err != nil {
			return err
		}
	}
	return h.await(ctx, call, nil, codeGatewayTimeout, call.ResponseTimeout)
}

// await waits until a call has ended, or the client has agreed to it. late is the code of the error
// when neither happens in time.
func (h *Hub) await(
	ctx context.Context, call *methodCall, agreed <-chan struct{}, late int, limit time.Duration,
) error {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-call.ended:
		return nil
	case <-agreed:
		return nil
	case <-timeout.C:
		return h.ServiceError(late, "%s gave no answer within %s", call.id, limit)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-h.Done:
		return ErrClosed
	}
}

// endCall ends an open call; false if it has ended before.
func (h *Hub) endCall(call *methodCall, r hubdata.MethodResult, err error) bool {
	defer h.Changed.Wake()
	h.calls.mu.Lock()
	defer h.calls.mu.Unlock()
	return h.endCallLocked(call, r, err)
}

func (h *Hub) endCallLocked(call *methodCall, r hubdata.MethodResult, err error) bool {
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
	Request(r MethodRequest) bool
	// Asks reports whether the request only asks whether the client takes the call. Then [Hub.Agreed]
	// or [Hub.Declined] follows, and the call survives the connection.
	Asks() bool
	// NewID returns the request id of the n-th request in the protocol's form.
	NewID(n uint64) string
	// OtherID returns a different id of the same form.
	OtherID(rid string) string
	Protocol() hubdata.Protocol
	Client() *Conn
}

// A MethodRequest is what a client learns of a call.
type MethodRequest struct {
	ID, Name string
	Payload  []byte
	// ConnectTimeout is how long the client may take to agree, if it is asked; ResponseTimeout how
	// long to answer.
	ConnectTimeout, ResponseTimeout time.Duration
}

// methodTarget returns the client that accepts calls of a method, the newest if there are several;
// nil if there is none.
func (h *Hub) methodTarget(id identity.Identity, name string) MethodTarget {
	var to MethodTarget
	for _, f := range h.Fronts {
		if t := f.MethodTarget(id, name); t != nil && (to == nil || t.Client().Number > to.Client().Number) {
			to = t
		}
	}
	return to
}

// deliverCall sends a call to a client that accepts it; false when there is none.
func (h *Hub) deliverCall(call *methodCall) bool {
	to := h.methodTarget(call.id, call.Name)
	if to == nil || !call.local && h.Offline() {
		return false
	}
	c := to.Client()
	h.calls.mu.Lock()
	h.calls.count++
	rid := to.NewID(h.calls.count)
	h.calls.named[callName{call.id, rid}] = call
	call.RequestID, call.to = rid, c
	call.Protocol, call.Connection = to.Protocol(), c.Number
	if to.Asks() {
		call.agreed = make(chan struct{})
	}
	h.calls.mu.Unlock()

	take := func(kind fault.Kind) *faults.Injected { return h.takeMethod(kind, call, c) }
	if take(fault.DropBeforeMethod) != nil {
		c.CutBy(fault.DropBeforeMethod)
		return true
	}
	if in := take(fault.RefuseMethod); in != nil {
		h.endCall(call, hubdata.MethodResult{}, h.declared(&in.Fault))
		return true
	}
	if take(fault.SwallowMethod) != nil {
		return true
	}
	if take(fault.MisnameMethod) != nil {
		rid = to.OtherID(rid)
	}
	payload := call.Payload
	if in := take(fault.GarbleMethod); in != nil {
		payload = garbled(in)
	}
	h.calls.mu.Lock()
	call.payload = payload
	h.calls.mu.Unlock()
	times := 1
	if take(fault.DuplicateMethod) != nil {
		times = 2
	}
	if in := take(fault.SlowMethod); in != nil {
		h.Later(in.Fault.Delay, c.Closed, func() { h.sendCall(call, to, rid, payload, times) })
		return true
	}
	if !h.sendCall(call, to, rid, payload, times) {
		h.calls.mu.Lock()
		delete(h.calls.named, callName{call.id, call.RequestID})
		call.RequestID, call.to, call.agreed, call.Protocol, call.Connection = "", nil, nil, 0, 0
		h.calls.mu.Unlock()
		return false
	}
	if take(fault.DropAfterMethod) != nil {
		c.CloseGracefully(FaultError(fault.DropAfterMethod))
	}
	return true
}

// takeMethod is Hub.Strike for faults of one method.
func (h *Hub) takeMethod(kind fault.Kind, call *methodCall, c *Conn) *faults.Injected {
	return h.Strike(kind, call.id, c, func(f *fault.Fault) bool { return f.Method == "" || f.Method == call.Name })
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
		if to.Request(MethodRequest{rid, call.Name, payload, call.connectTimeout(), call.ResponseTimeout}) {
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

// connectTimeout is how long a client may take to agree to a call.
func (call *methodCall) connectTimeout() time.Duration {
	return cmp.Or(max(call.ConnectTimeout, 0), defaultResponseTimeout)
}

// Agreed notes that a client agrees to a call, and returns what it gets now; false when there is no
// such call, or it has ended, or a client has agreed before.
func (h *Hub) Agreed(id identity.Identity, rid string) (r MethodRequest, ok bool) {
	h.calls.mu.Lock()
	defer h.calls.mu.Unlock()
	call := h.calls.named[callName{id, rid}]
	if call == nil || call.agreed == nil || !call.Ended.IsZero() || call.hasAgreed() {
		return r, false
	}
	close(call.agreed)
	return MethodRequest{ID: rid, Name: call.Name, Payload: call.payload, ResponseTimeout: call.ResponseTimeout}, true
}

func (call *methodCall) hasAgreed() bool {
	select {
	case <-call.agreed:
		return true
	default:
		return false
	}
}

// Declined ends a call that a client does not take, or gives up after it has agreed. It is ignored
// if there is no such call, or the client has agreed and does not give up.
func (h *Hub) Declined(id identity.Identity, rid string, why Decline, text string, givesUp bool) {
	h.calls.mu.Lock()
	call := h.calls.named[callName{id, rid}]
	ends := call != nil && call.agreed != nil && (givesUp || !call.hasAgreed())
	h.calls.mu.Unlock()
	if ends {
		h.endCall(call, hubdata.MethodResult{}, h.ServiceError(int(why), "%s: %s", id, text))
	}
}

// A Decline is why a client does not take a call, as the code that the caller gets.
type Decline int

// Decision: the service does not document what the caller gets.
const (
	DeclinedUnknown Decline = codeBadDeviceResponse // the client has no such method
	DeclinedTime    Decline = codeGatewayTimeout    // the time is too short, or over
	DeclinedBusy    Decline = codeThrottled
)

// Answered handles an answer of a client. Its packet was checked before.
func (h *Hub) Answered(c *Conn, a hubdata.MethodAnswer) {
	a.Connection = c.Number
	id := identity.Identity{Device: a.DeviceID, Module: a.ModuleID}
	h.calls.mu.Lock()
	call := h.calls.named[callName{id, a.RequestID}]
	h.calls.mu.Unlock()
	drop := (*faults.Injected)(nil)
	if call != nil {
		if !call.local && h.Offline() || h.takeMethod(fault.SwallowMethodAnswer, call, c) != nil {
			a.Fate = hubdata.AnswerLost
		} else if in := h.takeMethod(fault.SlowMethodAnswer, call, c); in != nil {
			h.Later(in.Fault.Delay, nil, func() { h.judge(c, call, a) })
			return
		}
		drop = h.takeMethod(fault.DropAfterMethodAnswer, call, c)
	}
	h.judge(c, call, a)
	if drop != nil {
		c.CutFor(FaultError(fault.DropAfterMethodAnswer))
	}
}

// CutOnAnswer applies the fault that cuts the connection of an answer before the answer counts.
func (h *Hub) CutOnAnswer(c *Conn, a hubdata.MethodAnswer) bool {
	h.calls.mu.Lock()
	call := h.calls.named[callName{identity.Identity{Device: a.DeviceID, Module: a.ModuleID}, a.RequestID}]
	h.calls.mu.Unlock()
	if call == nil || h.takeMethod(fault.DropOnMethodAnswer, call, c) == nil {
		return false
	}
	a.Fate = hubdata.AnswerLost
	a.Connection = c.Number
	h.judge(c, call, a)
	c.CutFor(FaultError(fault.DropOnMethodAnswer))
	return true
}

// judge decides how to treat an answer. call is nil when there is no such call.
func (h *Hub) judge(c *Conn, call *methodCall, a hubdata.MethodAnswer) {
	defer h.Changed.Wake()
	a.Received = h.Now()
	if len(a.Payload) == 0 {
		a.Payload = nil
	}
	var refused error
	switch {
	case len(a.Payload) > hubdata.MaxMethodPayload:
		refused = h.ServiceError(codeMessageTooLarge, "answer of %d bytes, at most %d are allowed", len(a.Payload),
			hubdata.MaxMethodPayload)
	case len(a.Payload) > 0 && !document.Valid(a.Payload):
		refused = h.ServiceError(codeBadDeviceResponse, "answer that is not JSON in UTF-8")
	}
	h.noteAnswer(c, call, &a, refused)
	report := event.Event{Kind: event.MethodAnswered, DeviceID: a.DeviceID, ModuleID: a.ModuleID, Detail: a.Fate.String(),
		Status: a.Status, Protocol: a.Protocol}
	if call != nil {
		report.Name = call.Name
	}
	h.Event(report, c)
}

// DisplaceCalls ends the open calls that were sent to an identity on a connection that another has
// replaced.
func (h *Hub) DisplaceCalls(c *Conn, id identity.Identity) {
	err := h.ServiceError(codeDisplaced, "a newer connection of the device has closed the one that had the request")
	h.calls.mu.Lock()
	defer h.Changed.Wake()
	defer h.calls.mu.Unlock()
	for call := range h.calls.open {
		if call.to == c && call.id == id && call.agreed == nil {
			h.endCallLocked(call, hubdata.MethodResult{}, err)
		}
	}
}
