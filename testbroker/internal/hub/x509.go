package hub

import (
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// AddDeviceX509 registers a device, or a module "deviceID/moduleID" of a registered device, that
// authenticates with a certificate. Its thumbprints, a primary and an optional secondary one, are
// the SHA-1 or SHA-256 of the certificate in hexadecimal, with or without colons. See [Thumbprint].
// It has no keys.
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

// certifiedLocked checks the identity that a client states against its certificate, the first of
// the chain that it presented.
func (h *Hub) certifiedLocked(host string, id identity.Identity, chain []*x509.Certificate) error {
	entry, err := h.knownLocked(host, id)
	switch {
	case err != nil:
		return err
	case !entry.X509 && entry.Issued == nil:
		return errors.New("no token")
	case len(chain) == 0:
		return errors.New("no certificate")
	}
	leaf, now := chain[0], h.Now()
	issued := slices.Contains(entry.Issued, digestOf(leaf.Raw))
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return fmt.Errorf("certificate is valid from %s to %s, it is %s", leaf.NotBefore, leaf.NotAfter, now.UTC())
	}
	switch {
	case issued:
		return nil
	case !entry.X509:
		return errors.New("certificate was not issued to the device")
	}
	if entry.Thumbprints != nil {
		long, short := sha256.Sum256(leaf.Raw), sha1.Sum(leaf.Raw)
		if !slices.Contains(entry.Thumbprints, string(long[:])) && !slices.Contains(entry.Thumbprints, string(short[:])) {
			return errors.New("certificate has another thumbprint")
		}
		return nil
	}
	if name := leaf.Subject.CommonName; name != id.String() {
		return fmt.Errorf("certificate is for %q", name)
	}
	return VerifyChain(chain, h.cas, now)
}

// VerifyChain checks the signatures of a client's certificate, the first of the chain, up to one of
// the roots.
func VerifyChain(chain []*x509.Certificate, roots *x509.CertPool, now time.Time) error {
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
		last := chain[len(chain)-1]
		return fmt.Errorf("the client sent a chain of %d, whose last certificate is issued by %q, which is no known "+
			"authority; add that authority, or let the client send all intermediate certificates: %w",
			len(chain), last.Issuer.CommonName, err)
	}
	return err
}
