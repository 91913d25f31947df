package dpshttp

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"

	"github.com/hubline-iot/hubline/provisioning"
)

var _ provisioning.TPMCarrier = (*Carrier)(nil)

// OpenTPM prepares a session of a device with a TPM. It does not connect.
func (c *Carrier) OpenTPM(_ context.Context, l *provisioning.Login, t *provisioning.TPMLogin) (
	provisioning.Session, error) {
	if c.err != nil {
		return nil, c.err
	}
	return &tpmSession{c.session(l, t.Credentials(l)), t}, nil
}

// A tpmSession gets its token with its first request.
type tpmSession struct {
	*session
	t *provisioning.TPMLogin
}

// Exchange makes one request, and answers the challenge to a register.
func (s *tpmSession) Exchange(ctx context.Context, r *provisioning.Request) (*provisioning.Answer, error) {
	limited, cancel := context.WithTimeoutCause(ctx, s.l.Timeout, errSlow)
	defer cancel()
	if r.Operation != "" {
		if err := s.prove(ctx, limited, nil); err != nil {
			return nil, err
		}
		return s.exchange(ctx, limited, r)
	}
	register := *r
	register.Body = s.withKeys(r.Body)
	a, err := s.exchange(ctx, limited, &register)
	if err != nil || a.Status != http.StatusUnauthorized {
		return a, err
	}
	challenge := challengeOf(a.Body)
	if len(challenge) == 0 {
		return a, nil
	}
	if err := s.prove(ctx, limited, challenge); err != nil {
		return nil, err
	}
	return s.exchange(ctx, limited, &register)
}

// prove gets a token for a challenge, or the first one without a challenge.
func (s *tpmSession) prove(ctx, limited context.Context, challenge []byte) error {
	if len(challenge) == 0 && s.token.Text.Reveal() != "" {
		return nil
	}
	token, err := s.t.Prove(limited, challenge)
	switch {
	case err == nil:
		s.token = token
	case limited.Err() != nil:
		return s.failure(ctx, limited, err)
	}
	return err
}

// withKeys returns the body of a register, a JSON object, with the public keys.
func (s *tpmSession) withKeys(body []byte) []byte {
	b := append(bytes.Clone(bytes.TrimSuffix(body, []byte("}"))), `,"tpm":{"endorsementKey":"`...)
	b = base64.StdEncoding.AppendEncode(b, s.t.EndorsementKey)
	b = append(b, `","storageRootKey":"`...)
	b = base64.StdEncoding.AppendEncode(b, s.t.StorageRootKey)
	return append(b, `"}}`...)
}

// challengeOf returns the encrypted key in a challenge; nil if there is none.
func challengeOf(body []byte) []byte {
	var challenge struct {
		AuthenticationKey []byte `json:"authenticationKey"`
	}
	if json.Unmarshal(body, &challenge) != nil {
		return nil
	}
	return challenge.AuthenticationKey
}
