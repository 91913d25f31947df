package hub

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
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

func (h *Hub) addCertificateTable() {
	h.Records.Add(tableCertificates, h.authorityRecord, h.restoreAuthority)
}

func (h *Hub) authorityRecord(string) []byte {
	h.certs.mu.Lock()
	defer h.certs.mu.Unlock()
	if h.certs.ca == nil || h.certs.given {
		return nil // one that is given is not copied
	}
	key, err := x509.MarshalPKCS8PrivateKey(h.certs.caKey)
	if err != nil {
		panic("testbroker: " + err.Error()) // a key of this package
	}
	r := authorityRecord{Certificate: h.certs.ca.Raw, Key: key, Rotated: h.certs.rotated, Serial: h.certs.serial}
	for _, cert := range h.certs.former {
		r.Former = append(r.Former, cert.Raw)
	}
	return keep.MustJSON(r)
}

func (h *Hub) restoreAuthority(_ string, record []byte) error {
	var r authorityRecord
	if err := json.Unmarshal(record, &r); err != nil {
		return err
	}
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
	if h.certs.given {
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
	h.certs.mu.Lock()
	defer h.certs.mu.Unlock()
	h.certs.ca, h.certs.caKey, h.certs.former = ca, signer, former
	h.certs.rotated, h.certs.serial = r.Rotated, r.Serial
	h.certs.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})
	h.certifyLocked()
	return nil
}
