package hub

import (
	"cmp"
	"container/list"
	"slices"
	"time"
)

// A lockKey names a lock: by the receiver and the tag of its delivery, or by no receiver and the
// lock token that an HTTP client got.
type lockKey struct {
	holder NoticeReceiver
	name   string
}

// A noticeLock is the lock of a notice that was delivered.
type noticeLock struct {
	key   lockKey
	until time.Time
	at    *list.Element // in Notices.locked
}

// lockLocked locks a notice.
func (q *Notices) lockLocked(n *Notice, key lockKey, now time.Time) {
	n.LockToken = GuidText(n.tag)
	n.Deliveries++
	q.touchLocked(n)
	n.lock = noticeLock{key, now.Add(noticeLockTime), q.locked.PushBack(n)}
	if q.locks == nil {
		q.locks = make(map[lockKey]*Notice)
	}
	q.locks[key] = n
}

// unlockLocked ends a lock.
func (q *Notices) unlockLocked(n *Notice) {
	q.locked.Remove(n.lock.at)
	delete(q.locks, n.lock.key)
	n.lock = noticeLock{}
}

// releaseLocked ends a lock and makes the notice wait, unless it was delivered too often.
func (q *Notices) releaseLocked(n *Notice) {
	q.unlockLocked(n)
	if n.Deliveries < noticeDeliveries {
		n.tag = q.tagOf(n)
		q.waiting.insert(n)
		return
	}
	q.forgetLocked(n)
}

// dropLocked drops the oldest notice that waits, or the one whose lock ends first.
func (q *Notices) dropLocked() {
	if len(q.waiting) > 0 {
		q.forgetLocked(q.waiting.remove(0))
		return
	}
	n := q.firstLocked()
	q.unlockLocked(n)
	q.forgetLocked(n)
}

// endLocked ends locks and drops notices whose time has passed.
func (q *Notices) endLocked(now, clock time.Time) {
	for n := q.firstLocked(); n != nil && !n.lock.until.After(now); n = q.firstLocked() {
		q.releaseLocked(n)
	}
	for len(q.waiting) > 0 && !q.waiting[0].Enqueued.Add(noticeLife).After(clock) {
		q.forgetLocked(q.waiting.remove(0))
	}
}

// nextEndLocked returns the time until the next lock or notice ends; false if there is none.
func (q *Notices) nextEndLocked(now, clock time.Time) (left time.Duration, some bool) {
	if n := q.firstLocked(); n != nil {
		left, some = n.lock.until.Sub(now), true
	}
	if len(q.waiting) > 0 {
		life := q.waiting[0].Enqueued.Add(noticeLife).Sub(clock)
		if !some || life < left {
			left, some = life, true
		}
	}
	return left, some
}

// firstLocked returns the notice whose lock ends first; nil if none is locked.
func (q *Notices) firstLocked() *Notice {
	if at := q.locked.Front(); at != nil {
		return at.Value.(*Notice)
	}
	return nil
}

// A noticeList holds notices by their numbers. It is cheap at both ends.
type noticeList []*Notice

// insert adds a notice that was removed.
func (l *noticeList) insert(n *Notice) {
	i, _ := slices.BinarySearchFunc(*l, n, func(a, b *Notice) int { return cmp.Compare(a.Number, b.Number) })
	*l = slices.Insert(*l, i, n)
}

// remove removes and returns the notice at an index. Those before it move.
func (l *noticeList) remove(i int) *Notice {
	all := *l
	n := all[i]
	copy(all[1:i+1], all[:i])
	all[0] = nil
	*l = all[1:]
	return n
}
