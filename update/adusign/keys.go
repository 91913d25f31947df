package adusign

import (
	"crypto/rsa"
	"crypto/sha256"
	"maps"
	"math/big"
	"strconv"
	"strings"
	"sync"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

// KeysOptions are the settings of Keys.
type KeysOptions struct {
	// Roots are the root keys that the program brings along. All of them must sign a package. Default:
	// Production.
	Roots Roots
	// Store keeps the latest package, so that an older one is refused after a reset, too. Default:
	// none.
	Store agent.Store
	// OnStoreError is called when the Store cannot keep a package. The package counts all the same,
	// until the program ends, and the next Update stores it again. It must not call Keys. Default:
	// none.
	OnStoreError func(error)
	// Test accepts root keys for tests, whose ids end in ".T", and packages for tests. Anybody may
	// have their private keys.
	Test bool
}

// Keys are the root keys that a device trusts, as the service's packages change them. The methods
// are safe for concurrent use.
type Keys struct {
	opt KeysOptions

	mu     sync.Mutex
	now    keyring
	stored bool // the package of now needs no Save
}

// keyring is what a package has changed.
type keyring struct {
	roots              Roots
	disabled           map[fingerprint]bool
	version, published int64
}

// fingerprint is the SHA-256 of a public key in PKCS #1, as packages name signing keys.
type fingerprint [sha256.Size]byte

func fingerprintOf(key *rsa.PublicKey) fingerprint {
	return sha256.Sum256(pkcs1(key))
}

// pkcs1 returns a key as RSAPublicKey of RFC 8017, appendix A.1.1, in DER: crypto/x509 is too large
// for boards.
func pkcs1(key *rsa.PublicKey) []byte {
	body := append(integer(key.N.Bytes()), integer(big.NewInt(int64(key.E)).Bytes())...)
	return append(element(0x30, len(body)), body...)
}

// integer returns a positive number as a DER INTEGER.
func integer(magnitude []byte) []byte {
	if len(magnitude) > 0 && magnitude[0] >= 0x80 {
		magnitude = append([]byte{0}, magnitude...)
	}
	return append(element(0x02, len(magnitude)), magnitude...)
}

// element returns tag and length of a DER element with up to 64 KB.
func element(tag byte, length int) []byte {
	switch {
	case length < 0x80:
		return []byte{tag, byte(length)}
	case length < 0x100:
		return []byte{tag, 0x81, byte(length)}
	}
	return []byte{tag, 0x82, byte(length >> 8), byte(length)}
}

// NewKeys returns the keys of o, with those of the package in the Store. It ignores a package that
// o.Roots have not signed, such as one from before the program got new root keys.
func NewKeys(o *KeysOptions) (*Keys, error) {
	if o == nil {
		o = new(KeysOptions)
	}
	k := &Keys{opt: *o, stored: true}
	if k.opt.Roots = maps.Clone(o.Roots); k.opt.Roots == nil {
		k.opt.Roots = Production()
	}
	for id, root := range k.opt.Roots {
		if root == nil {
			return nil, invalid("KeysOptions.Roots: key " + id + " is nil")
		}
		if isTestID(id) && !o.Test {
			return nil, invalid("KeysOptions.Roots: key " + id + " is for tests; set Test, and never in production")
		}
	}
	if len(k.opt.Roots) == 0 {
		return nil, invalid("KeysOptions.Roots is empty; leave it nil for the keys of the service")
	}
	k.now.roots = k.opt.Roots
	if o.Store == nil {
		return k, nil
	}
	text, err := o.Store.Load()
	if err != nil {
		return nil, scrub.Cause(err)
	}
	if ring, err := k.open(text); err == nil {
		k.now = ring
	}
	return k, nil
}

func invalid(text string) error {
	return &transport.Error{Kind: transport.Invalid, Proto: "update", Err: refusal(text)}
}

// isTestID reports whether a root key is for tests.
func isTestID(id string) bool { return strings.HasSuffix(id, ".T") }

// Verify is Roots.Verify with the keys of the latest package.
func (k *Keys) Verify(manifest []byte, signature string) error {
	k.mu.Lock()
	now := k.now
	k.mu.Unlock()
	return now.roots.verify(manifest, signature, now.disabled)
}

// Update takes the service's package of root keys, and stores it. The error has Kind Untrusted: the
// package is malformed, not signed by all of KeysOptions.Roots, for tests, or older than the latest
// one.
func (k *Keys) Update(text []byte) error {
	ring, err := k.open(text)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch now := k.now; {
	case ring.version < now.version || ring.version == now.version && ring.published < now.published:
		return refuse("the package of root keys has version " + decimal(ring.version) + " of " + decimal(ring.published) +
			", older than version " + decimal(now.version) + " of " + decimal(now.published))
	case ring.version == now.version && ring.published == now.published && k.stored:
		return nil
	}
	k.now, k.stored = ring, k.opt.Store == nil
	if !k.stored {
		err := callback.Call("KeysOptions.Store", func() error { return k.opt.Store.Save(text) })
		k.stored = err == nil
		if err != nil && k.opt.OnStoreError != nil {
			_ = callback.Run("KeysOptions.OnStoreError", func() { k.opt.OnStoreError(err) })
		}
	}
	return nil
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
