package dpsfront

import (
	"bytes"
	"errors"
	"fmt"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/dps"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// mechanismTPM is the SASL mechanism of devices with a TPM. In its messages, the first byte is a
// control byte: zero, or in a segment of the key its number with these bits.
//
//	client: 0 scope 0 registration id 0 endorsement key
//	server: 0
//	client: 0 storage root key
//	server: 0x80 first half of the encrypted key
//	client: 0
//	server: 0xc1 second half
//	client: 0 token
const mechanismTPM wire.Symbol = "TPM"

const (
	segment     = 0x80
	lastSegment = 0xc0
)

// tpmDialogue is the state of the mechanism TPM.
type tpmDialogue struct {
	step int // responses so far
	path string
	tpm  dps.TPM
	key  []byte // what is to be sent of the encrypted key
}

var errTPM = errors.New("SASL TPM: malformed response")

// Challenge runs the mechanism TPM. The others have one step.
func (a *conn) Challenge(mechanism wire.Symbol, response []byte) (challenge []byte, code uint8) {
	if mechanism != mechanismTPM {
		return nil, a.Authenticate(mechanism, response)
	}
	if a.tpm.step == 0 {
		if in := a.hub.Faults.Take(fault.RefuseSASL, identity.Identity{}); in != nil {
			a.hub.Happened(in, a.c)
			a.refused("", hub.FaultError(fault.RefuseSASL))
			return nil, in.Fault.Code
		}
	}
	if len(response) == 0 || response[0] != 0 {
		return nil, a.outcome(errTPM)
	}
	challenge, err := a.nextTPM(response[1:])
	a.tpm.step++
	if challenge != nil && err == nil {
		return challenge, 0
	}
	return nil, a.outcome(err)
}

// nextTPM handles a response without its control byte. Without a challenge the dialogue ends.
func (a *conn) nextTPM(response []byte) (challenge []byte, err error) {
	d := &a.tpm
	switch d.step {
	case 0:
		part := bytes.SplitN(response, []byte{0}, 3)
		if len(part) != 3 || len(part[2]) == 0 {
			return nil, errTPM
		}
		d.path, d.tpm.Endorsement = fmt.Sprintf("%s/registrations/%s", part[0], part[1]), part[2]
		return []byte{0}, nil
	case 1:
		d.tpm.StorageRoot = response
		if d.key, err = a.encryptedKey(); err != nil {
			return nil, err
		}
		half := len(d.key) / 2
		challenge, d.key = append([]byte{segment}, d.key[:half]...), d.key[half:]
		return challenge, nil
	case 2:
		if len(response) > 0 {
			return nil, errTPM
		}
		return append([]byte{lastSegment | 1}, d.key...), nil
	}
	token, err := identity.ParseToken(string(response))
	if err != nil {
		return nil, fmt.Errorf("SASL TPM: %w", err)
	}
	return nil, a.identify(d.path, &token, &d.tpm)
}

// encryptedKey returns the key of the device's enrollment, encrypted for its TPM.
func (a *conn) encryptedKey() ([]byte, error) {
	scope, id, ok := parsePath(a.tpm.path)
	if !ok {
		return nil, errTPM
	}
	c := &dps.Client{ID: id, Protocol: hubdata.AMQP, Connection: a.c.Number, TPM: &a.tpm.tpm}
	if bad := a.dps.CheckIdentity(scope, c); bad != nil {
		return nil, bad
	}
	key, bad := a.dps.Challenge(c, a.c)
	if bad != nil {
		return nil, bad
	}
	return key, nil
}
