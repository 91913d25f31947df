package azure

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
)

// IoTOperations is the back-off of the Azure IoT Operations SDK for Go: 1/8 s * 2^(n-1) before the
// n-th retry, at most a minute, times [0.95, 1.05) after that: 0.125, 0.25, 0.5, 1, 2, 4, 8, 16,
// 32, 60, 60 s, each with 5 % of jitter. It never stops, as in that SDK's session client. The value
// can be changed: no jitter is Jitter = NoJitter with Low and High 0, a limit of attempts is
// MaxAttempts, the limit of time is Retrier.Limit.
//
// Source: the SDK's code, package retry.
func IoTOperations() retrypolicy.Backoff {
	return retrypolicy.Backoff{Base: time.Second / 8, Max: time.Minute, Jitter: retrypolicy.Proportional, Low: 0.95,
		High: 1.05}
}
