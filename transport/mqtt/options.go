package mqtt

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/timespan"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/endpoint"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// Options are the settings of a Transport. The zero value and nil mean all defaults: TLS to port
// 8883 of the credentials' host.
type Options struct {
	// TLS is the base of each connection's TLS settings; it is cloned. Its ServerName defaults to
	// Credentials.DialHost, its Time to the credentials' clock, its MinVersion to TLS 1.2. HTTP's
	// names in its NextProtos do not count, since package net/http writes them into each Config that
	// it is given: what is offered is the rest, and through a Tunnel http/1.1 alone. Nil: the system's
	// roots and these defaults.
	TLS *tls.Config
	// Plaintext leaves TLS out: for brokers on the same machine and for in-memory tests. Tokens cross
	// the wire readable.
	Plaintext bool
	// Certificate is asked for the client certificate at each dial, so that a renewed one is taken up:
	// CertificateFiles reads files, any crypto.Signer as the PrivateKey lets the key stay in a secure
	// element. It must end when ctx does. The certificate is sent whatever authorities the hub names.
	// One that cannot work (no key, another's key, expired) fails the dial before anything is sent. An
	// *transport.Error or transport.Kind that it returns keeps its Kind, any other error is
	// Unauthorized. Nil: what TLS says.
	Certificate func(ctx context.Context) (*tls.Certificate, error)
	// Addr is the "host:port" to connect to. The certificate is still verified for
	// Credentials.DialHost. Empty: DialHost, port 8883, with Plaintext 1883, with a Tunnel its own.
	Addr string
	// Dial makes the connection below TLS: the place for proxies (package netproxy), other network
	// interfaces and networks in memory. It is called by one dial at a time per client and must end
	// when ctx does. An *transport.Error that it returns keeps its Kind. Nil: a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Tunnel carries MQTT within another protocol above TLS: package mqttws has WebSocket. Nil: none.
	Tunnel Tunnel
	// KeepAlive is how long the line may be quiet before a ping, in whole seconds from 1 s to 65535 s.
	// A hub closes the connection after 1.5 times this. 0: 60 s.
	KeepAlive time.Duration
	// PingTimeout is how long the answer to a ping may take. 0: 20 s.
	PingTimeout time.Duration
	// WriteTimeout is how long a write may not get on before the connection counts as lost: the socket
	// takes nothing of it, and the peer's TCP acknowledges nothing (Linux). While the peer sends
	// something it has six times as long. Connections of Dial that have no method SetWriteBuffer, as a
	// *net.TCPConn has, are given it for each 16 KB. 0: 10 s.
	WriteTimeout time.Duration
	// ProductInfo is added to the name that the device gives itself to the hub (DeviceClientType).
	// Empty: nothing.
	ProductInfo string
	// ModelID is the Plug and Play model that the device says it follows, such as
	// "dtmi:com:example:Thermostat;1". Empty: none.
	ModelID string
}

const (
	defaultKeepAlive    = 60 * time.Second
	defaultPingTimeout  = 20 * time.Second
	defaultWriteTimeout = 10 * time.Second

	maxKeepAlive = 65535 * time.Second
)

// resolve returns a copy with the defaults in place, or an *Error of Kind Invalid about the first
// wrong field.
func (o *Options) resolve() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	for _, d := range [...]struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"KeepAlive", &r.KeepAlive, defaultKeepAlive},
		{"PingTimeout", &r.PingTimeout, defaultPingTimeout},
		{"WriteTimeout", &r.WriteTimeout, defaultWriteTimeout},
	} {
		*d.value = timespan.Cap(*d.value)
		switch {
		case *d.value < 0:
			return r, wire.Invalid("options: " + d.name + " is negative; give a positive duration, or 0 for " + d.def.String())
		case *d.value == 0:
			*d.value = d.def
		}
	}
	if r.KeepAlive%time.Second != 0 || r.KeepAlive > maxKeepAlive {
		return r, wire.Invalid("options: KeepAlive is " + r.KeepAlive.String() + "; give whole seconds from 1s to 65535s")
	}
	below := r.below()
	if err := below.Resolve(); err != nil {
		return r, err
	}
	r.Dial = below.Dial
	if r.ModelID != "" && !strings.HasPrefix(r.ModelID, "dtmi:") {
		return r, wire.Invalid("options: ModelID " + strconv.Quote(r.ModelID) + " is no model; give one such as " +
			"\"dtmi:com:example:Thermostat;1\"")
	}
	for _, f := range [...]struct{ name, value string }{{"ProductInfo", r.ProductInfo}, {"ModelID", r.ModelID}} {
		if len(f.value) > wire.MaxInfo {
			return r, wire.Invalid("options: " + f.name + " has " + strconv.Itoa(len(f.value)) + " bytes; give " +
				strconv.Itoa(wire.MaxInfo) + " at most")
		}
	}
	return r, nil
}

// below is how to connect.
func (o *Options) below() dialer.Options {
	return dialer.Options{Protocol: &endpoint.Protocol, TLS: o.TLS, Plaintext: o.Plaintext, Certificate: o.Certificate,
		Addr: o.Addr, Dial: o.Dial, Tunnel: o.Tunnel, WriteTimeout: o.WriteTimeout}
}

// userName is the user name of CONNECT.
func (o *Options) userName(creds *transport.Credentials) string {
	agent := "Hubline (" + runtime.Version() + "; " + runtime.GOOS + "; " + runtime.GOARCH + ")"
	if o.ProductInfo != "" {
		agent += " " + o.ProductInfo
	}
	return wire.UserName(creds, agent, o.ModelID)
}
