package tpm2

import (
	"crypto/aes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
)

// Wrap encrypts a key for HMAC-SHA256 for the TPM that has both private keys. The result is what a
// provisioning service sends: a credential for the storage root key (TPM2B_ID_OBJECT and
// TPM2B_ENCRYPTED_SECRET), whose secret is the inner wrapping key of the following object to import
// (TPM2B_PRIVATE, TPM2B_ENCRYPTED_SECRET, TPM2B_PUBLIC).
func Wrap(endorsement, storageRoot *PublicKey, key []byte) ([]byte, error) {
	inner := random(aes.BlockSize)
	credential, err := makeCredential(endorsement, storageRoot.name, inner)
	if err != nil {
		return nil, err
	}
	object, err := duplicate(storageRoot, inner, key)
	if err != nil {
		return nil, err
	}
	return append(credential, object...), nil
}

// WrapForNobody is Wrap for a TPM that does not exist.
func WrapForNobody(key []byte) ([]byte, error) {
	private, err := rsa.GenerateKey(rand.Reader, rsaBits)
	if err != nil {
		return nil, err
	}
	nobody := &PublicKey{key: private.PublicKey, name: name(nil)}
	return Wrap(nobody, nobody, key)
}

// makeCredential encrypts a secret that the TPM decrypts if it has the object of that name, too.
func makeCredential(endorsement *PublicKey, object, secret []byte) ([]byte, error) {
	seed, sealed, err := endorsement.newSeed("IDENTITY")
	if err != nil {
		return nil, err
	}
	return appendSized(appendSized(nil, protect(seed, object, appendSized(nil, secret))), sealed), nil
}

// duplicate makes the duplication structure of an HMAC key for a new parent, with inner and outer
// wrapping.
func duplicate(parent *PublicKey, inner, key []byte) ([]byte, error) {
	seed, sealed, err := parent.newSeed("DUPLICATE")
	if err != nil {
		return nil, err
	}
	obfuscation := random(sha256.Size)
	unique := sha256.Sum256(append(append([]byte(nil), obfuscation...), key...))
	public := appendNumbers(nil, algKeyedHash, algSHA256)
	public = binary.BigEndian.AppendUint32(public, sign|userWithAuth|noDA)
	public = appendSized(public, nil) // no policy
	public = appendNumbers(public, algHMAC, algSHA256)
	public = appendSized(public, unique[:])

	sensitive := appendNumbers(nil, algKeyedHash)
	sensitive = appendSized(sensitive, nil) // no authorization value
	sensitive = appendSized(sensitive, obfuscation)
	sensitive = appendSized(sensitive, key)
	sensitive = appendSized(nil, sensitive)

	object := name(public)
	integrity := sha256.Sum256(append(append([]byte(nil), sensitive...), object...))
	encrypted, err := encrypt(inner, append(appendSized(nil, integrity[:]), sensitive...))
	if err != nil {
		return nil, err
	}
	return appendSized(appendSized(appendSized(nil, protect(seed, object, encrypted)), sealed), public), nil
}

// newSeed returns a random seed, and the seed encrypted for the key.
func (k *PublicKey) newSeed(label string) (seed, sealed []byte, err error) {
	seed = random(sha256.Size)
	sealed, err = rsa.EncryptOAEP(sha256.New(), rand.Reader, &k.key, seed, append([]byte(label), 0))
	if err != nil {
		return nil, nil, fmt.Errorf("tpm2: %w", err)
	}
	return seed, sealed, nil
}

// protect is the outer wrapping: it encrypts with a key derived from the seed, and puts the HMAC
// before.
func protect(seed, object, text []byte) []byte {
	encrypted, err := encrypt(derive(seed, "STORAGE", object, aes.BlockSize), text)
	if err != nil {
		panic(err) // the key has the right size
	}
	mac := hmac.New(sha256.New, derive(seed, "INTEGRITY", nil, sha256.Size))
	mac.Write(encrypted)
	mac.Write(object)
	return append(appendSized(nil, mac.Sum(nil)), encrypted...)
}

// derive is KDFa with SHA-256, for size bytes, 32 at most.
func derive(seed []byte, label string, context []byte, size int) []byte {
	mac := hmac.New(sha256.New, seed)
	mac.Write([]byte{0, 0, 0, 1})
	mac.Write(append([]byte(label), 0))
	mac.Write(context)
	mac.Write(binary.BigEndian.AppendUint32(nil, uint32(size*8)))
	return mac.Sum(nil)[:size]
}

// encrypt is AES in CFB mode with an initialization vector of zeros.
func encrypt(key, text []byte) ([]byte, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	out := make([]byte, len(text))
	var feedback, stream [aes.BlockSize]byte
	for at := 0; at < len(text); at += aes.BlockSize {
		block.Encrypt(stream[:], feedback[:])
		n := subtle.XORBytes(out[at:], text[at:], stream[:])
		copy(feedback[:], out[at:at+n])
	}
	return out, nil
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return b
}
