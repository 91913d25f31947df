package hub

// A history is a log of the hub: its entries in the order in which they came, all of them or the
// newest. What is forgotten is cut off the front of the slice, and append moves the rest to another
// array when the present one is full: a few copies for an entry, whatever their number, and up to
// as many forgotten entries are held until then. No entry is ever overwritten, so slices of it may
// be read without the lock of who owns the history.
type history[T any] struct {
	keep      int // how many entries; 0 = all
	entries   []T
	forgotten int
}

// add appends an entry. If another had to be forgotten for it, it is returned.
func (l *history[T]) add(e T) (oldest T, forgot bool) {
	l.entries = append(l.entries, e)
	if l.keep == 0 || len(l.entries) <= l.keep {
		return oldest, false
	}
	oldest = l.entries[0]
	l.entries = l.entries[1:]
	l.forgotten++
	return oldest, true
}

// total is how many entries were added since the beginning.
func (l *history[T]) total() int { return l.forgotten + len(l.entries) }

// view returns the entries. Who appends to it does not change the history.
func (l *history[T]) view() []T { return l.entries[:len(l.entries):len(l.entries)] }

// clear makes the history as it was in the beginning. Slices of it that are still being read stay
// as they are.
func (l *history[T]) clear() { l.entries, l.forgotten = nil, 0 }
