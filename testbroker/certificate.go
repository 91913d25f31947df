package testbroker

import (
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// CertificateOptions are the settings of the certificates that a hub issues to its devices. The
// zero value of each field means its default.
type CertificateOptions struct {
	// Life is how long a certificate is valid. Default: 30 days; negative: the hub issues none, like
	// one without a linked certificate authority.
	Life time.Duration
	// Delay is the time from the answer that a request is accepted to the one with the certificate.
	// Default: none.
	Delay time.Duration
}

// CertificateRequests returns the requests of devices for certificates, in order of arrival.
func (h *Hub) CertificateRequests() []hubdata.CertificateRequest { return h.hub.CertificateRequests() }
