package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

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
