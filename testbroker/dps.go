package testbroker

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/dps"
	"github.com/hubline-iot/hubline/testbroker/internal/dpsfront"
	"github.com/hubline-iot/hubline/testbroker/internal/httpfront"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// DefaultDPSHostName is the name of a provisioning service if DPSOptions.HostName is empty.
const DefaultDPSHostName = "dps.example.test"

// DPSOptions are the settings of a provisioning service. The zero value of each field means its
// default.
type DPSOptions struct {
	// HostName is the name of the service in requests and in its certificate. Default:
	// [DefaultDPSHostName].
	HostName string
	// IDScope is the scope of registrations. Default: "0ne00ABCDEF".
	IDScope string
	// Now is the clock of the service, for tokens, certificates and times in answers: see
	// [Options.Now]. Default: [time.Now].
	Now func() time.Time
	// TokenGrace is how long an expired token is still accepted. Default: 5 minutes; negative: no
	// grace.
	TokenGrace time.Duration
	// Polls says which poll of a registration gets the result. Earlier ones, and the request to
	// register, are told that it is in progress. Default: the first poll; negative: the request to
	// register gets the result.
	Polls int
	// Assigning is how long a registration is in progress at least. Default: none.
	Assigning time.Duration
	// RetryAfter is the delay that answers about a registration in progress ask for, in whole seconds.
	// Default: 3 s; negative: zero.
	RetryAfter time.Duration
	// RegistrationsPerMinute, if positive, is how many requests to register succeed in a minute. The
	// others get the status 429 and the time to the next minute. Default: no limit.
	RegistrationsPerMinute int
	// HTTP holds the settings of HTTP connections. APIVersions has no effect.
	HTTP HTTPOptions
	// AMQP holds the settings of AMQP connections. MaxMessageSize, Credit and MaxTokens have no
	// effect.
	AMQP AMQPOptions
	// Keep, if positive, is how many requests the log keeps, the newest. Default: all.
	Keep int
	// Seed, unless zero, makes the certificate authority, the keys of enrollments and the draws of
	// faults repeatable. Clients that trust a hub trust a service with the same seed.
	Seed uint64
	// OnEvent is called with every event of connections and faults: see [Options.OnEvent].
	OnEvent func(event.Event)
	// Names and Authority are about the certificate of the service: see [Options.Names] and
	// [Options.Authority].
	Names     []string
	Authority *tls.Certificate
	// Store, unless nil, keeps the state of the service between runs: see [Store]. Functions of
	// enrollments are not kept. Default: none.
	Store Store
}

// DPS is a device provisioning service that assigns devices to hubs of this package. Make it with
// [NewDPS], and link hubs with [DPS.Link].
type DPS struct {
	net *hub.Hub
	dps *dps.Service
}

// NewDPS makes a provisioning service without enrollments, without linked hubs and without
// listeners. Nil options mean all defaults.
func NewDPS(o *DPSOptions) (*DPS, error) {
	if o == nil {
		o = &DPSOptions{}
	}
	if err := identity.CheckHost(cmp.Or(o.HostName, DefaultDPSHostName)); err != nil {
		return nil, fmt.Errorf("testbroker: DPSOptions.HostName: %w; give letters, digits, dots and dashes", err)
	}
	network, err := hub.New(&hub.Options{
		HostName: cmp.Or(o.HostName, DefaultDPSHostName), Now: o.Now, HTTP: o.HTTP,
		AMQP: o.AMQP, Seed: o.Seed, OnEvent: o.OnEvent,
		Store: o.Store, Names: o.Names, Authority: o.Authority,
	})
	if err != nil {
		return nil, err
	}
	s, err := dps.New(network, dps.Options{
		IDScope: o.IDScope, TokenGrace: o.TokenGrace, Polls: o.Polls, Assigning: o.Assigning, RetryAfter: o.RetryAfter,
		RegistrationsPerMinute: o.RegistrationsPerMinute, Keep: o.Keep,
	})
	if err != nil {
		return nil, err
	}
	network.SetFronts(dpsfront.New(s, network, httpfront.UpdateRoutes(s.Updates)))
	if err := network.Restore(); err != nil {
		return nil, errors.Join(err, network.Close())
	}
	return &DPS{network, s}, nil
}

// HostName returns the name of the service.
func (d *DPS) HostName() string { return d.net.Host }

// IDScope returns the scope of registrations.
func (d *DPS) IDScope() string { return d.dps.Scope }

// Close cuts all connections, stops all listeners and waits for every goroutine of the service. The
// linked hubs stay open. A second Close waits for the first.
func (d *DPS) Close() error { return d.net.Close() }

// Dial returns a function that connects to a port of the service in memory: see [Hub.Dial].
func (d *DPS) Dial(p Port) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		row, ok := ports[p]
		if !ok {
			return nil, fmt.Errorf("testbroker: dial: no such port: %s", p)
		}
		return d.net.Dial(ctx, network, addr, row.stack)
	}
}

