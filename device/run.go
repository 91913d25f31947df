package device

import (
	"time"
)

// pass is the only code that changes the phase: it runs one phase and returns the next. run calls
// it.
func (l *loop) pass(p phase) (next phase) {
	switch p {
	case restarting:
		next = l.restart()
	case connecting:
		if next = l.connect(); next == connected {
			l.begin()
		}
	case connected:
		next = l.serve()
	case waiting:
		next = l.wait()
	case ended:
	}
	return next
}

// endAll ends all series, at the end of the loop.
func (l *loop) endAll() {
	l.endSeries(&l.outage.series)
	l.c.queue.forget()
	l.reportOutcomes(time.Now())
	if x := l.c.features(); x != nil {
		x.over(l)
	}
}

// finish ends the loop.
func (l *loop) finish() {
	l.timer.stop()
	close(l.own.done)
}
