// Package notices has the queues of messages for back ends: feedback on messages, and notifications
// of files. The receivers of a queue share it.
package notices

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// Limits of the notices of a kind, as the service has them unless it is told otherwise.
const (
	life          = time.Hour
	lockTime      = time.Minute
	maxDeliveries = 10

	maxWaiting = 10_000 // for back ends that never receive; the oldest are dropped
)

// A Kind is a kind of messages that the hub has for back ends.
type Kind uint8

const (
	// Feedback are outcomes of C2D messages whose senders asked for them.
	Feedback Kind = iota
	// FileNotifications are uploads that have succeeded.
	FileNotifications
	Kinds
)

// names name the kinds, in tags of deliveries.
var names = [...]string{Feedback: "feedback", FileNotifications: "filenotifications"}

// A Notice is a message for back ends.
type Notice struct {
	Number     int // from 1
	Body       []byte
	Enqueued   time.Time // of the hub's clock
	Deliveries int       // so far
	LockToken  string    // of the last delivery

	tag    [16]byte  // of the next delivery, or of the one that locks it
	holder Receiver  // of the delivery that locks it; nil: a client has pulled it
	until  time.Time // end of its lock
}

// Queue is a queue of notices of one kind. Its receivers share them. It exists as long as the
// hub.
type Queue struct {
	kind    Kind
	host    Host
	records *keep.Saver

	mu        sync.Mutex // guards the fields below; held over deliveries, which never block
	number    int
	waiting   []*Notice // by number
	locked    []*Notice // by the ends of their locks: all locks last equally long
	receivers []Receiver
	next      int // index of the receiver that is asked first
	timer     *time.Timer
	stopped   bool // the hub is closed: the queue takes no notices
}

// A Host is the hub that has a queue.
type Host interface {
	// Now returns the time of the hub's clock.
	Now() time.Time
	// Tag returns the tag of the delivery with a name.
	Tag(name string) [16]byte
	// Enter adds the caller, a timer, to the goroutines for which the hub's end waits until Leave;
	// false when the hub is closed.
	Enter() bool
	Leave()
}

// Init makes the queue. Feedback is kept in a store; notifications of files are not, because the
// files of uploads are not.
func (q *Queue) Init(kind Kind, host Host, records *keep.Saver) {
	q.kind, q.host, q.records = kind, host, records
	if kind == Feedback {
		records.Add(TableFeedback, q.record, keep.Decoded(q.restore))
	}
}

func (q *Queue) touchLocked(n *Notice) {
	if q.kind == Feedback && q.records.Stores() {
		q.records.Touch(TableFeedback, keep.Key(n.Number))
	}
}

// Add queues a notice.
func (q *Queue) Add(body []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return
	}
	if len(q.waiting)+len(q.locked) >= maxWaiting {
		q.dropLocked()
	}
	q.number++
	n := &Notice{Number: q.number, Body: body, Enqueued: q.host.Now()}
	n.tag = q.tagOf(n)
	q.touchLocked(n)
	q.waiting = append(q.waiting, n)
	q.dispatchLocked()
}

// Receive adds a receiver.
func (q *Queue) Receive(r Receiver) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.receivers = append(q.receivers, r)
	q.dispatchLocked()
}

// Unreceive removes a receiver. What it has not settled is delivered again.
func (q *Queue) Unreceive(r Receiver) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.receivers = slices.DeleteFunc(q.receivers, func(other Receiver) bool { return other == r })
	locked := q.locked
	q.locked = nil
	for _, n := range locked {
		if n.holder == r {
			q.releaseLocked(n)
		} else {
			q.locked = append(q.locked, n)
		}
	}
	q.dispatchLocked()
}

// Kick delivers as much as the receivers take.
func (q *Queue) Kick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dispatchLocked()
}

// SettleTag ends a notice that was delivered to a receiver with a tag, or makes it wait again. It
// returns false when the lock has ended.
func (q *Queue) SettleTag(r Receiver, tag string, again bool) bool {
	return q.settle(func(n *Notice) bool { return n.holder == r && string(n.tag[:]) == tag }, again)
}

// Settle is SettleTag for a client that has pulled the notice.
func (q *Queue) Settle(lock string, again bool) bool {
	lock = strings.ToLower(lock)
	return q.settle(func(n *Notice) bool { return n.holder == nil && n.LockToken == lock }, again)
}

// settle is SettleTag for the first locked notice that matches. In a full queue it looks at up to
// 10,000 locks, in some 50 microseconds.
func (q *Queue) settle(matches func(n *Notice) bool, again bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.endLocked(time.Now(), q.host.Now())
	i := slices.IndexFunc(q.locked, matches)
	if i < 0 {
		return false
	}
	if n := take(&q.locked, i); again {
		q.releaseLocked(n)
	} else {
		q.touchLocked(n)
	}
	q.dispatchLocked()
	return true
}

// Pull locks the first notice that waits and returns a copy; false when there is none.
func (q *Queue) Pull() (Notice, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.endLocked(now, q.host.Now())
	if len(q.waiting) == 0 {
		return Notice{}, false
	}
	n := take(&q.waiting, 0)
	q.lockLocked(n, nil, now)
	q.dispatchLocked()
	return *n, true
}

