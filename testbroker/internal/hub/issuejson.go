package hub

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"math/big"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/authority"
)

// strictJSON decodes an object without unknown members.
func strictJSON(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// digestOf returns the SHA-256 of a certificate as bytes in a string.
func digestOf(der []byte) string {
	digest := sha256.Sum256(der)
	return string(digest[:])
}

// WrongLeaf returns the certificate that a fault sends: Bytes, or one with this name for a key that
// the device does not have.
func WrongLeaf(f *fault.Fault, name string) []byte {
	if len(f.Bytes) > 0 {
		return f.Bytes
	}
	key := authority.NewKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-authority.CertBackdate), NotAfter: time.Now().Add(authority.CertLife),
	}
	template.Subject.CommonName = name
	return authority.Sign(template, template, key, key).Raw
}
