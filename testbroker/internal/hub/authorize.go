package hub

import (
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// Known returns why an identity cannot connect: it is not registered, or disabled.
func (h *Hub) Known(id identity.Identity) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := h.knownLocked(h.Host, id)
	return err
}

// errProfile refuses the credentials of devices that do not use the profile.
var errProfile = errors.New("devices of this hub speak MQTT 5 and have certificates: it has the MQTT v5 profile")

// Authorize checks the identity that a client states against its token.
func (h *Hub) Authorize(host string, id identity.Identity, t identity.Token) error {
	if h.MQTTv5 {
		return errProfile
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.authorizeLocked(host, id, t)
}

// AuthorizePolicy checks a token that requires one of the rights.
func (h *Hub) AuthorizePolicy(t identity.Token, need hubdata.Right) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.authorizePolicyLocked(t, need)
}

// Certified checks the identity that a client states against its certificates.
func (h *Hub) Certified(host string, id identity.Identity, chain []*x509.Certificate) error {
	if h.MQTTv5 {
		return errProfile
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.certifiedLocked(host, id, chain)
}

// CertifiedMQTTv5 is Certified for clients that use the MQTT v5 connection profile.
func (h *Hub) CertifiedMQTTv5(id identity.Identity, chain []*x509.Certificate) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.certifiedLocked(h.Host, id, chain)
}

// CertifiesAny reports whether the certificates are those of a registered identity with that name;
// an empty name means any.
func (h *Hub) CertifiesAny(name string, chain []*x509.Certificate) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, entry := range h.registry {
		if entry.X509 && (name == "" || name == id.String()) && h.certifiedLocked(h.Host, id, chain) == nil {
			return true
		}
	}
	return false
}

// knownLocked returns the registration of the identity that a client states.
func (h *Hub) knownLocked(host string, id identity.Identity) (*Registration, error) {
	device, entry := h.registry[identity.Identity{Device: id.Device}], h.registry[id]
	switch {
	case !h.IsName(host):
		return nil, fmt.Errorf("host name %q is not this hub", host)
	case device == nil || entry == nil:
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	case device.Disabled:
		return nil, ErrDisabled
	}
	return entry, nil
}

// authorizeLocked checks the identity that a client states against its token.
func (h *Hub) authorizeLocked(host string, id identity.Identity, t identity.Token) error {
	entry, err := h.knownLocked(host, id)
	if err == nil {
		err = h.unexpired(t)
	}
	switch {
	case err != nil:
		return err
	case !h.covers(t, id):
		return fmt.Errorf("token for %q %w %s", t.Resource, ErrNotCovered, id.Resource())
	}
	keys := entry.Keys
	if t.Policy != "" {
		if keys, err = h.policyKeysLocked(t, hubdata.RightDeviceConnect); err != nil {
			return err
		}
	} else if entry.X509 {
		return fmt.Errorf("%s has a certificate and no keys", id)
	}
	if !t.SignedBy(keys) {
		return errAnotherKey
	}
	return nil
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

// unexpired returns why a token is too old.
func (h *Hub) unexpired(t identity.Token) error {
	if now := h.Now(); now.After(t.Deadline(h.grace)) {
		return fmt.Errorf("token expired at %s, it is %s", time.Unix(t.Expires, 0).UTC().Format(time.RFC3339),
			now.UTC().Format(time.RFC3339))
	}
	return nil
}

// authorizePolicyLocked checks a token that requires one of the rights.
func (h *Hub) authorizePolicyLocked(t identity.Token, need hubdata.Right) error {
	keys, err := h.policyKeysLocked(t, need)
	if err == nil {
		err = h.unexpired(t)
	}
	switch {
	case err != nil:
		return err
	case !t.SignedBy(keys):
		return errAnotherKey
	}
	return nil
}

var errAnotherKey = errors.New("token is signed with another key")

// covers reports whether a token is for an identity, under one of the hub's names.
func (h *Hub) covers(t identity.Token, id identity.Identity) bool {
	other := identity.OtherName(h.Host)
	return t.Covers(h.Host, id) || other != "" && t.Covers(other, id)
}
