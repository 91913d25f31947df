package identity

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

	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

const (
	CertBackdate = time.Hour // clients whose clock is a little slow accept the certificate
	CertLife     = 20 * 365 * 24 * time.Hour
)

// HostNames are the names in the certificate of a hub.
type HostNames struct {
	Host  string   // the hub's own
	Front string   // at which clients reach it
	More  []string // other names and IP addresses
}

// An Authority is a certification authority and the hub's certificate. Both are made on first use,
// and replaced by a rotation.
type Authority struct {
	names   HostNames
	seed    uint64 // makes the authority repeatable; zero = random
	now     func() time.Time
	records *keep.Saver

	mu      sync.Mutex
	ca      *x509.Certificate
	caKey   crypto.Signer
	given   bool // the options have the present authority
	pem     []byte
	server  *tls.Certificate
	tickets [32]byte // encrypts session tickets; as old as server, so that another certificate is seen by all
	host    string   // the name of PresentName; empty = the hub's own names
	serial  int64
	rotated int                 // rotations so far
	former  []*x509.Certificate // authorities before the present one, newest first
}

// Init takes the settings. given, unless nil, is the authority.
func (c *Authority) Init(names HostNames, seed uint64, given *tls.Certificate, now func() time.Time,
	records *keep.Saver) error {
	for _, name := range names.More {
		if net.ParseIP(name) != nil {
			continue
		}
		if err := CheckHost(name); err != nil {
			return fmt.Errorf("testbroker: Options.Names: %w", err)
		}
	}
	names.More = slices.Clone(names.More)
	c.names, c.seed, c.now, c.records = names, seed, now, records
	records.Add(tableCertificates, c.authorityRecord, keep.Decoded(c.restoreAuthority))
	if given == nil {
		return nil
	}
	ca, key, err := authorityOf(given)
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
func (c *Authority) RootCAs() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.authorityLocked()
	pool := x509.NewCertPool()
	pool.AddCert(c.ca)
	return pool
}

// CAPEM returns the certificate of the authority that signed the hub's certificate, in PEM.
func (c *Authority) CAPEM() []byte {
	defer c.records.Saved()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.authorityLocked()
	return append([]byte(nil), c.pem...)
}

// ClientTLS returns the configuration of a client that trusts this hub and expects its host name.
func (c *Authority) ClientTLS() *tls.Config {
	return &tls.Config{RootCAs: c.RootCAs(), ServerName: c.names.Front, MinVersion: tls.VersionTLS12}
}

// PresentName makes the hub present a certificate for another host name, and only that, from the
// next handshake on.
func (c *Authority) PresentName(host string) error {
	if host != "" {
		if err := CheckHost(host); err != nil {
			return fmt.Errorf("testbroker: %w", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.authorityLocked()
	c.host = host
	c.certifyLocked()
	return nil
}

// ServerTLS returns the hub's TLS configuration for a handshake. It looks up the certificate late.
func (c *Authority) ServerTLS() *tls.Config {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		ClientAuth: tls.RequestClientCert, // verified when the client states its identity
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.authorityLocked()
			return c.server, nil
		},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.authorityLocked()
	config.SetSessionTicketKeys([][32]byte{c.tickets})
	return config
}

// Expired returns the hub's certificate with an expiry in the past.
func (c *Authority) Expired() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.authorityLocked()
	present := c.server
	template := c.templateLocked(c.names.Front)
	template.KeyUsage, template.ExtKeyUsage = present.Leaf.KeyUsage, present.Leaf.ExtKeyUsage
	template.DNSNames, template.IPAddresses = present.Leaf.DNSNames, present.Leaf.IPAddresses
	template.NotAfter = template.NotBefore
	template.NotBefore = template.NotAfter.Add(-CertBackdate)
	key := NewKey()
	leaf := SignCert(template, c.ca, key, c.caKey)
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// authorityLocked makes the authority and the hub's certificate if there are none.
func (c *Authority) authorityLocked() {
	switch {
	case c.ca == nil:
		c.newAuthorityLocked()
	case c.server == nil:
		c.certifyLocked()
	}
}

// newAuthorityLocked makes an authority and the hub's certificate. Each authority has its own name,
// because some clients try only one of several authorities of the same name.
func (c *Authority) newAuthorityLocked() {
	name := "testbroker CA"
	if c.rotated > 0 {
		name = fmt.Sprintf("testbroker CA %d", c.rotated+1)
	}
	template := c.templateLocked(name)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	key := NewKey()
	if c.seed != 0 {
		key = seededKey(c.seed, c.rotated)
		template.NotBefore, template.NotAfter = seededFrom, seededUntil
	}
	c.caKey, c.given = key, false
	c.ca = SignCert(template, template, key, key)
	c.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.ca.Raw})
	c.certifyLocked()
}

// certifyLocked makes the hub's certificate.
func (c *Authority) certifyLocked() {
	host := c.host
	name := c.names.Front
	template := c.templateLocked(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if net.ParseIP(c.names.Host) == nil {
		template.DNSNames = append(template.DNSNames, "store."+c.names.Host)
	}
	if other := OtherName(c.names.Host); other != "" {
		template.DNSNames = append(template.DNSNames, other)
	}
	for _, name := range slices.Concat([]string{name}, c.names.More) {
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
	leaf := SignCert(template, c.ca, key, c.caKey)
	c.server = &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
	rand.Read(c.tickets[:]) // never fails
}

func (c *Authority) templateLocked(name string) *x509.Certificate {
	c.serial++
	c.records.Touch(tableCertificates, "")
	now := c.now()
	if real := time.Now(); real.Before(now) {
		now = real // a hub whose clock is deliberately ahead must be refused only for its tokens
	}
	return &x509.Certificate{
		SerialNumber: big.NewInt(c.serial),
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
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), Derived(seed, "%s\n%d", purpose, n)); err == nil {
			return key
		} // the number is 0 or not below the order of the group: practically impossible
	}
}

// SignCert makes a certificate. The same input gives the same certificate, because signatures are
// deterministic (RFC 6979). It cannot fail: the package makes the templates and has checked the
// host names.
func SignCert(template, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.Signer) *x509.Certificate {
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
