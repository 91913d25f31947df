package device

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// twinPlaces is the maximum number of pending twin calls.
const twinPlaces = 16

// twin is the feature for the twin: calls that wait for an answer, and changes of the desired
// properties. It is a monitor like the outbox. Only the loop hands calls to the session and asks
// policies about them.
//
//	queued -> in flight -> answered -> settling -> gone
//	   ^        |           | failed, to be repeated
//	   |        v           v
//	   +-- session over   waiting
type twin struct {
	c       *Client
	places  chan struct{} // one for each call of GetTwin, PatchReported or PatchReportedIf
	changes *desired      // nil until HandleDesired

	mu    sync.Mutex
	calls []*twinCall // in order of arrival
	id    uint32
	down  *transport.Error // why calls are refused; nil while the client is open
	ended bool             // Close was called
	known bool             // sessions carry twins, as far as known

	left   []*twinCall // in flight or answered when their callers gave up; to be reported to the policy
	unmade []*twinCall // ended while a retry that the policy charged for may have been pending

	turn []*twinCall // buffer of serve
}

// twinCall is one call. Only the loop changes its state from queued, answered, settling and
// waiting.
type twinCall struct {
	request transport.Request
	done    func(transport.Reply) // called once, mu held
	state   callState
	handed  bool // the hub may have it: it or an earlier try was handed over and not answered
	doubt   bool // value of handed before the latest try
	answer  transport.Reply
	sent    time.Time
	since   time.Time // of the first failure
	retry   int
	last    retrypolicy.Decision
	asked   question
	until   time.Time // end of the wait: for a retry, or for the gate
	under   *policies // the policies whose gate was asked last
}

type callState uint8

const (
	callQueued callState = iota
	callInFlight
	callAnswered
	callSettling // the loop handles the answer
	callWaiting
	callGone
)

// twinFeature returns the client's twin, and adds it to the client at the first call.
func (c *Client) twinFeature() *twin {
	c.mu.Lock()
	if c.twin == nil {
		c.twin = &twin{c: c, places: make(chan struct{}, twinPlaces), id: firstID}
		c.addFeatureLocked(c.twin.feature())
	}
	t := c.twin
	c.mu.Unlock()
	return t
}

func (t *twin) feature() *feature {
	return &feature{wants: t.wants, refused: t.refused, begin: t.begin, serve: t.serve, busy: t.busy, over: t.over,
		resume: t.resume, halt: t.halt, end: t.end, reply: t.reply, deliver: t.deliver, fill: t.fill}
}

// closed returns why calls are refused, nil if they are not.
func (t *twin) closed(op transport.Op) error {
	t.mu.Lock()
	why := t.closedLocked(op)
	t.mu.Unlock()
	return why
}

func (t *twin) closedLocked(op transport.Op) error {
	if t.down == nil {
		return nil
	}
	own := *t.down
	own.Op = op
	return &own
}

// add queues a call. done is called once, with the reply.
func (t *twin) add(r transport.Request, done func(transport.Reply)) (*twinCall, error) {
	t.mu.Lock()
	why := t.closedLocked(r.Op)
	var k *twinCall
	if why == nil {
		k = t.addLocked(r, done)
	}
	t.mu.Unlock()
	return k, why
}

func (t *twin) addLocked(r transport.Request, done func(transport.Reply)) *twinCall {
	k := &twinCall{request: r, done: done}
	t.calls = append(t.calls, k)
	t.c.poke()
	return k
}

// finishLocked ends a call.
func (t *twin) finishLocked(k *twinCall, r transport.Reply) {
	if k.state == callGone {
		return
	}
	if k.state == callWaiting || k.state == callQueued {
		t.unmade = append(t.unmade, k)
	}
	k.state = callGone
	t.calls = slices.DeleteFunc(t.calls, func(other *twinCall) bool { return other == k })
	k.done(r)
	t.c.poke() // a later call may be able to go
}

// withdraw withdraws a call whose caller gave up.
func (t *twin) withdraw(k *twinCall) withdrawal {
	t.mu.Lock()
	w := t.withdrawLocked(k)
	t.mu.Unlock()
	return w
}

