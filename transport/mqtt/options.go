package mqtt

import (
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/timespan"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/endpoint"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Options are the settings of a Transport. The zero value and nil mean all defaults: TLS to port
// 8883 of the credentials' host.
type Options struct {
	// Network says how to reach the hub.
	Network netopt.Options
	// KeepAlive is how long the connection may be quiet before a ping, in whole seconds from 1 s to
	// 65535 s. A hub closes the connection after 1.5 times this. 0: 60 s.
	KeepAlive time.Duration
	// PingTimeout is how long the answer to a ping may take. 0: 20 s.
	PingTimeout time.Duration
	// ModelID is the Plug and Play model that the device announces, such as
	// "dtmi:com:example:Thermostat;1". Empty: none.
	ModelID string
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

// userName returns the user name of CONNECT.
func (o *Options) userName(cfg *transport.Config) string {
	version := wire.APIVersion
	if cfg.Certificates {
		version = wire.APIVersionCertificates
	}
	return wire.UserName(cfg.Creds, version, dialer.Agent(o.Network.ProductInfo), o.ModelID)
}
