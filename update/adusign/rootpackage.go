package adusign

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"maps"
	"strconv"

	"github.com/hubline-iot/hubline/internal/jsonscan"
)

const (
	maxPackage = 64 << 10
	maxRoots   = 32
)

// rootPackage is the service's package of root keys.
type rootPackage struct {
	protected  []byte   // the signed part, as it was sent
	signatures [][]byte // each an object, in the order of ids

	isTest             bool
	version, published int64
	ids                []string
	roots              Roots // by ids
	disabledRoots      []string
	disabled           map[fingerprint]bool
}

// open returns the keys of a package. Nothing of the package is used before each of the program's
// root keys has been found among its signatures, disabled by the package or not: a single stolen
// root key can then not add another one.
func (k *Keys) open(text []byte) (keyring, error) {
	p, err := parsePackage(text)
	if err != nil {
		return keyring{}, err
	}
	if err := k.vouch(p); err != nil {
		return keyring{}, err
	}
	ring := keyring{roots: p.roots, version: p.version, published: p.published, disabled: p.disabled}
	maps.Copy(ring.roots, k.opt.Roots)
	for _, id := range p.disabledRoots {
		delete(ring.roots, id)
	}
	for id := range ring.roots {
		if isTestID(id) && !k.opt.Test {
			delete(ring.roots, id)
		}
	}
	if p.isTest && !k.opt.Test {
		return keyring{}, refuse("the package of root keys is for tests (isTest)")
	}
	return ring, nil
}

// parsePackage reads a package without a look at its signatures.
func parsePackage(text []byte) (*rootPackage, error) {
	if len(text) > maxPackage {
		return nil, refuse("the package of root keys has " + strconv.Itoa(len(text)) + " bytes, more than " +
			strconv.Itoa(maxPackage))
	}
	p := &rootPackage{roots: Roots{}, disabled: map[fingerprint]bool{}}
	p.protected, _ = jsonscan.Member(text, "protected")
	if !jsonscan.IsObject(text) || !jsonscan.IsObject(p.protected) || !p.readMembers() || !each(text, "signatures",
		func(value []byte) { p.signatures = append(p.signatures, value) }) {
		return nil, refuse("the package of root keys is no JSON object with protected and signatures")
	}
	if err := p.readRoots(); err != nil {
		return nil, err
	}
	return p, p.readDisabled()
}

// readMembers reads what is no key, and reports whether the types are right.
func (p *rootPackage) readMembers() bool {
	test, _ := jsonscan.Member(p.protected, "isTest")
	p.isTest = string(test) == "true"
	ok := p.isTest || test == nil || string(test) == "false"
	for _, m := range [...]struct {
		name string
		into *int64
	}{{"version", &p.version}, {"published", &p.published}} {
		if value, there := jsonscan.Member(p.protected, m.name); there {
			n, number := jsonscan.Int(value)
			*m.into, ok = n, ok && number
		}
	}
	return each(p.protected, "disabledRootKeys", func(value []byte) {
		p.disabledRoots = append(p.disabledRoots, jsonscan.Text(value))
	}) && ok
}

// each shows the elements of a member that is an array, null or missing. It reports whether it is.
func each(object []byte, name string, show func(value []byte)) bool {
	array, there := jsonscan.Member(object, name)
	return !there || string(array) == "null" || jsonscan.Elements(array, show)
}

// readDisabled reads the fingerprints of disabled signing keys.
func (p *rootPackage) readDisabled() error {
	ok := true
	ok = each(p.protected, "disabledSigningKeys", func(key []byte) {
		hash, err := encoding.DecodeString(jsonscan.TextOf(key, "hash"))
		if jsonscan.TextOf(key, "alg") != "SHA256" || err != nil || len(hash) != sha256.Size {
			ok = false
			return
		}
		p.disabled[fingerprint(hash)] = true
	}) && ok
	if !ok {
		return refuse("disabledSigningKeys in the package of root keys: alg is not SHA256, or hash has another size")
	}
	return nil
}

// readRoots reads the keys, and their ids in order.
func (p *rootPackage) readRoots() (err error) {
	roots, _ := jsonscan.Member(p.protected, "rootKeys")
	ok := jsonscan.Members(roots, func(id string, key []byte) {
		e, _ := jsonscan.Member(key, "e")
		n, _ := jsonscan.Int(e)
		switch {
		case err != nil:
		case len(p.ids) == maxRoots || p.roots[id] != nil:
			err = refuse("the package has more than " + strconv.Itoa(maxRoots) + " root keys, or two with one id")
		case jsonscan.TextOf(key, "keyType") != "RSA" || n != exponent:
			err = refuse("a root key in the package is no RSA key with exponent " + strconv.Itoa(exponent))
		default:
			p.ids = append(p.ids, id)
			p.roots[id], err = publicKey("root key in the package", jsonscan.TextOf(key, "n"))
		}
	})
	if !ok && err == nil {
		err = refuse("rootKeys in the package is no JSON object")
	}
	return err
}

// vouch verifies the signatures by the program's root keys. Signatures are in the order of the
// package's keys.
func (k *Keys) vouch(p *rootPackage) error {
	sum := sha256.Sum256(signedBytes(p.protected))
	left := len(k.opt.Roots)
	for i, id := range p.ids {
		root := k.opt.Roots[id]
		if root == nil {
			continue
		}
		if i >= len(p.signatures) || jsonscan.TextOf(p.signatures[i], "alg") != algorithm {
			return refuse("the package of root keys has no signature for each of its keys, by " + algorithm)
		}
		signature, err := encoding.DecodeString(jsonscan.TextOf(p.signatures[i], "sig"))
		if err != nil || rsa.VerifyPKCS1v15(root, crypto.SHA256, sum[:], signature) != nil {
			return refuse("a signature of the package of root keys is not by the trusted key at its place")
		}
		left--
	}
	if left > 0 {
		return refuse("the package lacks " + strconv.Itoa(left) + " of the root keys that must sign it")
	}
	return nil
}

// signedBytes returns the text that was signed: without white space, and with each slash escaped.
// object is valid.
func signedBytes(object []byte) []byte {
	compact := make([]byte, 0, len(object))
	inside, escaped := false, false // a string, a character after a backslash
	for _, c := range object {
		if !inside && (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
			continue
		}
		if c == '"' && !escaped {
			inside = !inside
		}
		escaped = c == '\\' && !escaped
		compact = append(compact, c)
	}
	plain := bytes.ReplaceAll(compact, []byte(`\/`), []byte(`/`))
	return bytes.ReplaceAll(plain, []byte(`/`), []byte(`\/`))
}

// RootsOf returns the root keys that a package lists, without a look at its signatures: for a
// package that came in a trusted way, such as from an emulator on the same desk. The error has Kind
// Untrusted.
func RootsOf(text []byte) (Roots, error) {
	p, err := parsePackage(text)
	if err != nil {
		return nil, err
	}
	return p.roots, nil
}
