// Package pacing has the minimum delays that services need between retries. Boards link it.
package pacing

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// slow gives the minimum delays after failures of Pace errfilter.Slow: those that the Azure SDKs
// document for throttling.
var slow = retrypolicy.ExponentialBackoffWithJitter{
	C: 5 * time.Second, Cmin: 10 * time.Second, Cmax: 60 * time.Second, Jd: 0.5, Ju: 0.25,
}

// IsSlow reports whether failures of this Kind require long delays between retries.
func IsSlow(kind transport.Kind) bool { return errfilter.OfKind(kind).Pace == errfilter.Slow }

// MinDelay returns the minimum delay before a retry after a failure for which IsSlow holds.
func MinDelay(a retrypolicy.Attempt) time.Duration { return slow.Decide(a).Delay }