func (t *twin) withdrawLocked(k *twinCall) withdrawal {
	state := k.state
	switch state {
	case callGone:
		return resolved
	case callInFlight:
		k.answer = transport.Reply{Err: errWithdrawn}
		t.left = append(t.left, k)
	case callAnswered:
		t.left = append(t.left, k)
	case callQueued, callSettling, callWaiting:
	}
	if (state == callAnswered || state == callSettling) && k.answer.Err == nil {
		t.finishLocked(k, k.answer)
		return resolved
	}
	t.finishLocked(k, transport.Reply{})
	if k.handed {
		return unknown
	}
	return withdrawn
}

func (t *twin) wants() (always, now transport.Features) {
	t.mu.Lock()
	if t.changes != nil && t.changes.handle != nil {
		always = transport.Twin | transport.Desired
	}
	if t.known || slices.ContainsFunc(t.calls, func(k *twinCall) bool { return k.state == callQueued }) {
		now = transport.Twin
	}
	t.mu.Unlock()
	return always, now
}

// refused fails the calls that wait for the subscription with the answer why. Filter and policy
// decide about their retries; the session stays.
func (t *twin) refused(l *loop, why *transport.Error) {
	now := time.Now()
	t.mu.Lock()
	t.known = false
	var waiting []*twinCall
	for _, k := range t.calls {
		if k.state == callQueued {
			own := *why
			k.state, k.answer = callSettling, transport.Reply{Err: &own}
			waiting = append(waiting, k)
		}
	}
	t.mu.Unlock()
	for _, k := range waiting {
		t.judge(l, k, k.failure(), now)
	}
}

func (t *twin) begin() {
	t.mu.Lock()
	if t.changes != nil {
		t.changes.begin()
	}
	t.mu.Unlock()
}

// reply handles an answer of the session.
func (t *twin) reply(id uint32, r transport.Reply) {
	t.mu.Lock()
	for _, k := range t.calls {
		if k.state == callInFlight && k.request.ID == id {
			r.Body = append([]byte(nil), r.Body...)
			k.answer, k.state, k.handed = r, callAnswered, r.Err != nil &&
				(k.doubt || errors.Is(r.Err, transport.ErrOutcomeUnknown))
			t.c.poke()
			break
		}
	}
	t.mu.Unlock()
}

// serve settles answered calls and hands over the next ones.
func (t *twin) serve(l *loop, now time.Time) (next time.Time) {
	t.settleAnswered(l, now)
	t.mu.Lock()
	if t.changes != nil && l.conn.granted&transport.Desired != 0 {
		// Read only with the subscription, so that a change after the read is notified.
		next = t.catchUpLocked(now)
	}
	calls := append(t.turn[:0], t.calls...)
	t.mu.Unlock()
	for _, k := range calls {
		t.mu.Lock()
		state, may := k.state, t.mayGoLocked(k)
		due := k.sent.Add(t.c.set.AckTimeout)
		if state == callInFlight && !now.Before(due) {
			due = l.conn.lastProgress(k.sent).Add(t.c.set.AckTimeout)
		}
		if state == callInFlight && !now.Before(due) {
			k.answer = transport.Reply{Err: &transport.Error{Kind: transport.Timeout, Op: k.request.Op, Err: errNoAnswer}}
			k.state, due = callAnswered, now // settled in the next turn
		}
		t.mu.Unlock()

		switch state {
		case callInFlight:
			next = earlier(due, next)
		case callWaiting:
			if k.asked.askedOf != t.c.policies.Load() {
				t.ask(l, k)
			}
			next = earlier(k.until, next)
			if !now.Before(k.until) {
				t.set(k, callQueued)
			}
		case callQueued:
			switch {
			case !may || l.conn.granted&transport.Twin == 0 || l.conn.plan == replacing:
			case now.Before(k.until) && k.under == t.c.policies.Load(): // the gate asked for it
				next = earlier(k.until, next)
			default:
				next = earlier(t.hand(l, k, now), next)
			}
		case callAnswered, callSettling, callGone:
		}
	}
	clear(calls)
	t.turn = calls
	return next
}

