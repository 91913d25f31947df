package faults

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// ErrThrottled is the cause of a refused connect, or of a connection's end, beyond a limit of
// [hubdata.LimitOptions].
var ErrThrottled = errors.New("testbroker: limit of requests a second is exceeded")

const (
	maxLimit    = 1e9
	defaultWait = 10 * time.Second // of Burst and Queue
)

// limit shapes requests. The zero value takes them all.
type limit struct {
	each, burst, queue time.Duration
	done               time.Time // when the requests so far would be done at the rate alone
}

// take returns how long a request waits that arrives now. It refuses those that would wait for
// longer than the queue.
func (l *limit) take(now time.Time) (wait time.Duration, ok bool) {
	if l.each == 0 {
		return 0, true
	}
	done := l.done
	if done.Before(now) {
		done = now
	}
	done = done.Add(l.each)
	wait = done.Sub(now) - l.burst
	if wait > l.queue {
		return 0, false
	}
	l.done = done
	return max(wait, 0), true
}

// Limits are those of a hub. They are safe for concurrent use.
type Limits struct {
	mu                 sync.Mutex // guards the fields below
	connects, messages limit
}

// Init sets the limits.
func (l *Limits) Init(o *hubdata.LimitOptions) error {
	burst, queue := max(cmp.Or(o.Burst, defaultWait), 0), max(cmp.Or(o.Queue, defaultWait), 0)
	for _, f := range [...]struct {
		name string
		rate float64
		to   *limit
	}{{"Connects", o.Connects, &l.connects}, {"Messages", o.Messages, &l.messages}} {
		switch {
		case !(f.rate >= 0 && f.rate <= maxLimit):
			return errors.New("testbroker: Options.Limits." + f.name + " is out of range; give up to 1e9 a second, or 0 for " +
				"no limit")
		case f.rate > 0:
			*f.to = limit{each: time.Duration(float64(time.Second) / f.rate), burst: burst, queue: queue}
		}
	}
	return nil
}

// Connect admits a connect, after a wait.
func (l *Limits) Connect() (wait time.Duration, ok bool) { return l.take(&l.connects) }

// Message admits a message, whose acknowledgement waits.
func (l *Limits) Message() (wait time.Duration, ok bool) { return l.take(&l.messages) }

func (l *Limits) take(of *limit) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return of.take(time.Now())
}
