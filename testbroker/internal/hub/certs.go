package hub

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

const (
	CertBackdate = time.Hour // clients whose clock is a little slow accept the certificate
	CertLife     = 20 * 365 * 24 * time.Hour
)

// certificates is a certification authority and the hub's certificate. Both are made on first use,
// and replaced by a rotation.
type certificates struct {
	mu      sync.Mutex
	ca      *x509.Certificate
	caKey   crypto.Signer
	given   bool     // Options.Authority is the present authority
	names   []string // Options.Names
	pem     []byte
	server  *tls.Certificate
	host    string // the name of PresentName; empty = the hub's own names
	serial  int64
	rotated int                 // rotations so far
	former  []*x509.Certificate // authorities before the present one, newest first
}

// init takes the names and the authority of the options.
func (c *certificates) init(o *Options) error {
	for _, name := range o.Names {
		if net.ParseIP(name) != nil {
			continue
		}
		if err := identity.CheckHost(name); err != nil {
			return fmt.Errorf("testbroker: Options.Names: %w", err)
		}
	}
	c.names = slices.Clone(o.Names)
	if o.Authority == nil {
		return nil
	}
	ca, key, err := authorityOf(o.Authority)
	if err != nil {
		return fmt.Errorf("testbroker: Options.Authority: %w; give the certificate of an authority and its key", err)
	}
	c.given, c.ca, c.caKey = true, ca, key
	c.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})
	return nil
}

// authorityOf returns the certificate and the key of an authority that is given.
func authorityOf(given *tls.Certificate) (*x509.Certificate, crypto.Signer, error) {
	if len(given.Certificate) == 0 {
		return nil, nil, errors.New("it has no certificate")
	}
	ca, err := x509.ParseCertificate(given.Certificate[0])
	if err != nil {
		return nil, nil, err
	}
	if now := time.Now(); now.Before(ca.NotBefore) || now.After(ca.NotAfter) { // the clock of clients
		return nil, nil, fmt.Errorf("its certificate is valid from %s to %s, it is %s; make a new one, which clients trust",
			ca.NotBefore.UTC().Format(time.RFC3339), ca.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	key, ok := given.PrivateKey.(crypto.Signer)
	public, comparable := ca.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !ca.IsCA || !ca.BasicConstraintsValid || ca.KeyUsage != 0 && ca.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, nil, errors.New("its certificate is not that of an authority")
	case !ok || !comparable || !public.Equal(key.Public()):
		return nil, nil, errors.New("its key does not belong to its certificate")
	}
	return ca, key, nil
}

// RootCAs returns a pool that trusts only the hub's certificate.
func (h *Hub) RootCAs() *x509.CertPool {
	h.certs.mu.Lock()
	defer h.certs.mu.Unlock()
	h.authorityLocked()
	pool := x509.NewCertPool()
	pool.AddCert(h.certs.ca)
	return pool
}

// CAPEM returns the certificate of the authority that signed the hub's certificate, in PEM.
func (h *Hub) CAPEM() []byte {
	defer h.Records.Saved()
	h.certs.mu.Lock()
	defer h.certs.mu.Unlock()
	h.authorityLocked()
	return append([]byte(nil), h.certs.pem...)
}

// ClientTLS returns the configuration of a client that trusts this hub and expects its host name.
func (h *Hub) ClientTLS() *tls.Config {
	return &tls.Config{RootCAs: h.RootCAs(), ServerName: h.FrontName(), MinVersion: tls.VersionTLS12}
}

// PresentName makes the hub present a certificate for another host name, and only that, from the
// next handshake on.
func (h *Hub) PresentName(host string) error {
	if host != "" {
		if err := identity.CheckHost(host); err != nil {
			return fmt.Errorf("testbroker: %w", err)
		}
	}
	h.certs.mu.Lock()
	defer h.certs.mu.Unlock()
	h.authorityLocked()
	h.certs.host = host
	h.certifyLocked()
	return nil
}

// serverTLS returns the hub's TLS configuration. It looks up the certificate for each handshake.
func (h *Hub) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		ClientAuth: tls.RequestClientCert, // verified when the client states its identity
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			h.certs.mu.Lock()
			defer h.certs.mu.Unlock()
			h.authorityLocked()
			return h.certs.server, nil
		},
	}
}

