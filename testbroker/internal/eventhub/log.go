package eventhub

import (
	"slices"
	"sort"
	"sync"
	"time"
)

// offsetStep is the distance between the offsets of two events. Offsets differ from sequence
// numbers, so that a client that confuses them fails here too.
const offsetStep = 512

// OffsetOf returns the offset of an event.
func OffsetOf(sequence int64) int64 { return sequence * offsetStep }

// An Entry is an event in a partition.
type Entry[T any] struct {
	Sequence int64 // from 0, without gaps
	Enqueued time.Time
	Value    T
}

// A State describes a partition. Without events it has the sequence numbers 0 and -1.
type State struct {
	Begin, Last  int64 // sequence numbers of the oldest kept and of the newest event
	LastEnqueued time.Time
	Empty        bool // nothing is kept
}

// LastOffset returns the offset of the newest event, -1 if there was none.
func (s State) LastOffset() int64 {
	if s.Last < 0 {
		return -1
	}
	return OffsetOf(s.Last)
}

// A Log holds the events of all partitions in order of arrival.
type Log[T any] struct {
	keep int // events of all partitions together; 0 = all

	mu         sync.Mutex // guards the fields below
	partitions []partition[T]
	held       int   // events in them
	added      int64 // events since the beginning
}

// A partition cuts forgotten entries off the front of its slice, as the hub's histories do. Unlike
// those it clears them, so that it does not keep their values in memory: Read copies with mu held.
type partition[T any] struct {
	begin   int64 // sequence number of the first entry
	entries []stamped[T]
	last    int64         // time of the newest event, in nanoseconds since 1970; times do not decrease
	changed chan struct{} // closed by the next event; nil = no waiters
}

type stamped[T any] struct {
	at    int64 // nanoseconds since 1970
	order int64 // among the events of all partitions
	value T
}

// NewLog makes an empty log. A positive keep is how many events all partitions keep together: the
// newest.
func NewLog[T any](partitions, keep int) *Log[T] {
	return &Log[T]{keep: keep, partitions: make([]partition[T], partitions)}
}

// Partitions returns the number of partitions.
func (l *Log[T]) Partitions() int { return len(l.partitions) }

// Next returns the sequence number of the next event of a partition.
func (l *Log[T]) Next(number int) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.partitions[number].next()
}

// Renumber makes next the sequence number of the next event of a partition, unless that is lower
// than at present. The events before it have the numbers below. It is called before the first read.
func (l *Log[T]) Renumber(number int, next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.partitions[number]
	p.begin = max(p.begin, next-int64(len(p.entries)))
}

// Add appends an event to a partition and wakes its readers.
func (l *Log[T]) Add(number int, at time.Time, value T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.partitions[number]
	p.last = max(p.last, at.UnixNano())
	if n := len(p.entries); n == cap(p.entries) {
		p.entries = slices.Grow(p.entries, max(n, 8)) // append alone would move each entry four times
	}
	p.entries = append(p.entries, stamped[T]{p.last, l.added, value})
	l.added++
	if l.held++; l.keep > 0 && l.held > l.keep {
		l.cutLocked(l.oldestLocked(), 1)
	}
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// Forget forgets the oldest events of a partition for which old returns true.
func (l *Log[T]) Forget(number int, old func(T) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.partitions[number]
	n := 0
	for n < len(p.entries) && old(p.entries[n].value) {
		n++
	}
	l.cutLocked(p, n)
}

// oldestLocked returns the partition with the oldest event. There is one.
func (l *Log[T]) oldestLocked() *partition[T] {
	var oldest *partition[T]
	for i := range l.partitions {
		p := &l.partitions[i]
		if len(p.entries) > 0 && (oldest == nil || p.entries[0].order < oldest.entries[0].order) {
			oldest = p
		}
	}
	return oldest
}

func (l *Log[T]) cutLocked(p *partition[T], n int) {
	p.begin += int64(n)
	clear(p.entries[:n])
	if p.entries = p.entries[n:]; len(p.entries) == 0 {
		p.entries = nil
	}
	l.held -= n
}

// next returns the sequence number of the next event.
func (p *partition[T]) next() int64 { return p.begin + int64(len(p.entries)) }

// Read appends to all at most n events of a partition, from a sequence number on or from the oldest
// kept event. Without events it returns a channel that the next one closes.
func (l *Log[T]) Read(number int, from int64, n int, all []Entry[T]) ([]Entry[T], <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.partitions[number]
	first := max(from-p.begin, 0)
	if first >= int64(len(p.entries)) {
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		return all, p.changed
	}
	for i := first; i < min(first+int64(n), int64(len(p.entries))); i++ {
		e := &p.entries[i]
		all = append(all, Entry[T]{p.begin + i, time.Unix(0, e.at), e.value})
	}
	return all, nil
}

// State returns the state of a partition.
func (l *Log[T]) State(number int) State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.partitions[number].state()
}

func (p *partition[T]) state() State {
	s := State{Begin: p.begin, Last: p.next() - 1, Empty: len(p.entries) == 0}
	if p.last != 0 {
		s.LastEnqueued = time.Unix(0, p.last)
	}
	return s
}

// Position returns the sequence number from which a reader starts. A forgotten event stands for the
// oldest kept one. A position behind the newest event is an error, because its reader would wait
// for ever: the checkpoint is that of another hub.
func (l *Log[T]) Position(number int, s Start) (int64, *Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.partitions[number]
	at, what := p.begin, ""
	switch s.By {
	case Earliest:
	case Latest:
		at = p.next()
	case Sequence:
		at, what = s.Value+s.after(), "sequence number"
	case Offset:
		at, what = (s.Value+s.after()+offsetStep-1)/offsetStep, "offset"
	case Time:
		at += int64(sort.Search(len(p.entries), func(i int) bool {
			return p.entries[i].at/int64(time.Millisecond) >= s.Value+s.after()
		}))
	}
	if at > p.next() {
		last := p.state()
		return 0, errorf(BadArgument, "The supplied %s '%d' is invalid. The last sequence number in the system is '%d', the "+
			"last offset is '%d'", what, s.Value, last.Last, last.LastOffset())
	}
	return max(at, p.begin), nil
}

// Resume sets the sequence number of the next event of a partition without entries, so that the
// numbers of an earlier log go on.
func (l *Log[T]) Resume(number int, next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := &l.partitions[number]; len(p.entries) == 0 {
		p.begin = next
	}
}

// Clear empties the log and begins the numbers anew. Its readers must have ended.
func (l *Log[T]) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.partitions)
	l.held = 0
}
