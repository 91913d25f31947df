package device

import "time"

// alarm rings once. It is not a time.NewTimer, because that one asks the runtime for a setting and
// so links 5 KB of maps into the program of a board.
type alarm struct {
	rang  chan struct{} // capacity 1
	timer *time.Timer
}

func newAlarm(d time.Duration) *alarm {
	a := &alarm{rang: make(chan struct{}, 1)}
	a.timer = time.AfterFunc(d, func() { a.rang <- struct{}{} })
	return a
}

// stop keeps the alarm from ringing and reports whether it can be set again; it cannot if it has
// rung, or is about to.
func (a *alarm) stop() bool { return a.timer.Stop() }

// set sets an alarm that was stopped.
func (a *alarm) set(d time.Duration) { a.timer.Reset(d) }
