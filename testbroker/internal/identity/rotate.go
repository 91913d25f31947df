package identity

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxFormer is how many replaced authorities are remembered.
const maxFormer = 16

// Rotate makes a new certificate authority and a certificate of it for the listeners.
func (c *Authority) Rotate() {
	defer c.records.Saved()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.authorityLocked()
	former := slices.Insert(c.former, 0, c.ca)
	c.former = former[:min(len(former), maxFormer)]
	c.rotated++
	c.newAuthorityLocked()
}

// All returns the certificates of the hub's authorities: the present one, then up to 16
// that rotations have replaced, newest first.
func (c *Authority) All() []*x509.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.authorityLocked()
	return append([]*x509.Certificate{c.ca}, c.former...)
}

// Issue signs a certificate for a public key with the hub's present authority.
func (c *Authority) Issue(template *x509.Certificate, key crypto.PublicKey) (*x509.Certificate, error) {
	if template == nil || template.Subject.CommonName == "" {
		return nil, errors.New("testbroker: issue a certificate: the template has no common name; set Subject.CommonName")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.authorityLocked()
	full, own := *template, c.templateLocked(template.Subject.CommonName)
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
	der, err := x509.CreateCertificate(nil, &full, c.ca, key, c.caKey)
	if err != nil {
		return nil, fmt.Errorf("testbroker: issue a certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

// IssueDevice signs a certificate of a device that begins a little in the past and has the given
// life. It also returns the certificate of the authority.
func (c *Authority) IssueDevice(csr *x509.CertificateRequest, life time.Duration) (leaf, ca []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.authorityLocked()
	template := c.templateLocked(csr.Subject.CommonName)
	now := c.now()
	template.NotBefore, template.NotAfter = now.Add(-CertBackdate), now.Add(life)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	leaf, err := x509.CreateCertificate(rand.Reader, template, c.ca, csr.PublicKey, c.caKey)
	if err != nil {
		panic("testbroker: " + err.Error()) // the signature of the request was verified, so the key is a known one
	}
	return leaf, c.ca.Raw
}
