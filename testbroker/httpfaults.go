package testbroker

import (
	"cmp"
	"net/http"
	"strconv"
	"time"
)

// meant says whether a fault is about requests of this kind.
func (q *httpRequest) meant(f *Fault) bool {
	operation := BlobAny
	if q.route.blob != nil {
		operation = q.route.blob(q)
	}
	if f.Blob != BlobAny && f.Blob != operation {
		return false
	}
	return f.Route == q.route.kind || f.Route == RouteAny && !q.route.kind.backEnds()
}

// takeRoute is take for faults that are about requests of one kind.
func (q *httpRequest) takeRoute(kind FaultKind) *Injected {
	return q.hub.faults.takeIf(kind, q.id, q.meant)
}

func (q *httpRequest) happened(in *Injected) { q.hub.happenedTo(in, q.c, q.id) }

// cut resets the connection instead of answering, because of a fault.
func (q *httpRequest) cut(in *Injected) httpAnswer {
	q.happened(in)
	q.c.cutFor(faultError(in.fault.Kind))
	return httpAnswer{way: wayNone}
}

// mute never answers, because of a fault. The connection lives on.
func (q *httpRequest) mute(in *Injected) httpAnswer {
	q.happened(in)
	q.hang()
	return httpAnswer{way: wayNone}
}

// before lets the faults have their way that happen to a request before anything is known but whose
// it says it is; false when there are none and it is to be dealt with.
func (q *httpRequest) before() (httpAnswer, bool) {
	if !q.route.kind.backEnds() {
		if a, over := q.gone(); over {
			return a, true
		}
		if a, over := q.firstFaults(); over {
			return a, true
		}
	}
	if in := q.takeRoute(ResetBeforeRequest); in != nil {
		return q.cut(in), true
	}
	if in := q.takeRoute(AnswerStatus); in != nil {
		if status := q.hub.faults.script(in); status != 0 {
			q.happened(in)
			return q.scripted(in, status), true
		}
	}
	if throttle := q.hub.faults.inForceIf(Throttle, q.id, q.meant); throttle != nil {
		if wait := q.hub.faults.early(throttle); wait > 0 {
			q.happened(throttle)
			a := q.fail(httpErrorf(429001, "too many requests"))
			q.retryAfter(&a, &throttle.fault, wait)
			return a, true
		}
	}
	return httpAnswer{}, false
}

// gone lets the faults have their way that make the hub unreachable.
func (q *httpRequest) gone() (httpAnswer, bool) {
	h := q.hub
	if in := h.faults.inForce(Absent, q.id); in != nil {
		return q.cut(in), true
	}
	if in := h.faults.inForce(HalfOpen, q.id); in != nil {
		if q.c.silence() {
			q.happened(in)
		}
		return httpAnswer{way: wayNone}, true
	}
	if o, ok := h.stands(q.id, func(o standingOrder) bool { return o.cut }); ok {
		q.c.cutFor(orderError{o.name, o.record.Reason})
		return httpAnswer{way: wayNone}, true
	}
	return httpAnswer{}, false
}

// firstFaults lets faults of a connect have their way with the first request of a device on a
// connection. One that is refused is no first request: the next is. Who is not in the registry is
// not kept in mind.
func (q *httpRequest) firstFaults() (httpAnswer, bool) {
	h, a := q.hub, q.conn
	h.mu.Lock()
	_, met := a.met[q.id]
	h.mu.Unlock()
	if met || q.id == (identity{}) {
		return httpAnswer{}, false
	}
	if in := h.faults.take(DropConnect, q.id); in != nil {
		q.happened(in)
		q.c.closeFor(faultError(DropConnect))
		return httpAnswer{way: wayNone}, true
	}
	if in := h.faults.take(NoConnack, q.id); in != nil {
		return q.mute(in), true
	}
	if in := h.faults.take(RefuseConnect, q.id); in != nil {
		q.happened(in)
		return q.scripted(in, in.fault.Status), true
	}
	if in := h.faults.take(SlowConnack, q.id); in != nil {
		q.happened(in)
		if !q.sleep(in.fault.Delay) {
			return httpAnswer{way: wayNone}, true
		}
	}
	h.mu.Lock()
	if h.registry[q.id] != nil {
		a.met[q.id] = struct{}{}
	}
	h.mu.Unlock()
	return httpAnswer{}, false
}

// after lets the faults have their way that happen when a request was dealt with.
func (q *httpRequest) after(a httpAnswer) httpAnswer {
	if a.way == wayNone {
		return a
	}
	if in := q.takeRoute(ResetAfterRequest); in != nil {
		return q.cut(in)
	}
	if in := q.takeRoute(NoAnswer); in != nil {
		return q.mute(in)
	}
	if in := q.takeRoute(AnswerStatusAfter); in != nil {
		if status := q.hub.faults.script(in); status != 0 {
			q.happened(in)
			a = q.scripted(in, status)
		}
	}
	if in := q.takeRoute(WrongDate); in != nil {
		q.happened(in)
		a.skew = in.fault.Skew
	}
	if a.way != wayPlain {
		return a
	}
	for _, f := range []struct {
		kind FaultKind
		way  httpWay
		body bool // it needs one
	}{
		{DropDuringAnswer, wayTorn, false}, {SlowAnswer, waySlow, false}, {GarbageAnswer, wayGarbage, false},
		{NoContentLength, wayBare, true},
	} {
		if f.body && len(a.body) == 0 {
			continue
		}
		if in := q.takeRoute(f.kind); in != nil {
			a.way, a.fault = f.way, in
			break
		}
	}
	return a
}

// scripted is the answer with a status that a fault wants.
func (q *httpRequest) scripted(in *Injected, status int) httpAnswer {
	a := httpAnswer{status: status}
	if status >= 400 {
		code := in.fault.ErrorCode
		if code == 0 {
			code = commonCode(status)
		}
		a = q.fail(httpErrorf(code, "%s", cmp.Or(in.fault.Description, "fault "+in.fault.Kind.String())))
		a.status = status
	}
	if in.fault.RetryAfter > 0 {
		q.retryAfter(&a, &in.fault, in.fault.RetryAfter)
	}
	return a
}

// retryAfter says when the client may come again: in whole seconds, or at a date by the hub's
// clock.
func (q *httpRequest) retryAfter(a *httpAnswer, f *Fault, wait time.Duration) {
	wait = wait.Truncate(time.Second) + ceil(wait)
	value := strconv.Itoa(int(wait / time.Second))
	if f.RetryAfterDate || q.hub.http.RetryAfterDate {
		at := q.hub.now().UTC()
		value = at.Add(wait + ceil(time.Duration(at.Nanosecond()))).Format(http.TimeFormat)
	}
	if a.header == nil {
		a.header = make(http.Header)
	}
	a.header.Set("Retry-After", value)
}

// ceil is the second that a part of one counts for.
func ceil(d time.Duration) time.Duration {
	if d%time.Second > 0 {
		return time.Second
	}
	return 0
}

// script returns the next status of a list, round and round; zero lets the request pass.
func (f *faults) script(in *Injected) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	status := in.fault.Statuses[in.step%len(in.fault.Statuses)]
	in.step++
	return status
}

// early returns how long before its time a request comes; zero, when it comes in time, and the next
// has a time to keep.
func (f *faults) early(in *Injected) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if in.next.After(now) {
		return in.next.Sub(now)
	}
	in.next = now.Add(time.Duration(float64(time.Second) / in.fault.Rate))
	return 0
}
