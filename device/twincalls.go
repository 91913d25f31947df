package device

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

// twinSlots is the maximum number of pending twin calls.
const twinSlots = 16

// twin is the feature for the twin: calls that wait for an answer, and changes of the desired
// properties. It is a monitor like the queue. Only the loop hands calls to the session and asks
// policies about them.
//
//	queued -> in flight -> answered -> settling -> gone
//	   ^        |           | failed, to be repeated
//	   |        v           v
//	   +-- session over   waiting
type twin struct {
	poke    func()
	set     *settings
	slots   chan struct{} // one for each call of GetTwin, PatchReported or PatchReportedIf
	changes *desired      // nil until HandleDesired

	mu     sync.Mutex
	calls  []*twinCall // in order of arrival
	id     uint32
	down   *transport.Error // why calls are refused; nil while the client is open
	ended  bool             // Close was called
	known  bool             // sessions carry twins, as far as known
	number uint32           // transport.Twinned of the latest session

	finished []*twinCall // ended calls that were begun: the loop ends their series

	turn []*twinCall // buffer of serve
}

// twinCall is one call. Only the loop changes its state from queued, answered, settling and
// waiting.
type twinCall struct {
	request      transport.Request
	done         func(transport.Reply) // called once, mu held
	state        callState
	begun        bool // a session was up, so the loop may have begun its series
	handed       bool // the hub may have it: it or an earlier try was handed over and not answered
	handedBefore bool // value of handed before the latest try
	answer       transport.Reply
	sent         time.Time
	since        time.Time // of the first failure
	retry        int
	asked        question
	series       series
	abandoned    bool      // in flight or answered when its caller gave up
	until        time.Time // end of the wait: for a retry, or for the policy
	gatedBy      *policies // the policies that were asked last whether it may go
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

// closed returns why calls are refused, nil if they are not.
func (t *twin) closed(op transport.Op) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closedLocked(op)
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
	defer t.mu.Unlock()
	if why := t.closedLocked(r.Op); why != nil {
		return nil, why
	}
	return t.addLocked(r, done), nil
}

func (t *twin) addLocked(r transport.Request, done func(transport.Reply)) *twinCall {
	k := &twinCall{request: r, done: done}
	t.calls = append(t.calls, k)
	t.poke()
	return k
}

// finishLocked ends a call.
func (t *twin) finishLocked(k *twinCall, r transport.Reply) {
	if k.state == callGone {
		return
	}
	if k.begun { // others would stay in finished until the end of an outage
		t.finished = append(t.finished, k)
	}
	k.state = callGone
	t.calls = slices.DeleteFunc(t.calls, func(other *twinCall) bool { return other == k })
	k.done(r)
	t.poke() // a later call may be able to go
}

// withdraw withdraws a call whose caller gave up.
func (t *twin) withdraw(k *twinCall) withdrawal {
	t.mu.Lock()
	defer t.mu.Unlock()
	state := k.state
	switch state {
	case callGone:
		return resolved
	case callInFlight:
		k.answer, k.abandoned = transport.Reply{Err: errWithdrawn}, true
	case callAnswered:
		k.abandoned = true
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
	defer t.mu.Unlock()
	if t.changes != nil && t.changes.handle != nil {
		always = transport.FeatureTwin | transport.FeatureDesired
	}
	if t.known || slices.ContainsFunc(t.calls, func(k *twinCall) bool { return k.state == callQueued }) {
		now = transport.FeatureTwin
	}
	return always, now
}

func (t *twin) held() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changes == nil {
		return 0
	}
	return t.changes.held()
}

func (t *twin) begin(s transport.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	number := uint32(0)
	if n, ok := s.(transport.Twinned); ok {
		number = n.TwinNumber()
	}
	if t.changes != nil {
		t.changes.begin()
		if number != t.number { // the known version is that of another twin
			t.changes.latestValid = false
		}
	}
	t.number = number
}

// reply handles an answer of the session.
func (t *twin) reply(id uint32, r transport.Reply) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.calls {
		if k.state == callInFlight && k.request.ID == id {
			r.Body = append([]byte(nil), r.Body...)
			k.answer, k.state, k.handed = r, callAnswered, r.Err != nil &&
				(k.handedBefore || errors.Is(r.Err, transport.ErrOutcomeUnknown))
			t.poke()
			break
		}
	}
}

func (t *twin) busy() (handlers, calls bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls = slices.ContainsFunc(t.calls,
		func(k *twinCall) bool { return k.state == callInFlight || k.state == callAnswered })
	return false, calls
}

func (t *twin) resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.down = nil
}

func (t *twin) halt(why *transport.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.down = why
	for len(t.calls) > 0 {
		k := t.calls[0]
		own := *why
		if own.Op = k.request.Op; k.handed {
			own = *operr.OutcomeUnknown(&own)
		}
		t.finishLocked(k, transport.Reply{Err: &own})
	}
}

var errWithdrawn = &transport.Error{Kind: transport.Closed, Err: errors.New("its caller gave up")}

// desired keeps the handler up to date with the hub. It is part of the twin's monitor.
//
// Notifications may be lost, duplicated or late, so versions are counted. The version after the
// latest one is passed on, and an older one is skipped. Any other means that something was missed.
// Then the twin is read until it is as new as every notification seen meanwhile, and passed on as a
// whole.
type desired struct {
	handle  DesiredHandler    // nil: none
	ctx     *lifetime.Context // of the handler; ends with Close
	queue   []Desired
	running bool
	ended   chan struct{} // closed when the handler's goroutine has ended

	latest       int64     // the newest version that was passed on or queued
	latestValid  bool      // latest is valid
	patched      bool      // latest came as a change, so removed properties may remain
	stale        bool      // something may have been missed: read the twin
	reading      bool      // a read of the twin is in flight
	readOutdated bool      // and its result may be older than what was missed
	seen         int64     // the newest version notified but not passed on since it became stale
	nextRead     time.Time // the earliest time of the next read
	failedReads  int       // number of failed reads in a row
	rereads      int       // number of reads in a row that were older than seen

	changes, panics, skipped uint64
}

// held returns the version that the handler has, nothing left out, or will have; 0 for none.
func (d *desired) held() int64 {
	if !d.latestValid || d.patched {
		return 0
	}
	return d.latest
}

func (d *desired) begin() {
	d.stale, d.seen, d.nextRead, d.failedReads, d.rereads = true, 0, time.Time{}, 0, 0
}

// resetForHandler prepares for another handler.
func (d *desired) resetForHandler() {
	if d.latestValid && !d.stale {
		d.stale, d.seen, d.nextRead = true, d.latest, time.Time{} // next is not older than latest
	}
	d.latestValid, d.queue = false, nil
	d.readOutdated = d.reading // the read may be older than a change that came without a handler
}
