package budget

import (
	"math"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/delay"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
	"github.com/hubline-iot/hubline/retrypolicy/internal/wrap"
	"github.com/hubline-iot/hubline/transport"
)

// AdaptiveOptions describe an Adaptive. The zero value has the published constants.
type AdaptiveOptions struct {
	// Beta is the share of the rate that is kept when an attempt is throttled, above 0 and below 1.
	// Default: 0.7.
	Beta float64
	// Scale is how fast the rate grows again, in attempts per second^4. Default: 0.4.
	Scale float64
	// Smoothing is the weight of the newest half-second in the measured rate, above 0 and at most 1.
	// Default: 0.8.
	Smoothing float64
	// Growth is how many times the measured rate the limit may be. Default: 2.
	Growth float64
	// MinRate is the lowest limit, in attempts a second. Default: 0.5.
	MinRate float64
	// Kinds are the failures that slow it down. Default: Throttled.
	Kinds retrypolicy.KindSet
	// Start is when the measuring begins. Zero: at the first question.
	Start time.Time
}

// Adaptive limits the rate of attempts, first ones included, to what the service takes: each
// attempt costs one token. It lets everything pass until an attempt is throttled; from then on it
// follows a cubic curve, as TCP CUBIC does for a window:
//
//	throttled:  wmax = min(measured, limit), limit = Beta * wmax
//	otherwise:  limit = Scale * (t - K)^3 + wmax, K = cbrt(wmax * (1-Beta) / Scale),
//	            t seconds since it was throttled last
//
// and never above Growth times the measured rate nor below MinRate. The measured rate counts every
// attempt that ended, in half-seconds, smoothed. Tokens come at the limit's rate; as many as one
// second brings, at least one, can be kept. An attempt without a token waits; nothing is taken in
// advance, it asks again.
//
// It belongs around a policy (Wrap), one for all operations of a client. Safe for concurrent use;
// never sleeps; allocates nothing.
//
// Source: botocore retries/adaptive.py, bucket.py, throttling.py; smithy-kotlin, aws-sdk-go-v2,
// -java-v2 and -js-v3 have the same.
type Adaptive struct {
	kinds retrypolicy.KindSet

	mu      sync.Mutex
	epoch   time.Time     // the whole second at or below the start, which all times here count from
	latest  time.Duration // the latest time seen: a caller's look at the clock may be older
	meter   rateMeter
	curve   cubic
	tokens  fillBucket
	growth  float64
	enabled bool
	waiting int // how many were told to wait since a token was taken last
}

// NewAdaptive makes a limiter. o may be nil. Errors are of Kind Invalid.
func NewAdaptive(o *AdaptiveOptions) (*Adaptive, error) {
	var set AdaptiveOptions
	if o != nil {
		set = *o
	}
	for _, d := range []struct {
		value   *float64
		preset  float64
		below   float64
		message string
	}{
		{&set.Beta, 0.7, 1, "AdaptiveOptions.Beta is out of range; give more than 0 and less than 1"},
		{&set.Scale, 0.4, math.MaxFloat64, "AdaptiveOptions.Scale is out of range; give more than 0"},
		{&set.Smoothing, 0.8, math.Nextafter(1, 2),
			"AdaptiveOptions.Smoothing is out of range; give more than 0 and at most 1"},
		{&set.Growth, 2, math.MaxFloat64, "AdaptiveOptions.Growth is out of range; give more than 1"},
		{&set.MinRate, 0.5, math.MaxFloat64, "AdaptiveOptions.MinRate is out of range; give more than 0 tries a second"},
	} {
		if *d.value == 0 {
			*d.value = d.preset
		}
		if !(*d.value > 0 && *d.value < d.below) {
			return nil, failure.Invalid(d.message)
		}
	}
	if set.Growth <= 1 {
		return nil, failure.Invalid("AdaptiveOptions.Growth is out of range; give more than 1")
	}
	if set.Kinds == 0 {
		set.Kinds = retrypolicy.Kinds(transport.Throttled)
	}
	l := &Adaptive{
		kinds: set.Kinds, growth: set.Growth,
		meter: rateMeter{smoothing: set.Smoothing}, curve: cubic{beta: set.Beta, scale: set.Scale},
		tokens: fillBucket{least: set.MinRate},
	}
	if !set.Start.IsZero() {
		l.at(set.Start)
	}
	return l, nil
}

// at is the time since the epoch. It begins the measuring if need be.
func (l *Adaptive) at(now time.Time) time.Duration {
	switch {
	case now.IsZero():
	case l.epoch.IsZero():
		l.latest = time.Duration(now.Nanosecond())
		l.epoch = now.Add(-l.latest)
		l.curve.throttledAt = l.latest
	default:
		t := now.Sub(l.epoch)
		if t < l.latest-setBack {
			l.epoch, t = now.Add(-l.latest), l.latest
		}
		l.latest = max(l.latest, t)
	}
	return l.latest
}

// setBack is how far behind the latest time a question can be before it means that the clock was
// set back, rather than that its caller was slow. Time goes on from there then; it would stand
// still otherwise.
const setBack = 10 * time.Second

