//go:build !tinygo

package budget

import (
	"math"
	"testing"
	"time"
)

// The parts of Adaptive have their own published vectors. Tolerance 5e-7: the SDK for JavaScript
// rounds to 8 decimals.

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 5e-7) {
		t.Errorf("%s: %.12g, want %.12g", what, got, want)
	}
}

func secs(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// A clock that is set back stops neither the tokens nor the growth.
func TestAdaptiveGoesOnAlthoughTheClockWasSetBack(t *testing.T) {
	l := NewAdaptive()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	l.learn(now, true)
	for l.take(now) == 0 {
		now = now.Add(time.Millisecond)
	}
	now = now.AddDate(-1, 0, 0)
	if d := l.take(now.Add(3 * time.Second)); d == 0 {
		// the first call after it: time continues from here
		t.Error("a token out of nowhere")
	}
	if d := l.take(now.Add(6 * time.Second)); d != 0 { // at half a token a second
		t.Errorf("%v three seconds later", d)
	}
	before := l.latest
	if l.at(now.Add(time.Second)) != before || l.at(now.Add(7*time.Second)) != before+time.Second {
		t.Error("a look that is somewhat older than the latest moved the time")
	}
}

func TestCubicVectors(t *testing.T) {
	c := cubic{most: 10}
	near(t, "K for wmax 10", c.window(), 1.9574338205844317)
	near(t, "rate at K", c.passed(secs(c.window())), 10)
	near(t, "rate at 0", c.passed(0), 7)

	near(t, "throttled at rate 8", c.throttled(time.Second, 8), 5.6)
	near(t, "wmax", c.most, 8)
	near(t, "K", c.window(), 1.8171205928321397)
	near(t, "rate right after", c.passed(time.Second), 5.6)

	for at, want := range map[int]float64{5: .112, 6: .09333333, 7: .08} { // the first answer is throttled
		m := rateMeter{}
		near(t, "first throttle", (&cubic{}).throttled(0, m.record(int64(2*at))), want)
	}

	c = cubic{most: 10, throttledAt: 5 * time.Second}
	for i, want := range []float64{7, 9.64893600966, 10.000030849917364, 10.453284520772092, 13.408697022224185,
		21.26626835427364, 36.425998516920465} {
		near(t, "success at "+(time.Duration(5+i)*time.Second).String(),
			c.passed(time.Duration(5+i)*time.Second), want)
	}
}

func TestRateMeterVectors(t *testing.T) {
	half := func(at time.Duration) int64 { return int64(at / (500 * time.Millisecond)) }
	m := rateMeter{}
	near(t, "one record at 1 s", m.record(half(time.Second)), 0.8)

	m = rateMeter{}
	for _, at := range []float64{.1, .2, .3, .4, .49} {
		near(t, "before the first half-second is over", m.record(half(secs(at))), 0)
	}
	near(t, "at 0.5 s", m.record(half(secs(.5))), 9.6)
}

func TestFillBucketVectors(t *testing.T) {
	b := fillBucket{}
	b.setRate(0, 10)
	for i := 1; i <= 5; i++ {
		if wait := b.take(time.Duration(i)*time.Second, 1); wait != 0 {
			t.Errorf("token at %d s: wait %v", i, wait)
		}
	}

	b = fillBucket{}
	b.setRate(0, 10)
	if wait := b.take(time.Second, 100); wait != 9*time.Second || b.tokens != 10 {
		t.Errorf("100 of 10: wait %v, %v left; nothing may be taken in advance", wait, b.tokens)
	}

	b.setRate(time.Second, 0.5)
	if b.rate != 0.5 || b.size != 1 || b.tokens != 1 {
		t.Errorf("rate set to .5: rate %v, size %v, tokens %v", b.rate, b.size, b.tokens)
	}
	b.setRate(time.Second, 0.01)
	if b.rate != 0.5 || b.size != 1 {
		t.Errorf("below the least: rate %v, size %v", b.rate, b.size)
	}

	b = fillBucket{}
	b.setRate(0, 10)
	for _, c := range []struct{ at, wait float64 }{{.1, 0}, {.15, .05}, {.2, 0}, {.300001, 0}} {
		near(t, "wait at "+secs(c.at).String(), b.take(secs(c.at), 1).Seconds(), c.wait)
	}

	b = fillBucket{}
	b.setRate(0, 10)
	b.setRate(time.Second, 0.5)
	near(t, "what the old rate brought counts", b.tokens, 1)

	b = fillBucket{rate: 1, size: 10}
	if wait := b.take(0, 5); wait != 5*time.Second {
		t.Errorf("5 tokens at 1 a second: wait %v", wait)
	}
	// After exactly the returned wait there is a token, at any rate: rounding makes no caller wait
	// twice.
	for _, rate := range []float64{0.5, 0.56, 1.0 / 3, math.Pi, 777.77} {
		b := fillBucket{}
		b.setRate(0, rate)
		wait := b.take(time.Millisecond, 1)
		if again := b.take(time.Millisecond+wait, 1); again > 1 {
			t.Errorf("rate %v: after the wait of %v another one of %v", rate, wait, again)
		}
	}
}

func TestRateMeterKeepsToWholeHalfSeconds(t *testing.T) {
	// Half-seconds are aligned to the clock, not to the start: a start at 0.3 s has its first edge at
	// 0.5 s.
	l := NewAdaptive()
	l.take(time.Unix(100, 300_000_000))
	l.learn(time.Unix(100, 499_999_999), false)
	near(t, "before the edge", l.meter.rate, 0)
	l.learn(time.Unix(100, 500_000_000), false)
	near(t, "at the edge", l.meter.rate, 2/0.5*0.8)
}
