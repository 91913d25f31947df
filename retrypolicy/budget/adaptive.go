package budget

import (
	"math"
	"time"

	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// The published constants of Adaptive.
const (
	beta      = 0.7 // the share of the rate that remains after an attempt is throttled
	scale     = 0.4 // how fast the rate grows again, in attempts per second^4
	smoothing = 0.8 // the weight of the newest half-second in the measured rate
	ceiling   = 2   // the highest limit, as a multiple of the measured rate
	minRate   = 0.5 // the lowest limit, in attempts a second
)

// Adaptive limits the rate of attempts, first ones included, to what the service accepts: each
// attempt costs one token. It admits every attempt until one is throttled. From then on its limit
// follows a cubic curve, like the window of TCP CUBIC:
//
//	throttled:  wmax = min(measured, limit), limit = 0.7 * wmax
//	otherwise:  limit = 0.4 * (t - K)^3 + wmax, K = cbrt(wmax * 0.3 / 0.4),
//	            t is the time since the last throttled attempt, in seconds
//
// The limit is at most twice the measured rate and at least 0.5 a second, unless the service
// announces another one (Announce). The measured rate counts every attempt that ended, in
// half-seconds, smoothed. Tokens arrive at the limit's rate; the bucket holds those of one second,
// at least one. An attempt without a token waits and asks again. Only Kind Throttled is throttling.
//
// Source: botocore retries/adaptive.py, bucket.py, throttling.py; also in smithy-kotlin,
// aws-sdk-go-v2, -java-v2 and -js-v3.
type Adaptive struct {
	state
	epoch   time.Time     // the start, rounded down to a whole second; all times here are relative to it
	latest  time.Duration // the latest time seen: a slow caller's clock reading may be older
	meter   rateMeter
	curve   cubic
	tokens  fillBucket
	enabled bool
	// announced is the rate that the service announced, 0 for none or since it throttled an attempt.
	announced float64
	fresh     bool // no attempt has ended since the announcement
	waiting   int  // callers that were sent to wait since the last token was taken
}

// NewAdaptive returns a limiter that measures from its first call on.
func NewAdaptive() *Adaptive { return new(Adaptive) }

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

// take takes a token, or returns the time until the next one. Further callers get the times of the
// tokens after that one, at most a second later, so that a thousand waiting callers do not all
// return for the same token.
func (l *Adaptive) take(now time.Time) time.Duration {
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

// learn measures the rate at the end of an attempt and recomputes the limit.
func (l *Adaptive) learn(now time.Time, throttled bool) {
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
		l.tokens.setRate(t, min(rate, ceiling*measured))
	}
	l.fresh = false
}

// Announce tells the limiter the rate that the service announced with an answer, before the answer
// is reported, as the OnLimit of an httpretry.Transport. The limit applies at once, and the curve
// continues from it with the first attempt that ends without an announcement. Once the service has
// throttled an attempt, only announcements below the limit count. A rate below one an hour counts
// as one an hour, so that an answer can correct it. A rate that is not above 0, or not finite, is
// ignored.
func (l *Adaptive) Announce(perSecond float64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.at(now)
	if perSecond > 0 {
		perSecond = max(perSecond, 1/times.MaxRetryAfter.Seconds())
	}
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
func (l *Adaptive) Wrap(p retrypolicy.Policy) retrypolicy.Policy {
	return shared{l, l != nil, "Adaptive", p}
}

func (l *Adaptive) admit(_ *ticket, a retrypolicy.Attempt) retrypolicy.Decision {
	return retrypolicy.Decision{Retry: true, Delay: l.take(a.Now)}
}

func (l *Adaptive) undo(*ticket, retrypolicy.Attempt) {
	if l.enabled {
		l.tokens.tokens = min(l.tokens.size, l.tokens.tokens+1)
	}
}

func (l *Adaptive) report(_ *ticket, v retrypolicy.Verdict, a retrypolicy.Attempt) {
	l.learn(a.Now, v != retrypolicy.VerdictSucceed && a.Kind == transport.Throttled)
}

// rateMeter measures the attempts that end per second, over whole half-seconds.
type rateMeter struct {
	since int64 // the half-second in which the count began
	count int
	rate  float64
}

func (m *rateMeter) record(half int64) float64 {
	m.count++
	if half > m.since {
		m.rate = float64(m.count)/(float64(half-m.since)/2)*smoothing + m.rate*(1-smoothing)
		m.count, m.since = 0, half
	}
	return m.rate
}

// cubic is the curve.
type cubic struct {
	most        float64 // the rate at the last throttled attempt, before beta
	throttledAt time.Duration
}

func (c *cubic) throttled(t time.Duration, rate float64) float64 {
	c.most, c.throttledAt = rate, t
	return rate * beta
}

// window returns the time in seconds after which the rate reaches most again.
func (c *cubic) window() float64 { return math.Cbrt(c.most * (1 - beta) / scale) }

func (c *cubic) passed(t time.Duration) float64 {
	d := (t - c.throttledAt).Seconds() - c.window()
	return scale*d*d*d + c.most
}

// fillBucket is a token bucket whose rate changes.
type fillBucket struct {
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

func (b *fillBucket) setRate(t time.Duration, rate float64) {
	b.fill(t)
	b.rate = max(rate, minRate)
	b.size = max(rate, 1)
	b.tokens = min(b.tokens, b.size)
}
