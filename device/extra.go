package device

import (
	"slices"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// An extra is a feature beside messages: the twin, direct methods. The client gets it when the
// program asks for it first; the program of a board that never does links none of it. The loop
// calls wants to over; resume, halt and end come with Start, Disconnected and Close; the last three
// may come at any time, from anywhere.
type extra interface {
	// wants returns what a session has to be subscribed to before the connection counts as up, and
	// what beyond that it has to be subscribed to for what waits now.
	wants() (always, now transport.Features)
	// refused is told that the session does not give what wants asked for now; it does not ask again
	// at once.
	refused(l *loop, why *transport.Error)
	// begin is told that a session is up.
	begin()
	// serve hands to the live session what may go now and returns when it is to be called again
	// without a poke; zero: never.
	serve(l *loop, now time.Time) time.Time
	// busy reports whether it would be a pity to hang up now.
	busy() bool
	// over is told that the session has ended.
	over(l *loop)
	// resume is told that the client tries to connect from now on, halt that it does not any longer,
	// and why.
	resume()
	halt(why *transport.Error)
	// end is told that Close was called; it returns what to wait for, nil for nothing.
	end() <-chan struct{}

	reply(id uint32, r transport.Reply)
	deliver(d *transport.Delivery) bool
	fill(s *Stats)
}

// extras are several as one. A list is not changed.
type extras []extra

func (l extras) wants() (always, now transport.Features) {
	for _, x := range l {
		a, n := x.wants()
		always |= a
		now |= n
	}
	return always, now
}

func (l extras) serve(loop *loop, now time.Time) (next time.Time) {
	for _, x := range l {
		if at := x.serve(loop, now); !at.IsZero() {
			next = earlier(at, next)
		}
	}
	return next
}

func (l extras) busy() bool {
	return slices.ContainsFunc(l, extra.busy)
}

func (l extras) reply(id uint32, r transport.Reply) {
	for _, x := range l {
		x.reply(id, r)
	}
}

func (l extras) deliver(d *transport.Delivery) bool {
	return slices.ContainsFunc(l, func(x extra) bool { return x.deliver(d) })
}

func (l extras) end() <-chan struct{} {
	var ends []<-chan struct{}
	for _, x := range l { // all are told before one is waited for
		if one := x.end(); one != nil {
			ends = append(ends, one)
		}
	}
	all := make(chan struct{})
	go func() { // ends when all have
		defer close(all)
		for _, one := range ends {
			<-one
		}
	}()
	return all
}

func (l extras) begin()                    { l.each(extra.begin) }
func (l extras) over(loop *loop)           { l.each(func(x extra) { x.over(loop) }) }
func (l extras) resume()                   { l.each(extra.resume) }
func (l extras) halt(why *transport.Error) { l.each(func(x extra) { x.halt(why) }) }
func (l extras) fill(s *Stats)             { l.each(func(x extra) { x.fill(s) }) }

func (l extras) refused(loop *loop, why *transport.Error) {
	l.each(func(x extra) { x.refused(loop, why) })
}

func (l extras) each(do func(extra)) {
	for _, x := range l {
		do(x)
	}
}

// also returns the client's extras, nil if it has none.
func (c *Client) also() extra {
	if more := c.more.Load(); more != nil {
		x, _ := (*more).(extra) // an assertion, so that a linker for boards sees that nothing is an extra where nothing is
		return x
	}
	return nil
}

// extra returns the client's extra that is asks for; there is one from then on.
func (c *Client) extra(is func(extra) bool, create func() extra) extra {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list extras
	if x := c.also(); x != nil {
		list = x.(extras)
	}
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i]
	}
	x := create()
	if c.shut {
		x.end()
	}
	if why := c.box.whyHalted(); why != nil {
		x.halt(why)
	}
	var all any = append(slices.Clip(list), x)
	c.more.Store(&all)
	c.poke()
	return x
}

// wants returns what the session is to be subscribed to: before the connection counts as up, and by
// now.
func (l *loop) wants() (always, now transport.Features) {
	if x := l.c.also(); x != nil {
		always, now = x.wants()
	}
	if l.c.set.OnMessage != nil {
		always |= transport.Messages
	}
	return always, now | always
}

// subscribe asks the session for features.
func (l *loop) subscribe(want transport.Features) {
	l.asked = want
	l.request = transport.Request{ID: subscribeID, Op: transport.OpSubscribe, Want: want}
	l.live.Do(&l.request)
}

// serveExtras gives the extras their turn on a live session, which is subscribed to what they want
// by now.
func (l *loop) serveExtras(x extra, now time.Time) {
	l.extraDue = time.Time{}
	if always, want := l.wants(); l.drainBy.IsZero() && l.asked == 0 && want&^l.granted != 0 {
		if always &^= l.granted; always != 0 { // by itself: its refusal ends the session
			want = always
		}
		l.subscribe(want &^ l.granted)
		l.askedBy = now.Add(l.c.set.DialTimeout)
	}
	l.extraDue = x.serve(l, now)
	if l.asked != 0 {
		l.extraDue = earlier(l.askedBy, l.extraDue)
	}
}

// subscribed takes the answer to a subscription of a live session. It returns the failure that ends
// the session, nil for none: a refusal of what the session can do without concerns those who wait
// for it.
func (l *loop) subscribed(x extra, err error) error {
	asked := l.asked
	l.asked = 0
	if err == nil {
		l.granted |= asked
		l.c.poke()
		return nil
	}
	if always, _ := l.wants(); asked&always != 0 {
		return ofConnection(err)
	}
	x.refused(l, ofTransport(err))
	l.c.poke()
	return nil
}

// ungranted reports whether the session has not answered a subscription in time.
func (l *loop) ungranted(now time.Time) bool {
	return l.asked != 0 && !now.Before(l.askedBy)
}
