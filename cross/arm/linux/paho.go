//go:build paho

package main

import (
	"crypto/tls"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
)

func engine(_ *transport.Credentials, addr string, roots *tls.Config) transport.Transport {
	return mqtt.New(&mqtt.Options{Addr: addr, TLS: roots})
}
