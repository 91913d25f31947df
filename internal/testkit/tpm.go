package testkit

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
)

// TPM is a provisioning.TPM in software, as far as a registration needs one, for tests in which
// nothing else is under test; package provisioning/dpstpm is tried against a whole TPM. It shares
// no code with the service of package testbroker, so a mistake shows as a disagreement.
type TPM struct {
	endorsement, storage *rsa.PrivateKey

	mu          sync.Mutex
	key         []byte // the identity key
	activations int
}

// NewTPM makes a TPM with new keys.
func NewTPM() (*TPM, error) {
	endorsement, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	storage, err := rsa.GenerateKey(rand.Reader, 2048)
	return &TPM{endorsement: endorsement, storage: storage}, err
}

// The public areas of the standard templates, as far as the modulus.
const (
	endorsementTemplate = "0001000b000300b20020837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa" +
		"00060080004300100800000000000100"
	storageTemplate = "0001000b000304720000" + "00060080004300100800000000000100"
)

func area(template string, key *rsa.PrivateKey) []byte {
	b, err := hex.DecodeString(template)
	if err != nil {
		panic(err)
	}
	b = append(b, key.N.FillBytes(make([]byte, 256))...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
}

// EndorsementKey returns the endorsement key, for an enrollment.
func (t *TPM) EndorsementKey() []byte { return area(endorsementTemplate, t.endorsement) }

// PublicKeys returns the public areas of the endorsement key and of the storage root key.
func (t *TPM) PublicKeys(context.Context) (endorsement, storageRoot []byte, err error) {
	return t.EndorsementKey(), area(storageTemplate, t.storage), nil
}

// Activations returns how many keys were activated.
func (t *TPM) Activations() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.activations
}

// Activate decrypts a key of the service: TPM2_ActivateCredential and TPM2_Import.
func (t *TPM) Activate(_ context.Context, key []byte) error {
	var part [5][]byte
	for i := range part {
		if key = cut(&part[i], key); key == nil {
			return errors.New("softtpm: the key is too short")
		}
	}
	if len(key) > 0 {
		return errors.New("softtpm: data after the key")
	}
	parent := nameOf(area(storageTemplate, t.storage)[2:])
	credential, err := open(t.endorsement, "IDENTITY", part[1], part[0], parent)
	if err != nil {
		return fmt.Errorf("softtpm: credential: %w", err)
	}
	var inner []byte
	if rest := cut(&inner, credential); len(rest) > 0 || len(inner) != 16 {
		return errors.New("softtpm: the credential is no AES key")
	}
	object := nameOf(part[4])
	wrapped, err := open(t.storage, "DUPLICATE", part[3], part[2], object)
	if err != nil {
		return fmt.Errorf("softtpm: import: %w", err)
	}
	var integrity, sensitive []byte
	sealed := cut(&integrity, crypt(inner, wrapped))
	sum := sha256.Sum256(append(bytes.Clone(sealed), object...))
	if !bytes.Equal(integrity, sum[:]) {
		return errors.New("softtpm: import: inner integrity")
	}
	if rest := cut(&sensitive, sealed); rest == nil || len(sensitive) < 2 {
		return errors.New("softtpm: import: no sensitive area")
	}
	var auth, seed, secret []byte
	if rest := cut(&secret, cut(&seed, cut(&auth, sensitive[2:]))); rest == nil || len(secret) == 0 {
		return errors.New("softtpm: import: no key")
	}
	if unique := sha256.Sum256(append(seed, secret...)); !bytes.HasSuffix(part[4], unique[:]) {
		return errors.New("softtpm: load: public and sensitive area do not match")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.key = bytes.Clone(secret)
	t.activations++
	return nil
}

// Sign computes the HMAC-SHA256 of text under the identity key.
func (t *TPM) Sign(_ context.Context, text []byte) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.key == nil {
		return nil, errors.New("softtpm: no key is activated")
	}
	mac := hmac.New(sha256.New, t.key)
	mac.Write(text)
	return mac.Sum(nil), nil
}

// cut takes a TPM2B from b and returns the rest; nil if b is too short.
func cut(field *[]byte, b []byte) []byte {
	if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
		return nil
	}
	n := 2 + int(binary.BigEndian.Uint16(b))
	*field = b[2:n:n]
	return b[n:len(b):len(b)]
}

func nameOf(public []byte) []byte {
	sum := sha256.Sum256(public)
	return append([]byte{0, 0x0b}, sum[:]...)
}

// open undoes the outer wrapping of blob, whose seed is encrypted for the key.
func open(key *rsa.PrivateKey, label string, sealed, blob, object []byte) ([]byte, error) {
	seed, err := rsa.DecryptOAEP(sha256.New(), nil, key, sealed, []byte(label+"\x00"))
	if err != nil {
		return nil, err
	}
	var sum []byte
	encrypted := cut(&sum, blob)
	mac := hmac.New(sha256.New, derive(seed, "INTEGRITY", nil, 256))
	mac.Write(append(bytes.Clone(encrypted), object...))
	if !hmac.Equal(sum, mac.Sum(nil)) {
		return nil, errors.New("outer integrity")
	}
	return crypt(derive(seed, "STORAGE", object, 128)[:16], encrypted), nil
}

func derive(seed []byte, label string, context []byte, bits uint32) []byte {
	text := append([]byte{0, 0, 0, 1}, label+"\x00"...)
	text = append(text, context...)
	mac := hmac.New(sha256.New, seed)
	mac.Write(binary.BigEndian.AppendUint32(text, bits))
	return mac.Sum(nil)
}

// crypt decrypts AES-128 in CFB mode.
func crypt(key, text []byte) []byte {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	out := make([]byte, len(text))
	stream := make([]byte, 16)
	before := make([]byte, 16)
	for i := range text {
		if i%16 == 0 {
			block.Encrypt(stream, before)
			copy(before, text[i:])
		}
		out[i] = text[i] ^ stream[i%16]
	}
	return out
}
