package device

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// subscribeAlways requests what the connection does not count as up without, alone, because its
// refusal ends the session. It reports whether there was anything to request.
func (l *loop) subscribeAlways() bool {
	x := l.c.features()
	if x == nil {
		return false
	}
	subs := &l.conn.subs
	want, _ := x.wants()
	want &^= subs.granted | subs.lacks
	if subs.single {
		want &= -want // the lowest bit
	}
	return l.subscribe(want)
}

// subscribe requests features from the session, and reports whether one is missing.
func (l *loop) subscribe(want transport.Features) bool {
	want &^= l.conn.subs.granted
	if want == 0 {
		return false
	}
	l.conn.subs.asked = want
	l.conn.do(transport.Request{ID: subscribeID, Op: transport.OpSubscribe, Want: want})
	return true
}

// serveFeatures subscribes the live session to the wanted features, and serves them.
func (l *loop) serveFeatures(x features, now time.Time) {
	x.begin(l.conn)
	subs := &l.conn.subs
	subs.due = time.Time{}
	if subs.lacks != 0 && !now.Before(subs.askAgain) {
		subs.lacks = 0
	}
	if !l.drains(now) && subs.asked == 0 {
		_, want := x.wants()
		if l.subscribeAlways() || l.subscribe(want) {
			subs.askedBy = now.Add(l.c.set.DialTimeout)
		}
	}
	subs.due = x.serve(l, now)
	if subs.asked != 0 {
		if limit := l.c.set.DialTimeout; !now.Before(subs.askedBy) { // unless the connection makes progress
			subs.askedBy = l.conn.answers.lastProgress(subs.askedBy.Add(-limit), 0).Add(limit)
		}
		subs.due = earlier(subs.askedBy, subs.due)
	}
	if subs.lacks != 0 {
		subs.due = earlier(subs.askAgain, subs.due)
	}
}

// subscribed handles the answer to a subscription. It returns the failure that ends the session,
// nil for none: if the session works without the subscription, only the calls that wait for it
// fail. A feature that the peer does not have is found alone, and goes into the status. Without a
// question the answer is about everything that was asked for before.
func (l *loop) subscribed(x features, err error) error {
	subs := &l.conn.subs
	asked := subs.asked
	if asked == 0 {
		asked = subs.granted | subs.lacks
	}
	subs.asked = 0
	subs.granted &^= asked
	always, _ := x.wants()
	failure := ofTransport(err)
	switch {
	case err == nil:
		if subs.grant(asked) {
			l.lackChanged()
		}
	case asked&always == 0:
		l.refuseCalls(x, asked, failure)
	case failure.Kind != transport.Unsupported:
		return ofConnection(err)
	case asked&(asked-1) != 0: // one of several
		subs.single = true
	default:
		if subs.lack(asked, failure) {
			l.lackChanged()
		}
		l.refuseCalls(x, asked, failure)
	}
	l.c.poke()
	return nil
}

// lackChanged publishes the status of a connection that is up and not paused.
func (l *loop) lackChanged() {
	if !l.conn.upSince.IsZero() && !l.pause.running() {
		l.publishConnected()
	}
}

// refuseCalls fails the calls that wait for a subscription that was refused.
func (l *loop) refuseCalls(x features, asked transport.Features, why *transport.Error) {
	if asked&transport.FeatureTwin != 0 {
		x.refused(l, why)
	}
}
