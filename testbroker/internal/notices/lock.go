package notices

import (
	"cmp"
	"container/list"
	"slices"
	"time"
)

// A lockKey names a lock: by the receiver and the tag of its delivery, or by no receiver and the
// lock token that an HTTP client got.
type lockKey struct {
	holder Receiver
	name   string
}

// A lock is the lock of a notice that was delivered.
type lock struct {
	key   lockKey
	until time.Time
	at    *list.Element // in Queue.locked
}

// A backlog holds notices by their numbers. It is cheap at both ends.
type backlog []*Notice

// insert adds a notice that was removed.
func (l *backlog) insert(n *Notice) {
	i, _ := slices.BinarySearchFunc(*l, n, func(a, b *Notice) int { return cmp.Compare(a.Number, b.Number) })
	*l = slices.Insert(*l, i, n)
}

// remove removes and returns the notice at an index. Those before it move.
func (l *backlog) remove(i int) *Notice {
	all := *l
	n := all[i]
	copy(all[1:i+1], all[:i])
	all[0] = nil
	*l = all[1:]
	return n
}
