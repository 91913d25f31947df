package engine

import "github.com/hubline-iot/hubline/transport"

var _ transport.Limited = (*Transport)(nil)

// Lacks says what the dialect does not have.
func (t *Transport) Lacks(_ *transport.Credentials, feature transport.Features) string {
	if d, ok := t.opt.Dialect.(interface {
		Lacks(feature transport.Features) string
	}); ok {
		return d.Lacks(feature)
	}
	return ""
}
