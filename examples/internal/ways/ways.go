// Package ways holds what the examples have in common: the transports by their names, which hub
// they are aimed at, and an in-process one with one device.
package ways

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/amqp/amqpws"
	"github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
	"github.com/hubline-iot/hubline/transport/mqtt/lean/leannet"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Way is a value of the flag -transport.
type Way struct {
	// Make is all that a program needs; one that names one of them links no other.
	Make func(creds *transport.Credentials, at Place) transport.Transport
	// Port is what testhub calls the port for it.
	Port string
	// HubPort is the in-process hub's port for it.
	HubPort testbroker.Port
	// Protocol is what the hub's faults are about.
	Protocol testbroker.Protocol
}

// Transports are the values of the flag.
var Transports = map[string]Way{
	"mqtt": {func(_ *transport.Credentials, at Place) transport.Transport {
		return mqtt.New(&mqtt.Options{Network: netopt.Options{Addr: at.Addr, TLS: at.TLS}})
	}, "mqtt", testbroker.PortMQTTS, testbroker.MQTT},
	"mqtt-lean": {func(creds *transport.Credentials, at Place) transport.Transport {
		return lean.New(leannet.Dialer(creds, &netopt.Options{Addr: at.Addr, TLS: at.TLS}), nil)
	}, "mqtt", testbroker.PortMQTTS, testbroker.MQTT},
	"amqp": {func(_ *transport.Credentials, at Place) transport.Transport {
		return amqp.New(&amqp.Options{Network: netopt.Options{Addr: at.Addr, TLS: at.TLS}})
	}, "amqp", testbroker.PortAMQPS, testbroker.AMQP},
	"amqp-ws": {func(_ *transport.Credentials, at Place) transport.Transport {
		return amqp.New(&amqp.Options{Network: netopt.Options{Addr: at.Addr, TLS: at.TLS, Tunnel: amqpws.New(nil)}})
	}, "https", testbroker.PortHTTPS, testbroker.AMQP},
	"http": {func(_ *transport.Credentials, at Place) transport.Transport {
		return http.New(&http.Options{Network: netopt.Options{Addr: at.Addr, TLS: at.TLS}})
	}, "https", testbroker.PortHTTPS, testbroker.HTTP},
}

// Named returns the transport that the flag names.
func Named(name string) (Way, error) {
	w, ok := Transports[name]
	if !ok {
		return Way{}, Usage("flag -transport: %q is not a transport; give one of %s", name,
			strings.Join(slices.Sorted(maps.Keys(Transports)),
				", "))
	}
	return w, nil
}

// Stage is where a small example plays.
type Stage struct {
	// Hub is the in-process hub with the device "roof-7"; nil when there is a connection string to
	// another one.
	Hub       *testbroker.Hub
	Creds     *transport.Credentials
	Transport transport.Transport
	// Web is where the hub speaks HTTPS, for uploads.
	Web Place
}

// NewStage makes what the device needs to connect to the target over the transport of that name.
func NewStage(ctx context.Context, name string, to Target) (*Stage, error) {
	w, err := Named(name)
	if err != nil {
		return nil, err
	}
	s := &Stage{}
	var at Place
	if to.Connect == "" {
		at, err = s.own(w, &to.Connect)
	} else if at, err = to.Place(ctx, w.Port); err == nil {
		s.Web, err = to.Place(ctx, "https")
	}
	if err == nil {
		s.Creds, err = device.ParseConnectionString(to.Connect)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.Transport = w.Make(s.Creds, at)
	return s, nil
}

// own makes the in-process hub.
func (s *Stage) own(w Way, connect *string) (at Place, err error) {
	if s.Hub, err = testbroker.New(nil); err != nil {
		return at, err
	}
	d, err := s.Hub.AddDevice("roof-7")
	if err != nil {
		return at, err
	}
	addr, err := s.Hub.Listen(w.HubPort, "127.0.0.1:0")
	if err != nil {
		return at, err
	}
	web, err := s.Hub.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
	if err != nil {
		return at, err
	}
	*connect, s.Web = d.ConnectionString(), Place{web.String(), s.Hub.ClientTLS()}
	return Place{addr.String(), s.Hub.ClientTLS()}, nil
}

// Close closes the hub, if there is one.
func (s *Stage) Close() error {
	if s.Hub == nil {
		return nil
	}
	return s.Hub.Close()
}
