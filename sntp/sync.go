package sntp

import (
	"context"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// server is a time server and what is known of it. Sync only.
type server struct {
	name    string
	next    time.Time     // no request before, by the own clock; zero: any time
	spacing time.Duration // between two requests
	denied  bool          // until next

	voted bool          // its latest answer in this Sync is in ahead
	ahead time.Duration // its time minus that of the own clock
}

var (
	errBusy      = invalid("a Sync or Run of this Clock is still running; call one at a time")
	errAllDenied = fault(transport.Forbidden, "every server denies its service; give other ones")
	errQuorum    = fault(transport.Unavailable, "too few servers agree on the time, for Options.Quorum")
	errGate      = fault(transport.RetryExpired, "a gate in Options.Policy refused the request")
	errNoAnswer  = fault(transport.Timeout, "the server did not answer within Options.Timeout")
)

// Sync asks the servers in turn until the clock is set, the policy stops, or ctx ends. A Sync that
// fails leaves the clock as it was. The error is ctx's or the failure of the latest attempt, of a
// Kind from the package documentation.
func (c *Clock) Sync(ctx context.Context) error {
	if !c.busy.CompareAndSwap(false, true) {
		return errBusy
	}
	defer c.busy.Store(false)
	return c.sync(ctx)
}

// Run calls Sync at once, and again after each Options.Interval, until ctx ends. It returns ctx's
// error. A Sync that fails is repeated after the Interval.
func (c *Clock) Run(ctx context.Context) error {
	if !c.busy.CompareAndSwap(false, true) {
		return errBusy
	}
	defer c.busy.Store(false)
	for {
		_ = c.sync(ctx) // OnAttempt has reported it
		spread := c.opt.Interval / 4
		if err := c.sleep(ctx, c.opt.Interval-time.Duration(c.opt.Rand()%uint64(spread))); err != nil {
			return err
		}
	}
}

func (c *Clock) sync(ctx context.Context) error {
	for i := range c.servers {
		c.servers[i].voted = false
	}
	series := retrypolicy.Begin(c.opt.Policy, "", c.opt.Now())
	defer series.End()
	for {
		if err := c.admit(ctx, &series); err != nil {
			return err
		}
		err := c.attempt(ctx)
		now := c.opt.Now()
		if err == nil {
			return series.Success(now)
		}
		if ended := ctx.Err(); ended != nil {
			return ended
		}
		info := retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: transport.KindOf(err), Safe: retrypolicy.SafeYes}
		if c.choose() == nil {
			info.Verdict = retrypolicy.VerdictFail
		}
		d, wrong := series.Failure(now, c.opt.Rand(), info, err)
		switch {
		case wrong != nil:
			return wrong
		case info.Verdict == retrypolicy.VerdictFail:
			return errAllDenied
		case !d.Retry:
			return err
		}
		if ended := c.sleep(ctx, d.Delay); ended != nil {
			return ended
		}
	}
}

// admit waits until the next server may be asked and the policy agrees.
func (c *Clock) admit(ctx context.Context, series *retrypolicy.Operation) error {
	next := c.choose()
	if next == nil {
		return errAllDenied
	}
	if !next.next.IsZero() {
		if err := c.sleep(ctx, next.next.Sub(c.opt.Now())); err != nil {
			return err
		}
	}
	for {
		d, err := series.Admit(c.opt.Now(), c.opt.Rand())
		switch {
		case err != nil:
			return err
		case !d.Retry:
			return errGate
		case d.Delay <= 0:
			return nil
		}
		if err := c.sleep(ctx, d.Delay); err != nil {
			return err
		}
	}
}

// choose returns the server to ask next: of those that may be asked first, the first after the
// latest one. nil: all deny their service.
func (c *Clock) choose() *server {
	now := c.opt.Now()
	var best *server
	for i := range c.servers {
		s := &c.servers[(c.latest+1+i)%len(c.servers)]
		if (!s.denied || !now.Before(s.next)) && (best == nil || s.next.Before(best.next)) {
			best = s
		}
	}
	return best
}

// attempt asks one server and sets the clock if its answer decides.
func (c *Clock) attempt(ctx context.Context) error {
	s := c.choose()
	for i := range c.servers {
		if s == &c.servers[i] {
			c.latest = i
		}
	}
	if s.denied {
		s.denied, s.spacing = false, floor // a day ago; its name may stand for another server today
	}
	report := Attempt{Server: s.name}
	before := c.Now()
	a, began, ended, err := c.ask(ctx, s)
	s.learn(err)
	s.next = c.opt.Now() // also after a failed dial: the others get their turn
	if !began.IsZero() { // a request was sent
		s.next = s.next.Add(s.spacing)
	}
	if err == nil {
		report.RoundTrip = ended.Sub(began)
		way := (report.RoundTrip - a.held) / 2
		t := a.sent.Add(way)
		s.voted, s.ahead = true, t.Sub(ended)
		if err = errQuorum; c.agreeing(s) >= c.opt.Quorum {
			err, report.Set = nil, true
			c.set(t, ended)
		}
		report.Time = t.Add(c.opt.Now().Sub(ended))
		report.Step = t.Sub(before.Add(report.RoundTrip))
	}
	report.Err = err
	if c.opt.OnAttempt != nil {
		if failed := callback.Run("Options.OnAttempt of package sntp", func() { c.opt.OnAttempt(report) }); failed != nil {
			return failed
		}
	}
	return err
}

// learn obeys a server that wants fewer requests, or none.
func (s *server) learn(err error) {
	switch {
	case errors.Is(err, errDenied):
		s.denied = true
		s.spacing = maxSpacing
	case errors.Is(err, errRate):
		s.spacing = min(2*s.spacing, maxSpacing)
	}
}

// agreeing counts the servers whose times agree with that of s, s included.
func (c *Clock) agreeing(s *server) int {
	n := 0
	for i := range c.servers {
		o := &c.servers[i]
		if apart := o.ahead - s.ahead; o.voted && -c.opt.Tolerance <= apart && apart <= c.opt.Tolerance {
			n++
		}
	}
	return n
}

// sleep waits for d or ctx's end. A Clock has one timer, because boards must not allocate for each
// wait.
func (c *Clock) sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(d, func() {
			select {
			case c.alarm <- struct{}{}:
			default:
			}
		})
	} else {
		c.timer.Reset(d)
	}
	for end := c.opt.Now().Add(d); ; {
		select {
		case <-ctx.Done():
			c.timer.Stop()
			return ctx.Err()
		case <-c.alarm:
		}
		// An alarm may be left over from an earlier wait.
		left := end.Sub(c.opt.Now())
		if left <= 0 {
			return nil
		}
		c.timer.Reset(left)
	}
}
