package main

import (
	"crypto/tls"
	"net"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/amqp/amqpws"
	"github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
	"github.com/hubline-iot/hubline/transport/mqtt/lean/leannet"
)

// place is where the hub is. The zero value: where the credentials say, with a certificate that the system trusts.
type place struct {
	addr string
	tls  *tls.Config
}

// way is a value of the flag -transport.
type way struct {
	// make is all that a program needs; one that names one of them links no other.
	make func(creds *transport.Credentials, at place) transport.Transport
	// listen opens the in-process hub's port for it.
	listen func(h *testbroker.Hub, addr string) (net.Addr, error)
	// protocol is what the hub's faults are about.
	protocol testbroker.Protocol
}

var transports = map[string]way{
	"mqtt": {func(_ *transport.Credentials, at place) transport.Transport {
		return mqtt.New(&mqtt.Options{Addr: at.addr, TLS: at.tls})
	}, (*testbroker.Hub).ListenTLS, testbroker.MQTT},
	"mqtt-lean": {func(creds *transport.Credentials, at place) transport.Transport {
		return lean.New(leannet.Dialer(creds, &leannet.Options{Addr: at.addr, TLS: at.tls}), nil)
	}, (*testbroker.Hub).ListenTLS, testbroker.MQTT},
	"amqp": {func(_ *transport.Credentials, at place) transport.Transport {
		return amqp.New(&amqp.Options{Addr: at.addr, TLS: at.tls})
	}, (*testbroker.Hub).ListenAMQP, testbroker.AMQP},
	"amqp-ws": {func(_ *transport.Credentials, at place) transport.Transport {
		return amqp.New(&amqp.Options{Addr: at.addr, TLS: at.tls, Tunnel: amqpws.New(nil)})
	}, (*testbroker.Hub).ListenAMQPWS, testbroker.AMQP},
	"http": {func(_ *transport.Credentials, at place) transport.Transport {
		return http.New(&http.Options{Addr: at.addr, TLS: at.tls})
	}, (*testbroker.Hub).ListenHTTPS, testbroker.HTTP},
}
