package paho

import (
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/timespan"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/endpoint"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Options are the settings of a Transport, those of package mqtt as far as paho has them. The zero
// value and nil mean all defaults: TLS to port 8883 of the credentials' host.
type Options struct {
	// Network says how to reach the hub.
	Network netopt.Options
	// KeepAlive is how long the connection may be quiet before a ping, in whole seconds from 1 s to
	// 65535 s. A hub closes the connection after 1.5 times this. 0: 60 s.
	KeepAlive time.Duration
	// PingTimeout is how long the answer to a ping may take. 0: 20 s.
	PingTimeout time.Duration
	// Dialect says how to speak with the service: a *dialect.Topics for a broker that is no hub.
	// Nil: dialect.Hub.
	Dialect dialect.Dialect
	// ModelID is the Plug and Play model that the device announces, such as
	// "dtmi:com:example:Thermostat;1". Empty: none.
	ModelID string
	// Will is a message that the service sends if the connection ends without DISCONNECT. With a
	// *dialect.Topics its Topic is required. It must not be changed after New. Nil: none.
	Will *transport.Message
	// CleanSession requests a session that is not persistent: messages for the device are lost
	// while it is away.
	CleanSession bool
	// AtMostOnce sends telemetry with QoS 0: a message is done when it was written to the network,
	// and may be lost with the connection.
	AtMostOnce bool
}

const (
	defaultKeepAlive   = 60 * time.Second
	defaultPingTimeout = 20 * time.Second

	maxKeepAlive = 65535 * time.Second
)

// resolve returns a copy with the defaults in place, or an *Error of Kind Invalid about the first
// wrong field.
func (o *Options) resolve() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	if r.Dialect == nil {
		r.Dialect = dialect.Hub
	}
	for _, d := range [...]struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"KeepAlive", &r.KeepAlive, defaultKeepAlive},
		{"PingTimeout", &r.PingTimeout, defaultPingTimeout},
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
	if err := wire.CheckWill(r.Will); err != nil {
		return r, err
	}
	d := r.dialer()
	if err := d.Resolve(); err != nil {
		return r, err
	}
	r.Network = d.Network
	if r.ModelID != "" && !strings.HasPrefix(r.ModelID, "dtmi:") {
		return r, wire.Invalid("options: ModelID " + strconv.Quote(r.ModelID) + " is not a model id; give one such as " +
			"\"dtmi:com:example:Thermostat;1\"")
	}
	for _, f := range [...]struct{ name, value string }{{"ProductInfo", r.Network.ProductInfo}, {"ModelID", r.ModelID}} {
		if len(f.value) > wire.MaxInfo {
			return r, wire.Invalid("options: " + f.name + " has " + strconv.Itoa(len(f.value)) + " bytes; give " +
				strconv.Itoa(wire.MaxInfo) + " at most")
		}
	}
	return r, nil
}

func (o *Options) dialer() *dialer.Dialer {
	return &dialer.Dialer{Protocol: &endpoint.Protocol, Network: o.Network}
}

// session returns the dialect of a session, and what its CONNECT says.
func (o *Options) session(cfg *transport.Config) (dialect.Session, dialect.Hello, error) {
	s, hello, err := o.Dialect.Session(&dialect.Config{Creds: cfg.Creds, ModelID: o.ModelID,
		Agent: dialer.Agent(o.Network.ProductInfo), Will: o.Will, Certificates: cfg.Certificates})
	if err != nil {
		return nil, hello, wire.DialectError(err)
	}
	if n := len(hello.Will.Topic) + hello.Will.Suffix; n > wire.MaxTopic {
		return nil, hello, wire.Invalid("options: Will has a topic of " + strconv.Itoa(n) + " bytes; give 65535 at most")
	}
	return s, hello, nil
}
