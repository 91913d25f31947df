package device

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// refused asks the message policy about the oldest message that the service does not take for now, and pauses all sending as it says. A message
// for which it stops fails alone; then the next is asked about.
func (l *loop) refused(now time.Time) {
	tag, r, ok := l.c.box.oldestRefused()
	if !ok {
		return
	}
	failure := r.err
	l.incident = incident{
		attempt: retrypolicy.Attempt{
			Retry: r.count, Scope: transport.Operation, Kind: failure.Kind, After: failure.RetryAfter,
			Elapsed: now.Sub(r.since), Last: r.last, Rand: l.c.set.Rand(), Err: failure,
		},
		failure: failure, reason: Paused, tag: tag, began: now,
	}
	l.pause(l.c.policies.Load(), now)
}

// pause asks p about the incident of a refused message and stops sending as it says.
func (l *loop) pause(p *policies, now time.Time) {
	l.askedAbout = p
	d := p.decide(l.incident.attempt)
	l.traceDecision(d)
	if !d.Retry {
		l.c.box.fail(l.incident.tag, retriesEnded(l.incident.failure))
		l.resumeAt, l.incident = time.Time{}, incident{}
		return
	}
	l.c.box.decided(l.incident.tag, d)
	l.resumeAt = l.incident.began.Add(d.Delay)
	l.c.publish(Status{State: Connected, Reason: Paused, Retry: l.incident.attempt.Retry, Delay: d.Delay, Err: l.incident.failure})
}

// resume ends a pause: what was refused goes first.
func (l *loop) resume() {
	l.resumeAt, l.incident = time.Time{}, incident{}
	l.c.box.requeue()
	l.c.publish(Status{State: Connected, Reason: ConnectionOK, Retry: l.retry})
}
