package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	hublinepaho "github.com/hubline-iot/hubline/transport/mqtt/paho"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// access has the data that a client needs to connect to a hub in another process.
type access struct {
	Addr, Host string
	Devices    []identity
	CA         []byte // of a hub with TLS; nil without
	Bare       bool   // the responder that only acknowledges
}

type identity struct{ ID, Key string }

// over returns what makes a client's transport, nil for an unknown name. All clients of the process
// share the transports that can be shared.
func (a *access) over(name string) func() transport.Transport {
	switch name {
	case "mqtt":
		return a.mqtt()
	case "paho":
		shared := hublinepaho.New(&mqtt.Options{Network: a.network()})
		return func() transport.Transport { return shared }
	case "amqp":
		o := a.amqpOptions()
		if a.Bare {
			o.Auth = amqp.AuthPlain
		}
		shared := amqp.New(o)
		return func() transport.Transport { return shared }
	}
	return nil
}

// mqtt makes transports on Hubline's own MQTT engine, which needs one transport per client. They
// share the TLS settings.
func (a *access) mqtt() func() transport.Transport {
	network := a.network()
	return func() transport.Transport { return mqtt.New(&mqtt.Options{Network: network}) }
}

func (a *access) network() netopt.Options {
	return netopt.Options{Addr: a.Addr, Plaintext: a.CA == nil, TLS: a.tls()}
}

// overTopics returns a transport on Hubline's own MQTT engine to a broker that is no hub.
// protocol is nil for MQTT 3.1.1.
func (a *access) overTopics(protocol mqtt.Protocol) transport.Transport {
	network := a.network()
	network.Anonymous = true
	return mqtt.New(&mqtt.Options{Network: network, CleanSession: true,
		Dialect: &dialect.Topics{Telemetry: brokerTopic}, Protocol: protocol})
}

// rawOptions returns options for the fastest use of the raw library.
func (a *access) rawOptions(ctx context.Context, creds *transport.Credentials) (*paho.ClientOptions, error) {
	token, err := creds.NewToken(ctx)
	if err != nil {
		return nil, err
	}
	scheme := "tcp://"
	o := paho.NewClientOptions()
	if a.CA != nil {
		scheme = "tls://"
		o.SetTLSConfig(a.tls())
	}
	return o.AddBroker(scheme + a.Addr).SetClientID(creds.DeviceID).SetUsername(userName(creds)).SetPassword(
		token.Text.Reveal()).SetProtocolVersion(4).
		SetAutoReconnect(false).SetOrderMatters(false).SetKeepAlive(time.Minute).SetWriteTimeout(10 * time.Second), nil
}

func userName(creds *transport.Credentials) string {
	return creds.Host + "/" + creds.DeviceID + "/?api-version=2021-04-12"
}

func telemetryTopic(creds *transport.Credentials) string {
	return "devices/" + creds.DeviceID + "/messages/events/"
}

// dial makes a connection, for senders on no transport of Hubline's.
func (a *access) dial(ctx context.Context) (net.Conn, error) {
	if settings := a.tls(); settings != nil {
		return (&tls.Dialer{Config: settings}).DialContext(ctx, "tcp", a.Addr)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", a.Addr)
}

// tls returns a configuration that trusts only the hub's CA. Nil: the hub has no TLS.
func (a *access) tls() *tls.Config {
	if a.CA == nil {
		return nil
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.CA)
	return &tls.Config{RootCAs: roots, ServerName: a.Host}
}

func (a *access) creds(i int) (*transport.Credentials, error) {
	sign, err := transport.SharedKey(a.Devices[i].Key)
	if err != nil {
		return nil, err
	}
	return &transport.Credentials{Host: a.Host, DeviceID: a.Devices[i].ID, Sign: sign, TokenLife: 24 * time.Hour}, nil
}
