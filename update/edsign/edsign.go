// Package edsign signs and verifies manifests of package update with Ed25519. It is a package of
// its own because Ed25519 takes some 24 KB of flash and 35 KB of RAM on a board: a secure element
// can take its place.
package edsign

import (
	"crypto/ed25519"

	"github.com/hubline-iot/hubline/update"
)

// Verifier returns an Options.Verify that accepts signatures by any of the keys. Give the next key
// too before the present one ends. Keys of a wrong length are never matched.
func Verifier(keys ...ed25519.PublicKey) func(signed, signature []byte) bool {
	own := make([]ed25519.PublicKey, 0, len(keys))
	for _, key := range keys {
		if len(key) == ed25519.PublicKeySize {
			own = append(own, append(ed25519.PublicKey(nil), key...))
		}
	}
	return func(signed, signature []byte) bool {
		for _, key := range own {
			if ed25519.Verify(key, signed, signature) {
				return true
			}
		}
		return false
	}
}

// Sign returns the signed text of a manifest, for the build server.
func Sign(key ed25519.PrivateKey, m *update.Manifest) ([]byte, error) {
	text, err := update.AppendManifest(nil, m)
	if err != nil {
		return nil, err
	}
	return update.AppendSignature(text, ed25519.Sign(key, text)), nil
}
