package amqp

import "time"

// lingerTime is how long a goroutine of a session waits for more work before it ends. New work
// starts it again, so a thousand idle devices have no goroutines.
const lingerTime = time.Second

// linger is the timer of such a goroutine. It is not reset for each piece of work, so the goroutine
// ends after lingerTime to twice that.
type linger struct {
	*time.Timer
	used bool // there was work after the timer was set
}

func newLinger() linger { return linger{Timer: time.NewTimer(lingerTime)} }

// expired resets the timer, which has fired, and reports whether there was no work.
func (l *linger) expired() bool {
	idle := !l.used
	l.used = false
	l.Reset(lingerTime)
	return idle
}
