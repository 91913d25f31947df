package testbroker

import (
	"errors"
	"time"
)

// A twinAsker is a client that has asked about its twin.
type twinAsker interface {
	// answer puts an answer on the connection; false when the client cannot get it. It is for another
	// request if wrong is set.
	answer(a twinAnswer, wrong bool) bool
	// taken tells the client that its request has arrived; false when its connection ends with that.
	taken() bool
	// listen begins or ends notifications of desired properties.
	listen(on bool)
	// client is its connection.
	client() *conn
}

type twinAnswer struct {
	status     int
	version    int64 // zero = none
	retryAfter time.Duration
	body       []byte
}

// A twinCase is a request while it is dealt with.
type twinCase struct {
	hub *Hub
	by  twinAsker
	t   *twin
	r   *TwinRequest // guarded by t.mu
	id  identity
	op  TwinOperation
}

// takeTwin is take for faults that are about one operation.
func (q *twinCase) take(kind FaultKind) *Injected {
	in := q.hub.faults.takeIf(kind, q.id, func(f *Fault) bool { return f.Operation == TwinAny || f.Operation == q.op })
	if in != nil {
		q.hub.happenedTo(in, q.by.client(), q.id)
	}
	return in
}

// askTwin deals with a request and answers it, unless a fault has it otherwise. Why a request
// cannot be one, if that is so, is told by wrong.
func (h *Hub) askTwin(by twinAsker, r TwinRequest, wrong error) {
	r.Received, r.Connection = h.now(), by.client().number
	q := &twinCase{hub: h, by: by, r: &r, id: identity{r.DeviceID, r.ModuleID}, op: r.Operation}
	t, err := h.twin(q.id)
	if err != nil { // removed a moment ago
		by.answer(h.refusal(err), false)
		return
	}
	q.t = t
	t.mu.Lock()
	t.requests.add(q.r)
	t.mu.Unlock()
	defer h.changed.wake()
	if q.take(DropBeforeTwin) != nil {
		by.client().cutFor(faultError(DropBeforeTwin))
		return
	}
	if !by.taken() {
		return
	}
	a := q.decide(wrong)
	t.mu.Lock()
	r.Status, r.Version = a.status, a.version
	t.mu.Unlock()
	h.event(Event{
		Kind: TwinRequested, DeviceID: r.DeviceID, ModuleID: r.ModuleID, Detail: r.Operation.String(), Status: a.status,
		Version: a.version, Protocol: r.Protocol,
	}, by.client())
	q.deliver(a)
}

// decide does what is asked, unless a fault refuses it.
func (q *twinCase) decide(wrong error) twinAnswer {
	h := q.hub
	if in := q.take(RefuseTwin); in != nil {
		a := h.refusal(h.declared(&in.fault))
		a.retryAfter = in.fault.RetryAfter
		return a
	}
	if in := h.faults.inForce(Throttle, q.id); in != nil {
		h.happenedTo(in, q.by.client(), q.id)
		return h.refusal(h.serviceError(codeThrottled, "%s", faultError(Throttle)))
	}
	if wrong != nil {
		return h.refusal(wrong)
	}
	switch q.op {
	case TwinGet:
		return twinAnswer{status: 200, body: q.t.document()}
	case TwinPatch:
		version, err := h.report(q.t, q.r.Body, q.r.Base)
		if err != nil {
			return h.refusal(err)
		}
		return twinAnswer{status: 204, version: version}
	}
	q.by.listen(q.op == TwinSubscribe)
	return twinAnswer{status: 200}
}

func (h *Hub) refusal(err error) twinAnswer {
	var e *ServiceError
	if !errors.As(err, &e) {
		e = h.serviceError(codeServerError, "%v", err)
	}
	return twinAnswer{status: e.Status(), body: h.errorBody(e)}
}

// deliver sends an answer in the way that faults want.
func (q *twinCase) deliver(a twinAnswer) {
	if q.take(DropAfterTwin) != nil {
		q.by.client().cutFor(faultError(DropAfterTwin))
		return
	}
	if q.take(SwallowTwin) != nil {
		return
	}
	if in := q.take(GarbleTwin); in != nil {
		a.body = garbled(in)
	}
	wrong := q.take(MisnameTwin) != nil
	times := 1
	if q.take(DuplicateTwin) != nil {
		times = 2
	}
	if in := q.take(SlowTwin); in != nil {
		q.hub.later(in.fault.Delay, q.by.client().closed, func() {
			q.answer(a, wrong, times)
			q.hub.changed.wake()
		})
		return
	}
	q.answer(a, wrong, times)
}

// answer counts first: who has an answer finds it in the log.
func (q *twinCase) answer(a twinAnswer, wrong bool, times int) {
	for range times {
		q.count(1)
		if !q.by.answer(a, wrong) {
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

// garbled is the body that a fault has instead of the right one.
func garbled(in *Injected) []byte {
	if in.fault.Bytes != nil {
		return in.fault.Bytes
	}
	return []byte(`{"desired":`)
}

// A desiredListener is a client that is told of changes of desired properties.
type desiredListener interface {
	tell(change)
	client() *conn
}

// tellChange tells all who listen of a change, unless faults have it otherwise.
func (h *Hub) tellChange(id identity, ch change) {
	for _, l := range h.desiredListeners(id) {
		take := func(kind FaultKind) *Injected {
			in := h.faults.take(kind, id)
			if in != nil {
				h.happenedTo(in, l.client(), id)
			}
			return in
		}
		if take(SwallowDesired) != nil {
			continue
		}
		times := 1
		if take(DuplicateDesired) != nil {
			times = 2
		}
		if in := take(SlowDesired); in != nil {
			h.later(in.fault.Delay, l.client().closed, func() { l.tell(ch) })
			continue
		}
		for range times {
			l.tell(ch)
		}
		if take(DropAfterDesired) != nil {
			l.client().farewell(faultError(DropAfterDesired))
		}
	}
}

// desiredListeners returns who listens now: over MQTT the present connection, over AMQP every pair
// of links that asked.
func (h *Hub) desiredListeners(id identity) []desiredListener {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []desiredListener
	for _, p := range [...]Protocol{MQTT, AMQP, HTTP} {
		all = append(all, h.fronts[p].desiredListenersLocked(id)...)
	}
	return all
}
