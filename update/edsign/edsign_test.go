package edsign

import (
	"bytes"
	"crypto/ed25519"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/update"
)

func TestOnlyTheTrustedKeysSign(t *testing.T) {
	key := func(b byte) ed25519.PrivateKey {
		return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{b}, ed25519.SeedSize))
	}
	public := func(b byte) ed25519.PublicKey { return key(b).Public().(ed25519.PublicKey) }
	m := update.Manifest{Model: "board", Image: update.Image{Version: 2, Size: 10}}
	text, err := Sign(key(1), &m)
	require.NoError(t, err)
	got, signed, signature, err := update.ParseManifest(text)
	require.NoError(t, err)
	require.Equal(t, m, got)

	require.True(t, Verifier(public(1))(signed, signature))
	require.True(t, Verifier(public(2), public(1))(signed, signature))
	require.False(t, Verifier(public(2))(signed, signature))
	require.False(t, Verifier()(signed, signature))
	require.False(t, Verifier(nil, public(1)[:31])(signed, signature))
	for i := range signed {
		changed := bytes.Clone(signed)
		changed[i] ^= 1
		require.False(t, Verifier(public(1))(changed, signature), "byte %d", i)
	}
	require.False(t, Verifier(public(1))(signed, signature[:63]))
	_, err = Sign(key(1), &update.Manifest{})
	require.Error(t, err)

	own := bytes.Clone(public(1))
	verify := Verifier(own)
	clear(own)
	require.True(t, verify(signed, signature), "the keys are copied")
}
