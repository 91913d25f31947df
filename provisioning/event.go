package provisioning

import (
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
)

// Step is a step of a registration.
type Step uint8

const (
	// StepSpreading: the random wait before the first request begins (Options.Spread).
	StepSpreading Step = iota
	// StepHolding: the function of Client.Before runs.
	StepHolding
	// StepReleased: it has ended, with Err if it failed.
	StepReleased
	// StepRegistering: the register is sent, over a new connection if necessary.
	StepRegistering
	// StepPolling: the operation is polled.
	StepPolling
	// StepAssigning: the service works on it; the wait before the next poll begins.
	StepAssigning
	// StepRetrying: an attempt failed; the wait before the next one begins.
	StepRetrying
	// StepOtherKey: the service refused a key; the other one is tried at once.
	StepOtherKey
	// StepClockCorrected: the service refused a token, and its answer tells that the clock is wrong; a
	// token by the service's time is tried at once.
	StepClockCorrected
	// StepAssigned: the registration succeeded.
	StepAssigned
	// StepFailed: Register returns Err.
	StepFailed

	steps // number of steps
)

var stepText = [steps]string{"spreading", "holding", "released", "registering", "polling", "assigning", "retrying",
	"trying the other key", "clock corrected", "assigned", "failed"}

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
	// Attempt is the number of the attempt that runs, ended, or comes after Delay: 1 for the first.
	// Polls of the same operation belong to one attempt, until one fails.
	Attempt int
	// Delay is the wait that begins.
	Delay time.Duration
	// Err is the failure that caused the step, a *transport.Error; nil if there is none.
	Err error
}

// String describes the event in one line.
func (e Event) String() string {
	text := e.Step.String()
	if e.Attempt > 0 {
		text += ", attempt " + strconv.Itoa(e.Attempt)
	}
	if e.Delay > 0 {
		text += " in " + e.Delay.Round(time.Millisecond).String()
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (r *registration) publish(e Event) {
	if f := r.c.opt.OnEvent; f != nil {
		_ = callback.Run("Options.OnEvent", func() { f(e) }) // a panic must not end a registration
	}
}
