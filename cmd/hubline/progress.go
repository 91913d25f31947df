package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
)

// screen is the log, whose last line may be a bar. A line of the log replaces the bar, which comes
// back with its next drawing.
type screen struct {
	mu  sync.Mutex
	w   io.Writer
	bar bool // the last line has a bar; guarded by mu
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearLocked()
	return s.w.Write(p)
}

// draw shows a bar. Whether the terminal takes it makes no difference to the command.
func (s *screen) draw(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintf(s.w, "\r%-*.*s", lineWidth, lineWidth, text)
	s.bar = true
}

func (s *screen) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearLocked()
}

func (s *screen) clearLocked() {
	if s.bar {
		_, _ = fmt.Fprintf(s.w, "\r%s\r", strings.Repeat(" ", lineWidth))
		s.bar = false
	}
}

// progress is a line with a bar, on a terminal only.
type progress struct {
	on    *screen
	total int64
	done  func() int64
	text  func(int64) string // of an amount
	begin time.Time

	stop  chan struct{}
	drawn sync.WaitGroup
}

const (
	barWidth  = 30
	barEvery  = 200 * time.Millisecond
	lineWidth = 78
)

// newProgress starts drawing. total is 0 if it is not known; done is called from a goroutine, and
// text writes amounts.
func newProgress(t *tool, total int64, done func() int64, text func(int64) string) *progress {
	p := &progress{on: t.screen, total: total, done: done, text: text, begin: time.Now(), stop: make(chan struct{})}
	if t.logTerminal {
		p.drawn.Go(p.run)
	}
	return p
}

func (p *progress) run() {
	ticker := time.NewTicker(barEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.on.draw(barLine(p.done(), p.total, time.Since(p.begin), p.text))
		case <-p.stop:
			p.on.clear()
			return
		}
	}
}

// end clears the line.
func (p *progress) end() {
	close(p.stop)
	p.drawn.Wait()
}

// barLine returns the bar, or without a total the count alone.
func barLine(done, total int64, since time.Duration, text func(int64) string) string {
	rate := text(int64(math.Round(float64(done)/max(since.Seconds(), 1e-3)))) + "/s"
	if total <= 0 {
		return fmt.Sprintf("%s done, %s", text(done), rate)
	}
	full := int(barWidth * min(done, total) / total)
	return fmt.Sprintf("[%s%s] %s of %s, %s", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), text(done),
		text(total), rate)
}

// inCount writes a number of things.
func inCount(n int64) string { return strconv.FormatInt(n, 10) }

// inBytes writes a number of bytes.
func inBytes(n int64) string {
	x, unit := float64(n), ""
	for _, larger := range []string{"k", "M", "G", "T"} {
		if x < 999.5 {
			break
		}
		x, unit = x/1000, larger
	}
	if unit == "" || x >= 99.95 {
		return fmt.Sprintf("%.0f %sB", x, unit)
	}
	return fmt.Sprintf("%.1f %sB", x, unit)
}
