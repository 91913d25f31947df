package amqp

import "github.com/hubline-iot/hubline/transport"

var (
	_ transport.Limited = (*Transport)(nil)
	_ transport.Limited = (*Mux)(nil)
)

// Lacks says what a peer that is no hub does not have, and what needs Addresses.Commands.
func (t *Transport) Lacks(_ *transport.Credentials, feature transport.Features) string {
	return t.opt.lacks(feature)
}

// Lacks is that of Transport.
func (m *Mux) Lacks(_ *transport.Credentials, feature transport.Features) string {
	return m.opt.lacks(feature)
}

func (o *Options) lacks(feature transport.Features) string {
	switch {
	case o.Addresses == nil:
		return ""
	case feature != transport.FeatureMessages:
		return "not available from a peer with Options.Addresses; they need an IoT hub"
	case o.Addresses.Commands == "":
		return "not available without Options.Addresses.Commands; give the source's address"
	}
	return ""
}
