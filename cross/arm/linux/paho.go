//go:build paho

package main

import (
	"crypto/tls"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/paho"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func engine(_ *transport.Credentials, addr string, roots *tls.Config) transport.Transport {
	return paho.New(&mqtt.Options{Network: netopt.Options{Addr: addr, TLS: roots}})
}
