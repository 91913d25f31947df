package main

import (
	"crypto/tls"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
	"github.com/hubline-iot/hubline/transport/mqtt/lean/leannet"
)

// place is where the hub is. The zero value: where the credentials say, with a certificate that the system trusts.
type place struct {
	addr string
	tls  *tls.Config
}

// transports are the values of the flag -transport. A program that names one of them links no other.
var transports = map[string]func(creds *transport.Credentials, at place) transport.Transport{
	"mqtt": func(_ *transport.Credentials, at place) transport.Transport {
		return mqtt.New(&mqtt.Options{Addr: at.addr, TLS: at.tls})
	},
	"mqtt-lean": func(creds *transport.Credentials, at place) transport.Transport {
		return lean.New(leannet.Dialer(creds, &leannet.Options{Addr: at.addr, TLS: at.tls}), nil)
	},
}
