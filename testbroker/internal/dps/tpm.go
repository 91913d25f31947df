package dps

import (
	"bytes"
	"encoding/base64"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/tpm2"
)

// A TPM is what a client tells about its TPM: the public areas of two keys.
type TPM struct {
	Endorsement []byte `json:"endorsementKey"`
	StorageRoot []byte `json:"storageRootKey,omitempty"`
}

// wrap encrypts the key of an enrollment for the TPM, which must be that of the enrollment.
func (t *TPM) wrap(e dpsdata.Enrollment) ([]byte, *Error) {
	if !bytes.Equal(t.Endorsement, e.EndorsementKey) {
		return nil, Errorf(CodeUnauthorized, "endorsement key is not that of the enrollment")
	}
	endorsement, err := tpm2.ParseEndorsementKey(t.Endorsement)
	if err != nil {
		return nil, Errorf(CodeBadRequest, "%v", err)
	}
	storage, err := tpm2.ParseStorageRootKey(t.StorageRoot)
	if err != nil {
		return nil, Errorf(CodeBadRequest, "%v", err)
	}
	key, err := base64.StdEncoding.DecodeString(e.PrimaryKey)
	if err == nil {
		key, err = tpm2.Wrap(endorsement, storage, key)
	}
	if err != nil {
		return nil, Errorf(codeServerError, "%v", err)
	}
	return key, nil
}

// Unproven reports whether the request is the first of a device that may have a TPM: it registers
// without credentials, and no other kind of attestation is enrolled for it.
func (s *Service) Unproven(c *Client, op dpsdata.Operation) bool {
	if op != dpsdata.OperationRegister || c.Token != nil || len(c.Chain) > 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.enrollments[fold(c.ID)]
	return own == nil || own.data.EndorsementKey != nil
}

// Challenge returns the key of the enrollment of a client with a TPM, encrypted for that TPM. It is
// subject to faults.
func (s *Service) Challenge(c *Client, conn *hub.Conn) ([]byte, *Error) {
	s.mu.Lock()
	own := s.enrollments[fold(c.ID)]
	var e dpsdata.Enrollment
	if own != nil {
		e = own.data
	}
	s.mu.Unlock()
	switch {
	case c.TPM == nil:
		return nil, Errorf(CodeUnauthorized, "neither a token nor a certificate nor the keys of a TPM")
	case own == nil:
		return nil, Errorf(CodeNotEnrolled, "registration id %q is not enrolled", c.ID)
	case e.EndorsementKey == nil:
		return nil, Errorf(CodeUnauthorized, "credentials are of another kind than the enrollment's")
	}
	key, bad := c.TPM.wrap(e)
	if bad != nil {
		return nil, bad
	}
	if f := (&call{s, c, conn, dpsdata.OperationRegister}).take(fault.WrongChallenge); f != nil {
		key = wrongKey(f)
	}
	return key, nil
}

// wrongKey returns the key that a fault wants instead of the right one.
func wrongKey(f *fault.Fault) []byte {
	if len(f.Bytes) > 0 {
		return f.Bytes
	}
	key, err := tpm2.WrapForNobody(make([]byte, 32))
	if err != nil {
		panic(err) // no source of random numbers
	}
	return key
}

// challenge answers the first request of a device with a TPM.
func (k *call) challenge(r dpsdata.Request) Answer {
	if _, bad := readBody(k.c, &r); bad != nil {
		return k.refuse(r, bad)
	}
	key, bad := k.s.Challenge(k.c, k.conn)
	if bad != nil {
		return k.refuse(r, bad)
	}
	a := Answer{Status: 401, Body: document.JSON(struct {
		Message           string `json:"message"`
		KeyName           string `json:"keyName"`
		AuthenticationKey []byte `json:"authenticationKey"`
	}{"Authorization required.", "registration", key})}
	k.s.log(k.c, r, a)
	return a
}
