package hub

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// MaxRequestID bounds a request id over MQTT in bytes. It becomes part of the topic of the answer.
const MaxRequestID = 1024

// A twinAsker is a client that has sent a twin request.
type twinAsker interface {
	// Answer puts an answer on the connection; false when it cannot be sent. If wrong is set, the
	// answer has the id of another request.
	Answer(a TwinAnswer, wrong bool) bool
	// Taken acknowledges the client's request; false when its connection ends with that.
	Taken() bool
	// Listen begins or ends notifications of desired properties.
	Listen(on bool)
	// Client returns the client's connection.
	Client() *Conn
}

type TwinAnswer struct {
	Status     int
	Version    int64 // zero = none
	RetryAfter time.Duration
	Body       []byte
	Garbled    bool // Body is that of the fault GarbleTwin
	TooLarge   bool // the twin would be too large, which has no status of its own
}

// A twinCase is a twin request in progress.
type twinCase struct {
	hub *Hub
	by  twinAsker
	t   *TwinState
	r   *hubdata.TwinRequest // guarded by t.mu
	id  identity.Identity
	op  hubdata.TwinOperation
}

// take is Hub.Strike for faults of one operation.
func (q *twinCase) take(kind fault.Kind) *faults.Injected {
	return q.hub.Strike(kind, q.id, q.by.Client(),
		func(f *fault.Fault) bool { return f.Operation == hubdata.TwinAny || f.Operation == q.op })
}

// AskTwin handles a request and answers it, unless a fault intervenes. wrong says why the request
// is malformed, if it is.
func (h *Hub) AskTwin(by twinAsker, r hubdata.TwinRequest, wrong error) {
	r.Received, r.Connection = h.Now(), by.Client().Number
	q := &twinCase{hub: h, by: by, r: &r, id: identity.Identity{Device: r.DeviceID, Module: r.ModuleID}, op: r.Operation}
	t, err := h.TwinState(q.id)
	if err != nil { // removed meanwhile
		by.Answer(h.refusal(err), false)
		return
	}
	q.t = t
	t.mu.Lock()
	t.requests.Add(q.r)
	t.mu.Unlock()
	defer h.Changed.Wake()
	if q.take(fault.DropBeforeTwin) != nil {
		by.Client().CutFor(FaultError(fault.DropBeforeTwin))
		return
	}
	if !by.Taken() {
		return
	}
	a := q.decide(wrong)
	h.Records.Saved()
	t.mu.Lock()
	r.Status, r.Version = a.Status, a.Version
	t.mu.Unlock()
	h.Event(event.Event{
		Kind: event.TwinRequested, DeviceID: r.DeviceID, ModuleID: r.ModuleID, Detail: r.Operation.String(), Status: a.Status,
		Version: a.Version, Protocol: r.Protocol,
	}, by.Client())
	q.deliver(a)
}

// decide executes the request, unless a fault refuses it.
func (q *twinCase) decide(wrong error) TwinAnswer {
	h := q.hub
	if in := q.take(fault.RefuseTwin); in != nil {
		a := h.refusal(h.declared(&in.Fault))
		a.RetryAfter = in.Fault.RetryAfter
		return a
	}
	if in := h.Faults.InForce(fault.Throttle, q.id); in != nil {
		h.HappenedTo(in, q.by.Client(), q.id)
		return h.refusal(h.ServiceError(codeThrottled, "%s", FaultError(fault.Throttle)))
	}
	if wrong != nil {
		return h.refusal(wrong)
	}
	switch q.op {
	case hubdata.TwinGet:
		return TwinAnswer{Status: 200, Body: q.t.document()}
	case hubdata.TwinPatch:
		version, err := h.report(q.t, q.r.Body, q.r.Base)
		if err != nil {
			return h.refusal(err)
		}
		return TwinAnswer{Status: 204, Version: version}
	case hubdata.TwinAny, hubdata.TwinSubscribe, hubdata.TwinUnsubscribe:
	}
	q.by.Listen(q.op == hubdata.TwinSubscribe)
	return TwinAnswer{Status: 200}
}

func (h *Hub) refusal(err error) TwinAnswer {
	var e *hubdata.ServiceError
	if !errors.As(err, &e) {
		e = h.ServiceError(CodeServerError, "%v", err)
	}
	return TwinAnswer{Status: e.Status(), Body: h.errorBody(e), TooLarge: errors.Is(err, document.ErrTooLarge)}
}

// deliver sends an answer, subject to faults.
func (q *twinCase) deliver(a TwinAnswer) {
	if q.take(fault.DropAfterTwin) != nil {
		q.by.Client().CutFor(FaultError(fault.DropAfterTwin))
		return
	}
	if q.take(fault.SwallowTwin) != nil {
		return
	}
	if in := q.take(fault.GarbleTwin); in != nil {
		a.Body, a.Garbled = garbled(in), true
	}
	wrong := q.take(fault.MisnameTwin) != nil
	times := 1
	if q.take(fault.DuplicateTwin) != nil {
		times = 2
	}
	if in := q.take(fault.SlowTwin); in != nil {
		q.hub.Later(in.Fault.Delay, q.by.Client().Closed, func() {
			q.answer(a, wrong, times)
			q.hub.Changed.Wake()
		})
		return
	}
	q.answer(a, wrong, times)
}

// answer sends an answer times times. It counts before sending, so that a client with an answer
// finds it in the log.
func (q *twinCase) answer(a TwinAnswer, wrong bool, times int) {
	for range times {
		q.count(1)
		if !q.by.Answer(a, wrong) {
			q.count(-1)
			return
		}
	}
}

func (q *twinCase) count(n int) {
	q.t.mu.Lock()
	defer q.t.mu.Unlock()
	q.r.Answers += n
}

// garbled returns the body of the fault GarbleTwin.
func garbled(in *faults.Injected) []byte {
	if in.Fault.Bytes != nil {
		return in.Fault.Bytes
	}
	return []byte(`{"desired":`)
}

// A DesiredListener is a client that receives changes of desired properties.
type DesiredListener interface {
	Tell(Change)
	Client() *Conn
}

// tellChange notifies all listeners of a change, unless faults intervene.
func (h *Hub) tellChange(id identity.Identity, ch Change) {
	for _, l := range h.desiredListeners(id) {
		take := func(kind fault.Kind) *faults.Injected { return h.Strike(kind, id, l.Client(), nil) }
		if take(fault.SwallowDesired) != nil {
			continue
		}
		times := 1
		if take(fault.DuplicateDesired) != nil {
			times = 2
		}
		if in := take(fault.SlowDesired); in != nil {
			h.Later(in.Fault.Delay, l.Client().Closed, func() { l.Tell(ch) })
			continue
		}
		for range times {
			l.Tell(ch)
		}
		if take(fault.DropAfterDesired) != nil {
			l.Client().CloseGracefully(FaultError(fault.DropAfterDesired))
		}
	}
}

// desiredListeners returns the present listeners: over MQTT the present connection, over AMQP every
// pair of links that has subscribed.
func (h *Hub) desiredListeners(id identity.Identity) []DesiredListener {
	var all []DesiredListener
	for _, p := range [...]hubdata.Protocol{hubdata.MQTT, hubdata.AMQP, hubdata.HTTP} {
		all = append(all, h.Fronts[p].DesiredListeners(id)...)
	}
	return all
}
