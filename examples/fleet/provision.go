package main

import (
	"context"

	"github.com/hubline-iot/hubline/examples/internal/setup"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/provisioning/dpstransport"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// service is the provisioning service with which the devices register before they connect.
type service struct {
	host, scope string
	network     netopt.Options
}

// newService returns the service with that ID scope: that of the testhub, if there is one.
func newService(ctx context.Context, scope string, hub *setup.Target) (*service, error) {
	host, network, err := hub.Service(ctx)
	return &service{host, scope, network}, err
}

// device returns the credentials and the transport of a device that registers by its group key, and
// then connects over the transport that inner makes.
func (s *service) device(creds *transport.Credentials, inner dpstransport.Inner) (*transport.Credentials,
	transport.Transport, error) {
	identity := &provisioning.Identity{Endpoint: s.host, IDScope: s.scope, RegistrationID: creds.DeviceID,
		Sign: creds.Sign}
	network := s.network
	registrar, err := provisioning.New(identity, dpsmqtt.New(&network), nil)
	if err != nil {
		return nil, nil, err
	}
	t, err := dpstransport.New(registrar, inner, nil)
	if err != nil {
		return nil, nil, err
	}
	return t.Credentials(), t, nil
}
