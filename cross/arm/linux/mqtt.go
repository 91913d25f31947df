//go:build !paho

package main

import (
	"crypto/tls"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func engine(creds *transport.Credentials, addr string, roots *tls.Config) transport.Transport {
	return mqtt.New(&mqtt.Options{Network: netopt.Options{Addr: addr, TLS: roots}})
}
