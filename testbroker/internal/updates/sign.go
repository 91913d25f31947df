package updates

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"

	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

const algorithm = "RS256"

// A tokenHeader is the header of a JSON Web Signature.
type tokenHeader struct {
	Algorithm string `json:"alg"`
	Key       string `json:"sjwk,omitempty"` // the signing key, in a signature by a root
	KeyID     string `json:"kid,omitempty"`
}

// A webKey is a JSON Web Key as the service sends it. Its modulus has the alphabet of RFC 4648,
// section 4, although RFC 7518 demands another one.
type webKey struct {
	Type      string `json:"kty"`
	Modulus   string `json:"n"`
	Exponent  string `json:"e"`
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
}

// A signer is what a signature of a manifest is made of. Faults change it.
type signer struct {
	rootID    string // the kid that the signature names
	root      string // the name of the key that signs a signing key
	vouched   string // the name of the signing key that it signs
	key       string // the name of the signing key that the signature shows and that signs the manifest
	algorithm string
	hash      [sha256.Size]byte // of the manifest
}

// sign returns the compact signature of a manifest.
func (s *Service) sign(by signer) string {
	sjwk := s.compact(by.root, tokenHeader{Algorithm: algorithm, KeyID: by.rootID}, s.webKey(by.vouched))
	if by.key != by.vouched {
		parts := strings.Split(sjwk, ".")
		sjwk = parts[0] + "." + encodePart(keep.MustJSON(s.webKey(by.key))) + "." + parts[2]
	}
	payload := struct {
		SHA256 string `json:"sha256"`
	}{base64.StdEncoding.EncodeToString(by.hash[:])}
	return s.compact(by.key, tokenHeader{Algorithm: by.algorithm, Key: sjwk}, payload)
}

func (s *Service) webKey(name string) webKey {
	modulus := privateKey(s.seed, name).N.Bytes()
	return webKey{"RSA", base64.RawStdEncoding.EncodeToString(modulus), "AQAB", algorithm, name}
}

// compact returns a JSON Web Signature in compact form, by a key with a name. With the algorithm
// none, its signature is empty.
func (s *Service) compact(key string, header tokenHeader, payload any) string {
	signed := encodePart(keep.MustJSON(header)) + "." + encodePart(keep.MustJSON(payload))
	if header.Algorithm == "none" {
		return signed + "."
	}
	return signed + "." + encodePart(s.signed.by(s.seed, key, signed))
}

func encodePart(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// signatures are those made so far, because a fleet of devices gets the same ones.
type signatures struct {
	mu   sync.Mutex
	made map[signedText][]byte
}

// A signedText is a text with the key that signs it.
type signedText struct {
	seed uint64
	key  string
	hash [sha256.Size]byte
}

const maxSignatures = 1000

// by returns the signature of a text by RSASSA-PKCS1-v1_5 with SHA-256.
func (c *signatures) by(seed uint64, key, text string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := signedText{seed, key, sha256.Sum256([]byte(text))}
	if b := c.made[of]; b != nil {
		return b
	}
	b, err := rsa.SignPKCS1v15(nil, privateKey(seed, key), crypto.SHA256, of.hash[:])
	if err != nil {
		panic(fmt.Sprintf("updates: sign: %v", err)) // the key is one of newKey
	}
	if c.made == nil || len(c.made) >= maxSignatures {
		c.made = make(map[signedText][]byte)
	}
	c.made[of] = b
	return b
}

// keyHash returns the hash by which a root key package names a signing key: SHA-256 of the public
// key in the form of PKCS #1. Source: crypto_lib.c of iot-hub-device-update.
func keyHash(key *rsa.PublicKey) string {
	sum := sha256.Sum256(x509.MarshalPKCS1PublicKey(key))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Sign returns the signature of a manifest, by the present keys.
func (s *Service) Sign(manifest []byte) string {
	r := s.Ring()
	return s.sign(r.signer(sha256.Sum256(manifest)))
}
