package compat

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
)

// AzureIoTOperations is the back-off of the Azure IoT Operations SDK for Go: min(1/8 s * 2^(n-1), 1
// min) * [0.95, 1.05) before the n-th retry: 0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 60, 60 s, each
// with 5 % of jitter. It never stops, as in that SDK's session client. To change the value: for no
// jitter set Jitter = NoJitter with Low and High 0; for a limit of attempts use MaxAttempts; for a
// time limit use Retrier.Timeout.
//
// Source: the SDK's code, package retry.
func AzureIoTOperations() retrypolicy.Backoff {
	return retrypolicy.Backoff{Base: time.Second / 8, Max: time.Minute, Jitter: retrypolicy.JitterProportional, Low: 0.95,
		High: 1.05}
}
