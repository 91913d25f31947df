package reconnect

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// slow gives the minimum delays after failures of Pace errfilter.PaceSlow: those that the Azure
// SDKs document for throttling.
var slow = retrypolicy.ExponentialBackoffWithJitter{
	C: 5 * time.Second, Cmin: 10 * time.Second, Cmax: 60 * time.Second, Jd: 0.5, Ju: 0.25,
}

// IsSlow reports whether failures of this Kind require long delays between retries.
func IsSlow(kind transport.Kind) bool { return errfilter.OfKind(kind).Pace == errfilter.PaceSlow }

// MinDelay returns the minimum delay before a retry after a failure for which IsSlow holds.
func MinDelay(a retrypolicy.Attempt) time.Duration { return slow.Decide(a).Delay }

// Register is the default policy of registrations with a provisioning service.
var Register = retrypolicy.ExponentialBackoffWithJitter{
	C: time.Second, Cmin: time.Second, Cmax: time.Minute, Jd: 0.5, Ju: 0.25,
}

// Stagger returns a random addition to the long delay of a registration, so that devices that were
// refused together do not come back together. The service counts registers by the minute: a
// throttled register comes back within a minute more, and if that was too early for the size of the
// fleet (again), within three.
func Stagger(delay time.Duration, throttled, again bool, draw uint64) time.Duration {
	most := delay / 2
	if throttled {
		within := time.Minute
		if again {
			within = 3 * time.Minute
		}
		most = max(most, within)
	}
	return time.Duration(draw % uint64(most+1))
}
