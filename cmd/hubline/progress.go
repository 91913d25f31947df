package main

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// progress is a line with a bar, on a terminal only.
type progress struct {
	out   *tool
	total int
	done  func() int
	begin time.Time

	stop  chan struct{}
	drawn sync.WaitGroup
}

const (
	barWidth  = 30
	barEvery  = 200 * time.Millisecond
	lineWidth = 78
)

// newProgress starts drawing. total is 0 if it is not known; done is called from a goroutine.
func newProgress(t *tool, total int, done func() int) *progress {
	p := &progress{out: t, total: total, done: done, begin: time.Now(), stop: make(chan struct{})}
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
			fmt.Fprintf(p.out.log, "\r%-*.*s", lineWidth, lineWidth, barLine(p.done(), p.total, time.Since(p.begin)))
		case <-p.stop:
			fmt.Fprintf(p.out.log, "\r%s\r", strings.Repeat(" ", lineWidth))
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
func barLine(done, total int, since time.Duration) string {
	rate := fmt.Sprintf("%.0f/s", float64(done)/max(since.Seconds(), 1e-3))
	if total <= 0 {
		return fmt.Sprintf("%d done, %s", done, rate)
	}
	full := barWidth * min(done, total) / total
	return fmt.Sprintf("[%s%s] %d of %d, %s", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), done, total,
		rate)
}
