// Package adusign verifies manifests of Azure Device Update, which are signed with RS256 by a key
// that a root key vouches for. It builds for microcontrollers, too.
//
// The signature is a JSON Web Signature (RFC 7515) in compact form. Its header has the signing key
// as a JSON Web Key (RFC 7517), which is itself such a signature, by a root key that it names. The
// payload is the SHA-256 of the manifest.
//
// Roots are fixed root keys. Keys follow the service when it adds and disables root keys, and when
// it revokes signing keys:
//
//	keys, err := adusign.NewKeys(&adusign.KeysOptions{Store: store})
//	options := agent.Options{Verify: keys.Verify, RootKeys: keys.Update}
package adusign

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"math/big"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/transport"
)

// Roots are the root keys that a device trusts, by key id. A disabled key is one that is not in it.
// It may be used by several goroutines as long as none changes it.
type Roots map[string]*rsa.PublicKey

const (
	algorithm = "RS256"
	exponent  = 65537

	// maxSignature is above what 4096-bit keys need for both signatures, each in Base64, one twice.
	maxSignature        = 8 << 10
	leastBits, mostBits = 2048, 4096
)

// encoding is that of RFC 7515, section 2: without padding, and only one text for each value.
var encoding = base64.RawURLEncoding.Strict()

// forURLs turns the alphabet of the service's keys (RFC 4648, section 4) into the one that RFC 7518
// demands in section 6.3.1.
func forURLs(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "+", "-"), "/", "_")
}

// Verify returns nil if signature, the member updateManifestSignature of the service's message, is
// one for the manifest and a root key vouches for its key. The manifest is the text of the member
// updateManifest with the escapes of its JSON string removed, byte by byte as it was sent. Nothing
// of a manifest may be believed before. The error's Kind is Untrusted.
func (r Roots) Verify(manifest []byte, signature string) error {
	return r.verify(manifest, signature, nil)
}

// verify is Verify without the signing keys whose fingerprints are in disabled.
func (r Roots) verify(manifest []byte, signature string, disabled map[fingerprint]bool) error {
	if len(signature) > maxSignature {
		return refuse("the signature has " + strconv.Itoa(len(signature)) + " bytes, more than " + strconv.Itoa(maxSignature))
	}
	outer, err := parse("signature", signature)
	if err != nil {
		return err
	}
	key, err := r.signingKey(outer.header.Key)
	if err != nil {
		return err
	}
	if disabled[fingerprintOf(key)] {
		return refuse("the signing key was revoked by the service's package of root keys")
	}
	if err := outer.verify(key); err != nil {
		return err
	}
	if !jsonscan.IsObject(outer.payload) {
		return refuse("the payload of the signature is no JSON object with a text sha256")
	}
	want, err := base64.StdEncoding.Strict().DecodeString(jsonscan.TextOf(outer.payload, "sha256"))
	if err != nil {
		return refuse("sha256 in the signature is not Base64")
	}
	if got := sha256.Sum256(manifest); subtle.ConstantTimeCompare(got[:], want) != 1 {
		return refuse("the signature is for another manifest; verify the text of updateManifest as it was sent")
	}
	return nil
}

// signingKey returns the key of a manifest's signature if a root key signed it.
func (r Roots) signingKey(signed string) (*rsa.PublicKey, error) {
	inner, err := parse("signing key (sjwk)", signed)
	if err != nil {
		return nil, err
	}
	root := r[inner.header.KeyID]
	if root == nil {
		return nil, refuse("the root key (kid) of the signing key is unknown; the trusted ones are in Roots")
	}
	if err := inner.verify(root); err != nil {
		return nil, err
	}
	key := inner.payload
	if !jsonscan.IsObject(key) || jsonscan.TextOf(key, "kty") != "RSA" || jsonscan.TextOf(key, "alg") != algorithm {
		return nil, refuse("the signing key is no JSON Web Key with kty RSA and alg " + algorithm)
	}
	e, err := encoding.DecodeString(jsonscan.TextOf(key, "e"))
	if err != nil || new(big.Int).SetBytes(e).Cmp(big.NewInt(exponent)) != 0 {
		return nil, refuse("the signing key has another exponent e than " + strconv.Itoa(exponent))
	}
	return publicKey("signing key", forURLs(jsonscan.TextOf(key, "n")))
}

// publicKey returns the key with a modulus in Base64 for URLs. The name is for errors.
func publicKey(name, modulus string) (*rsa.PublicKey, error) {
	b, err := encoding.DecodeString(modulus)
	if err != nil {
		return nil, refuse("the " + name + " has no modulus n in Base64")
	}
	n := new(big.Int).SetBytes(b)
	if bits := n.BitLen(); bits < leastBits || bits > mostBits {
		return nil, refuse("the " + name + " has " + strconv.Itoa(bits) + " bits, not " + strconv.Itoa(leastBits) + " to " +
			strconv.Itoa(mostBits))
	}
	return &rsa.PublicKey{N: n, E: exponent}, nil
}

// token is a JSON Web Signature.
type token struct {
	name      string // for errors
	signed    string
	header    header
	payload   []byte
	signature []byte
}

// header has the id of the key that signed, or the signing key.
type header struct{ KeyID, Key string }

func parse(name, signed string) (*token, error) {
	parts := strings.Split(signed, ".")
	if len(parts) != 3 {
		return nil, refuse("the " + name + " has " + strconv.Itoa(len(parts)) + " parts instead of 3")
	}
	var decoded [3][]byte
	for i, part := range parts {
		b, err := encoding.DecodeString(part)
		if err != nil {
			return nil, refuse("part " + strconv.Itoa(i+1) + " of the " + name + " is not Base64 for URLs")
		}
		decoded[i] = b
	}
	head := decoded[0]
	_, critical := jsonscan.Member(head, "crit")
	switch {
	case !jsonscan.IsObject(head):
		return nil, refuse("the header of the " + name + " is no JSON object")
	case jsonscan.TextOf(head, "alg") != algorithm:
		return nil, refuse("the algorithm (alg) of the " + name + " is not " + algorithm)
	case critical:
		return nil, refuse("the " + name + " demands extensions (crit), and none is known")
	}
	return &token{name: name, signed: parts[0] + "." + parts[1], payload: decoded[1], signature: decoded[2],
		header: header{KeyID: jsonscan.TextOf(head, "kid"), Key: jsonscan.TextOf(head, "sjwk")}}, nil
}

func (t *token) verify(key *rsa.PublicKey) error {
	sum := sha256.Sum256([]byte(t.signed))
	if rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], t.signature) != nil {
		return refuse("the " + t.name + " was not signed by the key that it names")
	}
	return nil
}

func refuse(text string) error {
	return &transport.Error{Kind: transport.Untrusted, Scope: transport.ScopeOperation, Proto: "update",
		Err: refusal(text)}
}

// refusal is an error text.
type refusal string

func (r refusal) Error() string { return string(r) }
