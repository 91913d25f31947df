// Package setup has the common parts of the examples: transports by name, the target hub, an
// in-process hub with one device, and the services of updates.
package setup

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// Ports are the ports of a transport's hub.
type Ports struct {
	// Testhub is the name of the port in testhub's control API.
	Testhub string
	// Hub is the in-process hub's port.
	Hub testbroker.Port
	// Protocol selects the hub's faults.
	Protocol hubdata.Protocol
}

// transports are the values of the flag -transport.
var transports = map[string]Ports{
	"mqtt":    {"mqtt", testbroker.PortMQTTS, hubdata.MQTT},
	"amqp":    {"amqp", testbroker.PortAMQPS, hubdata.AMQP},
	"amqp-ws": {"https", testbroker.PortHTTPS, hubdata.AMQP},
	"http":    {"https", testbroker.PortHTTPS, hubdata.HTTP},
}

// PortsOf returns the ports for a value of the flag.
func PortsOf(name string) (Ports, error) {
	ports, ok := transports[name]
	if !ok {
		return Ports{}, Usage("flag -transport: %q is not a transport; give one of %s", name,
			strings.Join(slices.Sorted(maps.Keys(transports)), ", "))
	}
	return ports, nil
}

// Transport returns the transport of that name. A program that names one transport links no other.
func Transport(name string, creds *transport.Credentials, network netopt.Options) transport.Transport {
	switch name {
	case "amqp-ws":
		network.Tunnel = websocket.AMQP(nil)
		return amqp.New(&amqp.Options{Network: network})
	case "amqp":
		return amqp.New(&amqp.Options{Network: network})
	case "http":
		return http.New(&http.Options{Network: network})
	}
	return mqtt.New(&mqtt.Options{Network: network})
}

// Device is everything that a small example needs for its client, and its hub.
type Device struct {
	// Hub is the in-process hub with the device "roof-7"; nil if there is a connection string to
	// another hub.
	Hub       *testbroker.Hub
	Creds     *transport.Credentials
	Transport transport.Transport
	Ports     Ports

	to  Target
	web netopt.Options // of Hub
}

// NewDevice sets up a device that connects to the target over the transport of that name.
func NewDevice(ctx context.Context, name string, to Target) (*Device, error) {
	ports, err := PortsOf(name)
	if err != nil {
		return nil, err
	}
	s := &Device{Ports: ports, to: to}
	var at netopt.Options
	if to.Connect == "" {
		at, err = s.own(ports, &to.Connect)
	} else {
		at, err = to.Find(ctx, ports.Testhub)
	}
	if err == nil {
		s.Creds, err = device.ParseConnectionString(to.Connect)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.Transport = Transport(name, s.Creds, at)
	return s, nil
}

// own starts the in-process hub.
func (s *Device) own(ports Ports, connect *string) (at netopt.Options, err error) {
	if s.Hub, err = testbroker.New(nil); err != nil {
		return at, err
	}
	d, err := s.Hub.AddDevice("roof-7")
	if err != nil {
		return at, err
	}
	addr, err := s.Hub.Listen(ports.Hub, "127.0.0.1:0")
	if err != nil {
		return at, err
	}
	web, err := s.Hub.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
	if err != nil {
		return at, err
	}
	*connect, s.web = d.ConnectionString(), netopt.Options{Addr: web.String(), TLS: s.Hub.ClientTLS()}
	return netopt.Options{Addr: addr.String(), TLS: s.Hub.ClientTLS()}, nil
}

// Web returns the hub's HTTPS address, for uploads.
func (s *Device) Web(ctx context.Context) (netopt.Options, error) {
	if s.Hub != nil {
		return s.web, nil
	}
	return s.to.Find(ctx, "https")
}

// Close closes the hub, if there is one.
func (s *Device) Close() error {
	if s.Hub == nil {
		return nil
	}
	return s.Hub.Close()
}
