package tpm2_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/internal/tpm2"
)

// The fields of an endorsement key's TPM2B_PUBLIC, by their offsets.
const (
	size      = 0
	kind      = 2
	hash      = 4
	algorithm = 44
	keyBits   = 46
	mode      = 48
	scheme    = 50
	bits      = 52
	exponent  = 54
	modulus   = 60
)

// A key of another form than the standard template's is refused, and the error says why.
func TestKeysOfAnotherFormAreRefused(t *testing.T) {
	tpm, err := testkit.NewTPM()
	require.NoError(t, err)
	right := tpm.EndorsementKey()
	set := func(at int, value ...byte) []byte {
		area := slices.Clone(right)
		copy(area[at:], value)
		return area
	}
	last := len(right) - 1
	short := set(modulus-2, 0, 255)[:last]
	copy(short, sized(last-2))
	short[last-1] |= 1
	for name, row := range map[string]struct {
		area []byte
		want string
	}{
		"another kind":             {set(kind, 0, 0x23), "want RSA with SHA-256"},
		"another hash":             {set(hash, 0, 0x0c), "want RSA with SHA-256"},
		"no encryption":            {set(algorithm, 0, 0x10), "AES-128 in CFB mode"},
		"AES-256":                  {set(keyBits, 1, 0), "AES-128 in CFB mode"},
		"another mode":             {set(mode, 0, 0x42), "AES-128 in CFB mode"},
		"a signature scheme":       {set(scheme, 0, 0x14), "RSA key of 2048 bits"},
		"1024 bits":                {set(bits, 4, 0), "RSA key of 2048 bits"},
		"another exponent":         {set(exponent, 0, 0, 0, 3), "RSA key of 2048 bits"},
		"a modulus that is short":  {set(modulus, right[modulus]&0x7f), "RSA key of 2048 bits"},
		"an even modulus":          {set(last, right[last]&0xfe), "RSA key of 2048 bits"},
		"a byte behind it":         {append(slices.Clone(right), 0), "not a TPM2B_PUBLIC"},
		"a byte less":              {right[:last], "not a TPM2B_PUBLIC"},
		"a byte behind its fields": {append(set(size, sized(last)...), 1), "RSA key of 2048 bits"},
		"a modulus of 255 bytes":   {short, "RSA key of 2048 bits"},
	} {
		_, err := tpm2.ParseEndorsementKey(row.area)
		require.ErrorContains(t, err, row.want, name)
	}
	for _, e := range [][]byte{{0, 0, 0, 0}, {0, 1, 0, 1}} { // 0 is the default, 65537
		_, err := tpm2.ParseEndorsementKey(set(exponent, e...))
		require.NoError(t, err)
	}
}

// sized is the size of n bytes.
func sized(n int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) }
