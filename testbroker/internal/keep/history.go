// Package keep has what the hub keeps: logs of a bounded length, entries that are passed on in
// order, and records in a store.
package keep

import "slices"

// A History is a log of the hub: all entries in order, or only the newest. Forgotten entries are
// cut off the front of the slice, and append moves the rest to another array when the present one
// is full. That costs a copy an entry, and up to as many forgotten entries stay in memory until
// then. Entries are never overwritten, so slices of a history may be read without its owner's
// lock.
type History[T any] struct {
	Keep      int // how many entries; 0 = all
	Entries   []T
	Forgotten int
}

// Add appends an entry. It returns the entry that it had to forget, if any.
func (l *History[T]) Add(e T) (oldest T, forgot bool) {
	if n := len(l.Entries); n == cap(l.Entries) {
		l.Entries = slices.Grow(l.Entries, max(n, 8)) // append alone would move each entry four times
	}
	l.Entries = append(l.Entries, e)
	if l.Keep == 0 || len(l.Entries) <= l.Keep {
		return oldest, false
	}
	oldest = l.Entries[0]
	l.Entries = l.Entries[1:]
	l.Forgotten++
	return oldest, true
}

// Total returns how many entries were added since the beginning.
func (l *History[T]) Total() int { return l.Forgotten + len(l.Entries) }

// View returns the entries. Appending to the slice does not change the history.
func (l *History[T]) View() []T { return l.Entries[:len(l.Entries):len(l.Entries)] }

// Clear empties the history. Slices of it that are still read stay unchanged.
func (l *History[T]) Clear() { l.Entries, l.Forgotten = nil, 0 }
