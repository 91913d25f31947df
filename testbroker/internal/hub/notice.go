package hub

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits of the notices of a kind, as the service has them unless it is told otherwise.
const (
	noticeLife       = time.Hour
	noticeLock       = time.Minute
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

	tag    string         // of the delivery over AMQP that locks it
	locked time.Time      // when its lock ends; zero: it waits
	holder NoticeReceiver // of the lock; nil for an HTTP client
	ended  bool
}

// Notices is a queue of notices of one kind. Its receivers share them. It exists as long as the
// hub.
type Notices struct {
	hub  *Hub
	kind NoticeKind

	mu        sync.Mutex // guards the fields below; held over deliveries, which never block
	number    int
	waiting   []*Notice // in order, locked or not
	receivers []NoticeReceiver
	next      int // index of the receiver that is asked first
	timer     *time.Timer
}

// A NoticeReceiver takes notices. Its methods are called with the queue's lock held and must not
// block.
type NoticeReceiver interface {
	// DeliverNotice sends a notice. sent is false when the receiver cannot take it at present; settled
	// means that it needs no outcome.
	DeliverNotice(n *Notice, tag [16]byte) (sent, settled bool)
}

// Notices returns the queue of a kind.
func (h *Hub) Notices(kind NoticeKind) *Notices { return &h.notices[kind] }

func (q *Notices) add(body []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= maxNotices {
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
	q.number++
	q.waiting = append(q.waiting, &Notice{Number: q.number, Body: body, Enqueued: q.hub.Now()})
	if len(q.receivers) > 0 || len(q.waiting) == 1 { // otherwise the timer is set already
		q.dispatchLocked()
	}
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
	for _, n := range q.waiting {
		if n.holder == r {
			n.unlock()
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
	return q.settle(again, func(n *Notice) bool { return n.holder == r && n.tag == tag })
}

// Settle is SettleTag for a client that has pulled the notice.
func (q *Notices) Settle(lock string, again bool) bool {
	return q.settle(again, func(n *Notice) bool { return n.holder == nil && strings.EqualFold(n.LockToken, lock) })
}

func (q *Notices) settle(again bool, is func(n *Notice) bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.endLocked()
	i := slices.IndexFunc(q.waiting, func(n *Notice) bool { return !n.locked.IsZero() && is(n) })
	if i < 0 {
		return false
	}
	q.waiting[i].unlock()
	q.waiting[i].ended = !again
	q.dispatchLocked()
	return true
}

// Pull locks the first notice that waits and returns a copy; false when there is none.
func (q *Notices) Pull() (Notice, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.endLocked()
	i := slices.IndexFunc(q.waiting, func(n *Notice) bool { return n.locked.IsZero() })
	if i < 0 {
		return Notice{}, false
	}
	n := q.waiting[i]
	q.lockLocked(n, q.tagLocked(n), nil)
	q.dispatchLocked()
	return *n, true
}

// unlock makes a notice wait.
func (n *Notice) unlock() { n.locked, n.holder, n.tag = time.Time{}, nil, "" }

func (q *Notices) lockLocked(n *Notice, tag [16]byte, by NoticeReceiver) {
	n.tag, n.LockToken, n.holder = string(tag[:]), GuidText(tag), by
	n.Deliveries++
	n.locked = time.Now().Add(noticeLock)
}

func (q *Notices) tagLocked(n *Notice) [16]byte {
	return q.hub.tag(fmt.Sprintf("%s %d %d", noticeNames[q.kind], n.Number, n.Deliveries))
}

// endLocked ends locks and lives whose time has passed, and drops what has ended.
func (q *Notices) endLocked() {
	now, clock := time.Now(), q.hub.Now()
	q.waiting = slices.DeleteFunc(q.waiting, func(n *Notice) bool {
		if !n.locked.IsZero() && !n.locked.After(now) {
			n.unlock()
		}
		if n.locked.IsZero() && (n.Deliveries >= noticeDeliveries || !n.Enqueued.Add(noticeLife).After(clock)) {
			n.ended = true
		}
		return n.ended
	})
}

// dispatchLocked delivers in order as much as the receivers take, and sets the timer.
func (q *Notices) dispatchLocked() {
	q.endLocked()
	for _, n := range q.waiting {
		if n.locked.IsZero() && !q.deliverLocked(n) {
			break
		}
	}
	q.endLocked()
	var wait time.Duration // until the next end
	now, clock := time.Now(), q.hub.Now()
	for _, n := range q.waiting {
		left := n.Enqueued.Add(noticeLife).Sub(clock)
		if !n.locked.IsZero() {
			left = n.locked.Sub(now)
		}
		if wait == 0 || left < wait {
			wait = left
		}
	}
	if q.timer != nil {
		q.timer.Stop()
	}
	if wait > 0 {
		q.timer = time.AfterFunc(wait, q.tick)
	}
}

// deliverLocked delivers a notice to the first receiver that takes it, in turn.
func (q *Notices) deliverLocked(n *Notice) bool {
	tag := q.tagLocked(n)
	for i := range q.receivers {
		at := (q.next + i) % len(q.receivers)
		r := q.receivers[at]
		sent, settled := r.DeliverNotice(n, tag)
		if !sent {
			continue
		}
		q.next = at + 1
		q.lockLocked(n, tag, r)
		n.ended = settled
		return true
	}
	return false
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
	q.dispatchLocked()
}

// stop stops the timer of a hub that is closed.
func (q *Notices) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timer != nil {
		q.timer.Stop()
	}
}
