package fleet

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
)

// always returns a maker of one policy without state.
func always(p retrypolicy.Policy) func() (retrypolicy.Policy, error) {
	return func() (retrypolicy.Policy, error) { return p, nil }
}

// peer returns the rules of another SDK. Its policy decides alone, and each connection begins its
// count anew. All tokens are renewed after the same part of their life.
func peer(name string, p retrypolicy.Policy, renewAt float64) Rules {
	return Rules{
		Name: name, Policy: always(p), Paced: p, Register: p, StableTime: 1, ReconnectSpread: -1,
		RenewAt: renewAt, RenewInStep: true,
	}
}

// Parts of a token's life after which the SDKs renew it over MQTT. Java's does not: the hub ends
// the connection. Node's renews 15 minutes before the end, here of an hour.
const (
	renewJava   = -1
	renewC      = 0.8
	renewNode   = 0.75
	renewCSharp = 0.85
)

// ours returns the rules of the device client with another policy.
func ours(name string, p retrypolicy.Policy) Rules { return Rules{Name: name, Policy: always(p)} }

// alone returns the rules of the device client with another policy and without a spread, so that
// the policy's own jitter is all that spreads the fleet.
func alone(name string, p retrypolicy.Policy) Rules {
	r := ours(name, p)
	r.ReconnectSpread = -1
	return r
}

// curve is a Backoff with the constants of the default.
func curve(j retrypolicy.Jitter) retrypolicy.Backoff {
	return retrypolicy.Backoff{Base: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: j}
}

// Contenders returns the rules to compare: the device client with its default and with another
// spread, with other curves and no spread, with a gate around the default, with a limit of dials in
// each process, then other SDKs.
func Contenders() []Rules {
	standard := retrypolicy.ExponentialBackoffWithJitter{}
	spread := ours("spread 1 min", standard)
	spread.ReconnectSpread = time.Minute
	adaptive := ours("adaptive", nil)
	adaptive.Policy = func() (retrypolicy.Policy, error) {
		return budget.NewAdaptive().Wrap(standard), nil
	}
	breaker := ours("breaker", nil)
	breaker.Policy = func() (retrypolicy.Policy, error) {
		b, err := budget.NewBreaker(&budget.BreakerOptions{Wait: true, Cooldown: 90 * time.Second})
		if err != nil {
			return nil, err
		}
		return b.Wrap(standard), nil
	}
	limited := ours("dial limit", standard)
	limited.Dials, limited.DialGap = 10, 100*time.Millisecond
	botocore := peer("botocore", nil, 0)
	botocore.RenewInStep = false // it has no such tokens
	botocore.Policy = func() (retrypolicy.Policy, error) { return compat.NewAWS(compat.AWSBotocore2025.Options()) }
	botocore.Paced, botocore.Register, botocore.TryAgainAfter = nil, compat.AWSBotocore2025.Options().Backoff, time.Minute
	return []Rules{
		ours("default", standard),
		alone("no spread", standard),
		spread,
		alone("full jitter", curve(retrypolicy.JitterFull)),
		alone("equal jitter", curve(retrypolicy.JitterEqual)),
		alone("decorrelated", curve(retrypolicy.JitterDecorrelated)),
		alone("fixed 10 s", retrypolicy.Fixed{Delay: 10 * time.Second}),
		adaptive,
		breaker,
		limited,
		peer("Azure Java", compat.AzureJava{}, renewJava),
		peer("Azure C", compat.AzureC{}, renewC),
		peer("Azure Node", compat.AzureNode(), renewNode),
		peer("Azure C# 1", compat.AzureCSharpV1(), renewCSharp),
		peer("Azure C# 2", compat.AzureCSharp{}, renewCSharp),
		botocore,
	}
}

// Recommended returns the rules that docs/fleets.md recommends for a fleet of that size: delays of
// up to Cmax and a random part that grows with the fleet. The boundaries are those of HubRestart:
// below them the next row brings 99 % of the fleet back later.
func Recommended(devices int) Rules {
	r := ours("recommended", nil)
	for _, row := range [...]struct {
		upTo         int
		cmax, spread time.Duration
	}{
		{3000, 30 * time.Second, 10 * time.Second},
		{9000, 30 * time.Second, 30 * time.Second},
		{300_000, time.Minute, time.Minute},
		{maxDevices, 2 * time.Minute, 3 * time.Minute},
	} {
		if devices <= row.upTo {
			r.Policy = always(retrypolicy.ExponentialBackoffWithJitter{Cmax: row.cmax})
			r.ReconnectSpread = row.spread
			break
		}
	}
	return r
}
