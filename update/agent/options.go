package agent

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
)

// Options are the settings of an Agent. Service, Handlers, Verify, Fetch, Store and Properties are
// required.
type Options struct {
	Service Service
	// Handlers do the steps, by Step.Handler. The one with the empty name does all others. An update
	// with a step that has no handler is refused.
	Handlers map[string]Handler
	// Verify returns nil if signature is for manifest and by a key that the device trusts:
	// adusign.Roots.Verify or adusign.Keys.Verify.
	Verify func(manifest []byte, signature string) error
	// RootKeys takes the service's package with root keys, before each Verify: adusign.Keys.Update.
	// Default nil: the keys of Verify do not change.
	RootKeys func(text []byte) error
	Fetch    Fetcher
	Store    Store

	// Profile is the version of the agreement between agent and service. Default 1.
	Profile int
	// Properties are those that updates are chosen by.
	Properties Properties
	// Installed returns the update that the device has, zero if that is not known. Default: the one
	// that the agent has installed latest. A program that knows its own version should tell it: then
	// older updates are refused even if the Store was lost. It may be called while a Handler runs.
	Installed func() UpdateID
	// AllowOlder reports whether the device may go from one version of an update back to an older one
	// because a valid offer says so. Default: never, because an attacker could replay an old offer.
	AllowOlder func(from, to UpdateID) bool

	// Interval is the time from one Check to the next one. Default: an hour.
	Interval time.Duration
	// Spread is a random part that is added to Interval, so that the devices of a fleet do not ask at
	// the same time. Default: a quarter of Interval. Negative: none.
	Spread time.Duration
	// Policy decides whether and when a failed Check, Report, write of the state, or read of a file
	// is repeated. A Report and a Check that it gives up begin again after Interval; their delays are
	// at least 100 ms from the second retry on. Default: ExponentialBackoffWithJitter from 1 s to a
	// minute, for ever.
	Policy retrypolicy.Policy
	// Rand is the source of random numbers for Spread and Policy, called by one goroutine at a time.
	// Default: a generator seeded with Properties and the time.
	Rand func() uint64

	// OnStatus is called after each change, one call at a time. It must not call the Agent. Default:
	// none.
	OnStatus func(Status)
}

// Phase is where an update stands.
type Phase uint8

// Phases.
const (
	PhaseIdle      Phase = iota // no update
	PhaseVerify                 // an offer is verified
	PhaseInstalled              // the handler is asked whether the step is done already
	PhaseDownload               // files are downloaded
	PhaseInstall                // files are installed
	PhaseApply                  // files become those that run
	PhaseConfirm                // after a restart: the handler is asked whether the step is done
	PhaseRollback               // steps are undone
)

var phases = [...]string{"idle", "verify", "installed", "download", "install", "apply", "confirm", "rollback"}

// String returns the name, such as "download".
func (p Phase) String() string { return nameIn(phases[:], int(p)) }

// Status is how the agent stands.
type Status struct {
	Phase Phase
	// WorkflowID is that of the current update, in PhaseIdle of the latest one. Update is the current
	// update, in PhaseIdle the one that the agent has installed latest.
	WorkflowID string
	Update     UpdateID
	// Step of Steps is in progress, from 0 on.
	Step, Steps int
	// Latest is the result of the latest update that has ended, with OutcomeInProgress if there was
	// none. Unsent is the number of final reports that the service has not acknowledged.
	Latest Result
	Unsent int
	// Err is the latest failure of a call that is repeated, nil after a success.
	Err error
}
