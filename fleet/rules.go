package fleet

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
)

// Rules are the settings of every device of a fleet: those of device.Options that matter here, with
// the same names, meanings and defaults.
type Rules struct {
	Name string
	// Policy makes the retry policy of a process: of one device, or of a gateway. Nil:
	// ExponentialBackoffWithJitter{}. All processes of a block share a policy without memory.
	Policy func() (retrypolicy.Policy, error)
	// Paced alone decides about failures with a slow pace. Nil: Policy does, with the minimum delays
	// of the device client.
	Paced retrypolicy.Policy
	// Register decides about registrations with the provisioning service. Nil: the policy of package
	// provisioning, with its random part.
	Register retrypolicy.Policy

	ReconnectSpread time.Duration
	DialTimeout     time.Duration
	AckTimeout      time.Duration
	// StableTime: give 1 ns for a client that counts anew with each connection.
	StableTime    time.Duration
	OutageLimit   time.Duration
	TryAgainAfter time.Duration
	// RenewAt: negative for a client that lets the hub end the connection when its token expires.
	RenewAt float64
	// RenewInStep: RenewAt has no random part, as in other SDKs.
	RenewInStep bool
	// MaxMessages: a full queue loses its oldest message, as with the option DropOldest.
	MaxMessages int
	// Dials is the number of concurrent attempts of a process, which begin DialGap apart. 0: no limit.
	Dials   int
	DialGap time.Duration
}
