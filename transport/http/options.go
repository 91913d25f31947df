package http

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Options are the settings of a Transport. The zero value and nil mean all defaults: TLS to port
// 443 of the credentials' host.
type Options struct {
	// Network configures the connection to the hub. Tunnel and WriteTimeout must be unset, or Dial
	// fails with Invalid: HTTPS has no tunnels, and Timeout bounds each request.
	Network netopt.Options
	// HTTP2 allows HTTP/2 where the hub offers it. IoT Hub speaks HTTP/1.1.
	HTTP2 bool

	// Timeout bounds each request, including the time for a new connection; a large body adds a second
	// for each 4 KiB. Over HTTP/1.1, once the answer arrives, the time counts from its latest byte,
	// for ten minutes more at most. A request without an answer in that time ends the session. A
	// client waits as long, unless its device.Options.AckTimeout is shorter. A shorter time causes
	// duplicates, because a busy hub answers late and the message is sent again meanwhile. Timeout
	// also bounds the making of a token before the request. 0: 60 s.
	//
	// Half of Timeout, but at least 30 s, bounds a new connection and, on Linux, the acknowledgement
	// of packets (TCP_USER_TIMEOUT), neither of which a working hub delays. When an answer is late by
	// half of that time, a second connection is tried, once a request; if it does not come about in
	// the other half, the session ends. So a dead network is found sooner than a slow hub, after 30 s
	// by default.
	Timeout time.Duration
	// IdleTimeout is how long an unused connection is kept open. The next request opens another one.
	// 0: 60 s.
	IdleTimeout time.Duration
	// PollInterval is the time between two polls for cloud-to-device messages. After a message the
	// next poll follows at once. Each poll is a request, and hubs allow few of them: the service
	// recommends at most one every 25 minutes. 0: 25 minutes. At least 10 ms.
	PollInterval time.Duration
	// Batch is the maximum number of messages in one request, up to 500; messages that are queued at
	// the same moment share a request. 1: each message has its own request. 0: 500.
	Batch int
	// NoProof omits the exchange by which Dial proves the credentials: the first message or poll
	// proves them.
	NoProof bool
}

// maxBatch is the maximum number of messages that a hub takes in a batch.
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
		*d.value = times.Cap(*d.value)
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
	d := &dialer.Dialer{Protocol: protocol, Network: r.Network}
	err := d.Resolve()
	r.Network = d.Network
	return r, err
}

// silence returns how long the network may show no sign of life. It bounds the time for a new
// connection and for the acknowledgement of sent data.
func (o *Options) silence() time.Duration {
	return max(o.Timeout/2, min(o.Timeout, 30*time.Second))
}

// requestTimeout returns the time limit of a request with a body of this size. Large bodies get
// more time, because a slow link is not a dead one.
func (o *Options) requestTimeout(size int) time.Duration {
	return o.Timeout + time.Duration(size/(4<<10))*time.Second
}

// dialer returns the dialer of one connection.
func (o *Options) dialer() *dialer.Dialer {
	d := &dialer.Dialer{Protocol: protocol, Network: o.Network, ALPN: []string{"http/1.1"}}
	if o.HTTP2 {
		d.ALPN = []string{"h2", "http/1.1"}
	}
	d.Network.TLS = o.tls()
	d.Wrap = func(c net.Conn) net.Conn {
		boundSilence(c, o.silence())
		return c
	}
	return d
}

// connect opens a connection within Options.silence. The error is a cause for protocol.Error.
func (o *Options) connect(ctx context.Context, creds *transport.Credentials) (*hubhttp.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, o.silence())
	defer cancel()
	return hubhttp.Dial(ctx, o.dialer(), creds)
}

// tls returns the base of the TLS configuration. Records are full-sized from the start: small
// initial records make web pages appear early, but cost batches one call each.
func (o *Options) tls() *tls.Config {
	c := o.Network.TLS.Clone()
	if c == nil {
		c = new(tls.Config)
	}
	c.DynamicRecordSizingDisabled = true
	return c
}
