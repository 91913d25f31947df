package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/device"
)

// printer prints one line per event, with the seconds since the start.
type printer struct {
	mu    sync.Mutex
	start time.Time
	done  bool
}

func newPrinter() *printer { return &printer{start: time.Now()} }

func (p *printer) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.done {
		fmt.Printf("%6.2fs  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
	}
}

// settle ends the output of events: the ledger follows.
func (p *printer) settle() {
	p.mu.Lock()
	p.done = true
	p.mu.Unlock()
}

// status is the client's OnStatus.
func (p *printer) status(s device.Status) {
	switch s.Reason {
	case device.ReasonConnecting:
		if s.Retry > 0 {
			p.line("device     retry %d begins", s.Retry)
		}
	case device.ReasonConnectionOK:
		p.line("device     connected")
	case device.ReasonConnectionLost:
		p.line("device     LOST the connection: %v; retry %d in %v", s.Err, s.Retry, s.Delay.Round(time.Millisecond))
	case device.ReasonAttemptFailed:
		p.line("device     attempt failed: %v; retry %d in %v", s.Err, s.Retry, s.Delay.Round(time.Millisecond))
	case device.ReasonPaused:
		p.line("device     pauses for %v: %v", s.Delay.Round(time.Millisecond), s.Err)
	default:
		if s.Err != nil {
			p.line("device     %v (%v): %v; %s", s.State, s.Reason, s.Err, s.Hint())
		} else {
			p.line("device     %v (%v)", s.State, s.Reason)
		}
	}
}
