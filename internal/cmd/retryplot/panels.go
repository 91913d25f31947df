package main

import (
	"math"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
)

// panel is one policy.
type panel struct {
	title    string
	settings string
	name     string // its name in Go
	formula  string // with n the number of the retry and U a draw from 0 to 1
	colour   string
	policy   retrypolicy.Policy
}

// Colours of policy families that colour-blind readers can distinguish (Okabe and Ito).
const (
	blue       = "#0072b2"
	vermillion = "#d55e00"
	green      = "#00795a" // the set's green, darker to keep text legible
)

const (
	base = 100 * time.Millisecond
	most = 10 * time.Second
)

// retries is the number of delays drawn.
const retries = 10

var panels = []panel{
	{
		"Azure, documented", "C = Cmin = 100 ms, Cmax = 10 s", "ExponentialBackoffWithJitter{}",
		"min(Cmin + (2ⁿ⁻¹ − 1) · rand(C·(1 − Jd), C·(1 − Ju)), Cmax), Jd = 0.5, Ju = 0.25", blue,
		retrypolicy.ExponentialBackoffWithJitter{},
	},
	{
		"Azure, throttled", "C = 5 s, Cmin = 10 s, Cmax = 60 s", "ExponentialBackoffWithJitter{…}",
		"the same, set for a hub that asks for fewer requests", blue,
		retrypolicy.ExponentialBackoffWithJitter{C: 5 * time.Second, Cmin: 10 * time.Second, Cmax: 60 * time.Second, Jd: 0.5,
			Ju: 0.25},
	},
	{
		"Azure, Java SDK’s code", "Min = Delta = 100 ms, Max = 10 s", "compat.AzureJava{}",
		"0 first, then min(Min + (2ⁿ⁻¹ − 1) · rand(0.8·Delta, 1.2·Delta), Max)", blue,
		compat.AzureJava{},
	},
	{
		"Fixed", "Delay = 1 s, Jitter = 0.2", "Fixed{Delay, Jitter}",
		"Delay · (1 − Jitter + 2·U·Jitter)", green,
		retrypolicy.Fixed{Delay: time.Second, Jitter: 0.2},
	},
	{
		"Exponential, no jitter", "Base = 100 ms, Max = 10 s", "Backoff{Base, Max}",
		"v = min(Base · 2ⁿ⁻¹, Max)", vermillion,
		retrypolicy.Backoff{Base: base, Max: most},
	},
	{
		"Full jitter", "Base = 100 ms, Max = 10 s", "Backoff{…, Jitter: FullJitter}",
		"U · v", vermillion,
		retrypolicy.Backoff{Base: base, Max: most, Jitter: retrypolicy.JitterFull},
	},
	{
		"Equal jitter", "Base = 100 ms, Max = 10 s", "Backoff{…, Jitter: EqualJitter}",
		"v/2 + U · v/2", vermillion,
		retrypolicy.Backoff{Base: base, Max: most, Jitter: retrypolicy.JitterEqual},
	},
	{
		"Decorrelated jitter", "Base = 100 ms, Max = 10 s", "Backoff{…, Jitter: Decorrelated}",
		"min(rand(Base, 3 · the delay before), Max)", vermillion,
		retrypolicy.Backoff{Base: base, Max: most, Jitter: retrypolicy.JitterDecorrelated},
	},
}

// Draws: the lowest, the middle and the highest.
const (
	lowest  uint64 = 0
	middle  uint64 = 1 << 63
	highest uint64 = math.MaxUint64
)

// delays returns the delays of one series in which all draws are the same.
func delays(p retrypolicy.Policy, rand uint64) []time.Duration {
	var all []time.Duration
	series := retrypolicy.Inner(p, retrypolicy.Start{})
	defer series.End()
	for n := 1; n <= retries; n++ {
		all = append(all, series.Decide(retrypolicy.Attempt{Retry: n, Rand: rand}).Delay)
	}
	return all
}
