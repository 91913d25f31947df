package web

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// meant reports whether a fault selects requests of this kind.
func (q *Request) meant(f *fault.Fault) bool {
	operation := fault.BlobAny
	if q.route.Blob != nil {
		operation = q.route.Blob(q)
	}
	if f.Blob != fault.BlobAny && f.Blob != operation {
		return false
	}
	return f.Route == q.route.Kind || f.Route == fault.RouteAny && !backEnds(q.route.Kind)
}

// TakeRoute is hub.Faults.Take for faults of one kind of requests.
func (q *Request) TakeRoute(kind fault.Kind) *faults.Injected {
	return q.Hub.Faults.TakeIf(kind, q.ID, q.meant)
}

// Fault is hub.Strike for faults of the identity.
func (q *Request) Fault(kind fault.Kind) *faults.Injected { return q.Hub.Strike(kind, q.ID, q.C, nil) }

func (q *Request) Happened(in *faults.Injected) { q.Hub.HappenedTo(in, q.C, q.ID) }

// Cut resets the connection instead of answering, because of a fault.
func (q *Request) Cut(in *faults.Injected) Answer {
	q.Happened(in)
	q.C.CutFor(hub.FaultError(in.Fault.Kind))
	return Answer{Delivery: DeliverNothing}
}

// Mute leaves the request unanswered, because of a fault. The connection stays open.
func (q *Request) Mute(in *faults.Injected) Answer {
	q.Happened(in)
	q.Hang()
	return Answer{Delivery: DeliverNothing}
}

// before applies the faults that happen before the hub checks more than the stated identity; false
// when there are none.
func (q *Request) before() (Answer, bool) {
	if !backEnds(q.route.Kind) {
		if a, over := q.gone(); over {
			return a, true
		}
		if a, over := q.firstFaults(); over {
			return a, true
		}
	}
	if in := q.TakeRoute(fault.ResetBeforeRequest); in != nil {
		return q.Cut(in), true
	}
	if in := q.TakeRoute(fault.AnswerStatus); in != nil {
		if status := q.Hub.Faults.NextStatus(in); status != 0 {
			q.Happened(in)
			return q.scripted(in, status), true
		}
	}
	if throttle := q.Hub.Faults.InForceIf(fault.Throttle, q.ID, q.meant); throttle != nil {
		if wait := q.Hub.Faults.Early(throttle); wait > 0 {
			q.Happened(throttle)
			a := q.Fail(Errorf(429001, "too many requests"))
			q.retryAfter(&a, &throttle.Fault, wait)
			return a, true
		}
	}
	return Answer{}, false
}

// gone applies the faults that make the hub unreachable.
func (q *Request) gone() (Answer, bool) {
	h := q.Hub
	if in := h.Faults.InForce(fault.Absent, q.ID); in != nil {
		return q.Cut(in), true
	}
	if in := h.Faults.InForce(fault.HalfOpen, q.ID); in != nil {
		if q.C.Silence() {
			q.Happened(in)
		}
		return Answer{Delivery: DeliverNothing}, true
	}
	if o, ok := h.Requests.Stands(q.ID, func(o faults.Standing) bool { return o.Cut }); ok {
		q.C.CutFor(o.Cause())
		return Answer{Delivery: DeliverNothing}, true
	}
	return Answer{}, false
}

// firstFaults applies the faults of a connect to the first request of a device on a connection.
// After a refusal the next request counts as the first again. Identities that are not registered
// are not remembered.
func (q *Request) firstFaults() (Answer, bool) {
	h, a := q.Hub, q.Conn
	a.mu.Lock()
	_, met := a.met[q.ID]
	a.mu.Unlock()
	if met || q.ID == (identity.Identity{}) {
		return Answer{}, false
	}
	if q.Fault(fault.DropConnect) != nil {
		q.C.CloseFor(hub.FaultError(fault.DropConnect))
		return Answer{Delivery: DeliverNothing}, true
	}
	if in := h.Faults.Take(fault.SwallowConnack, q.ID); in != nil {
		return q.Mute(in), true
	}
	if in := q.Fault(fault.RefuseConnect); in != nil {
		return q.scripted(in, in.Fault.Status), true
	}
	if in := q.Fault(fault.SlowConnack); in != nil && !q.Sleep(in.Fault.Delay) {
		return Answer{Delivery: DeliverNothing}, true
	}
	if h.Registered(q.ID) {
		a.mu.Lock()
		a.met[q.ID] = struct{}{}
		a.mu.Unlock()
	}
	return Answer{}, false
}

// after applies the faults that happen after a request was handled.
func (q *Request) after(a Answer) Answer {
	if a.Delivery == DeliverNothing {
		return a
	}
	if in := q.TakeRoute(fault.ResetAfterRequest); in != nil {
		return q.Cut(in)
	}
	if in := q.TakeRoute(fault.SwallowAnswer); in != nil {
		return q.Mute(in)
	}
	if in := q.TakeRoute(fault.AnswerStatusAfter); in != nil {
		if status := q.Hub.Faults.NextStatus(in); status != 0 {
			q.Happened(in)
			a = q.scripted(in, status)
		}
	}
	if in := q.TakeRoute(fault.WrongDate); in != nil {
		q.Happened(in)
		a.skew = in.Fault.Skew
	}
	if a.Delivery != deliverPlain {
		return a
	}
	for _, f := range []struct {
		kind fault.Kind
		way  Delivery
		body bool // needs a body
	}{
		{fault.DropDuringAnswer, deliverHalf, false}, {fault.SlowAnswer, deliverSlowly, false},
		{fault.GarbageAnswer, deliverGarbage, false},
		{fault.NoContentLength, deliverWithoutLength, true},
	} {
		if f.body && len(a.Body) == 0 {
			continue
		}
		if in := q.TakeRoute(f.kind); in != nil {
			a.Delivery, a.Fault = f.way, in
			break
		}
	}
	return a
}

// scripted returns the answer with a fault's status.
func (q *Request) scripted(in *faults.Injected, status int) Answer {
	a := Answer{Status: status}
	if status >= 400 {
		code := in.Fault.ErrorCode
		if code == 0 {
			code = hub.CommonCode(status)
		}
		a = q.Fail(Errorf(code, "%s", cmp.Or(in.Fault.Description, "fault "+in.Fault.Kind.String())))
		a.Status = status
	}
	if in.Fault.RetryAfter > 0 {
		q.retryAfter(&a, &in.Fault, in.Fault.RetryAfter)
	}
	return a
}

// retryAfter sets Retry-After: in whole seconds, or as a date of the hub's clock.
func (q *Request) retryAfter(a *Answer, f *fault.Fault, wait time.Duration) {
	wait = wait.Truncate(time.Second) + ceil(wait)
	value := strconv.Itoa(int(wait / time.Second))
	if f.RetryAfterDate || q.Hub.HTTP.RetryAfterDate {
		at := q.Hub.Now().UTC()
		value = at.Add(wait + ceil(time.Duration(at.Nanosecond()))).Format(http.TimeFormat)
	}
	if a.Header == nil {
		a.Header = make(http.Header)
	}
	a.Header.Set("Retry-After", value)
}

// ceil returns the second to add when d is rounded up.
func ceil(d time.Duration) time.Duration {
	if d%time.Second > 0 {
		return time.Second
	}
	return 0
}
