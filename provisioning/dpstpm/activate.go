package dpstpm

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/google/go-tpm/tpm2"

	hubline "github.com/hubline-iot/hubline/transport"
)

// A wrapped key is what the service sends: each part is a TPM2B without its size.
type wrappedKey struct {
	credential, credentialSecret []byte // TPM2B_ID_OBJECT, TPM2B_ENCRYPTED_SECRET
	private, seed, public        []byte // TPM2B_PRIVATE, TPM2B_ENCRYPTED_SECRET, TPM2B_PUBLIC
}

func parse(key []byte) (w wrappedKey, ok bool) {
	for _, part := range []*[]byte{&w.credential, &w.credentialSecret, &w.private, &w.seed, &w.public} {
		if len(key) < 2 || len(key)-2 < int(binary.BigEndian.Uint16(key)) {
			return w, false
		}
		n := 2 + int(binary.BigEndian.Uint16(key))
		*part, key = key[2:n], key[n:]
	}
	return w, len(key) == 0
}

// Activate decrypts the service's key and makes it the identity key.
func (t *TPM) Activate(ctx context.Context, key []byte) error {
	w, ok := parse(key)
	if !ok {
		return &hubline.Error{Kind: hubline.Protocol, Op: hubline.OpRegister,
			Err: errors.New("TPM: the service's key is malformed")}
	}
	if err := t.lock(ctx); err != nil {
		return err
	}
	defer t.unlock()
	inner, err := t.credential(w)
	if err != nil {
		return failure("activate the credential", err)
	}
	parent := t.storage.authorized(tpm2.PasswordAuth(nil))
	public := tpm2.BytesAs2B[tpm2.TPMTPublic](w.public)
	imported, err := tpm2.Import{
		ParentHandle: parent, EncryptionKey: tpm2.TPM2BData{Buffer: inner}, ObjectPublic: public,
		Duplicate: tpm2.TPM2BPrivate{Buffer: w.private}, InSymSeed: tpm2.TPM2BEncryptedSecret{Buffer: w.seed},
		Symmetric: tpm2.TPMTSymDef{
			Algorithm: tpm2.TPMAlgAES, KeyBits: tpm2.NewTPMUSymKeyBits(tpm2.TPMAlgAES, tpm2.TPMKeyBits(128)),
			Mode: tpm2.NewTPMUSymMode(tpm2.TPMAlgAES, tpm2.TPMAlgCFB),
		},
	}.Execute(t.device)
	if err != nil {
		return failure("import the key", err)
	}
	loaded, err := tpm2.Load{ParentHandle: parent, InPrivate: imported.OutPrivate, InPublic: public}.Execute(t.device)
	if err != nil {
		return failure("load the key", err)
	}
	defer t.flush(loaded.ObjectHandle)
	old, err := tpm2.ReadPublic{ObjectHandle: identityHandle}.Execute(t.device)
	if err == nil {
		err = t.keep(identityHandle, old.Name, identityHandle) // which removes it
	} else if errors.Is(err, tpm2.TPMRCHandle) {
		err = nil
	}
	if err == nil {
		err = t.keep(loaded.ObjectHandle, loaded.Name, identityHandle)
	}
	if err != nil {
		return failure("replace the identity key", err)
	}
	return nil
}

// credential decrypts the inner wrapping key. The endorsement key asks for a policy session with
// PolicySecret.
func (t *TPM) credential(w wrappedKey) (inner []byte, err error) {
	session, done, err := tpm2.PolicySession(t.device, tpm2.TPMAlgSHA256, 16)
	if err != nil {
		return nil, err
	}
	defer done()
	_, err = tpm2.PolicySecret{
		AuthHandle: tpm2.AuthHandle{
			Handle: tpm2.TPMRHEndorsement, Auth: tpm2.PasswordAuth(t.opt.EndorsementAuth),
		},
		PolicySession: session.Handle(), NonceTPM: session.NonceTPM(),
	}.Execute(t.device)
	if err != nil {
		return nil, err
	}
	activated, err := tpm2.ActivateCredential{
		ActivateHandle: t.storage.authorized(tpm2.PasswordAuth(nil)), KeyHandle: t.endorsement.authorized(session),
		CredentialBlob: tpm2.TPM2BIDObject{Buffer: w.credential},
		Secret:         tpm2.TPM2BEncryptedSecret{Buffer: w.credentialSecret},
	}.Execute(t.device)
	if err != nil {
		return nil, err
	}
	return activated.CertInfo.Buffer, nil
}
