package provisioning

import (
	"context"
	"crypto/sha256"

	"github.com/hubline-iot/hubline/transport"
)

// A TPM is a Trusted Platform Module, in the three steps that attest a device. The module
// provisioning/dpstpm has one for TPM 2.0. An error that is a *transport.Error keeps its Kind, so a
// retryable one is retried; others count as Unauthorized, which is final.
//
// Registrations of one TPM must follow each other: a module has one identity key.
type TPM interface {
	// PublicKeys returns the public areas of the endorsement key and of the storage root key. Each is
	// a TPM2B_PUBLIC: it begins with its size in two bytes.
	PublicKeys(ctx context.Context) (endorsement, storageRoot []byte, err error)
	// Activate decrypts the key that the service has encrypted for this TPM, and makes it the identity
	// key instead of an earlier one. The identity key must outlast a restart: it signs at the hub.
	//
	// key is a TPM2B_ID_OBJECT, TPM2B_ENCRYPTED_SECRET, TPM2B_PRIVATE, TPM2B_ENCRYPTED_SECRET and
	// TPM2B_PUBLIC, one after the other: the first two activate the credential that encrypts the
	// third, and the last three are imported.
	Activate(ctx context.Context, key []byte) error
	// Sign computes the HMAC-SHA256 of text under the identity key. It may be called concurrently.
	Sign(ctx context.Context, text []byte) (mac []byte, err error)
}

// A TPMCarrier is a Carrier for devices with a TPM, too.
type TPMCarrier interface {
	Carrier
	// OpenTPM is Open for a device with a TPM. The login has no Token: the Session, or OpenTPM itself,
	// gets a challenge from the service and passes it to t.Prove.
	OpenTPM(ctx context.Context, l *Login, t *TPMLogin) (Session, error)
}

// TPMLogin is what a TPMCarrier needs besides a Login.
type TPMLogin struct {
	// EndorsementKey and StorageRootKey are the TPM's, each as TPM2B_PUBLIC.
	EndorsementKey, StorageRootKey []byte
	// Prove activates the key in the service's challenge, and returns a token that is signed with it.
	// Without a challenge, the token is signed with the key that was activated before. An error of
	// Prove is that of OpenTPM or Exchange.
	Prove func(ctx context.Context, challenge []byte) (transport.Token, error)
}

// Credentials is that of the Login, for the network packages: they need no certificate, as the TPM
// makes the token.
func (t *TPMLogin) Credentials(l *Login) *transport.Credentials {
	c := l.Credentials()
	c.Token = func(ctx context.Context) (transport.Token, error) { return t.Prove(ctx, nil) }
	return c
}

// TPMRegistrationID returns the registration id that the service suggests for a TPM, which is made
// from the endorsement key, a TPM2B_PUBLIC. An enrollment may have another one.
//
// Source: the official device SDKs: SHA-256 in base32 (RFC 4648), in lower case and without
// padding.
func TPMRegistrationID(endorsementKey []byte) string {
	const digits = "abcdefghijklmnopqrstuvwxyz234567"
	id := make([]byte, 0, 52)
	var rest uint32
	bits := 0 // in rest that are not in id yet
	for _, b := range sha256.Sum256(endorsementKey) {
		rest, bits = rest<<8|uint32(b), bits+8
		for ; bits >= 5; bits -= 5 {
			id = append(id, digits[rest>>(bits-5)&31])
		}
	}
	return string(append(id, digits[rest<<(5-bits)&31]))
}
