package hub

import (
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// AddDeviceX509 registers a device, or a module "deviceID/moduleID" of a registered device, that
// authenticates with a certificate.
func (h *Hub) AddDeviceX509(id string, thumbprints ...string) (hubdata.Device, error) {
	if len(thumbprints) < 1 || len(thumbprints) > 2 {
		return hubdata.Device{}, fmt.Errorf("testbroker: %d thumbprints, want 1 or 2", len(thumbprints))
	}
	r := Registration{X509: true}
	for _, t := range thumbprints {
		digest, err := ParseThumbprint(t)
		if err != nil {
			return hubdata.Device{}, fmt.Errorf("testbroker: %w", err)
		}
		r.Thumbprints = append(r.Thumbprints, digest)
	}
	return h.addX509(id, r)
}

// AddDeviceCA registers a device, or a module "deviceID/moduleID" of a registered device, that
// authenticates with a certificate.
func (h *Hub) AddDeviceCA(id string) (hubdata.Device, error) {
	return h.addX509(id, Registration{X509: true})
}

func (h *Hub) addX509(id string, r Registration) (hubdata.Device, error) {
	who := identity.SplitIdentity(id)
	err := identity.CheckID("device", who.Device)
	if err == nil && strings.Contains(id, "/") {
		err = identity.CheckID("module", who.Module)
	}
	if err != nil {
		return hubdata.Device{}, fmt.Errorf("testbroker: %w", err)
	}
	return h.add(who, r)
}

// AddCA adds the certificate of an authority.
func (h *Hub) AddCA(cert *x509.Certificate) error {
	if !cert.IsCA {
		return errors.New("testbroker: not the certificate of an authority")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cas.AddCert(cert)
	return nil
}

// Thumbprint returns the SHA-256 thumbprint of a certificate, in hexadecimal.
func Thumbprint(cert *x509.Certificate) string {
	digest := sha256.Sum256(cert.Raw)
	return strings.ToUpper(hex.EncodeToString(digest[:]))
}

// ThumbprintSHA1 returns the SHA-1 thumbprint of a certificate, in hexadecimal.
func ThumbprintSHA1(cert *x509.Certificate) string {
	digest := sha1.Sum(cert.Raw)
	return strings.ToUpper(hex.EncodeToString(digest[:]))
}

// ParseThumbprint returns the digest as bytes in a string.
func ParseThumbprint(s string) (string, error) {
	digest, err := hex.DecodeString(strings.ReplaceAll(s, ":", ""))
	if err != nil {
		return "", fmt.Errorf("thumbprint: %w", err)
	}
	if len(digest) != sha1.Size && len(digest) != sha256.Size {
		return "", fmt.Errorf("thumbprint of %d bytes, want %d or %d", len(digest), sha1.Size, sha256.Size)
	}
	return string(digest), nil
}

// PeerChain returns the certificates that the client presented; nil without TLS.
func (c *Conn) PeerChain() []*x509.Certificate {
	if c.TLS == nil {
		return nil
	}
	return c.TLS.ConnectionState().PeerCertificates
}

// digestOf returns the SHA-256 of a certificate as bytes in a string.
func digestOf(der []byte) string {
	digest := sha256.Sum256(der)
	return string(digest[:])
}
