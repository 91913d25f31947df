// Package tpm2 is the service's half of the attestation of a TPM 2.0: it encrypts a key so that
// only one TPM can use it. It needs no TPM.
//
// Sources: TPM 2.0 Library, part 1, sections 11.4 (key derivation), 23 (protected storage) and 24
// (credential protection), part 2 for structures; TCG EK Credential Profile, annex B.3.2, for the
// endorsement key.
package tpm2

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
)

// Identifiers of algorithms.
const (
	algRSA       = 0x0001
	algHMAC      = 0x0005
	algAES       = 0x0006
	algKeyedHash = 0x0008
	algSHA256    = 0x000b
	algNull      = 0x0010
	algCFB       = 0x0043
)

// Attributes of objects.
const (
	fixedTPM            = 1 << 1
	fixedParent         = 1 << 4
	sensitiveDataOrigin = 1 << 5
	userWithAuth        = 1 << 6
	adminWithPolicy     = 1 << 7
	noDA                = 1 << 10
	restricted          = 1 << 16
	decrypt             = 1 << 17
	sign                = 1 << 18
)

const (
	endorsementAttributes = fixedTPM | fixedParent | sensitiveDataOrigin | adminWithPolicy | restricted | decrypt
	storageAttributes     = fixedTPM | fixedParent | sensitiveDataOrigin | restricted | decrypt // at least
	rsaBits               = 2048
	exponent              = 65537
)

// endorsementPolicy is the digest of PolicySecret with the endorsement hierarchy.
var endorsementPolicy = []byte{
	0x83, 0x71, 0x97, 0x67, 0x44, 0x84, 0xb3, 0xf8, 0x1a, 0x90, 0xcc, 0x8d, 0x46, 0xa5, 0xd7, 0x24,
	0xfd, 0x52, 0xd7, 0x6e, 0x06, 0x52, 0x0b, 0x64, 0xf2, 0xa1, 0xda, 0x1b, 0x33, 0x14, 0x69, 0xaa,
}

// A PublicKey is the public area of a key that decrypts: of RSA with 2048 bits, with AES-128 in CFB
// mode for what it protects, as the standard templates say.
type PublicKey struct {
	key        rsa.PublicKey
	name       []byte
	attributes uint32
	policy     []byte
}

// ParseEndorsementKey parses the TPM2B_PUBLIC of an endorsement key of the standard template.
func ParseEndorsementKey(area []byte) (*PublicKey, error) {
	k, err := parse(area)
	switch {
	case err != nil:
		return nil, fmt.Errorf("endorsement key: %w", err)
	case k.attributes != endorsementAttributes:
		return nil, fmt.Errorf("endorsement key: attributes %#x, want %#x", k.attributes, endorsementAttributes)
	case !bytes.Equal(k.policy, endorsementPolicy):
		return nil, errors.New("endorsement key: another policy than that of the standard template")
	}
	return k, nil
}

// ParseStorageRootKey parses the TPM2B_PUBLIC of a storage root key.
func ParseStorageRootKey(area []byte) (*PublicKey, error) {
	k, err := parse(area)
	switch {
	case err != nil:
		return nil, fmt.Errorf("storage root key: %w", err)
	case k.attributes&storageAttributes != storageAttributes || k.attributes&sign != 0:
		return nil, fmt.Errorf("storage root key: attributes %#x, want %#x", k.attributes, storageAttributes)
	}
	return k, nil
}

func parse(area []byte) (*PublicKey, error) {
	r := reader{rest: area}
	public := r.sized()
	if len(r.rest) > 0 || r.short {
		return nil, errors.New("not a TPM2B_PUBLIC")
	}
	r = reader{rest: public}
	kind, hash := r.number(2), r.number(2)
	k := &PublicKey{attributes: r.number(4), policy: r.sized()}
	if kind != algRSA || hash != algSHA256 {
		return nil, fmt.Errorf("algorithm %#x with hash %#x, want RSA with SHA-256", kind, hash)
	}
	symmetric := [3]uint32{r.number(2), r.number(2), r.number(2)}
	if symmetric != [3]uint32{algAES, 128, algCFB} {
		return nil, errors.New("does not protect with AES-128 in CFB mode")
	}
	scheme, bits, e := r.number(2), r.number(2), r.number(4)
	modulus := r.sized()
	if r.short || len(r.rest) > 0 || scheme != algNull || bits != rsaBits || len(modulus) != rsaBits/8 ||
		modulus[0]&0x80 == 0 || modulus[len(modulus)-1]&1 == 0 || e != 0 && e != exponent {
		return nil, errors.New("not an RSA key of 2048 bits")
	}
	k.key = rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: exponent}
	k.name = name(public)
	return k, nil
}

// name returns the name of an object, of its TPMT_PUBLIC.
func name(public []byte) []byte {
	sum := sha256.Sum256(public)
	return append([]byte{algSHA256 >> 8, algSHA256 & 0xff}, sum[:]...)
}

// A reader takes fields from a structure. Past the end they are empty, and short is set.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.rest) {
		r.rest, r.short = nil, true
		return nil
	}
	field := r.rest[:n]
	r.rest = r.rest[n:]
	return field
}

func (r *reader) number(size int) (n uint32) {
	for _, b := range r.take(size) {
		n = n<<8 | uint32(b)
	}
	return n
}

// sized takes a TPM2B: bytes after their size.
func (r *reader) sized() []byte { return r.take(int(r.number(2))) }

// appendSized appends a TPM2B.
func appendSized(b, field []byte) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(field))), field...)
}

func appendNumbers(b []byte, numbers ...uint16) []byte {
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint16(b, n)
	}
	return b
}
