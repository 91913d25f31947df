package target

import (
	"net"
	"strings"

	"github.com/hubline-iot/hubline/transport/mqtt/awsiot"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/eventgrid"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Preset is a service with MQTT whose limits are checked before anything is sent.
type Preset struct {
	Name, Help string

	dialect func(dialect.Topics) dialect.Dialect
	// port443 changes connections to port 443 without WebSocket. Nil: nothing.
	port443 func(n netopt.Options, host string) netopt.Options
}

// Dialects are the values of -dialect.
var Dialects = []Preset{
	{"aws-iot", "AWS IoT Core", awsiot.Dialect, func(n netopt.Options, host string) netopt.Options {
		if n.Certificate == nil {
			return awsiot.Port443(n, host, awsiot.ALPNCustom)
		}
		return awsiot.Port443(n, host, awsiot.ALPN)
	}},
	{"event-grid", "the MQTT broker of an Azure Event Grid namespace", eventgrid.Dialect, nil},
}

// DialectNames returns the names of all Dialects.
func DialectNames() (all []string) {
	for _, p := range Dialects {
		all = append(all, p.Name)
	}
	return all
}

// findPreset returns the preset of that name; nil for no name.
func findPreset(name string) (*Preset, error) {
	for i := range Dialects {
		if Dialects[i].Name == name {
			return &Dialects[i], nil
		}
	}
	if name == "" {
		return nil, nil
	}
	return nil, usage("-dialect: there is no " + name + "; give one of " + strings.Join(DialectNames(), ", "))
}

// apply changes the settings of a broker's URL, which has a topic map.
func (p *Preset) apply(d *dialect.Dialect, n *netopt.Options) {
	if p == nil {
		return
	}
	if topics, ok := (*d).(*dialect.Topics); ok {
		*d = p.dialect(*topics)
	}
	host, port, err := net.SplitHostPort(n.Addr)
	if err == nil && port == "443" && n.Tunnel == nil && p.port443 != nil {
		*n = p.port443(*n, host)
	}
}
