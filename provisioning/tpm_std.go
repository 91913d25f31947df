//go:build !tinygo

package provisioning

import (
	"context"
	"encoding/base64"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/transport"
)

// checkTPM returns an error for an Identity whose TPM is of no use.
func (id *Identity) checkTPM() error {
	if id.TPM != nil && id.Sign != nil {
		return invalid("Sign and TPM are both set; leave Sign nil: the TPM signs")
	}
	return nil
}

// useTPM makes the TPM sign.
func (id *Identity) useTPM() {
	if id.TPM != nil {
		id.Sign = id.TPM.Sign
	}
}

// checkTPMCarrier returns an error for a carrier that cannot attest the TPM.
func (id *Identity) checkTPMCarrier(carrier Carrier) error {
	if _, ok := carrier.(TPMCarrier); id.TPM != nil && !ok {
		return invalid("TPM is set, and the carrier has no attestation for it: the service has none over MQTT; use dpshttp " +
			"or dpsamqp")
	}
	return nil
}

// lacksCalls returns why a device with a TPM makes no calls; empty for other devices.
func (id *Identity) lacksCalls() string {
	if id.TPM != nil {
		return "a device with a TPM cannot call it; use a key or a certificate"
	}
	return ""
}

// maxPublicKey bounds a public area; that of an RSA key of 4096 bits has 570 bytes.
const maxPublicKey = 1024

// openTPM opens a session for a device with a TPM. It returns false for other devices.
func (r *registration) openTPM(l *Login) (bool, error) {
	tpm := r.c.id.TPM
	if tpm == nil {
		return false, nil
	}
	if err := r.readClock(l); err != nil {
		return true, err
	}
	r.expires = r.signed.Add(r.c.id.TokenLife)
	t := &TPMLogin{Prove: r.c.prover(l, r.expires)}
	err := callback.Call("TPM.PublicKeys", func() (err error) {
		t.EndorsementKey, t.StorageRootKey, err = tpm.PublicKeys(r.ctx)
		return err
	})
	if err != nil {
		return true, tpmFailure("the TPM has not told its public keys", err)
	}
	for _, key := range [...]struct {
		name string
		area []byte
	}{{"endorsement key", t.EndorsementKey}, {"storage root key", t.StorageRootKey}} {
		if n := len(key.area); n < 3 || n > maxPublicKey || int(key.area[0])<<8|int(key.area[1]) != n-2 {
			return true, invalid("TPM.PublicKeys returned a malformed " + key.name + "; return a TPM2B_PUBLIC, which begins " +
				"with its size")
		}
	}
	r.renew = time.Now().Add(r.c.id.TokenLife - renewBefore)
	err = callback.Call("TPMCarrier.OpenTPM", func() (err error) {
		r.session, err = r.c.carrier.(TPMCarrier).OpenTPM(r.ctx, l, t)
		return err
	})
	if err != nil {
		r.session = nil
	}
	return true, err
}

// prover returns a TPMLogin's Prove. The carrier may call it on any goroutine.
func (c *Client) prover(l *Login, expires time.Time) func(context.Context, []byte) (transport.Token, error) {
	resource := l.Resource()
	return func(ctx context.Context, challenge []byte) (transport.Token, error) {
		if len(challenge) > 0 {
			if err := c.activate(ctx, challenge); err != nil {
				return transport.Token{}, err
			}
		}
		return c.token(ctx, c.id.Sign, resource, expires)
	}
}

func (c *Client) activate(ctx context.Context, key []byte) error {
	if err := callback.Call("TPM.Activate", func() error { return c.id.TPM.Activate(ctx, key) }); err != nil {
		return tpmFailure("the TPM has not activated the service's key", err)
	}
	return nil
}

// activateAssigned activates the key for the hub, if the answer has one.
func (r *registration) activateAssigned(answer *Answer, got *reading) error {
	if r.c.id.TPM == nil || got.assignment == nil {
		return nil
	}
	state := jsonscan.Value(answer.Body, "registrationState")
	text := jsonscan.TextOf(jsonscan.Value(state, "tpm"), "authenticationKey")
	if text == "" {
		return nil // the key of the challenge
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return violation("the authentication key is not base64")
	}
	return r.c.activate(r.ctx, key)
}

// challengeAgain reports whether failure is a refused poll of a device with a TPM. Only a register
// gets a challenge, so the device registers again.
func (r *registration) challengeAgain(failure *transport.Error) bool {
	return r.c.id.TPM != nil && r.operation != "" && failure.Kind == transport.Unauthorized &&
		!errchain.IsUnasked(failure)
}

// tpmFailure returns the error of a step of the TPM.
func tpmFailure(text string, err error) *transport.Error {
	kind := transport.KindOf(err)
	if kind == transport.Unknown {
		kind = transport.Unauthorized
	}
	return &transport.Error{Kind: kind, Scope: transport.ScopeConnection, Op: transport.OpRegister,
		Err: errchain.Unasked{Err: &tpmError{text, err}}}
}

// tpmError is an error of the TPM.
type tpmError struct {
	text string
	err  error
}

func (e *tpmError) Error() string { return e.text + ": " + e.err.Error() }
func (e *tpmError) Unwrap() error { return e.err }
