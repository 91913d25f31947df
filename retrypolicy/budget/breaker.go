package budget

import (
	"cmp"
	"math"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// BreakerOptions configures a Breaker. The zero value opens after 5 failures in a row, for 30 s,
// and refuses attempts meanwhile.
type BreakerOptions struct {
	// Failures is the number of failures in a row, or within Window, that open the breaker. Default:
	// 5.
	Failures int
	// Window counts the failures within this time, whether or not successes come between them.
	// Default: none, failures in a row count.
	Window time.Duration
	// Share is the share of failures among all outcomes in Window that opening requires in addition,
	// from 0 to 1 in steps of a millionth. Default: none.
	Share float64
	// Kinds are the failures that count. Default: all retryable ones; a permanent failure is the
	// answer of a service that works.
	Kinds retrypolicy.KindSet
	// Cooldown is how long the breaker stays open, and the time after which another probe takes the
	// place of one without an outcome. So it should be longer than an attempt; for the connections of
	// device clients, longer than StableTime and DialTimeout together (60 s unless set). Default: 30
	// s.
	Cooldown time.Duration
	// Growth multiplies the cooldown each time probing fails, up to ten times Cooldown, until the
	// breaker closes. Default: 1, no growth.
	Growth float64
	// Probes is how many attempts can be in flight while the breaker is half-open. Default: 1.
	Probes int
	// Successes is the number of successes that close a half-open breaker. Default: 1.
	Successes int
	// Wait makes an attempt wait until the cooldown is over instead of refusing it, for a loop that
	// has nothing else to do, such as that of a connection. A breaker that closes does not wake an
	// attempt that waits: it may begin more than a Cooldown after the service is back.
	Wait bool
}

// BreakerState is the state of a Breaker.
type BreakerState uint8

const (
	// BreakerClosed admits every attempt.
	BreakerClosed BreakerState = iota
	// BreakerOpen admits no attempt until the cooldown is over.
	BreakerOpen
	// BreakerHalfOpen admits a few probes.
	BreakerHalfOpen

	breakerStates // number of states
)

var breakerStateText = [breakerStates]string{BreakerClosed: "closed", BreakerOpen: "open", BreakerHalfOpen: "half-open"}

// String returns the name of the state.
func (s BreakerState) String() string {
	if s >= breakerStates {
		return "undefined state"
	}
	return breakerStateText[s]
}

// BreakerStatus is a snapshot of a Breaker.
type BreakerStatus struct {
	State    BreakerState
	Failures int           // that count towards opening, while closed
	InFlight int           // admitted attempts that have not ended
	Probes   int           // among them, while half-open
	Cooldown time.Duration // the remaining one, while open
	Openings int           // how often the breaker opened
}

// Breaker stops all attempts, first ones included, after too many failures, and admits a few probes
// after a cooldown:
//
//	closed     all attempts begin; Failures in a row, or in Window, open it
//	open       none begins until Cooldown is over; outcomes of older attempts do not count
//	half-open  at most Probes are in flight; Successes close it, a failure opens it again,
//	           for Cooldown*Growth; outcomes of attempts from before it opened do not count,
//	           but for those of probes
//
// A refused attempt ends its series with Rejected and carries the remaining cooldown, or while
// others probe, up to an eighth of a cooldown. Without Wait, a retry whose delay ends before the
// cooldown is refused before that delay. With Wait, an attempt waits for the time that a refusal
// carries, and a random addition of up to half of Cooldown.
//
// An outcome that says nothing about the service does not count: an attempt that panicked, that was
// cancelled or that returned the end of its operation's context, Kind Closed, and, without an HTTP
// status, errors marked by Permanent and Kind Invalid. Any other outcome counts, also after the end
// of the context.
//
// Source: Nygard, "Release It!"; the parameters of failsafe-go and Polly.
type Breaker struct {
	state
	o BreakerOptions // with its defaults

	is       BreakerState
	row      int           // failures in a row
	seen     window        // marked: failures
	cooldown time.Duration // the current one
	until    time.Time     // end of the cooldown
	inFlight int
	probing  int       // probes among them
	epoch    int64     // changes when the probes in flight are no longer waited for
	probed   time.Time // when the latest probe was admitted
	good     int       // successes while half-open
	openings int
}

// NewBreaker returns a closed breaker.
func NewBreaker(o *BreakerOptions) (*Breaker, error) {
	set := given(o)
	set.Failures, set.Probes, set.Successes = cmp.Or(set.Failures, 5), cmp.Or(set.Probes, 1), cmp.Or(set.Successes, 1)
	set.Cooldown, set.Growth = cmp.Or(set.Cooldown, 30*time.Second), cmp.Or(set.Growth, 1)
	if err := kit.Check("BreakerOptions.",
		kit.Bad(set.Failures < 1 || set.Failures > math.MaxInt32, "Failures is out of range; give 1 or more"),
		kit.Bad(set.Window != 0 && set.Window < shortestWindow,
			"Window is too short; give 20 ms or more, 0 to count failures in a row"),
		kit.Bad(!(set.Share >= 0 && set.Share <= 1), "Share is out of range; give a fraction from 0 to 1"),
		kit.Bad(set.Share > 0 && set.Window == 0, "Share needs Window; failures in a row are all there is"),
		kit.Bad(set.Cooldown < 0, "Cooldown is negative; give the time to stay open"),
		kit.Bad(!(set.Growth >= 1 && set.Growth <= math.MaxFloat64), "Growth is below 1 or not finite; give 1 or more"),
		kit.Bad(set.Probes < 1 || set.Probes > math.MaxInt32, "Probes is out of range; give 1 or more"),
		kit.Bad(set.Successes < 1 || set.Successes > math.MaxInt32, "Successes is out of range; give 1 or more"),
	); err != nil {
		return nil, err
	}
	return &Breaker{o: set, seen: newWindow(set.Window), cooldown: set.Cooldown, epoch: 1}, nil
}

// Wrap puts the breaker around p.
func (b *Breaker) Wrap(p retrypolicy.Policy) retrypolicy.Policy {
	return shared{b, b != nil, "Breaker", p}
}

// Status returns the status at now.
func (b *Breaker) Status(now time.Time) BreakerStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle(now)
	s := BreakerStatus{State: b.is, InFlight: b.inFlight, Openings: b.openings}
	switch b.is {
	case BreakerClosed:
		s.Failures = b.failures()
	case BreakerOpen:
		s.Cooldown = b.until.Sub(now)
	default:
		s.Probes = b.probing
	}
	return s
}

