package tpm2_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/internal/tpm2"
)

// FuzzPublicKeys parses the public areas that a device sends. The service can encrypt for a key
// that it accepts.
func FuzzPublicKeys(f *testing.F) {
	tpm, err := testkit.NewTPM()
	require.NoError(f, err)
	endorsement, storageRoot, err := tpm.PublicKeys(f.Context())
	require.NoError(f, err)
	f.Add(endorsement)
	f.Add(storageRoot)
	f.Add([]byte{0, 0})
	f.Add(endorsement[:40])
	right, err := tpm2.ParseEndorsementKey(endorsement)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, area []byte) {
		_, err := tpm2.ParseEndorsementKey(area)
		storage, bad := tpm2.ParseStorageRootKey(area)
		if err == nil && len(area) != len(endorsement) || bad == nil && len(area) < len(storageRoot) {
			t.Fatalf("accepted %x", area)
		}
		if bad != nil {
			return
		}
		if _, err := tpm2.Wrap(right, storage, []byte("key")); err != nil {
			t.Fatalf("cannot encrypt for %x: %v", area, err)
		}
	})
}

func TestKeysOfEachLength(t *testing.T) {
	tpm, err := testkit.NewTPM()
	require.NoError(t, err)
	endorsement, storageRoot, err := tpm.PublicKeys(t.Context())
	require.NoError(t, err)
	public, err := tpm2.ParseEndorsementKey(endorsement)
	require.NoError(t, err)
	storage, err := tpm2.ParseStorageRootKey(storageRoot)
	require.NoError(t, err)
	for _, size := range []int{16, 32, 63, 64} {
		wrapped, err := tpm2.Wrap(public, storage, make([]byte, size))
		require.NoError(t, err)
		require.NoError(t, tpm.Activate(t.Context(), wrapped), size)
		for _, at := range []int{10, 40, 100, 330, 360, 400, 600, len(wrapped) - 1} {
			wrapped[at] ^= 1
			require.Error(t, tpm.Activate(t.Context(), wrapped), "byte %d", at)
			wrapped[at] ^= 1
		}
	}
	_, err = tpm2.ParseEndorsementKey(storageRoot)
	require.ErrorContains(t, err, "attributes")
}
