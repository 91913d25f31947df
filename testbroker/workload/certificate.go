package workload

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/http"
	"time"
)

// bundle is the body of a bundle of certificates.
type bundle struct {
	Certificate string `json:"certificate"`
}

// trustBundle answers with the authorities of the hub's certificate, in PEM.
func (s *Server) trustBundle(q *request) (int, any, error) {
	if q.take(s, FaultForeignBundle) != nil {
		return http.StatusOK, bundle{string(s.foreignBundle())}, nil
	}
	all := s.hub.Authorities()
	if q.take(s, FaultStaleBundle) != nil && len(all) > 1 {
		all = all[1:]
	}
	if !s.options.Overlap {
		all = all[:1]
	}
	var text bytes.Buffer
	for _, cert := range all {
		text.Write(encodeCertificate(cert))
	}
	return http.StatusOK, bundle{text.String()}, nil
}

func (s *Server) manifestTrustBundle(*request) (int, any, error) {
	return http.StatusOK, bundle{string(s.options.ManifestTrustBundle)}, nil
}

// issued is the body of an issued certificate.
type issued struct {
	PrivateKey struct {
		Type  string `json:"type"`
		Bytes string `json:"bytes"`
	} `json:"privateKey"`
	Certificate string `json:"certificate"`
	Expiration  string `json:"expiration"`
}

// identityCertificate issues a client certificate for the module's own name.
func (s *Server) identityCertificate(q *request) (int, any, error) {
	var ask struct {
		Expiration string `json:"expiration"`
	}
	if err := q.read(&ask); err != nil {
		return 0, nil, err
	}
	return s.issue(q.module.ID+"/"+q.module.ModuleID, ask.Expiration, x509.ExtKeyUsageClientAuth)
}

// serverCertificate issues a server certificate for a host name or an address.
func (s *Server) serverCertificate(q *request) (int, any, error) {
	var ask struct {
		CommonName string `json:"commonName"`
		Expiration string `json:"expiration"`
	}
	if err := q.read(&ask); err != nil {
		return 0, nil, err
	}
	if ask.CommonName == "" {
		return 0, nil, refuse(http.StatusBadRequest, "commonName is missing or empty")
	}
	return s.issue(ask.CommonName, ask.Expiration, x509.ExtKeyUsageServerAuth)
}

// issue issues a certificate with a new key. It is valid until the expiration, in RFC 3339, or for
// Options.CertificateLife if that is shorter.
func (s *Server) issue(name, expiration string, usage x509.ExtKeyUsage) (int, any, error) {
	until := time.Now().Add(s.options.CertificateLife)
	if expiration != "" {
		asked, err := time.Parse(time.RFC3339, expiration)
		switch {
		case err != nil:
			return 0, nil, refuse(http.StatusBadRequest, "expiration %q is not a time of RFC 3339", expiration)
		case !asked.After(time.Now()):
			return 0, nil, refuse(http.StatusBadRequest, "expiration %q is over", expiration)
		case asked.Before(until):
			until = asked
		}
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{usage}}
	if ip := net.ParseIP(name); usage == x509.ExtKeyUsageServerAuth && ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else if usage == x509.ExtKeyUsageServerAuth {
		template.DNSNames = []string{name}
	}
	key, err := newKey()
	if err != nil {
		return 0, nil, err
	}
	cert, err := s.hub.IssueCertificate(template, &key.PublicKey)
	if err != nil {
		return 0, nil, refuse(http.StatusBadRequest, "%q: %v", name, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return 0, nil, err
	}
	var body issued
	body.PrivateKey.Type = "key"
	body.PrivateKey.Bytes = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	body.Certificate = string(encodeCertificate(cert))
	body.Expiration = cert.NotAfter.UTC().Format(time.RFC3339)
	return http.StatusCreated, body, nil
}

// foreignBundle returns the certificate of an authority that signs nothing. It is made once.
func (s *Server) foreignBundle() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.foreign != nil {
		return s.foreign
	}
	key, err := newKey()
	if err != nil {
		panic(err)
	}
	now := time.Now()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "foreign CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(365 * 24 * time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	s.foreign = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return s.foreign
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func encodeCertificate(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}