// failures returns the number of failures that count towards opening.
func (b *Breaker) failures() int {
	if b.o.Window > 0 {
		return whole(b.seen.sum.marked)
	}
	return b.row
}

// settle applies the state changes that are due at now.
func (b *Breaker) settle(now time.Time) {
	if b.o.Window > 0 {
		b.seen.advance(now)
	}
	if b.is != BreakerOpen {
		return
	}
	if b.until.Sub(now) > b.cooldown { // the clock was set back
		b.until = now.Add(b.cooldown)
	}
	if !now.Before(b.until) {
		b.is, b.good = BreakerHalfOpen, 0
	}
}

// forget stops waiting for the probes in flight.
func (b *Breaker) forget() {
	b.probing = 0
	b.epoch++
}

func (b *Breaker) admit(t *ticket, a retrypolicy.Attempt) retrypolicy.Decision {
	b.release(t)
	b.settle(a.Now)
	wait := b.hold(a.Now)
	switch {
	case wait <= 0:
		t.inFlight, t.probe = true, 0
		b.inFlight++
		if b.is == BreakerHalfOpen {
			t.probe = b.epoch
			b.probing++
			b.probed = a.Now
		}
		return admitted
	case b.o.Wait:
		more := min(kit.OfFloat(kit.Unit(a.Rand)*float64(b.o.Cooldown/2)), kit.Longest-wait)
		return retrypolicy.Decision{Retry: true, Delay: wait + more}
	}
	return stop(retrypolicy.ReasonRejected, wait)
}

// hold returns how long an attempt should wait, 0 if it may begin.
func (b *Breaker) hold(now time.Time) time.Duration {
	switch {
	case b.is == BreakerOpen:
		return b.until.Sub(now)
	case b.is == BreakerClosed || b.probing < b.o.Probes:
		return 0
	}
	since := now.Sub(b.probed)
	if since < -b.cooldown { // the clock was set back
		b.probed, since = now, 0
	}
	if since < b.cooldown {
		return max(min(b.cooldown-max(since, 0), b.cooldown/8), 1)
	}
	b.forget()
	return 0
}

func (b *Breaker) release(t *ticket) {
	if !t.inFlight {
		return
	}
	t.inFlight = false
	b.inFlight--
	if t.probe == b.epoch {
		b.probing--
	}
}

func (b *Breaker) undo(t *ticket, _ retrypolicy.Attempt) { b.release(t) }

func (b *Breaker) report(t *ticket, v retrypolicy.Verdict, a retrypolicy.Attempt) {
	b.release(t)
	b.settle(a.Now)
	switch {
	case SaysNothing(v, a):
	case b.is == BreakerHalfOpen && t.probe == 0: // it began before the breaker opened
	case b.counts(v, a.Kind):
		b.failed(a.Now)
	default:
		b.succeeded()
	}
}

// counts reports whether an outcome is a failure of the service.
func (b *Breaker) counts(v retrypolicy.Verdict, kind transport.Kind) bool {
	if v != retrypolicy.VerdictSucceed && b.o.Kinds != 0 {
		return b.o.Kinds.Has(kind)
	}
	return v == retrypolicy.VerdictAgain
}

func (b *Breaker) failed(now time.Time) {
	switch b.is {
	case BreakerOpen:
		return
	case BreakerHalfOpen:
		b.cooldown = kit.OfFloat(min(float64(b.cooldown)*b.o.Growth, 10*float64(b.o.Cooldown)))
	case BreakerClosed:
		b.row = min(b.row+1, math.MaxInt32)
		b.seen.add(tally{all: 1, marked: 1})
		if b.failures() < b.o.Failures || shareOf(b.o.Share).below(b.seen.sum.marked, b.seen.sum.all) {
			return
		}
		b.cooldown = b.o.Cooldown
	}
	b.is, b.until = BreakerOpen, now.Add(b.cooldown)
	b.seen.clear()
	b.openings = min(b.openings+1, math.MaxInt32)
}

func (b *Breaker) succeeded() {
	b.row = 0
	switch b.is {
	case BreakerClosed:
		b.seen.add(tally{all: 1})
	case BreakerHalfOpen:
		if b.good++; b.good >= b.o.Successes {
			b.is = BreakerClosed
			b.forget()
		}
	case BreakerOpen:
	}
}

// charge refuses a retry whose delay ends before the cooldown, which saves the wait.
func (b *Breaker) charge(_ *ticket, a retrypolicy.Attempt, d retrypolicy.Decision) retrypolicy.Decision {
	b.settle(a.Now)
	if left := b.until.Sub(a.Now); b.is == BreakerOpen && left > d.Delay && !b.o.Wait {
		return stop(retrypolicy.ReasonRejected, left)
	}
	return d
}
