package dpscert

import (
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/provisioning"
)

// Step is a step of a renewal.
type Step uint8

const (
	// StepRequesting: a certificate is requested.
	StepRequesting Step = iota
	// StepRetrying: the request failed; the wait before the next one begins.
	StepRetrying
	// StepRenewed: there is a new certificate. The next connection uses it.
	StepRenewed
	// StepFailed: the request was refused for good, or the policy ended the retries. After Delay the
	// renewal begins again.
	StepFailed
	// StepPreviousUsed: the hub refused the newest certificate. The one before is used again.
	StepPreviousUsed
	// StepStoreFailed: the Store returned Err. A Store that cannot be read is read again at the next
	// attempt to connect, for ten minutes if there is a Registrar; a damaged file will be replaced. A
	// certificate that cannot be stored is used nevertheless, and stored later.
	StepStoreFailed
	// StepKeyFailed: Options.OpenKey returned Err. The certificate of that key is not used.
	StepKeyFailed

	steps // number of steps
)

var stepText = [steps]string{"requesting", "retrying", "renewed", "failed", "using the previous certificate",
	"store failed", "key failed"}

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
	// Attempt is the number of the request that runs, failed, or comes after Delay: 1 for the first.
	Attempt int
	// AtHub: the hub is asked, and not the provisioning service.
	AtHub bool
	// Delay is the wait that begins.
	Delay time.Duration
	// NotAfter is the end of the certificate in use; the zero time without one.
	NotAfter time.Time
	// Assignment is what the provisioning service returned with a new certificate. Its hub is not
	// used: package dpstransport follows a device that was moved.
	Assignment *provisioning.Assignment
	// Err is the cause, a *transport.Error except for StepStoreFailed and StepKeyFailed; nil if there
	// is none.
	Err error
}

// String describes the event in one line.
func (e Event) String() string {
	text := e.Step.String()
	if e.Step == StepRequesting {
		if e.AtHub {
			text += " at the hub"
		} else {
			text += " at the provisioning service"
		}
	}
	if e.Attempt > 0 {
		text += ", attempt " + strconv.Itoa(e.Attempt)
	}
	if e.Delay > 0 {
		text += " in " + e.Delay.String()
	}
	if e.Step == StepRenewed {
		text += " until " + e.NotAfter.UTC().Format(time.RFC3339)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (r *Renewer) publish(e Event) {
	if f := r.opt.OnEvent; f != nil {
		e.NotAfter = r.Status().NotAfter
		_ = callback.Run("Options.OnEvent", func() { f(e) }) // a panic must not end a renewal
	}
}
