package classic

import (
	"context"
	"errors"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/twin"
	"github.com/hubline-iot/hubline/update/agent"
)

// ModelID is the Plug and Play model of a device that has the component of Device Update and
// nothing else. The option ModelID of a transport announces it. A device with more components
// announces its own model, which extends this one.
const ModelID = "dtmi:azure:iot:deviceUpdateContractModel;3"

// Names of the component and its properties.
const (
	component       = "deviceUpdate"
	agentProperty   = "agent"
	serviceProperty = "service"
)

// Service is an agent.Service and an agent.Waker over the twin of a client. Its methods are safe
// for concurrent use. GetTwin and PatchReported are those of the client.
type Service struct {
	twin.Client
	wake chan struct{}
}

var (
	_ agent.Service = (*Service)(nil)
	_ agent.Waker   = (*Service)(nil)
	_ twin.Client   = (*Service)(nil)
)

// New returns a Service for a *device.Client, and registers its handler of desired properties. The
// error is that of device.Client.HandleDesired.
func New(client twin.Client) (*Service, error) {
	s := &Service{Client: client, wake: make(chan struct{}, 1)}
	if err := s.HandleDesired(nil); err != nil {
		return nil, err
	}
	return s, nil
}

// HandleDesired registers handle for changes of the other desired properties, as the method of
// device.Client does. The Service sees each change first, and takes its component out.
func (s *Service) HandleDesired(handle device.DesiredHandler) error {
	return s.Client.HandleDesired(func(ctx context.Context, d device.Desired) {
		if _, ours := jsonscan.Member(d.JSON, component); ours || d.Full {
			s.poke()
		}
		if handle != nil {
			d.JSON = without(d.JSON, component)
			handle(ctx, d)
		}
	})
}

// without returns an object without one of its members.
func without(object []byte, name string) []byte {
	rest := []byte{'{'}
	jsonscan.Members(object, func(member string, value []byte) {
		if member == name {
			return
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(jsonscan.AppendString(rest, member), ':')
		rest = append(rest, value...)
	})
	return append(rest, '}')
}

func (s *Service) poke() {
	select {
	case s.wake <- struct{}{}:
	default: // a Check is due already
	}
}

// Wake returns a channel that receives a value when the service has written to the twin, and when
// the device may have missed that.
func (s *Service) Wake() <-chan struct{} { return s.wake }

var errOnboarding = errors.New("a device has a twin only after its registration; " +
	"use package dpsupdate for a check before it")

// Check reads the twin and returns the deployment in it, also one that the agent has done. It
// reports the device's properties and acknowledges the deployment if the twin does not show that
// yet.
//
// Errors are those of device.Client.GetTwin and PatchReported, Protocol for a deployment that
// violates the contract, after it was refused in the twin, and Unsupported for a Query with
// Onboarding.
func (s *Service) Check(ctx context.Context, q *agent.Query) (*agent.Answer, error) {
	if q.Onboarding {
		return nil, &transport.Error{Kind: transport.Unsupported, Op: transport.OpTwinGet, Err: errOnboarding}
	}
	t, err := s.GetTwin(ctx)
	if err != nil {
		return nil, err
	}
	d, wrong := desired(t)
	r, err := readReported(t)
	if err != nil {
		return nil, err
	}
	r.agent.introduce(q)
	r.agent.accept(d, wrong)
	var patch twin.Patch
	r.acknowledge(&patch, d, wrong)
	if err := s.send(ctx, &patch, r); err != nil {
		return nil, err
	}
	if wrong != nil {
		return nil, wrong
	}
	return d.answer(r.agent.inProgress()), nil
}

// Report writes how an update stands to the twin, unless the twin has that already. Errors are
// those of device.Client.GetTwin, with Scope Connection, and PatchReported.
func (s *Service) Report(ctx context.Context, report *agent.Report) error {
	t, err := s.GetTwin(ctx)
	if e := transport.Find(err); e != nil {
		unread := *e
		unread.Scope = transport.ScopeConnection // the hub has not seen the report: the agent sends it again
		return &unread
	}
	if err != nil {
		return err
	}
	r, err := readReported(t)
	if err != nil {
		return err
	}
	r.agent.report(report)
	if err := s.send(ctx, &twin.Patch{}, r); err != nil {
		return err
	}
	if d, _ := desired(t); d.cancels() && !report.Final() {
		s.poke() // it was cancelled before it began
	}
	return nil
}

// send adds the changes of r to the patch and sends it, if there is anything to send.
func (s *Service) send(ctx context.Context, patch *twin.Patch, r *reported) error {
	if err := r.addTo(patch); err != nil {
		return err
	}
	if patch.Empty() {
		return nil
	}
	body, err := patch.JSON()
	if err != nil {
		return err
	}
	_, err = s.PatchReported(ctx, body)
	return err
}
