//go:build !paho

package main

import (
	"crypto/tls"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
	"github.com/hubline-iot/hubline/transport/mqtt/lean/leannet"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func engine(creds *transport.Credentials, addr string, roots *tls.Config) transport.Transport {
	return lean.New(leannet.Dialer(creds, &netopt.Options{Addr: addr, TLS: roots}), nil)
}
