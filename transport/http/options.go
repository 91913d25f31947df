package http

import (
	"crypto/tls"
	"net"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/timespan"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Options are the settings of a Transport. The zero value and nil mean all defaults: TLS to port
// 443 of the credentials' host.
type Options struct {
	// Network says how to reach the hub. HTTPS has no Tunnel and no WriteTimeout: Timeout bounds each
	// request.
	Network netopt.Options
	// HTTP2 allows HTTP/2 where the hub offers it. IoT Hub speaks HTTP/1.1.
	HTTP2 bool

	// Timeout bounds each request, a new connection for it included; those with a large body have a
	// second more for each 4 KiB. One that is not answered in it ends the session. A client waits for
	// as long, unless its device.Options.AckTimeout says less: a hub that has much to do answers late,
	// and what is sent again meanwhile is there twice. 0: 60 s.
	//
	// What a hub is never late with has half of it, at least 30 s: a new connection, and on Linux the
	// acknowledgement of packets (TCP_USER_TIMEOUT). When an answer is late by half of that time, a
	// second connection is tried; if it does not come about in the other half, the session ends. So a
	// dead network is found sooner than a hub is given up, after 30 s by default.
	Timeout time.Duration
	// IdleTimeout is how long a connection is kept open that is not used. The next request opens
	// another one, more cheaply with a TLS.ClientSessionCache. 0: 60 s.
	IdleTimeout time.Duration
	// PollInterval is the time between two looks for cloud-to-device messages, as far as none came:
	// after one the next look is at once. A look is a request of its own, and hubs allow few of them:
	// the service recommends to look no more than every 25 minutes. 0: 25 minutes. At least 10 ms.
	PollInterval time.Duration
	// Batch is the most messages that travel in one request, up to 500: those that wait at the same
	// moment go together. 1: each goes alone. 0: 500.
	Batch int
	// NoProof leaves out the exchange by which Dial proves the credentials: the first message or look
	// does.
	NoProof bool
}

// maxBatch is the most messages that a hub takes in a batch.
const maxBatch = 500

// resolve returns a copy with the defaults in place, or an *Error of Kind Invalid about the first
// wrong field.
func (o *Options) resolve() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	for _, d := range [...]struct {
		name       string
		value      *time.Duration
		def, least time.Duration
	}{
		{"Timeout", &r.Timeout, 60 * time.Second, time.Millisecond},
		{"IdleTimeout", &r.IdleTimeout, 60 * time.Second, time.Millisecond},
		{"PollInterval", &r.PollInterval, 25 * time.Minute, 10 * time.Millisecond},
	} {
		*d.value = timespan.Cap(*d.value)
		switch {
		case *d.value == 0:
			*d.value = d.def
		case *d.value < d.least:
			return r, protocol.Invalid("options: " + d.name + " is " + d.value.String() + "; give " + d.least.String() +
				" at least, or 0 for " + d.def.String())
		}
	}
	switch {
	case r.Batch < 0 || r.Batch > maxBatch:
		return r, protocol.Invalid("options: Batch is " + strconv.Itoa(r.Batch) + "; give 1 to " + strconv.Itoa(maxBatch) +
			", or 0 for " + strconv.Itoa(maxBatch))
	case r.Batch == 0:
		r.Batch = maxBatch
	}
	if !plain(r.Network.ProductInfo) {
		return r, protocol.Invalid("options: ProductInfo " + strconv.Quote(r.Network.ProductInfo) +
			" cannot go into a header; give printable ASCII")
	}
	d := &dialer.Dialer{Protocol: &protocol, Network: r.Network}
	err := d.Resolve()
	r.Network = d.Network
	return r, err
}

// silence is for how long the network may give no sign of life where a hub would: in it a
// connection comes about, and what was sent is acknowledged.
func (o *Options) silence() time.Duration {
	return max(o.Timeout/2, min(o.Timeout, 30*time.Second))
}

// dialer returns the dialer of one connection.
func (o *Options) dialer() *dialer.Dialer {
	d := &dialer.Dialer{Protocol: &protocol, Network: o.Network, ALPN: []string{"http/1.1"}}
	if o.HTTP2 {
		d.ALPN = []string{"h2", "http/1.1"}
	}
	d.Network.TLS = o.tls()
	d.Wrap = func(c net.Conn) net.Conn {
		boundSilence(c, o.silence())
		return newSocket(c)
	}
	return d
}

// tls is the base of TLS's settings. Records are full from the beginning: small ones help pages to
// show up early, and cost batches a call each.
func (o *Options) tls() *tls.Config {
	c := o.Network.TLS.Clone()
	if c == nil {
		c = new(tls.Config)
	}
	c.DynamicRecordSizingDisabled = true
	return c
}