var errNoAnswer = errors.New("no answer within AckTimeout")

// mayGoLocked reports whether k may be handed over: patches go one at a time, in order.
func (t *twin) mayGoLocked(k *twinCall) bool {
	if k.request.Op != transport.OpTwinPatch {
		return true
	}
	first := slices.IndexFunc(t.calls, func(k *twinCall) bool { return k.request.Op == transport.OpTwinPatch })
	return first >= 0 && t.calls[first] == k
}

// set moves a call to state, unless its caller has given up, and reports whether it did.
func (t *twin) set(k *twinCall, state callState) bool {
	t.mu.Lock()
	waited := k.state != callGone
	if waited {
		k.state = state
	}
	t.mu.Unlock()
	return waited
}

// hand hands a call to the session, unless the policy's gate delays or refuses it. It returns when
// to look at the call again.
func (t *twin) hand(l *loop, k *twinCall, now time.Time) (next time.Time) {
	k.under = t.c.policies.Load()
	if k.asked.pending.Retry && k.asked.askedOf != k.under {
		k.asked.withdraw(l)
		k.last.Cost = 0
	}
	if gate, ok := isGate(k.under.message); ok {
		d := l.admitBy(gate, t.attempt(l, k, now))
		switch {
		case !d.Retry:
			k.asked.withdraw(l)
			var cause error
			if k.asked.failure != nil {
				cause = k.asked.failure
			}
			t.fail(k, refusedTry(transport.Operation, k.request.Op, d, max(k.retry-1, 0), cause))
			return now
		case d.Delay > 0:
			k.until = now.Add(d.Delay)
			return k.until
		case d.Cost != 0:
			k.last.Cost = d.Cost
		}
	}
	k.asked.pending = retrypolicy.Decision{}
	t.mu.Lock()
	gone := k.state == callGone
	if !gone {
		t.id = max((t.id+1)%methodIDs, firstID) // it wraps after two billion calls
		k.request.ID = t.id
		k.state, k.sent, k.doubt, k.handed = callInFlight, now, k.handed, true
	}
	t.mu.Unlock()
	if gone {
		t.observe(l, k, errWithdrawn, now) // the gate admitted it
		return now
	}
	l.request = k.request
	l.conn.session.Do(&l.request)
	return now.Add(t.c.set.AckTimeout)
}

var errWithdrawn = &transport.Error{Kind: transport.Closed, Err: errors.New("its caller gave up")}

// settleAnswered ends the successful calls, and reports and judges the failed ones.
func (t *twin) settleAnswered(l *loop, now time.Time) {
	t.mu.Lock()
	left, unmade := t.left, t.unmade
	t.left, t.unmade = nil, nil
	t.mu.Unlock()
	for _, k := range unmade {
		k.asked.withdraw(l)
	}
	for _, k := range left {
		t.observe(l, k, k.failure(), now)
	}
	for {
		t.mu.Lock()
		i := slices.IndexFunc(t.calls, func(k *twinCall) bool { return k.state == callAnswered })
		if i < 0 {
			t.mu.Unlock()
			return
		}
		k := t.calls[i]
		k.state = callSettling
		t.known = t.known || k.answer.Err == nil
		t.mu.Unlock()
		if failure := k.failure(); failure != nil {
			t.failed(l, k, failure, now)
			continue
		}
		t.observe(l, k, nil, now)
		t.mu.Lock()
		t.finishLocked(k, k.answer)
		t.mu.Unlock()
	}
}

// failure returns the failure that k was answered with, nil for success.
func (k *twinCall) failure() *transport.Error {
	if k.answer.Err == nil {
		return nil
	}
	own := *ofTransport(k.answer.Err)
	own.Op = k.request.Op // an answer does not name it
	return &own
}

// failed reports a failed try to the policy and judges it.
func (t *twin) failed(l *loop, k *twinCall, err *transport.Error, now time.Time) {
	t.observe(l, k, err, now)
	t.judge(l, k, err, now)
}

