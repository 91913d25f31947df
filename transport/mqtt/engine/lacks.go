package engine

import "github.com/hubline-iot/hubline/transport"

var _ transport.Limited = (*Transport)(nil)

// Lacks says what the dialect does not have.
func (t *Transport) Lacks(_ *transport.Credentials, feature transport.Features) string {
	if d, ok := t.opt.Dialect.(lacking); ok {
		return d.Lacks(feature)
	}
	return ""
}

// lacking is a dialect that does not have all features.
type lacking interface {
	Lacks(feature transport.Features) string
}
