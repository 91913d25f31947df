package main

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// feedLines is how many of the newest lines a feed keeps.
const feedLines = 4096

// A feed keeps the newest lines for readers. A reader has only a position in it, so a slow reader
// neither delays the hub nor needs memory: it misses lines, and the feed says how many.
type feed struct {
	run string // tells the line numbers of this feed from those of an earlier one

	followers atomic.Int64 // requests for its lines

	mu     sync.Mutex
	ring   [feedLines]line // line n is at n % feedLines
	next   uint64          // number of the next line; the first is 1
	totals totals
}

// totals counts lines since the start.
type totals struct {
	Messages uint64 `json:"messages"`
	Connects uint64 `json:"connects"`
	Refusals uint64 `json:"refusals"`
}

func newFeed() *feed { return &feed{run: strconv.FormatInt(time.Now().UnixNano(), 36), next: 1} }

// offer adds a line. It never waits for a reader.
func (f *feed) offer(l line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ring[f.next%feedLines] = l
	f.next++
	switch l.Event {
	case "message":
		f.totals.Messages++
	case "connected":
		f.totals.Connects++
	case "refused":
		f.totals.Refusals++
	}
}

// first returns the number of the first of the newest lines, at most so many.
func (f *feed) first(last int) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(f.oldestLocked(), f.next-min(f.next-1, uint64(last)))
}

func (f *feed) oldestLocked() uint64 { return f.next - min(f.next-1, feedLines) }

// read copies lines from number n on to into, oldest first. It returns the number of the first one,
// which is above n if older lines are gone, and how many it copied.
func (f *feed) read(n uint64, into []line) (first uint64, count int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first = max(n, f.oldestLocked())
	for first+uint64(count) < f.next && count < len(into) {
		into[count] = f.ring[(first+uint64(count))%feedLines]
		count++
	}
	return first, count
}

func (f *feed) count() totals {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.totals
}