// judge asks filter and policy about a failure.
func (t *twin) judge(l *loop, k *twinCall, err *transport.Error, now time.Time) {
	switch {
	case k.handed && !repeats(&k.request):
		t.fail(k, err)
		return
	case !errfilter.Retryable(err):
		t.fail(k, err)
		return
	}
	if k.retry == 0 {
		k.since = now
	}
	k.retry++
	k.asked = question{failure: err, began: now}
	k.asked.attempt = t.attempt(l, k, now)
	t.ask(l, k)
}

// ask asks the current policy about the failure of a call.
func (t *twin) ask(l *loop, k *twinCall) {
	d := l.ask(&k.asked, 0)
	k.until = k.asked.began // no wait if the call ends here
	if !d.Retry {
		t.fail(k, retriesEnded(k.asked.failure, d.Reason, k.retry-1))
		return
	}
	k.last, k.until = d, k.asked.began.Add(d.Delay)
	if !t.set(k, callWaiting) {
		k.asked.withdraw(l)
	}
	t.c.poke()
}

// fail ends a call with err, marked as unknown outcome if a try may have been taken.
func (t *twin) fail(k *twinCall, err *transport.Error) {
	t.mu.Lock()
	if k.handed {
		err = operr.OutcomeUnknown(err)
	}
	t.finishLocked(k, transport.Reply{Err: err})
	t.mu.Unlock()
}

// attempt returns the question about the next try of a call.
func (t *twin) attempt(l *loop, k *twinCall, now time.Time) retrypolicy.Attempt {
	a := l.attempt(transport.Operation, now)
	a.Retry, a.Last, a.Rand = k.retry, k.last, l.rand()
	if k.asked.failure != nil {
		a.Elapsed = now.Sub(k.since)
		describe(&a, k.asked.failure)
	}
	return a
}

// observe reports the end of a try to the policy that admitted it.
func (t *twin) observe(l *loop, k *twinCall, failure *transport.Error, now time.Time) {
	observer, ok := isObserver(k.under.message)
	if !ok {
		return
	}
	a := l.attempt(transport.Operation, now)
	a.Retry, a.Last, a.Count = k.retry, k.last, 1
	if failure != nil {
		describeEnd(&a, failure)
	}
	l.observe(observer, a)
}

func (t *twin) busy() bool {
	t.mu.Lock()
	busy := slices.ContainsFunc(t.calls,
		func(k *twinCall) bool { return k.state == callInFlight || k.state == callAnswered })
	t.mu.Unlock()
	return busy
}

// over queues the calls in flight again if they may be repeated, and ends the others.
func (t *twin) over(l *loop) {
	now := time.Now()
	t.settleAnswered(l, now)
	t.mu.Lock()
	var lost []*twinCall
	for _, k := range t.calls {
		if k.state == callInFlight {
			lost = append(lost, k)
		}
	}
	var resting []*twinCall
	if l.ctx.Err() != nil { // no loop is left to make their retries
		resting = append(resting, t.calls...)
	}
	for _, k := range lost {
		if repeats(&k.request) {
			k.state = callQueued
		} else {
			t.finishLocked(k, transport.Reply{Err: operr.OutcomeUnknown(&transport.Error{Kind: transport.Network,
				Op:  k.request.Op,
				Err: errGoneWith.Err})})
		}
	}
	t.mu.Unlock()
	for _, k := range lost {
		t.observe(l, k, errGoneWith, now)
	}
	for _, k := range resting {
		k.asked.withdraw(l)
	}
}

func (t *twin) resume() {
	t.mu.Lock()
	t.down = nil
	t.mu.Unlock()
}

func (t *twin) halt(why *transport.Error) {
	t.mu.Lock()
	t.down = why
	for len(t.calls) > 0 {
		k := t.calls[0]
		own := *why
		if own.Op = k.request.Op; k.handed {
			own = *operr.OutcomeUnknown(&own)
		}
		t.finishLocked(k, transport.Reply{Err: &own})
	}
	t.mu.Unlock()
}
