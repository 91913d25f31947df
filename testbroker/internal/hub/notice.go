package hub

import (
	"container/list"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits of the notices of a kind, as the service has them unless it is told otherwise.
const (
	noticeLife       = time.Hour
	noticeLockTime   = time.Minute
	noticeDeliveries = 10

	maxNotices = 10_000 // for back ends that never receive; the oldest are dropped
)

// A NoticeKind is a kind of messages that the hub has for back ends.
type NoticeKind uint8

const (
	// Feedback are outcomes of C2D messages whose senders asked for them.
	Feedback NoticeKind = iota
	// FileNotifications are uploads that have succeeded.
	FileNotifications
	noticeKinds
)

// noticeNames name the kinds, in tags of deliveries.
var noticeNames = [...]string{Feedback: "feedback", FileNotifications: "filenotifications"}

// A Notice is a message for back ends.
type Notice struct {
	Number     int // from 1
	Body       []byte
	Enqueued   time.Time // of the hub's clock
	Deliveries int       // so far
	LockToken  string    // of the last delivery

	tag  [16]byte // of the next delivery, or of the one that locks it
	lock noticeLock
}

// Notices is a queue of notices of one kind. Its receivers share them. It exists as long as the
// hub.
type Notices struct {
	hub  *Hub
	kind NoticeKind

	mu        sync.Mutex // guards the fields below; held over deliveries, which never block
	number    int
	unsettled map[int]*Notice // those that wait or are locked, by number
	waiting   noticeList
	locked    list.List // of *Notice, by the ends of their locks: all locks last equally long
	locks     map[lockKey]*Notice
	receivers []NoticeReceiver
	next      int // index of the receiver that is asked first
	timer     *time.Timer
	stopped   bool // the hub is closed: the queue takes no notices
}

// A NoticeOutcome is what became of the delivery of a notice.
type NoticeOutcome uint8

const (
	// NoticeLater means that the receiver can take nothing at present.
	NoticeLater NoticeOutcome = iota
	// NoticeNever means that the receiver cannot take this notice at all. Later ones may pass it.
	NoticeNever
	// NoticeSent means that the notice is locked until the receiver settles it.
	NoticeSent
	// NoticeSettled means that the notice was sent and needs no outcome.
	NoticeSettled
)

// A NoticeReceiver takes notices. It is comparable. Its methods are called with the queue's lock
// held and must not block.
type NoticeReceiver interface {
	DeliverNotice(n *Notice, tag [16]byte) NoticeOutcome
}

// Notices returns the queue of a kind.
func (h *Hub) Notices(kind NoticeKind) *Notices { return &h.notices[kind] }

func (q *Notices) add(body []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return
	}
	if len(q.unsettled) >= maxNotices {
		q.dropLocked()
	}
	q.number++
	n := &Notice{Number: q.number, Body: body, Enqueued: q.hub.Now()}
	n.tag = q.tagOf(n)
	q.unsettled[n.Number] = n
	q.touchLocked(n)
	q.waiting = append(q.waiting, n)
	q.dispatchLocked()
}

// Receive adds a receiver.
func (q *Notices) Receive(r NoticeReceiver) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.receivers = append(q.receivers, r)
	q.dispatchLocked()
}

// Unreceive removes a receiver. What it has not settled is delivered again.
func (q *Notices) Unreceive(r NoticeReceiver) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.receivers = slices.DeleteFunc(q.receivers, func(other NoticeReceiver) bool { return other == r })
	for at := q.locked.Front(); at != nil; {
		n := at.Value.(*Notice)
		if at = at.Next(); n.lock.key.holder == r {
			q.releaseLocked(n)
		}
	}
	q.dispatchLocked()
}

// Kick delivers as much as the receivers take.
func (q *Notices) Kick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dispatchLocked()
}

// SettleTag ends a notice that was delivered to a receiver with a tag, or makes it wait again. It
// returns false when the lock has ended.
func (q *Notices) SettleTag(r NoticeReceiver, tag string, again bool) bool {
	return q.settle(lockKey{r, tag}, again)
}

// Settle is SettleTag for a client that has pulled the notice.
func (q *Notices) Settle(lock string, again bool) bool {
	return q.settle(lockKey{nil, strings.ToLower(lock)}, again)
}

func (q *Notices) settle(key lockKey, again bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.endLocked(time.Now(), q.hub.Now())
	n := q.locks[key]
	if n == nil {
		return false
	}
	if again {
		q.releaseLocked(n)
	} else {
		q.unlockLocked(n)
		q.forgetLocked(n)
	}
	q.dispatchLocked()
	return true
}

// Pull locks the first notice that waits and returns a copy; false when there is none.
func (q *Notices) Pull() (Notice, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.endLocked(now, q.hub.Now())
	if len(q.waiting) == 0 {
		return Notice{}, false
	}
	n := q.waiting.remove(0)
	q.lockLocked(n, lockKey{nil, GuidText(n.tag)}, now)
	q.dispatchLocked()
	return *n, true
}

// tagOf returns the tag of the next delivery of a notice.
func (q *Notices) tagOf(n *Notice) [16]byte {
	return q.hub.tag(fmt.Sprintf("%s %d %d", noticeNames[q.kind], n.Number, n.Deliveries))
}

// dispatchLocked delivers in order as much as the receivers take, and sets the timer. It reads each
// clock once: all that has not ended by then ends later.
func (q *Notices) dispatchLocked() {
	if q.stopped {
		return
	}
	now, clock := time.Now(), q.hub.Now()
	q.endLocked(now, clock)
	passed := 0 // notices at the front that no receiver can carry
	for passed < len(q.waiting) {
		outcome := q.offerLocked(q.waiting[passed], now)
		if outcome == NoticeLater {
			break
		}
		if outcome == NoticeNever {
			passed++
			continue
		}
		if n := q.waiting.remove(passed); outcome == NoticeSettled {
			q.forgetLocked(n)
		}
	}
	q.setTimerLocked(q.nextEndLocked(now, clock))
}

// offerLocked delivers a waiting notice to the first receiver that takes it, in turn. If none does,
// and one that is ready cannot carry it, the outcome is [NoticeNever]: that one gets later notices.
func (q *Notices) offerLocked(n *Notice, now time.Time) NoticeOutcome {
	best := NoticeLater
	for i := range q.receivers {
		at := (q.next + i) % len(q.receivers)
		r := q.receivers[at]
		outcome := r.DeliverNotice(n, n.tag)
		if outcome == NoticeSent {
			q.lockLocked(n, lockKey{r, string(n.tag[:])}, now)
		}
		if outcome == NoticeSent || outcome == NoticeSettled {
			q.next = at + 1
			return outcome
		}
		best = max(best, outcome)
	}
	return best
}

// setTimerLocked sets the timer, or stops it if nothing is to end.
func (q *Notices) setTimerLocked(left time.Duration, some bool) {
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
func (q *Notices) tick() {
	if !q.hub.Enter() {
		return
	}
	defer q.hub.Wg.Done()
	q.Kick()
}

// clear drops all notices.
func (q *Notices) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = nil
	q.locked.Init()
	clear(q.locks)
	clear(q.unsettled)
	q.dispatchLocked()
}

// forgetLocked drops a notice that neither waits nor is locked.
func (q *Notices) forgetLocked(n *Notice) {
	delete(q.unsettled, n.Number)
	q.touchLocked(n)
}

// stop stops the timer of a hub that is closed, for good.
func (q *Notices) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	if q.timer != nil {
		q.timer.Stop()
	}
}
