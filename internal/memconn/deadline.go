package memconn

import (
	"sync"
	"time"
)

// A deadline wakes the waiters of a condition when its time has come; they check the clock
// themselves. The lock of that condition guards it.
//
// Protocol code moves deadlines with each packet, nearly always to a later time. That needs no
// timer operation here: the armed timer fires early and arms itself again.
type deadline struct {
	t     time.Time // zero = none
	armed time.Time // when the timer fires; zero = not armed
	timer *time.Timer
	wake  *sync.Cond
}

// passed reports whether the deadline has passed.
func (d *deadline) passed() bool { return !d.t.IsZero() && time.Until(d.t) <= 0 }

func (d *deadline) set(t time.Time) {
	d.t = t
	if t.IsZero() {
		return
	}
	if wait := time.Until(t); wait > 0 && (d.armed.IsZero() || t.Before(d.armed)) {
		d.arm(wait)
	}
}

func (d *deadline) arm(wait time.Duration) {
	d.armed = d.t
	if d.timer == nil {
		d.timer = time.AfterFunc(wait, d.fire)
		return
	}
	d.timer.Reset(wait)
}

func (d *deadline) fire() {
	d.wake.L.Lock()
	defer d.wake.L.Unlock()
	d.armed = time.Time{}
	if d.t.IsZero() {
		return
	}
	if wait := time.Until(d.t); wait > 0 {
		d.arm(wait)
		return
	}
	d.wake.Broadcast()
}

// stop stops the timer and clears the deadline.
func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
	d.t, d.armed = time.Time{}, time.Time{}
}
