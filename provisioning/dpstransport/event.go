package dpstransport

import "github.com/hubline-iot/hubline/internal/callback"

// Step is a step of a Transport.
type Step uint8

const (
	// StepLoaded: the assignment of the Store is used.
	StepLoaded Step = iota
	// StepRegistering: the service is asked, because of Err.
	StepRegistering
	// StepAssigned: the service assigned a hub.
	StepAssigned
	// StepOtherKey: the hub refused one key, and the other one is tried.
	StepOtherKey
	// StepStoreFailed: the Store returned Err. An assignment that cannot be stored is used
	// nevertheless. A Store that cannot be read is read again before the next registration.
	StepStoreFailed
	// StepKept: the registration failed with Err, and the assignment before it is used again.
	StepKept

	steps // number of steps
)

var stepText = [steps]string{"loaded", "registering", "assigned", "trying the other key", "store failed", "kept"}

// String returns the step in a word or a few.
func (s Step) String() string {
	if s >= steps {
		return "undefined step"
	}
	return stepText[s]
}

// Event describes a step.
type Event struct {
	Step Step
	// Hub and DeviceID are those of the assignment; empty for Registering without one.
	Hub, DeviceID string
	// Moved: the hub or the device's id differs from that of the assignment before.
	Moved bool
	// DataReset: the service says that the twin began anew.
	DataReset bool
	// Err is the cause; nil if there is none.
	Err error
}

func (t *Transport) publish(e Event) {
	if f := t.opt.OnEvent; f != nil {
		_ = callback.Run("Options.OnEvent", func() { f(e) }) // a panic must not end an attempt
	}
}
