package adusign

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"maps"

	"github.com/hubline-iot/hubline/internal/jsonscan"
)

const (
	maxPackage = 64 << 10
	maxRoots   = 32
)

// rootPackage is the service's package of root keys.
type rootPackage struct {
	Protected  json.RawMessage `json:"protected"`
	Signatures []struct {
		Algorithm string `json:"alg"`
		Signature string `json:"sig"`
	} `json:"signatures"`
}

// protected is the signed part of a package.
type protected struct {
	IsTest        bool     `json:"isTest"`
	Version       int64    `json:"version"`
	Published     int64    `json:"published"`
	DisabledRoots []string `json:"disabledRootKeys"`
	DisabledKeys  []struct {
		Algorithm string `json:"alg"`
		Hash      string `json:"hash"`
	} `json:"disabledSigningKeys"`
	Roots json.RawMessage `json:"rootKeys"`
}

// open returns the keys of a package. Nothing of the package is used before each of the program's
// root keys has been found among its signatures, disabled by the package or not: a single stolen
// root key can then not add another one.
func (k *Keys) open(text []byte) (keyring, error) {
	var p rootPackage
	var in protected
	if len(text) > maxPackage {
		return keyring{}, refuse("the package of root keys has %d bytes, more than %d", len(text), maxPackage)
	}
	if json.Unmarshal(text, &p) != nil || json.Unmarshal(p.Protected, &in) != nil {
		return keyring{}, refuse("the package of root keys is no JSON object with protected and signatures")
	}
	ids, roots, err := in.roots()
	if err != nil {
		return keyring{}, err
	}
	if err := k.vouch(&p, ids); err != nil {
		return keyring{}, err
	}
	ring := keyring{roots: roots, version: in.Version, published: in.Published, disabled: map[fingerprint]bool{}}
	maps.Copy(ring.roots, k.opt.Roots)
	for _, id := range in.DisabledRoots {
		delete(ring.roots, id)
	}
	for id := range ring.roots {
		if isTestID(id) && !k.opt.Test {
			delete(ring.roots, id)
		}
	}
	if in.IsTest && !k.opt.Test {
		return keyring{}, refuse("the package of root keys is for tests (isTest)")
	}
	for _, key := range in.DisabledKeys {
		hash, err := encoding.DecodeString(key.Hash)
		if key.Algorithm != "SHA256" || err != nil || len(hash) != sha256.Size {
			return keyring{}, refuse("disabledSigningKeys in the package of root keys: alg is not SHA256, or hash has another " +
				"size")
		}
		ring.disabled[fingerprint(hash)] = true
	}
	return ring, nil
}

// roots returns the keys in the package, and their ids in order.
func (p *protected) roots() (ids []string, roots Roots, err error) {
	roots = Roots{}
	ok := jsonscan.Members(p.Roots, func(id string, value []byte) {
		var key struct {
			Type     string `json:"keyType"`
			Modulus  string `json:"n"`
			Exponent int64  `json:"e"`
		}
		switch {
		case err != nil:
		case len(ids) == maxRoots || roots[id] != nil:
			err = refuse("the package has more than %d root keys, or two with one id", maxRoots)
		case json.Unmarshal(value, &key) != nil || key.Type != "RSA" || key.Exponent != exponent:
			err = refuse("a root key in the package is no RSA key with exponent %d", exponent)
		default:
			ids = append(ids, id)
			roots[id], err = publicKey("root key in the package", key.Modulus)
		}
	})
	if !ok && err == nil {
		err = refuse("rootKeys in the package is no JSON object")
	}
	return ids, roots, err
}

// vouch verifies the signatures by the program's root keys. Signatures are in the order of the
// package's keys.
func (k *Keys) vouch(p *rootPackage, ids []string) error {
	sum := sha256.Sum256(signedBytes(p.Protected))
	left := len(k.opt.Roots)
	for i, id := range ids {
		root := k.opt.Roots[id]
		if root == nil {
			continue
		}
		if i >= len(p.Signatures) || p.Signatures[i].Algorithm != algorithm {
			return refuse("the package of root keys has no signature for each of its keys, by %s", algorithm)
		}
		signature, err := encoding.DecodeString(p.Signatures[i].Signature)
		if err != nil || rsa.VerifyPKCS1v15(root, crypto.SHA256, sum[:], signature) != nil {
			return refuse("a signature of the package of root keys is not by the trusted key at its place")
		}
		left--
	}
	if left > 0 {
		return refuse("the package lacks %d of the root keys that must sign it", left)
	}
	return nil
}

// signedBytes returns the text that was signed: without white space, and with each slash escaped.
func signedBytes(object []byte) []byte {
	var compact bytes.Buffer
	if json.Compact(&compact, object) != nil {
		return nil
	}
	plain := bytes.ReplaceAll(compact.Bytes(), []byte(`\/`), []byte(`/`))
	return bytes.ReplaceAll(plain, []byte(`/`), []byte(`\/`))
}

// RootsOf returns the root keys that a package lists, without a look at its signatures: for a
// package that came in a trusted way, such as from an emulator on the same desk. The error has Kind
// Untrusted.
func RootsOf(text []byte) (Roots, error) {
	var p rootPackage
	var in protected
	if len(text) > maxPackage || json.Unmarshal(text, &p) != nil || json.Unmarshal(p.Protected, &in) != nil {
		return nil, refuse("the package of root keys is no JSON object with protected and signatures")
	}
	_, roots, err := in.roots()
	return roots, err
}
