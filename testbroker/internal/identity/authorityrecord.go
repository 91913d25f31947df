package identity

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"

	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// tableCertificates has one record: the certificate authority.
const tableCertificates = "certificates"

// An authorityRecord is the certificate authority with its key, in DER.
type authorityRecord struct {
	Certificate, Key []byte
	Former           [][]byte `json:",omitempty"`
	Rotated          int
	Serial           int64
}

func (c *Authority) authorityRecord(string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ca == nil || c.given {
		return nil // one that is given is not copied
	}
	key, err := x509.MarshalPKCS8PrivateKey(c.caKey)
	if err != nil {
		panic("testbroker: " + err.Error()) // a key of this package
	}
	r := authorityRecord{Certificate: c.ca.Raw, Key: key, Rotated: c.rotated, Serial: c.serial}
	for _, cert := range c.former {
		r.Former = append(r.Former, cert.Raw)
	}
	return keep.MustJSON(r)
}

func (c *Authority) restoreAuthority(_ string, r authorityRecord) error {
	ca, err := x509.ParseCertificate(r.Certificate)
	if err != nil {
		return err
	}
	key, err := x509.ParsePKCS8PrivateKey(r.Key)
	if err != nil {
		return keep.ErrRecord // the parser's text may have bytes of the key
	}
	signer, ok := key.(*ecdsa.PrivateKey)
	if !ok || !signer.PublicKey.Equal(ca.PublicKey) {
		return keep.ErrRecord
	}
	if c.given {
		return nil // it goes before that of an earlier run
	}
	var former []*x509.Certificate
	for _, raw := range r.Former {
		cert, err := x509.ParseCertificate(raw)
		if err != nil {
			return err
		}
		former = append(former, cert)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ca, c.caKey, c.former = ca, signer, former
	c.rotated, c.serial = r.Rotated, r.Serial
	c.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})
	c.certifyLocked()
	return nil
}
