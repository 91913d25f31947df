package budget

import (
	"math"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// AdaptiveOptions configures an Adaptive. The zero value has the published constants.
type AdaptiveOptions struct {
	// Beta is the share of the rate that remains after an attempt is throttled, above 0 and below 1.
	// Default: 0.7.
	Beta float64
	// Scale is the speed at which the rate grows again, in attempts per second^4. Default: 0.4.
	Scale float64
	// Smoothing is the weight of the newest half-second in the measured rate, above 0 and at most 1.
	// Default: 0.8.
	Smoothing float64
	// Growth is the limit's upper bound, as a multiple of the measured rate. Default: 2.
	Growth float64
	// MinRate is the lowest limit, in attempts a second. Default: 0.5.
	MinRate float64
	// Kinds are the failures that reduce the rate. Default: Throttled.
	Kinds retrypolicy.KindSet
	// Start is when measuring begins. Zero: at the first call.
	Start time.Time
}

// Adaptive limits the rate of attempts, first ones included, to what the service accepts: each
// attempt costs one token. It admits every attempt until one is throttled. From then on its limit
// follows a cubic curve, like the window of TCP CUBIC:
//
//	throttled:  wmax = min(measured, limit), limit = Beta * wmax
//	otherwise:  limit = Scale * (t - K)^3 + wmax, K = cbrt(wmax * (1-Beta) / Scale),
//	            t is the time since the last throttled attempt, in seconds
//
// The limit never exceeds Growth times the measured rate and never falls below MinRate, unless the
// service announces another one (Announce). The measured rate counts every attempt that ended, in
// half-seconds, smoothed. Tokens arrive at the limit's rate; the bucket holds as many as arrive in
// one second, at least one. An attempt without a token waits and then asks again; it reserves
// nothing.
//
// Put one around the policy of all operations of a client (Wrap). Safe for concurrent use; never
// sleeps; allocates nothing.
//
// Source: botocore retries/adaptive.py, bucket.py, throttling.py; also in smithy-kotlin,
// aws-sdk-go-v2, -java-v2 and -js-v3.
type Adaptive struct {
	passive
	kinds retrypolicy.KindSet

	mu      sync.Mutex
	epoch   time.Time     // the start, rounded down to a whole second; all times here are relative to it
	latest  time.Duration // the latest time seen: a slow caller's clock reading may be older
	meter   rateMeter
	curve   cubic
	tokens  fillBucket
	growth  float64
	enabled bool
	// announced is the rate that the service announced, 0 for none or since it throttled an attempt.
	announced float64
	fresh     bool // no attempt has ended since the announcement
	waiting   int  // callers that were sent to wait since the last token was taken
}

// NewAdaptive returns a limiter. o may be nil. Errors are of Kind Invalid.
func NewAdaptive(o *AdaptiveOptions) (*Adaptive, error) {
	set := given(o)
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
		{&set.MinRate, 0.5, math.MaxFloat64, "AdaptiveOptions.MinRate is out of range; give more than 0 attempts a second"},
	} {
		if *d.value == 0 {
			*d.value = d.preset
		}
		if !(*d.value > 0 && *d.value < d.below) {
			return nil, kit.Invalid(d.message)
		}
	}
	if set.Growth <= 1 {
		return nil, kit.Invalid("AdaptiveOptions.Growth is out of range; give more than 1")
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

// at returns the time since the epoch. The first call sets the epoch. mu held.
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

// setBack tells a clock that was set back from a slow caller: a time further behind the latest one
// means the former. Time then continues from the latest one, since it would otherwise stand still.
const setBack = 10 * time.Second

// take takes a token. Without one it returns the time until the next token. Further callers get the
// times of the tokens after that one, at most a second later, so that a thousand waiting callers do
// not all return for the same token. A caller that finds no token waits again.
func (l *Adaptive) take(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.at(now)
	if !l.enabled {
		return 0
	}
	wait := l.tokens.take(t, 1)
	if wait == 0 {
		l.waiting = 0
		return 0
	}
	turn := kit.OfFloat(float64(l.waiting) / l.tokens.rate * float64(time.Second))
	l.waiting = min(l.waiting, math.MaxInt32-1) + 1
	return wait + min(turn, time.Second)
}

// giveBack returns the token of an attempt that did not begin.
func (l *Adaptive) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.enabled {
		l.tokens.give(1)
	}
}

// learn measures the rate at the end of an attempt and recomputes the limit. Failures other than
// Kinds count like successes.
func (l *Adaptive) learn(now time.Time, throttled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.at(now)
	measured := l.meter.record(int64(t / (time.Second / 2)))
	var rate float64
	if throttled {
		from := measured
		if l.enabled {
			from = min(measured, l.tokens.rate)
		}
		rate = l.curve.throttled(t, from)
		l.enabled, l.announced = true, 0
	} else {
		rate = l.curve.passed(t)
	}
	if !l.fresh || l.announced == 0 {
		l.tokens.setRate(t, min(rate, l.growth*measured))
	}
	l.fresh = false
}

// Announce tells the limiter the rate that the service announced with an answer, before the answer
// is reported: as the method OnLimit of an httpretry.Transport does. The limit starts from that
// rate: it applies at once, and the curve continues from it with the first attempt that ends
// without an announcement. Once the service has throttled an attempt, only announcements below the
// limit count. A rate that is not above 0, or not finite, is ignored.
func (l *Adaptive) Announce(perSecond float64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.at(now)
	if !(perSecond > 0 && perSecond <= math.MaxFloat64) || l.enabled && l.announced == 0 && perSecond >= l.tokens.rate {
		return
	}
	l.enabled, l.announced, l.fresh = true, perSecond, true
	l.curve.most = perSecond
	l.curve.throttledAt = t - kit.OfFloat(l.curve.window()*float64(time.Second))
	before := l.tokens.rate
	l.tokens.setRate(t, perSecond)
	l.tokens.rate = perSecond // also below the lowest limit of the curve
	if perSecond < before {
		l.tokens.tokens *= perSecond / before // they came at the higher rate
	}
}

// Rate returns the limit in attempts per second, and whether it applies, which it does once an
// attempt was throttled.
func (l *Adaptive) Rate() (perSecond float64, enabled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tokens.rate, l.enabled
}

// Wrap puts the limiter around p: every attempt takes a token first, and its end is measured.
func (l *Adaptive) Wrap(p retrypolicy.Policy) retrypolicy.Policy { return wrap("Adaptive", l, p) }

func (l *Adaptive) admit(_ *ticket, a retrypolicy.Attempt) retrypolicy.Decision {
	return retrypolicy.Decision{Retry: true, Delay: l.take(a.Now)}
}

func (l *Adaptive) undo(*ticket, retrypolicy.Attempt) { l.giveBack() }

func (l *Adaptive) report(_ *ticket, v retrypolicy.Verdict, a retrypolicy.Attempt) {
	l.learn(a.Now, v != retrypolicy.VerdictSucceed && l.kinds.Has(a.Kind))
}

// rateMeter measures the attempts that end per second, over whole half-seconds.
type rateMeter struct {
	smoothing float64
	since     int64 // the half-second in which the count began
	count     int
	rate      float64
}

func (m *rateMeter) record(half int64) float64 {
	m.count++
	if half > m.since {
		m.rate = float64(m.count)/(float64(half-m.since)/2)*m.smoothing + m.rate*(1-m.smoothing)
		m.count, m.since = 0, half
	}
	return m.rate
}

// cubic is the curve. most is the rate at the last throttled attempt, before beta.
type cubic struct {
	beta, scale float64
	most        float64
	throttledAt time.Duration
}

func (c *cubic) throttled(t time.Duration, rate float64) float64 {
	c.most, c.throttledAt = rate, t
	return rate * c.beta
}

// window returns the time in seconds after which the rate reaches most again.
func (c *cubic) window() float64 { return math.Cbrt(c.most * (1 - c.beta) / c.scale) }

func (c *cubic) passed(t time.Duration) float64 {
	d := (t - c.throttledAt).Seconds() - c.window()
	return c.scale*d*d*d + c.most
}

// fillBucket is a token bucket whose rate changes.
type fillBucket struct {
	least  float64 // lowest rate
	rate   float64 // tokens per second
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

// take takes n tokens, or returns the time until n are available.
func (b *fillBucket) take(t time.Duration, n float64) time.Duration {
	b.fill(t)
	if n <= b.tokens {
		b.tokens -= n
		return 0
	}
	return max(1, kit.OfFloat(math.Ceil((n-b.tokens)/b.rate*float64(time.Second))))
}

func (b *fillBucket) give(n float64) { b.tokens = min(b.size, b.tokens+n) }

func (b *fillBucket) setRate(t time.Duration, rate float64) {
	b.fill(t)
	b.rate = max(rate, b.least)
	b.size = max(rate, 1)
	b.tokens = min(b.tokens, b.size)
}
