// Package pacing bounds the delays of a retry policy by what the service needs. It is of the core.
package pacing

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// slow are the least delays after failures of Pace errfilter.Slow: those that the Azure SDKs
// document for throttling.
var slow = retrypolicy.ExponentialBackoffWithJitter{
	C: 5 * time.Second, Cmin: 10 * time.Second, Cmax: 60 * time.Second, Jd: 0.5, Ju: 0.25,
}

// IsSlow reports whether retries after a failure of this Kind keep to long delays.
func IsSlow(kind transport.Kind) bool { return errfilter.OfKind(kind).Pace == errfilter.Slow }

// Least returns the least delay for a retry after a failure for which IsSlow holds.
func Least(a retrypolicy.Attempt) time.Duration { return slow.Decide(a).Delay }
