package dpsamqp

import (
	"context"
	"errors"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/provisioning"
)

var _ provisioning.TPMCarrier = (*Carrier)(nil)

// OpenTPM is Open for a device with a TPM, which logs in with the SASL mechanism TPM.
func (c *Carrier) OpenTPM(ctx context.Context, l *provisioning.Login, t *provisioning.TPMLogin) (
	provisioning.Session, error) {
	if c.err != nil {
		return nil, c.err
	}
	limited, cancel := context.WithTimeoutCause(ctx, l.Timeout, errSlow)
	defer cancel()
	s, err := c.openTPM(limited, l, t)
	if err == nil {
		return s, nil
	}
	if e, ok := errors.AsType[*proofError](err); ok && limited.Err() == nil {
		return nil, e.error
	}
	return nil, failure(ctx, limited, err)
}

func (c *Carrier) openTPM(ctx context.Context, l *provisioning.Login, t *provisioning.TPMLogin) (*session, error) {
	creds := t.Credentials(l)
	cert, err := c.dialer.ClientCertificate(ctx, creds)
	if err != nil {
		return nil, err
	}
	first := []byte("\x00" + l.IDScope + "\x00" + l.RegistrationID + "\x00")
	d := &tpmDialogue{login: t}
	return c.connect(ctx, l, creds, cert, amqpclient.Options{Host: l.Endpoint,
		SASL:    []wire.Init{{Mechanism: "TPM", InitialResponse: append(first, t.EndorsementKey...), Hostname: l.Endpoint}},
		Respond: func(challenge []byte) ([]byte, error) { return d.respond(ctx, challenge) }})
}

// proofError is an error of TPMLogin.Prove.
type proofError struct{ error }

func (e *proofError) Unwrap() error { return e.error }

// tpmDialogue is the client's side of the mechanism TPM. The first byte of each message is a
// control byte: zero, or in a segment of the service's key its number with two flags.
//
//	client: 0 ID scope 0 registration id 0 endorsement key
//	service: 0
//	client: 0 storage root key
//	service: 0x80 and the number, a segment of the encrypted key; 0xc0 with the last one
//	client: 0 for each segment, with a token for the last one
type tpmDialogue struct {
	login    *provisioning.TPMLogin
	greeted  bool
	segments byte
	key      []byte
}

const (
	segmentFlag = 0x80
	lastFlag    = 0x40
	// maxTPMKey bounds the encrypted key, which has less than 1 KB.
	maxTPMKey = 16 << 10
)

func (d *tpmDialogue) respond(ctx context.Context, challenge []byte) ([]byte, error) {
	switch {
	case len(challenge) == 0:
		return nil, amqpclient.BrokenHandshake("a challenge for the TPM is empty")
	case !d.greeted:
		if d.greeted = true; len(challenge) > 1 || challenge[0] != 0 {
			return nil, amqpclient.BrokenHandshake("the first challenge for the TPM is not a zero")
		}
		return append([]byte{0}, d.login.StorageRootKey...), nil
	case challenge[0]&^lastFlag != segmentFlag|d.segments:
		return nil, amqpclient.BrokenHandshake("a challenge for the TPM is not the next segment of its key")
	case len(d.key)+len(challenge) > maxTPMKey:
		return nil, amqpclient.BrokenHandshake("the key for the TPM is too large")
	}
	d.key = append(d.key, challenge[1:]...)
	d.segments++
	if challenge[0]&lastFlag == 0 {
		return []byte{0}, nil
	}
	token, err := d.login.Prove(ctx, d.key)
	if err != nil {
		return nil, &proofError{err}
	}
	return append([]byte{0}, token.Text.Reveal()...), nil
}