// expiredCertificate returns the hub's certificate with an expiry in the past.
func (h *Hub) expiredCertificate() *tls.Certificate {
	h.certs.mu.Lock()
	defer h.certs.mu.Unlock()
	h.authorityLocked()
	present := h.certs.server
	template := h.templateLocked(h.FrontName())
	template.KeyUsage, template.ExtKeyUsage = present.Leaf.KeyUsage, present.Leaf.ExtKeyUsage
	template.DNSNames, template.IPAddresses = present.Leaf.DNSNames, present.Leaf.IPAddresses
	template.NotAfter = template.NotBefore
	template.NotBefore = template.NotAfter.Add(-CertBackdate)
	key := NewKey()
	leaf := Sign(template, h.certs.ca, key, h.certs.caKey)
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// authorityLocked makes the authority and the hub's certificate if there are none.
func (h *Hub) authorityLocked() {
	switch {
	case h.certs.ca == nil:
		h.newAuthorityLocked()
	case h.certs.server == nil:
		h.certifyLocked()
	}
}

// newAuthorityLocked makes an authority and the hub's certificate. Each authority has its own name,
// because some clients try only one of several authorities of the same name.
func (h *Hub) newAuthorityLocked() {
	name := "testbroker CA"
	if h.certs.rotated > 0 {
		name = fmt.Sprintf("testbroker CA %d", h.certs.rotated+1)
	}
	template := h.templateLocked(name)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	key := NewKey()
	if h.Seed != 0 {
		key = seededKey(h.Seed, h.certs.rotated)
		template.NotBefore, template.NotAfter = seededFrom, seededUntil
	}
	h.certs.caKey, h.certs.given = key, false
	h.certs.ca = Sign(template, template, key, key)
	h.certs.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.certs.ca.Raw})
	h.certifyLocked()
}

// certifyLocked makes the hub's certificate.
func (h *Hub) certifyLocked() {
	host := h.certs.host
	name := h.FrontName()
	template := h.templateLocked(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if net.ParseIP(h.Host) == nil {
		template.DNSNames = append(template.DNSNames, "store."+h.Host)
	}
	if other := identity.OtherName(h.Host); other != "" {
		template.DNSNames = append(template.DNSNames, other)
	}
	for _, name := range slices.Concat([]string{name}, h.certs.names) {
		if ip := net.ParseIP(name); ip != nil { // clients compare an address only with addresses in the certificate
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	if host != "" {
		template.Subject.CommonName = host
		template.DNSNames, template.IPAddresses = []string{host}, nil
	}
	key := NewKey()
	leaf := Sign(template, h.certs.ca, key, h.certs.caKey)
	h.certs.server = &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

func (h *Hub) templateLocked(name string) *x509.Certificate {
	h.certs.serial++
	h.Records.Touch(tableCertificates, "")
	now := h.Now()
	if real := time.Now(); real.Before(now) {
		now = real // a hub whose clock is deliberately ahead must be refused only for its tokens
	}
	return &x509.Certificate{
		SerialNumber: big.NewInt(h.certs.serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-CertBackdate),
		NotAfter:     now.Add(CertLife),
	}
}

func NewKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic("testbroker: no randomness for a key: " + err.Error())
	}
	return key
}

// The validity of a seeded authority is fixed, so its certificate is the same to the byte at any
// time, also in a synctest bubble.
var seededFrom, seededUntil = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC)

// seededKey derives the key of an authority from the seed and the number of rotations before it.
func seededKey(seed uint64, rotated int) *ecdsa.PrivateKey {
	purpose := "authority"
	if rotated > 0 {
		purpose = fmt.Sprintf("authority after %d", rotated)
	}
	for n := 0; ; n++ {
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), identity.Derived(seed, "%s\n%d", purpose, n)); err == nil {
			return key
		} // the number is 0 or not below the order of the group: practically impossible
	}
}

// Sign makes a certificate. The same input gives the same certificate, because signatures are
// deterministic (RFC 6979). It cannot fail: the package makes the templates and has checked the
// host names.
func Sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.Signer) *x509.Certificate {
	der, err := x509.CreateCertificate(nil, template, parent, &key.PublicKey, signer)
	if err != nil {
		panic("testbroker: " + err.Error())
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic("testbroker: " + err.Error())
	}
	return cert
}
