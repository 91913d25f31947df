package updates

import (
	"bytes"
	"crypto/rsa"
	"encoding/json"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// A rootKeys is the signed part of a root key package.
type rootKeys struct {
	IsTest       bool            `json:"isTest"`
	Version      int             `json:"version"`
	Published    int64           `json:"published"`
	DisabledRoot []string        `json:"disabledRootKeys"`
	DisabledKeys []keyDigest     `json:"disabledSigningKeys"`
	Roots        json.RawMessage `json:"rootKeys"` // an object, in the order of the signatures
}

type keyDigest struct {
	Algorithm string `json:"alg"`
	Hash      string `json:"hash"`
}

type rootKey struct {
	Type     string `json:"keyType"`
	Modulus  string `json:"n"`
	Exponent int    `json:"e"`
}

type rootSignature struct {
	Algorithm string `json:"alg"`
	Signature string `json:"sig"`
}

// A rootKeyPackage is a root key package as devices download it.
type rootKeyPackage struct {
	Protected  json.RawMessage `json:"protected"`
	Signatures []rootSignature `json:"signatures"`
}

// A bundle is what a root key package is made of. Faults change it.
type bundle struct {
	rootKeys
	names   []string // of the roots that it has
	signers []string // names of the keys that sign, in the order of the roots
}

// bundle returns the present root keys.
func (s *Service) bundle(r *ring) bundle {
	b := bundle{rootKeys: rootKeys{Version: r.Version, Published: r.Time, DisabledRoot: []string{},
		DisabledKeys: []keyDigest{}}, names: r.Roots, signers: r.Roots}
	for _, name := range r.Roots {
		if r.disabled(name) {
			b.DisabledRoot = append(b.DisabledRoot, name)
		}
	}
	for _, name := range r.Signing {
		if r.disabled(name) {
			b.DisabledKeys = append(b.DisabledKeys, keyDigest{"SHA256", keyHash(&privateKey(s.seed, name).PublicKey)})
		}
	}
	return b
}

// write returns the package. The signatures are over the compact text with each slash escaped, as
// the service's tools write it.
func (s *Service) write(b bundle) rootKeyPackage {
	b.Roots = s.writeRoots(b.names)
	protected := keep.MustJSON(b.rootKeys)
	signed := strings.ReplaceAll(string(protected), "/", `\/`)
	var all []rootSignature
	for _, name := range b.signers {
		all = append(all, rootSignature{algorithm, encodePart(s.signed.by(s.seed, name, signed))})
	}
	return rootKeyPackage{protected, all}
}

func (s *Service) writeRoots(names []string) []byte {
	var b bytes.Buffer
	for i, name := range names {
		b.WriteByte("{,"[min(i, 1)])
		b.Write(keep.MustJSON(name))
		b.WriteByte(':')
		b.Write(keep.MustJSON(publicRoot(&privateKey(s.seed, name).PublicKey)))
	}
	b.WriteByte('}')
	return b.Bytes()
}

func publicRoot(k *rsa.PublicKey) rootKey {
	return rootKey{"RSA", encodePart(k.N.Bytes()), k.E}
}
