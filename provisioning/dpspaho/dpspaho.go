// Package dpspaho carries registrations with the provisioning service over MQTT 3.1.1 with TLS, and
// over WebSocket, on the library eclipse/paho.mqtt.golang: for programs that link it anyway, as
// they use package transport/mqtt.
//
//	client, err := provisioning.New(id, dpspaho.New(nil), nil)
//	client, err := provisioning.New(id, dpspaho.New(&netopt.Options{Tunnel: mqttws.New(nil)}), nil)
//
// Package dpsmqtt does the same with an engine of this module. A session is one of package
// transport/mqtt: its connection checks what the library reads, and bounds its writes.
//
// netopt.Options.Certificate authenticates an Identity without keys, as for package
// provisioning/dpshttp.
package dpspaho

import (
	"context"
	"errors"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/internal/dpstopic"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Carrier is a provisioning.Carrier over MQTT. Several clients may share it.
type Carrier struct {
	mqtt  *mqtt.Transport
	agent string
	proof *dialer.Dialer // requires a token or a certificate
}

var _ provisioning.Carrier = (*Carrier)(nil)

// New returns a Carrier with these network settings, which are copied; nil means all defaults: TLS
// to port 8883. Each Open reports wrong settings, with Kind Invalid. Several clients may share the
// Carrier.
func New(o *netopt.Options) *Carrier {
	var options mqtt.Options
	if o != nil {
		options.Network = *o
	}
	options.Dialect, options.CleanSession = &service, true
	return &Carrier{mqtt.New(&options), dialer.Agent(options.Network.ProductInfo),
		&dialer.Dialer{Protocol: &dialer.Protocol{Name: "mqtt"}, Network: options.Network}}
}

// service is the dialect of the provisioning service. Each request has a topic of its own.
var service = dialect.Topics{Telemetry: "$dps/registrations", Commands: []string{dpstopic.Filter}}

// errSlow is the cause of a request that took too long.
var errSlow = errors.New("no answer in time")

// Open connects, sends CONNECT and subscribes to answers.
func (c *Carrier) Open(ctx context.Context, l *provisioning.Login) (provisioning.Session, error) {
	limited, end := lifetime.WithinTime(ctx, l.Timeout)
	defer end()
	s := newSession(l.Timeout)
	creds := l.Credentials()
	if c.proof.Network.Certificate == nil {
		// before the user name is set, which for a broker may be proof enough
		if _, err := c.proof.ClientCertificate(limited, creds); err != nil {
			return nil, cause(ctx, limited, err)
		}
	}
	creds.UserName = dpstopic.UserName(l, c.agent)
	link, err := c.mqtt.Dial(limited, &transport.Config{Creds: creds, Window: 1, Queue: 1, Sink: s})
	if err != nil {
		return nil, cause(ctx, limited, err)
	}
	s.serve(link)
	if err := s.subscribe(ctx, limited); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// cause returns the error of a connection that ends with limited, which is ctx with a time limit.
func cause(ctx, limited context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case limited.Err() != nil:
		return &transport.Error{Kind: transport.Timeout, Scope: transport.Connection, Op: transport.OpRegister,
			Proto: "mqtt", Err: errSlow}
	}
	if e := transport.Find(err); e != nil {
		kept := *e
		kept.Scope, kept.Op = transport.Connection, transport.OpRegister
		return &kept
	}
	return err
}
