package device

import "time"

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
