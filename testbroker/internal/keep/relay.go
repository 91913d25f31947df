package keep

import "sync"

// A Relay passes entries on in the order in which they were added, one at a time. The owner adds
// them while it holds its own lock, and delivers them when it has released the lock.
type Relay[T any] struct {
	mu      sync.Mutex // guards the fields below; not held while pass runs
	waiting []T
	busy    bool // a goroutine is in Deliver
}

// Add adds an entry.
func (r *Relay[T]) Add(e T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, e)
}

// Deliver passes the waiting entries on. If another goroutine is doing that, it leaves them to that
// goroutine.
func (r *Relay[T]) Deliver(pass func(T)) {
	for begin := true; ; begin = false {
		e, ok := r.next(begin)
		if !ok {
			return
		}
		pass(e)
	}
}

// next removes the first entry; false when there is none, or when another goroutine delivers.
func (r *Relay[T]) next(begin bool) (first T, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if begin && r.busy {
		return first, false
	}
	r.busy = len(r.waiting) > 0
	if !r.busy {
		return first, false
	}
	first = r.waiting[0]
	r.waiting = r.waiting[1:]
	return first, true
}
