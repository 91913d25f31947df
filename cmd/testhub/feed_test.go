package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/transport"
)

// numbers returns the message ids of lines that offerLines has made.
func numbers(lines []line) (all []string) {
	for _, l := range lines {
		all = append(all, l.MessageID)
	}
	return all
}

func offerLines(f *feed, from, to int) {
	for i := from; i <= to; i++ {
		f.offer(line{Event: "message", MessageID: fmt.Sprint(i)})
	}
}

func TestAFeedKeepsTheNewestLines(t *testing.T) {
	f := newFeed()
	into := make([]line, 3)
	first, count := f.read(1, into)
	require.Equal(t, []any{uint64(1), 0}, []any{first, count})
	offerLines(f, 1, 5)
	first, count = f.read(2, into)
	require.EqualValues(t, 2, first)
	require.Equal(t, []string{"2", "3", "4"}, numbers(into[:count]))
	require.EqualValues(t, 4, f.first(2))
	require.EqualValues(t, 1, f.first(99))
	require.EqualValues(t, 6, f.first(0))

	offerLines(f, 6, feedLines+5)
	first, count = f.read(2, into)
	require.EqualValues(t, 6, first, "2 to 5 are gone")
	require.Equal(t, []string{"6", "7", "8"}, numbers(into[:count]))
	require.EqualValues(t, 6, f.first(feedLines))
	f.offer(line{Event: "connected"})
	f.offer(line{Event: "refused"})
	f.offer(line{Event: "c2d"})
	require.Equal(t, totals{Messages: feedLines + 5, Connects: 1, Refusals: 1}, f.count())
}

// The lines that are kept take little memory, whatever topics and paths clients choose.
func TestTextsOfALineAreBounded(t *testing.T) {
	long := strings.Repeat("\u00e4", 1<<15)
	for kind := range event.UpdateAnswered + 1 {
		l := hubLine(event.Event{Kind: kind, Name: long, Err: errors.New(long)})
		raw, err := json.Marshal(l.shown())
		require.NoError(t, err)
		require.Less(t, len(raw), 4*maxText, kind)
	}
	require.Equal(t, "short", hubLine(event.Event{Kind: event.Refused, Name: "short"}).Refused)
}

// A sentEvent is a server-sent event.
type sentEvent struct {
	id, name string
	data     map[string]any
}

// followEvents reads the events of a request until take returns false.
func followEvents(t testing.TB, p *program, query, last string, take func(sentEvent) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", p.ready.Control+"/events"+query, nil)
	require.NoError(t, err)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	var e sentEvent
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, v, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			e.id = v
		case "event":
			e.name = v
		case "data":
			require.NoError(t, json.Unmarshal([]byte(v), &e.data))
		case "":
			if !take(e) {
				return
			}
			e = sentEvent{}
		}
	}
	require.FailNow(t, "the events have ended")
}

func TestEvents(t *testing.T) {
	p := start(t, "-device", "dev-1")
	c := p.client("dev-1", "mqtt", nil)
	require.NoError(t, c.Open(soon(t)))
	ids := map[string]string{}
	followEvents(t, p, "?last=100", "", func(e sentEvent) bool {
		switch {
		case e.name == "hello":
			require.NoError(t, c.Send(soon(t), &transport.Message{ID: "m\"data: 1", Body: []byte("x")}))
			require.NoError(t, c.Send(soon(t), &transport.Message{ID: "m-2", Body: []byte("x")}))
		case e.data["event"] == "message":
			require.Contains(t, e.data["text"], "dev-1 message")
			ids[fmt.Sprint(e.data["messageId"])] = e.id
		}
		return len(ids) < 2
	})
	require.Contains(t, ids, "m\"data: 1", "an id is escaped")

	followEvents(t, p, "", ids["m\"data: 1"], func(e sentEvent) bool { // continues behind it
		if e.name == "line" {
			require.Equal(t, ids["m-2"], e.id)
		}
		return e.name != "line"
	})
	followEvents(t, p, "", "another-1", func(e sentEvent) bool { // an id of another run: from now on
		require.NotEqual(t, "line", e.name)
		if e.name == "totals" {
			require.EqualValues(t, 2, e.data["messages"])
			require.EqualValues(t, 1, e.data["connects"])
		}
		return e.name != "totals"
	})
	require.Equal(t, "last", p.refused(400, "GET", "/events?last=-1", "").Field)
}

// A reader that is too slow misses lines, and learns how many.
func TestASlowReaderOfEventsIsToldWhatItMisses(t *testing.T) {
	f := newFeed()
	r := &follower{feed: f, next: 1, into: make([]line, 2)}
	offerLines(f, 1, feedLines+3)
	r.lines()
	out := r.out.String()
	require.True(t, strings.HasPrefix(out, "event: lost\ndata: {\"lost\":3}\n\nid: "+f.run+"-4\n"), "%.200s", out)
	require.EqualValues(t, 6, r.next)
	require.Equal(t, 2, strings.Count(out, "event: line\n"), "a bounded part")
}

func TestEventsContinueBehindTheLastOne(t *testing.T) {
	f := newFeed()
	r := &follower{feed: f}
	offerLines(f, 1, 10)
	for id, want := range map[string]uint64{
		f.run + "-7": 8, f.run + "-10": 11, f.run + "-11": 9, f.run + "-x": 9, "other-7": 9, "": 9, f.run: 9,
	} {
		require.Equal(t, want, r.begin(id, 2), id)
	}
}

// More requests for events than allowed are refused, and a place is free again after the end.
func TestEventsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &control{feed: newFeed()}
		other := &control{feed: c.feed} // of a further hub
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan int, maxFollowers+1)
		ask := func(c *control) {
			w := &lonelyWriter{head: http.Header{}}
			r, err := http.NewRequestWithContext(ctx, "GET", "/events", nil)
			require.NoError(t, err)
			c.follow(w, r)
			done <- w.status
		}
		for range maxFollowers {
			go ask(c) // ends with ctx
		}
		synctest.Wait()
		require.Empty(t, done)
		go ask(other) // refused at once
		synctest.Wait()
		require.Len(t, done, 1)
		require.Equal(t, http.StatusServiceUnavailable, <-done)
		cancel()
		for range maxFollowers {
			require.Zero(t, <-done)
		}
		require.Zero(t, c.feed.followers.Load())
	})
}

// A lonelyWriter is an answer that nobody reads.
type lonelyWriter struct {
	head   http.Header
	status int
}

func (w *lonelyWriter) Header() http.Header         { return w.head }
func (w *lonelyWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *lonelyWriter) WriteHeader(status int)      { w.status = status }
func (w *lonelyWriter) Flush()                      {}
