package hub

import "slices"

// A history is a log of the hub: all entries in order, or only the newest. Forgotten entries are
// cut off the front of the slice, and append moves the rest to another array when the present one
// is full. That costs a copy an entry, and up to as many forgotten entries stay in memory until
// then. Entries are never overwritten, so slices of a history may be read without its owner's
// lock.
type history[T any] struct {
	keep      int // how many entries; 0 = all
	entries   []T
	forgotten int
}

// add appends an entry. It returns the entry that it had to forget, if any.
func (l *history[T]) add(e T) (oldest T, forgot bool) {
	if n := len(l.entries); n == cap(l.entries) {
		l.entries = slices.Grow(l.entries, max(n, 8)) // append alone would move each entry four times
	}
	l.entries = append(l.entries, e)
	if l.keep == 0 || len(l.entries) <= l.keep {
		return oldest, false
	}
	oldest = l.entries[0]
	l.entries = l.entries[1:]
	l.forgotten++
	return oldest, true
}

// total returns how many entries were added since the beginning.
func (l *history[T]) total() int { return l.forgotten + len(l.entries) }

// view returns the entries. Appending to the slice does not change the history.
func (l *history[T]) view() []T { return l.entries[:len(l.entries):len(l.entries)] }

// clear empties the history. Slices of it that are still read stay unchanged.
func (l *history[T]) clear() { l.entries, l.forgotten = nil, 0 }
