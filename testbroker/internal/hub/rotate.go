package hub

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

// maxFormer is how many replaced authorities are remembered.
const maxFormer = 16

// RotateCertificate makes a new certificate authority and a certificate of it for the listeners.
func (h *Hub) RotateCertificate() {
	defer h.Records.Saved()
	h.certs.mu.Lock()
	defer h.certs.mu.Unlock()
	h.authorityLocked()
	former := slices.Insert(h.certs.former, 0, h.certs.ca)
	h.certs.former = former[:min(len(former), maxFormer)]
	h.certs.rotated++
	h.newAuthorityLocked()
}

// Authorities returns the certificates of the hub's authorities: the present one, then up to 16
// that rotations have replaced, newest first.
func (h *Hub) Authorities() []*x509.Certificate {
	h.certs.mu.Lock()
	defer h.certs.mu.Unlock()
	h.authorityLocked()
	return append([]*x509.Certificate{h.certs.ca}, h.certs.former...)
}

// IssueCertificate signs a certificate for a public key with the hub's present authority.
func (h *Hub) IssueCertificate(template *x509.Certificate, key crypto.PublicKey) (*x509.Certificate, error) {
	if template == nil || template.Subject.CommonName == "" {
		return nil, errors.New("testbroker: issue a certificate: the template has no common name; set Subject.CommonName")
	}
	h.certs.mu.Lock()
	defer h.certs.mu.Unlock()
	h.authorityLocked()
	full, own := *template, h.templateLocked(template.Subject.CommonName)
	full.SerialNumber = own.SerialNumber
	if full.NotBefore.IsZero() {
		full.NotBefore = own.NotBefore
	}
	if full.NotAfter.IsZero() {
		full.NotAfter = own.NotAfter
	}
	if full.KeyUsage == 0 {
		full.KeyUsage = x509.KeyUsageDigitalSignature
	}
	der, err := x509.CreateCertificate(nil, &full, h.certs.ca, key, h.certs.caKey)
	if err != nil {
		return nil, fmt.Errorf("testbroker: issue a certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}
