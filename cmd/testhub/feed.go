package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
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

const (
	maxFollowers = 32                     // of one feed at a time
	followPeriod = 100 * time.Millisecond // between two looks at the feed
	followLines  = 200                    // at most so many lines in a period
	totalsPeriod = time.Second
)

// follow answers GET /events with the lines as server-sent events, until the client disconnects or
// testhub ends. The header Last-Event-ID continues behind that line.
func (c *control) follow(w http.ResponseWriter, r *http.Request) {
	last := 0
	if problem := readQuery(r.URL.Query(), whole("last", 0, feedLines, &last)); problem != nil {
		refuse(w, problem)
		return
	}
	if c.feed.followers.Add(1) > maxFollowers {
		c.feed.followers.Add(-1)
		refuse(w, &refusal{status: http.StatusServiceUnavailable,
			Problem: fmt.Sprintf("there are %d requests for events", maxFollowers), Fix: "close a page or end a request"})
		return
	}
	defer c.feed.followers.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	f := &follower{w: w, line: http.NewResponseController(w), feed: c.feed, into: make([]line, followLines)}
	f.next = f.begin(r.Header.Get("Last-Event-ID"), last)
	f.event("hello", map[string]string{"run": c.feed.run})
	ticks := time.NewTicker(followPeriod)
	defer ticks.Stop()
	for i := 0; ; i++ {
		if i%int(totalsPeriod/followPeriod) == 0 {
			f.event("totals", c.feed.count())
		}
		f.lines()
		if f.flush() != nil {
			return // the client has disconnected, or reads nothing
		}
		select {
		case <-ticks.C:
		case <-r.Context().Done():
			return
		}
	}
}

// A follower is one request for events.
type follower struct {
	w    http.ResponseWriter
	line *http.ResponseController
	feed *feed
	next uint64 // number of the next line
	into []line
	out  bytes.Buffer
}

// begin returns the number of the first line: that behind the last one that the client got. A
// client of another run, or of none, begins with the newest lines.
func (f *follower) begin(id string, last int) uint64 {
	run, number, ok := strings.Cut(id, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	if end := f.feed.first(0); ok && err == nil && run == f.feed.run && n < end {
		return n + 1
	}
	return f.feed.first(last)
}

// lines adds the next lines, and before them how many are missing.
func (f *follower) lines() {
	first, count := f.feed.read(f.next, f.into)
	if first > f.next {
		f.event("lost", map[string]uint64{"lost": first - f.next})
	}
	for i := range count {
		fmt.Fprintf(&f.out, "id: %s-%d\n", f.feed.run, first+uint64(i))
		f.event("line", f.into[i].shown())
	}
	f.next = first + uint64(count)
}

// event adds an event. JSON has no line breaks, so a text from a device cannot end it.
func (f *follower) event(name string, data any) {
	raw, err := json.Marshal(data)
	if err != nil {
		return // the types hold only texts and numbers
	}
	fmt.Fprintf(&f.out, "event: %s\ndata: %s\n\n", name, raw)
}

func (f *follower) flush() error {
	f.line.SetWriteDeadline(time.Now().Add(writeTime))
	defer f.line.SetWriteDeadline(time.Time{}) // the connection may serve other requests
	if _, err := f.w.Write(f.out.Bytes()); err != nil {
		return err
	}
	f.out.Reset()
	return f.line.Flush()
}