// Listen opens a port on a real address: see [Hub.Listen].
func (d *DPS) Listen(p Port, addr string) (net.Addr, error) {
	row, ok := ports[p]
	if !ok {
		return nil, fmt.Errorf("testbroker: listen: no such port: %s", p)
	}
	return d.net.Listen(addr, row.stack)
}

// RootCAs returns a pool that trusts only the certificate of the service.
func (d *DPS) RootCAs() *x509.CertPool { return d.net.Authority.RootCAs() }

// CAPEM returns the certificate of the authority that signed the service's certificate, in PEM.
func (d *DPS) CAPEM() []byte { return d.net.Authority.CAPEM() }

// ClientTLS returns the configuration of a client that trusts this service and expects its name.
func (d *DPS) ClientTLS() *tls.Config { return d.net.Authority.ClientTLS() }

// PresentName makes the service present a certificate for another host name: see [Hub.PresentName].
func (d *DPS) PresentName(host string) error { return d.net.Authority.PresentName(host) }

// Drop cuts all connections with RST and returns how many.
func (d *DPS) Drop() int { return d.net.Drop("") }

// Inject puts a fault in force. Device selects registrations by their id as the device sends it.
// Faults of connections, of TLS and of requests over HTTP happen here as they do at a hub; over
// HTTP, each request of a device counts as its first. [fault.ProvisioningKinds] are the faults of
// requests to the service, over any protocol. Inject panics if the kind or one of Statuses is
// unknown.
func (d *DPS) Inject(f fault.Fault) *Injected { return &Injected{d.net.Inject(f)} }

// AddPolicy makes an access policy for back ends that use the HTTPS API of the service:
// enrollments, groups and registrations. [hubdata.Policy.ConnectionString] is for their clients.
func (d *DPS) AddPolicy(name string) (hubdata.Policy, error) {
	return d.net.AddPolicy(name, hubdata.RightAll)
}

// Policy returns an access policy: see [Hub.Policy].
func (d *DPS) Policy(name string) (hubdata.Policy, error) { return d.net.Policy(name) }

// Link adds hubs to which devices can be assigned: all of them, or none if there is an error. Their
// names must differ.
func (d *DPS) Link(hubs ...*Hub) error {
	all := make([]*hub.Hub, len(hubs))
	for i, h := range hubs {
		if h != nil {
			all[i] = h.hub
		}
	}
	return d.dps.Link(all...)
}

// LinkUpdates links an update service, in place of the present one. Without one, requests about
// updates are refused with UPDATE_ACCOUNT_NOT_LINKED.
func (d *DPS) LinkUpdates(u *Updates) { d.dps.LinkUpdates(u.s) }

// Unlink removes a hub, by its name. Devices assigned to it stay registered there.
func (d *DPS) Unlink(hostName string) error { return d.dps.Unlink(hostName) }

// Enroll adds an enrollment and returns it with its keys.
func (d *DPS) Enroll(e dpsdata.Enrollment) (dpsdata.Enrollment, error) { return d.dps.Enroll(e) }

// Enrollment returns the enrollment of a device or of a group.
func (d *DPS) Enrollment(id string) (dpsdata.Enrollment, error) { return d.dps.Enrollment(id) }

// Enrollments returns all enrollments, sorted by id.
func (d *DPS) Enrollments() []dpsdata.Enrollment { return d.dps.Enrollments() }

// Change modifies an enrollment, for the next registrations. The id and the kind stay as they are.
func (d *DPS) Change(id string, change func(*dpsdata.Enrollment)) error {
	return d.dps.Change(id, change)
}

// SetEnabled enables or disables an enrollment. Devices that are registered stay at their hubs.
func (d *DPS) SetEnabled(id string, on bool) error {
	return d.dps.Change(id, func(e *dpsdata.Enrollment) { e.Disabled = !on })
}

// Move replaces the hubs of an enrollment. A device moves with its next registration, unless the
// enrollment says never.
func (d *DPS) Move(id string, hubs ...string) error {
	return d.dps.Change(id, func(e *dpsdata.Enrollment) { e.Hubs = hubs })
}

// Delete removes an enrollment and the records of its registrations. The devices stay at their
// hubs.
func (d *DPS) Delete(id string) error { return d.dps.Delete(id) }

// Registration returns the record of a device that has registered.
func (d *DPS) Registration(id string) (dpsdata.Registration, error) { return d.dps.Registration(id) }

// Registrations returns all records, sorted by registration id.
func (d *DPS) Registrations() []dpsdata.Registration { return d.dps.Registrations() }

// DeleteRegistration removes the record of a registration, as if the device had never registered.
// The device stays at its hub.
func (d *DPS) DeleteRegistration(id string) error { return d.dps.DeleteRegistration(id, "*") }

// Requests returns a copy of the log of requests, in the order of their answers.
func (d *DPS) Requests() []dpsdata.Request { return d.dps.Requests() }

// Wait waits until ok returns true. It calls ok at once, and again after each request, connection
// and fault. Wait fails when the context ends or the service is closed.
func (d *DPS) Wait(ctx context.Context, ok func() bool) error { return d.dps.Wait(ctx, ok) }
