package device

import (
	"sync/atomic"
	"time"
)

// earlier returns the earlier of at and other. at must not be zero; a zero other is ignored.
func earlier(at, other time.Time) time.Time {
	if other.IsZero() || at.Before(other) {
		return at
	}
	return other
}

// loopTimer wakes the loop.
type loopTimer struct {
	poke  func()
	timer *time.Timer // nil until it is needed
	at    time.Time   // when it fires
	fired atomic.Bool // since it was armed; on boards it may fire a tick early
}

// arm makes the timer fire at the earliest of the given times; zero times are ignored. The timer
// only ever moves to an earlier time. When it fires early, the loop checks everything and arms it
// again.
func (t *loopTimer) arm(now time.Time, times ...time.Time) {
	var at time.Time
	for _, x := range times {
		if !x.IsZero() && (at.IsZero() || x.Before(at)) {
			at = x
		}
	}
	fired := t.fired.Load()
	if at.IsZero() || now.Before(t.at) && !at.Before(t.at) && !fired {
		return
	}
	wait := at.Sub(now)
	if fired && now.Before(t.at) {
		wait = max(wait, time.Millisecond) // a wait shorter than a tick would fire early again
	}
	t.at = at
	t.fired.Store(false)
	if t.timer == nil {
		t.timer = time.AfterFunc(wait, t.fire)
	} else {
		t.timer.Reset(wait)
	}
}

func (t *loopTimer) fire() {
	t.fired.Store(true)
	t.poke()
}

func (t *loopTimer) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// alarm is a timer that fires once. It is not a time.NewTimer, because that reads a runtime setting
// and so links 5 KB of map code into the program of a board.
type alarm struct {
	fired chan struct{} // capacity 1
	timer *time.Timer
}

func newAlarm(d time.Duration) *alarm {
	a := &alarm{fired: make(chan struct{}, 1)}
	a.timer = time.AfterFunc(d, func() { a.fired <- struct{}{} })
	return a
}

// stop stops the alarm and reports whether it can be set again. It returns false once the alarm has
// fired or is about to.
func (a *alarm) stop() bool { return a.timer.Stop() }

// set restarts a stopped alarm.
func (a *alarm) set(d time.Duration) { a.timer.Reset(d) }
