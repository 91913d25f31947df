package dpstpm

import (
	"context"

	"github.com/google/go-tpm/tpm2"
)

// maxBuffer is what a command takes of a text.
const maxBuffer = 1024

// Sign computes the HMAC-SHA256 of text under the identity key.
func (t *TPM) Sign(ctx context.Context, text []byte) ([]byte, error) {
	if err := t.lock(ctx); err != nil {
		return nil, err
	}
	defer t.unlock()
	read, err := tpm2.ReadPublic{ObjectHandle: identityHandle}.Execute(t.device)
	if err != nil {
		return nil, failure("read the identity key", err)
	}
	key := object{handle: identityHandle, name: read.Name}.authorized(tpm2.PasswordAuth(nil))
	mac, err := t.mac(key, text)
	if err != nil {
		return nil, failure("sign", err)
	}
	return mac, nil
}

func (t *TPM) mac(key tpm2.AuthHandle, text []byte) ([]byte, error) {
	if len(text) <= maxBuffer {
		made, err := tpm2.Hmac{
			Handle: key, Buffer: tpm2.TPM2BMaxBuffer{Buffer: text}, HashAlg: tpm2.TPMAlgSHA256,
		}.Execute(t.device)
		if err != nil {
			return nil, err
		}
		return made.OutHMAC.Buffer, nil
	}
	begun, err := tpm2.HmacStart{Handle: key, HashAlg: tpm2.TPMAlgSHA256}.Execute(t.device)
	if err != nil {
		return nil, err
	}
	sequence := tpm2.AuthHandle{Handle: begun.SequenceHandle, Auth: tpm2.PasswordAuth(nil)}
	for ; len(text) > maxBuffer; text = text[maxBuffer:] {
		_, err := tpm2.SequenceUpdate{
			SequenceHandle: sequence, Buffer: tpm2.TPM2BMaxBuffer{Buffer: text[:maxBuffer]},
		}.Execute(t.device)
		if err != nil {
			t.flush(begun.SequenceHandle)
			return nil, err
		}
	}
	done, err := tpm2.SequenceComplete{
		SequenceHandle: sequence, Buffer: tpm2.TPM2BMaxBuffer{Buffer: text}, Hierarchy: tpm2.TPMRHNull,
	}.Execute(t.device)
	if err != nil {
		t.flush(begun.SequenceHandle)
		return nil, err
	}
	return done.Result.Buffer, nil
}
