// Package dpstpm attests a device to the provisioning service with its TPM 2.0, on
// github.com/google/go-tpm. It is a Go module of its own.
//
//	device, err := linuxtpm.Open("/dev/tpmrm0")
//	tpm, err := dpstpm.New(device, nil)
//	id := &provisioning.Identity{IDScope: "0ne00ABCDEF", RegistrationID: tpm.RegistrationID(), TPM: tpm}
//	client, err := provisioning.New(id, dpshttp.New(nil), nil)
//
// # Keys
//
// The endorsement key and the storage root key are those of the standard templates, RSA with 2048
// bits, at the handles 0x81010001 and 0x81000001, as the official device SDKs have them. New makes
// the ones that are missing. The key of the service becomes a persistent object at 0x81000100; it
// signs at the hub, also after a restart.
//
// # Failures
//
// Errors are *transport.Error. Warnings of the TPM (busy, locked out, out of memory) and failures
// of its device are of Kind Unavailable, so they are retried. An answer that refuses is of Kind
// Unauthorized: the key of the service is for another TPM, or an authorization value is wrong.
package dpstpm

import (
	"context"
	"errors"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/hubline-iot/hubline/provisioning"
	hubline "github.com/hubline-iot/hubline/transport"
)

// Handles of persistent objects. Source: the official device SDKs.
const (
	endorsementHandle = tpm2.TPMHandle(0x81010001)
	storageHandle     = tpm2.TPMHandle(0x81000001)
	identityHandle    = tpm2.TPMHandle(0x81000100)
)

// Options are the settings of a TPM. The zero value and nil mean all defaults.
type Options struct {
	// OwnerAuth and EndorsementAuth are the authorization values of the hierarchies. Nil: they are
	// empty, as they are in a TPM that nobody has set up.
	OwnerAuth, EndorsementAuth []byte
}

// TPM is a provisioning.TPM. Make it with New. It may be used concurrently.
type TPM struct {
	opt    Options
	device transport.TPM
	turn   chan struct{} // held during a step: commands follow each other

	endorsement, storage object
}

var _ provisioning.TPM = (*TPM)(nil)

// An object is a persistent object in the TPM.
type object struct {
	handle tpm2.TPMHandle
	name   tpm2.TPM2BName
	area   []byte // TPM2B_PUBLIC
}

// authorized returns the object as a command takes it.
func (o object) authorized(s tpm2.Session) tpm2.AuthHandle {
	return tpm2.AuthHandle{Handle: o.handle, Name: o.name, Auth: s}
}

// New returns the TPM behind device, which nothing else may use at the same time: packages below
// go-tpm/tpm2/transport open one. It reads the endorsement key and the storage root key, and makes
// those that are missing, which may take seconds. nil options mean all defaults. The TPM does not
// close device.
func New(device transport.TPM, o *Options) (*TPM, error) {
	t := &TPM{device: device, turn: make(chan struct{}, 1)}
	if o != nil {
		t.opt = *o
	}
	var err error
	if t.endorsement, err = t.primary("endorsement key", endorsementHandle, tpm2.TPMRHEndorsement, t.opt.EndorsementAuth,
		tpm2.RSAEKTemplate); err != nil {
		return nil, err
	}
	t.storage, err = t.primary("storage root key", storageHandle, tpm2.TPMRHOwner, t.opt.OwnerAuth, tpm2.RSASRKTemplate)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// primary reads a persistent primary key, and makes it if it is missing.
func (t *TPM) primary(what string, handle, hierarchy tpm2.TPMHandle, auth []byte, template tpm2.TPMTPublic) (
	object, error) {
	read, err := tpm2.ReadPublic{ObjectHandle: handle}.Execute(t.device)
	if errors.Is(err, tpm2.TPMRCHandle) {
		made, failed := tpm2.CreatePrimary{
			PrimaryHandle: tpm2.AuthHandle{Handle: hierarchy, Auth: tpm2.PasswordAuth(auth)},
			InPublic:      tpm2.New2B(template),
		}.Execute(t.device)
		if failed != nil {
			return object{}, failure("make the "+what, failed)
		}
		err = t.keep(made.ObjectHandle, made.Name, handle)
		t.flush(made.ObjectHandle)
		if err != nil {
			return object{}, failure("keep the "+what, err)
		}
		read, err = tpm2.ReadPublic{ObjectHandle: handle}.Execute(t.device)
	}
	if err != nil {
		return object{}, failure("read the "+what, err)
	}
	if public, err := read.OutPublic.Contents(); err != nil || public.Type != tpm2.TPMAlgRSA {
		return object{}, &hubline.Error{Kind: hubline.Unsupported, Op: hubline.OpRegister,
			Err: errors.New("TPM: the persistent " + what + " is no RSA key, and the service takes no other")}
	}
	return object{handle, read.Name, tpm2.Marshal(read.OutPublic)}, nil
}

// keep makes a transient object persistent.
func (t *TPM) keep(from tpm2.TPMHandle, name tpm2.TPM2BName, to tpm2.TPMHandle) error {
	_, err := tpm2.EvictControl{
		Auth:             tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(t.opt.OwnerAuth)},
		ObjectHandle:     tpm2.NamedHandle{Handle: from, Name: name},
		PersistentHandle: to,
	}.Execute(t.device)
	return err
}

// flush removes a transient object. What fails to be removed stays until the TPM restarts.
func (t *TPM) flush(handle tpm2.TPMHandle) {
	_, _ = tpm2.FlushContext{FlushHandle: handle}.Execute(t.device)
}

// lock begins a step.
func (t *TPM) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case t.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *TPM) unlock() { <-t.turn }

// EndorsementKey returns the public area of the endorsement key, a TPM2B_PUBLIC: in base64 it is
// what an enrollment takes.
func (t *TPM) EndorsementKey() []byte { return t.endorsement.area }

// RegistrationID returns the registration id that the service suggests for this TPM.
func (t *TPM) RegistrationID() string { return provisioning.TPMRegistrationID(t.endorsement.area) }

// PublicKeys returns the public areas of the endorsement key and of the storage root key.
func (t *TPM) PublicKeys(context.Context) (endorsement, storageRoot []byte, err error) {
	return t.endorsement.area, t.storage.area, nil
}

// failure returns the error of a step.
func failure(step string, err error) error {
	kind := hubline.Unavailable
	if code, ok := errors.AsType[tpm2.TPMRC](err); ok && !code.IsWarning() {
		kind = hubline.Unauthorized
	}
	return &hubline.Error{Kind: kind, Op: hubline.OpRegister, Err: &stepError{step, err}}
}

type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return "TPM: " + e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }
