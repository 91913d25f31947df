package testbroker

import (
	"crypto"
	"crypto/x509"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// CertificateRequests returns the requests of devices for certificates, in order of arrival.
func (h *Hub) CertificateRequests() []hubdata.CertificateRequest { return h.hub.CertificateRequests() }

// RotateCertificate makes a new certificate authority and a certificate of it for the listeners.
// The hub presents that from the next handshake on. [Hub.RootCAs] and [Hub.CAPEM] return the new
// authority, so a pool from before the rotation does not verify the hub. Open connections stay;
// [Hub.Drop] cuts them, as the restart of a gateway does. With [Options.Seed] the authority repeats
// from hub to hub, rotation by rotation.
func (h *Hub) RotateCertificate() { h.hub.Authority.Rotate() }

// Authorities returns the certificates of the hub's authorities: the present one, then up to 16
// that rotations have replaced, newest first.
func (h *Hub) Authorities() []*x509.Certificate { return h.hub.Authority.All() }

// IssueCertificate signs a certificate for a public key with the hub's present authority. The
// template needs a common name. The hub sets the serial number, and where they are zero the
// validity, 20 years from an hour ago, and the key usage, digital signatures. It fails for a nil
// template, one without a common name, and a key that crypto/x509 does not take.
func (h *Hub) IssueCertificate(template *x509.Certificate, key crypto.PublicKey) (*x509.Certificate, error) {
	return h.hub.Authority.Issue(template, key)
}
