package amqp

import "time"

// lingerTime is after how long without work a goroutine of a session ends. It starts again when
// there is some: a thousand idle devices have none.
const lingerTime = time.Second

// linger is the timer of such a goroutine. It is not set again for each piece of work, so what ends
// has had none for lingerTime to twice that.
type linger struct {
	*time.Timer
	used bool // there was work since the timer was set
}

func newLinger() linger { return linger{Timer: time.NewTimer(lingerTime)} }

// expired sets the timer, which has fired, again, and reports whether there was no work.
func (l *linger) expired() bool {
	idle := !l.used
	l.used = false
	l.Reset(lingerTime)
	return idle
}