// Admit takes a token. Without one it returns the Delay until the next token. Callers that ask
// meanwhile get the times of the tokens after that one, at most a second later, so that a thousand
// waiting callers do not all come back for each token. A caller that finds none waits again.
func (l *Adaptive) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.at(a.Now)
	if !l.enabled {
		return wrap.Admitted
	}
	wait := l.tokens.take(t, 1)
	if wait == 0 {
		l.waiting = 0
		return wrap.Admitted
	}
	turn := delay.OfFloat(float64(l.waiting) / l.tokens.rate * float64(time.Second))
	l.waiting = min(l.waiting, math.MaxInt32-1) + 1
	return retrypolicy.Decision{Retry: true, Delay: wait + min(turn, time.Second)}
}

// giveBack returns the token of an attempt that did not begin after all.
func (l *Adaptive) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.enabled {
		l.tokens.give(1)
	}
}

// Observe measures the rate and sets the limit anew. Failures that are not throttled count like
// successes.
func (l *Adaptive) Observe(a retrypolicy.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.at(a.Now)
	measured := l.meter.record(int64(t/(time.Second/2)), max(a.Count, 1))
	var rate float64
	if a.Err != nil && l.kinds.Has(a.Kind) {
		from := measured
		if l.enabled {
			from = min(measured, l.tokens.rate)
		}
		rate = l.curve.throttled(t, from)
		l.enabled = true
	} else {
		rate = l.curve.passed(t)
	}
	l.tokens.setRate(t, min(rate, l.growth*measured))
}

// Rate is the limit in attempts a second, and whether it holds: it does once an attempt was
// throttled.
func (l *Adaptive) Rate() (perSecond float64, enabled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tokens.rate, l.enabled
}

// Wrap puts the limiter in front of p: every attempt of p takes a token first, and every end of one
// is measured.
func (l *Adaptive) Wrap(p retrypolicy.Policy) retrypolicy.Policy { return limited{l, p} }

type limited struct {
	limiter *Adaptive
	policy  retrypolicy.Policy
}

func (l limited) Decide(a retrypolicy.Attempt) retrypolicy.Decision { return l.policy.Decide(a) }

// Admit asks p only when there is a token, for p may count what it admits; if p refuses, the token
// is put back.
func (l limited) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	if d := l.limiter.Admit(a); d.Delay > 0 {
		return d
	}
	d := retrypolicy.Admit(l.policy, a)
	if !d.Retry || d.Delay > 0 {
		l.limiter.giveBack()
	}
	return d
}

func (l limited) Withdraw(a retrypolicy.Attempt) { retrypolicy.Withdraw(l.policy, a) }

func (l limited) Observe(a retrypolicy.Attempt) {
	l.limiter.Observe(a)
	retrypolicy.Observe(l.policy, a)
}

func (l limited) Validate() error {
	if l.limiter == nil {
		return failure.Invalid("Adaptive is nil; make one with NewAdaptive")
	}
	return wrap.Within("the policy that Adaptive.Wrap was given", l.policy)
}

// rateMeter measures how many attempts end each second, over whole half-seconds.
type rateMeter struct {
	smoothing float64
	since     int64 // the half-second that the count began in
	count     int
	rate      float64
}

func (m *rateMeter) record(half int64, n int) float64 {
	m.count += n
	if half > m.since {
		m.rate = float64(m.count)/(float64(half-m.since)/2)*m.smoothing + m.rate*(1-m.smoothing)
		m.count, m.since = 0, half
	}
	return m.rate
}

// cubic is the curve. most is the rate at which it was throttled last, before beta.
type cubic struct {
	beta, scale float64
	most        float64
	throttledAt time.Duration
}

func (c *cubic) throttled(t time.Duration, rate float64) float64 {
	c.most, c.throttledAt = rate, t
	return rate * c.beta
}

// window is the time in seconds after which the rate is back where it was.
func (c *cubic) window() float64 { return math.Cbrt(c.most * (1 - c.beta) / c.scale) }

func (c *cubic) passed(t time.Duration) float64 {
	d := (t - c.throttledAt).Seconds() - c.window()
	return c.scale*d*d*d + c.most
}

// fillBucket holds the tokens.
type fillBucket struct {
	least  float64 // rate
	rate   float64 // tokens a second
	size   float64
	tokens float64
	mark   time.Duration
	marked bool
}

func (b *fillBucket) fill(t time.Duration) {
	if b.marked && t > b.mark {
		b.tokens = min(b.size, b.tokens+(t-b.mark).Seconds()*b.rate)
	}
	b.mark, b.marked = t, true
}

// take takes n tokens, or returns how long it will take until there are so many.
func (b *fillBucket) take(t time.Duration, n float64) time.Duration {
	b.fill(t)
	if n <= b.tokens {
		b.tokens -= n
		return 0
	}
	return max(1, delay.OfFloat(math.Ceil((n-b.tokens)/b.rate*float64(time.Second))))
}

func (b *fillBucket) give(n float64) { b.tokens = min(b.size, b.tokens+n) }

func (b *fillBucket) setRate(t time.Duration, rate float64) {
	b.fill(t)
	b.rate = max(rate, b.least)
	b.size = max(rate, 1)
	b.tokens = min(b.tokens, b.size)
}

func (l limited) Inside() retrypolicy.Policy { return l.policy }
func (l limited) Shared() any                { return l.limiter }
func (limited) Charges() bool                { return false }
