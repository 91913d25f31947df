package target

import (
	"cmp"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/nexthub"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// Protocol is a transport under its name.
type Protocol struct {
	Name, Help string
	// Port is the TCP port at a hub. Empty: no hub has the protocol.
	Port string
	// mqttv5: the hubs that have the protocol are those of the connection profile mqttV5, and have no
	// other one.
	mqttv5 bool
	// Schemes are those of brokers' URLs. Empty: no broker has the protocol.
	Schemes string

	// hub and broker make the transport. Both get the target's network settings. model is the Plug and
	// Play model, empty for none.
	hub    func(c *transport.Credentials, n netopt.Options, model string) transport.Transport
	broker func(t *Target, n netopt.Options) (transport.Transport, *transport.Credentials, error)
}

const mqttSchemes = "mqtt mqtts tcp tcps ssl tls mqtt+ssl ws wss"

// Transports are all transports, the usual one first.
var Transports = []Protocol{
	{
		Name: "mqtt", Help: "MQTT 3.1.1", Port: "8883", Schemes: mqttSchemes, broker: brokerMQTT(nil),
		hub: func(_ *transport.Credentials, n netopt.Options, model string) transport.Transport {
			return mqtt.New(&mqtt.Options{Network: n, ModelID: model})
		},
	},
	{
		Name: "mqtt-ws", Help: "the same over WebSocket", Port: "443",
		hub: func(_ *transport.Credentials, n netopt.Options, model string) transport.Transport {
			n.Tunnel = websocket.MQTT(nil)
			return mqtt.New(&mqtt.Options{Network: n, ModelID: model})
		},
	},
	{
		Name: "mqtt5", Help: "MQTT 5, at hubs of the profile mqttV5", Port: "8883", mqttv5: true, Schemes: mqttSchemes,
		broker: brokerMQTT(mqtt.MQTT5(nil)),
		hub: func(_ *transport.Credentials, n netopt.Options, _ string) transport.Transport {
			return mqtt.New(&mqtt.Options{Network: n, Dialect: &nexthub.Hub{}})
		},
	},
	{
		Name: "mqtt5-ws", Help: "the same over WebSocket", Port: "443", mqttv5: true,
		hub: func(_ *transport.Credentials, n netopt.Options, _ string) transport.Transport {
			n.Tunnel = websocket.MQTT(nil)
			return mqtt.New(&mqtt.Options{Network: n, Dialect: &nexthub.Hub{}})
		},
	},
	{
		Name: "amqp", Help: "AMQP 1.0", Port: "5671", Schemes: "amqp amqps", broker: brokerAMQP,
		hub: func(_ *transport.Credentials, n netopt.Options, model string) transport.Transport {
			return amqp.New(&amqp.Options{Network: n, ModelID: model})
		},
	},
	{
		Name: "amqp-ws", Help: "AMQP 1.0 over WebSocket", Port: "443",
		hub: func(_ *transport.Credentials, n netopt.Options, model string) transport.Transport {
			n.Tunnel = websocket.AMQP(nil)
			return amqp.New(&amqp.Options{Network: n, ModelID: model})
		},
	},
	{
		Name: "http", Help: "HTTPS: messages alone", Port: "443",
		hub: func(_ *transport.Credentials, n netopt.Options, _ string) transport.Transport {
			return http.New(&http.Options{Network: n})
		},
	},
}

// errNoDevice is about a URL from which no id follows.
var errNoDevice = usage("the broker's URL names no device; write its id at the end, such as mqtts://HOST?device=ID")

// brokerMQTT returns the function for a version of MQTT. A nil protocol is the one of the URL.
func brokerMQTT(protocol mqtt.Protocol) func(*Target, netopt.Options) (transport.Transport, *transport.Credentials,
	error) {
	return func(t *Target, n netopt.Options) (transport.Transport, *transport.Credentials, error) {
		creds, o, err := mqtt.ParseBroker(t.URL.Reveal())
		if err == nil && creds.DeviceID == "" {
			err = errNoDevice
		}
		if err != nil {
			return nil, nil, err
		}
		merge(&o.Network, n)
		t.apply(&o.Dialect, &o.Network)
		if protocol != nil && o.Protocol == nil {
			o.Protocol = protocol
		}
		return mqtt.New(o), creds, nil
	}
}

func brokerAMQP(t *Target, n netopt.Options) (transport.Transport, *transport.Credentials, error) {
	creds, o, err := amqp.ParseBroker(t.URL.Reveal())
	if err == nil && creds.DeviceID == "" {
		err = errNoDevice
	}
	if err != nil {
		return nil, nil, err
	}
	merge(&o.Network, n)
	t.negotiate(&o.Network)
	return amqp.New(o), creds, nil
}

// merge adds the tool's settings to those of a URL.
func merge(of *netopt.Options, n netopt.Options) {
	of.Proxy, of.Dial, of.Certificate = n.Proxy, n.Dial, n.Certificate
	if n.TLS != nil {
		of.TLS = n.TLS
	}
	if n.Addr != "" {
		of.Addr = n.Addr
	}
	if n.Certificate == nil {
		of.Anonymous = true // the URL says everything that the device has
	}
}

// isMQTT reports whether the scheme is of a broker with MQTT.
func isMQTT(scheme string) bool { return slices.Contains(strings.Fields(mqttSchemes), scheme) }

// isScheme reports whether brokers' URLs have the scheme.
func isScheme(scheme string) bool {
	for _, p := range Transports {
		if slices.Contains(strings.Fields(p.Schemes), scheme) {
			return true
		}
	}
	return false
}

func known(name string) bool {
	for _, p := range Transports {
		if p.Name == name {
			return true
		}
	}
	return false
}

// Names returns the names of all transports.
func Names() (all []string) {
	for _, p := range Transports {
		all = append(all, p.Name)
	}
	return all
}

// serves reports whether the target's service has the protocol.
func (t *Target) serves(p *Protocol) bool {
	if t.URL == nil {
		return p.hub != nil && p.mqttv5 == t.mqttv5
	}
	for scheme := range strings.FieldsSeq(p.Schemes) {
		if scheme == t.scheme {
			return true
		}
	}
	return false
}

// Protocols returns the transports that the target's service has: all, or the one of -transport.
func (t *Target) Protocols() (all []*Protocol) {
	for i := range Transports {
		if p := &Transports[i]; t.serves(p) && (t.name == "" || t.name == p.Name) {
			all = append(all, p)
		}
	}
	return all
}

// find returns the transport of that name.
func (t *Target) find(name string) (*Protocol, error) {
	var have []string
	for i := range Transports {
		p := &Transports[i]
		if !t.serves(p) {
			continue
		}
		if p.Name == name {
			return p, nil
		}
		have = append(have, p.Name)
	}
	what := "the target"
	if t.mqttv5 {
		what = "a hub of the profile mqttV5"
	}
	return nil, usage("-transport: " + name + " does not fit " + what + ", which has " + strings.Join(have, ", "))
}

// forMQTTv5 reports whether the transport of that name is for hubs of the profile mqttV5.
func forMQTTv5(name string) bool {
	return slices.ContainsFunc(Transports, func(p Protocol) bool { return p.Name == name && p.mqttv5 })
}

// Address returns the address for a transport. Empty: that of the service.
func (t *Target) Address(p *Protocol) string {
	if a, ok := t.addresses[p.Name]; ok {
		return a
	}
	return t.addresses[""]
}

// Transport returns the transport of -transport, or the first of the target, with its credentials.
func (t *Target) Transport() (transport.Transport, *transport.Credentials, error) {
	if err := t.proven(); err != nil {
		return nil, nil, err
	}
	return t.Open(t.Protocols()[0])
}

// proven returns an error for a hub's device that nothing proves to be it.
func (t *Target) proven() error {
	if t.URL == nil && t.mqttv5 && t.Network.Certificate == nil {
		return usage("a hub of the profile mqttV5 takes certificates alone: give -cert and -cert-key; hubline provision " +
			"-issue FILE gets one")
	}
	if t.URL == nil && t.Creds.Sign == nil && t.Creds.Token == nil && t.Network.Certificate == nil {
		return usage("the connection string says x509=true: give -cert and -cert-key")
	}
	return nil
}

// Open returns a transport with its credentials.
func (t *Target) Open(p *Protocol) (transport.Transport, *transport.Credentials, error) {
	n := t.Network
	n.Addr = t.Address(p)
	if n.TLS != nil {
		n.TLS = n.TLS.Clone()
	}
	if t.URL != nil {
		return p.broker(t, n)
	}
	return p.hub(t.Creds, n, t.model), t.Creds, nil
}

// parseURL returns the credentials of the broker's URL.
func (t *Target) parseURL() (*transport.Credentials, error) {
	for i := range Transports {
		if p := &Transports[i]; t.serves(p) {
			_, creds, err := p.broker(t, netopt.Options{TLS: &tls.Config{MinVersion: tls.VersionTLS12}})
			return creds, err
		}
	}
	return nil, usage("the scheme " + t.scheme + " is not a broker's; give mqtts, wss or amqps, or without TLS mqtt, ws " +
		"or amqp")
}

// Endpoint returns where a transport connects: the host that the certificate is for, and
// "host:port". Both are empty for a registration that has not been made.
func (t *Target) Endpoint(p *Protocol) (host, address string, plaintext bool) {
	if t.Creds == nil {
		return "", "", false
	}
	host = t.Creds.DialHost()
	address = net.JoinHostPort(host, p.Port)
	if t.URL != nil {
		network := t.brokerNetwork()
		address, plaintext = network.Addr, network.Plaintext
	}
	if a := t.Address(p); a != "" {
		address = a
	}
	return host, address, plaintext
}

// brokerNetwork returns the network settings of a URL that was parsed before.
func (t *Target) brokerNetwork() netopt.Options {
	if _, o, err := mqtt.ParseBroker(t.URL.Reveal()); err == nil {
		return o.Network
	}
	_, o, err := amqp.ParseBroker(t.URL.Reveal())
	if err != nil {
		return netopt.Options{}
	}
	return o.Network
}

// Provisioning returns the host and the "host:port" of the provisioning service.
func (t *Target) Provisioning() (host, address string) {
	host = t.Identity.Endpoint
	if host == "" {
		host = provisioning.GlobalEndpoint
	}
	address = t.addresses["dps"]
	if address == "" {
		address = net.JoinHostPort(host, "443")
	}
	return host, address
}

// HasTwin reports whether the transport carries the twin and direct methods.
func (t *Target) HasTwin() bool { return t.URL == nil && t.Protocols()[0].Name != "http" }

// Announce makes the device announce a Plug and Play model, unless -model-id has named another one.
func (t *Target) Announce(model string) { t.model = cmp.Or(t.model, model) }

// HasMessages reports whether the service sends messages to the device.
func (t *Target) HasMessages() bool { return t.URL != nil || !t.mqttv5 }

// HTTPS returns what requests to the hub need.
func (t *Target) HTTPS() (*transport.Credentials, netopt.Options, error) {
	if t.URL != nil {
		return nil, netopt.Options{}, usage("this needs a hub, and a broker's URL is given")
	}
	if t.mqttv5 {
		return nil, netopt.Options{}, usage("a hub of the profile mqttV5 has no file uploads; use storage of your own")
	}
	if err := t.proven(); err != nil {
		return nil, netopt.Options{}, err
	}
	p, err := t.find("http")
	if err != nil {
		return nil, netopt.Options{}, err
	}
	n := t.Network
	n.Addr = t.Address(p)
	return t.Creds, n, nil
}

// IsQuiet reports whether the transport is the one that Quiet returns.
func (t *Target) IsQuiet(p *Protocol) bool { return p.Name == t.quiet() }

func (t *Target) quiet() string {
	if t.URL == nil && t.mqttv5 {
		return "mqtt5"
	}
	return "mqtt"
}

// Quiet returns the transport over MQTT and TCP with this keep-alive.
func (t *Target) Quiet(keepAlive time.Duration) (transport.Transport, *transport.Credentials, error) {
	n := t.Network
	p, err := t.find(t.quiet())
	if err != nil {
		return nil, nil, err
	}
	n.Addr = t.Address(p)
	if n.Dial == nil {
		n.Dial = (&net.Dialer{KeepAlive: -1}).DialContext // TCP's own probes, every 15 s, are traffic too
	}
	if t.URL == nil {
		o := &mqtt.Options{Network: n, KeepAlive: keepAlive, ModelID: t.model}
		if t.mqttv5 {
			o.Dialect = &nexthub.Hub{}
		}
		return mqtt.New(o), t.Creds, nil
	}
	_, o, err := mqtt.ParseBroker(t.URL.Reveal())
	if err != nil {
		return nil, nil, err
	}
	merge(&o.Network, n)
	t.apply(&o.Dialect, &o.Network)
	o.KeepAlive = keepAlive
	return mqtt.New(o), t.Creds, nil
}
