package target

import (
	"crypto/tls"
	"net"
	"strings"

	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Preset is a service with MQTT whose limits are checked before anything is sent.
type Preset struct {
	Name, Help string

	dialect func(dialect.Topics) dialect.Dialect
	// alpn returns the protocol's name in TLS at port 443, without WebSocket. Nil: the service has
	// WebSocket alone there.
	alpn func(certificate bool) string
	// hosts is the end of the service's host names.
	hosts string
}

// Dialects are the values of -dialect.
var Dialects = []Preset{
	{"aws-iot", "AWS IoT Core", mqtt.AWSIoT, func(certificate bool) string {
		if certificate {
			return mqtt.AWSIoTCertificate
		}
		return mqtt.AWSIoTCustom
	}, ".amazonaws.com"},
	{"event-grid", "the MQTT broker of an Azure Event Grid namespace", mqtt.EventGrid, nil, ".eventgrid.azure.net"},
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
func (t *Target) apply(d *dialect.Dialect, n *netopt.Options) {
	if topics, ok := (*d).(*dialect.Topics); ok && t.preset != nil {
		*d = t.preset.dialect(*topics)
	}
	t.negotiate(n)
}

// negotiate offers the name of -alpn or of the dialect in TLS.
func (t *Target) negotiate(n *netopt.Options) {
	if t.alpn == "" {
		return
	}
	if n.TLS = n.TLS.Clone(); n.TLS == nil {
		n.TLS = &tls.Config{} //nolint:gosec // netopt sets the version
	}
	n.TLS.NextProtos = t.ALPN()
}

// OverWebSocket reports whether the broker's URL asks for WebSocket.
func (t *Target) OverWebSocket() bool { return t.URL != nil && t.brokerNetwork().Tunnel != nil }

// sharedPort is where services have several protocols.
const sharedPort = "443"

// negotiation fills in the name for TLS's protocol negotiation.
func (t *Target) negotiation(f *Flags) error {
	if f.ALPN == "" && t.preset == nil {
		return nil
	}
	if t.URL == nil {
		return usage("-alpn: it is for brokers; give the broker's URL, such as mqtts://...")
	}
	shared := t.shares()
	switch n := t.brokerNetwork(); {
	case f.ALPN != "" && (n.Plaintext || n.Tunnel != nil):
		return usage("-alpn: a URL with " + t.scheme + " has no protocol to negotiate; give mqtts or amqps")
	case f.ALPN != "":
		t.alpn = f.ALPN
	case shared && t.preset.alpn == nil:
		return usage("-dialect: " + t.preset.Help + " " + t.preset.atShared())
	case shared:
		t.alpn = t.preset.alpn(t.Network.Certificate != nil)
	}
	return nil
}

// shares reports whether the URL or -address leads to the shared port, by TLS without WebSocket.
func (t *Target) shares() bool {
	if t.URL == nil {
		return false
	}
	n := t.brokerNetwork()
	_, port, err := net.SplitHostPort(n.Addr)
	shared := err == nil && port == sharedPort
	for _, a := range t.addresses {
		shared = shared || strings.HasSuffix(a, ":"+sharedPort)
	}
	return shared && !n.Plaintext && n.Tunnel == nil
}

// atShared says what MQTT needs at the shared port.
func (p *Preset) atShared() string {
	if p.alpn == nil {
		return "has WebSocket alone at port " + sharedPort + ": give wss://HOST/..., or port 8883"
	}
	return "wants a protocol name in TLS (ALPN) at port " + sharedPort + ": give -dialect " + p.Name
}

// ALPN returns the names that a transport offers in TLS's protocol negotiation.
func (t *Target) ALPN() []string {
	if t.alpn == "" {
		return nil
	}
	return []string{t.alpn}
}

// Advice says what a broker of one of the Dialects needs at the address, and was not asked for;
// empty: nothing.
func (t *Target) Advice(host string) string {
	if t.alpn != "" || !t.shares() {
		return ""
	}
	for i := range Dialects {
		if p := &Dialects[i]; strings.HasSuffix(strings.ToLower(host), p.hosts) {
			return p.Help + " " + p.atShared()
		}
	}
	return ""
}