func (q *Queue) tagOf(n *Notice) [16]byte {
	return q.host.Tag(fmt.Sprintf("%s %d %d", names[q.kind], n.Number, n.Deliveries))
}

// dispatchLocked delivers in order as much as the receivers take, and sets the timer. It reads each
// clock once: all that has not ended by then ends later.
func (q *Queue) dispatchLocked() {
	if q.stopped {
		return
	}
	now, clock := time.Now(), q.host.Now()
	q.endLocked(now, clock)
	passed := 0 // notices at the front that no receiver can carry
	for passed < len(q.waiting) {
		outcome := q.offerLocked(q.waiting[passed], now)
		if outcome == Later {
			break
		}
		if outcome == Never {
			passed++
			continue
		}
		if n := take(&q.waiting, passed); outcome == Settled {
			q.touchLocked(n)
		}
	}
	q.setTimerLocked(q.nextEndLocked(now, clock))
}

// offerLocked delivers a waiting notice to the first receiver that takes it, in turn. If none does,
// and one that is ready cannot carry it, the outcome is [Never]: that one gets later notices.
func (q *Queue) offerLocked(n *Notice, now time.Time) Outcome {
	best := Later
	for i := range q.receivers {
		at := (q.next + i) % len(q.receivers)
		r := q.receivers[at]
		outcome := r.Deliver(n, n.tag)
		if outcome == Sent {
			q.lockLocked(n, r, now)
		}
		if outcome == Sent || outcome == Settled {
			q.next = at + 1
			return outcome
		}
		best = max(best, outcome)
	}
	return best
}

// setTimerLocked sets the timer, or stops it if nothing is to end.
func (q *Queue) setTimerLocked(left time.Duration, some bool) {
	switch {
	case some && q.timer == nil:
		q.timer = time.AfterFunc(left, q.tick)
	case some:
		q.timer.Reset(left)
	case q.timer != nil:
		q.timer.Stop()
	}
}

// tick runs when the timer fires.
func (q *Queue) tick() {
	if q.host.Enter() {
		defer q.host.Leave()
		q.Kick()
	}
}

// Clear drops all notices.
func (q *Queue) Clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting, q.locked = nil, nil
	q.dispatchLocked()
}

// Stop stops the timer of a hub that is closed, for good.
func (q *Queue) Stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	if q.timer != nil {
		q.timer.Stop()
	}
}

// take removes and returns the notice at an index.
func take(all *[]*Notice, i int) *Notice {
	n := (*all)[i]
	*all = slices.Delete(*all, i, i+1)
	return n
}

func (q *Queue) lockLocked(n *Notice, holder Receiver, now time.Time) {
	n.LockToken = identity.GUID(n.tag)
	n.Deliveries++
	q.touchLocked(n)
	n.holder, n.until = holder, now.Add(lockTime)
	q.locked = append(q.locked, n)
}

// releaseLocked makes a notice wait whose lock has ended, unless it was delivered too often.
func (q *Queue) releaseLocked(n *Notice) {
	n.holder = nil // a receiver that may have gone
	if n.Deliveries >= maxDeliveries {
		q.touchLocked(n)
		return
	}
	n.tag = q.tagOf(n)
	i, _ := q.search(n.Number)
	q.waiting = slices.Insert(q.waiting, i, n)
}

// search returns where a notice with that number waits, or would.
func (q *Queue) search(number int) (i int, waits bool) {
	return slices.BinarySearchFunc(q.waiting, number, func(n *Notice, number int) int {
		return cmp.Compare(n.Number, number)
	})
}

// dropLocked drops the oldest notice that waits, or the one whose lock ends first.
func (q *Queue) dropLocked() {
	if len(q.waiting) > 0 {
		q.touchLocked(take(&q.waiting, 0))
	} else {
		q.touchLocked(take(&q.locked, 0))
	}
}

// endLocked ends locks and drops notices whose time has passed.
func (q *Queue) endLocked(now, clock time.Time) {
	for len(q.locked) > 0 && !q.locked[0].until.After(now) {
		q.releaseLocked(take(&q.locked, 0))
	}
	for len(q.waiting) > 0 && !q.waiting[0].Enqueued.Add(life).After(clock) {
		q.touchLocked(take(&q.waiting, 0))
	}
}

// nextEndLocked returns the time until the next lock or notice ends; false if there is none.
func (q *Queue) nextEndLocked(now, clock time.Time) (left time.Duration, some bool) {
	if len(q.locked) > 0 {
		left, some = q.locked[0].until.Sub(now), true
	}
	if len(q.waiting) > 0 {
		life := q.waiting[0].Enqueued.Add(life).Sub(clock)
		if !some || life < left {
			left, some = life, true
		}
	}
	return left, some
}

// A Outcome is what became of the delivery of a notice.
type Outcome uint8

const (
	// Later means that the receiver can take nothing at present.
	Later Outcome = iota
	// Never means that the receiver cannot take this notice at all. Later ones may pass it.
	Never
	// Sent means that the notice is locked until the receiver settles it.
	Sent
	// Settled means that the notice was sent and needs no outcome.
	Settled
)

// A Receiver takes notices. It is comparable. Its methods are called with the queue's lock
// held and must not block.
type Receiver interface {
	Deliver(n *Notice, tag [16]byte) Outcome
}
