package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// The parts of the state. That of the first hub has the same name whatever -host says.
const (
	hubPart    = "hub"
	dpsPart    = "dps"
	updatePart = "updates"
	linkedPart = "hub/" // and the name of a -link
)

// stateSettings are the flags about the state.
type stateSettings struct {
	dir  string
	sync bool
}

// flags registers the flags.
func (s *stateSettings) flags(f *flag.FlagSet) {
	f.StringVar(&s.dir, "state", "", "`directory` of what survives a restart: the authority of -ca, devices, twins, "+
		"messages, enrollments, updates; made if it is not there (default: nothing survives)")
	f.BoolVar(&s.sync, "state-sync", false,
		"acknowledge only what is on the disk, so that it survives a power failure too; much slower")
}

func (s *stateSettings) complete() error {
	if s.sync && s.dir == "" {
		return fmt.Errorf("flag -state-sync: there is no state; give -state too")
	}
	return nil
}

// A stateFailure ends the program: something could not be saved.
type stateFailure struct{ error }

func (f stateFailure) Unwrap() error { return f.error }

// failureOf returns why the program ends, if that is a state that could not be saved.
func failureOf(ctx context.Context) error {
	if f, ok := errors.AsType[stateFailure](context.Cause(ctx)); ok {
		return f
	}
	return nil
}

// open opens the state. fail ends the program when the state cannot be saved.
func (s *stateSettings) open(fail context.CancelCauseFunc) (*state, error) {
	if s.dir == "" {
		return nil, nil
	}
	file, err := openState(s.dir, s.sync, func(err error) { fail(stateFailure{fmt.Errorf("flag -state: %w", err)}) })
	if err != nil {
		return nil, fmt.Errorf("flag -state: %w", err)
	}
	return file, nil
}

// policies is a hub or a provisioning service.
type policies interface {
	Policy(name string) (hubdata.Policy, error)
}

// policy returns the policy of an earlier run, or a new one.
func policy(of policies, name string, add func() (hubdata.Policy, error)) (hubdata.Policy, error) {
	if p, err := of.Policy(name); err == nil {
		return p, nil
	}
	return add()
}
