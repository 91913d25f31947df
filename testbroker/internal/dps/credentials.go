package dps

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// A Client is a device as a front knows it: what it states, and its credentials. The service checks
// the credentials with each request, because enrollments may change meanwhile.
type Client struct {
	ID         string // registration id as sent
	APIVersion string
	Protocol   hubdata.Protocol
	Connection uint64
	Token      *identity.Token // nil = none
	Chain      []*x509.Certificate
	TPM        *TPM // nil = none, or not known yet
}

// Identity returns what faults select the client by.
func (c *Client) Identity() identity.Identity { return identity.Identity{Device: c.ID} }

// CheckStated checks what a client states before its credentials.
func (s *Service) CheckStated(scope string, c *Client) *Error {
	if bad := s.CheckVersion(c); bad != nil {
		return bad
	}
	return s.CheckIdentity(scope, c)
}

// CheckVersion is the part of CheckStated about the API version.
func (s *Service) CheckVersion(c *Client) *Error {
	_, bad := FindVersion(c.APIVersion)
	return bad
}

// CheckIdentity is the part of CheckStated about scope and registration id.
func (s *Service) CheckIdentity(scope string, c *Client) *Error {
	if err := CheckID(c.ID); err != nil {
		return Errorf(CodeBadRequest, "%v", err)
	}
	if !strings.EqualFold(scope, s.Scope) {
		return Errorf(CodeNotEnrolled, "id scope %q is not of this service", scope)
	}
	return nil
}

// A match is an enrollment that attests a client, and what the client's device gets at its hub.
type match struct {
	enrollment *enrollment
	data       dpsdata.Enrollment
	keys       identity.KeyPair // empty with certificates
	leaf       *x509.Certificate
	activation []byte // the key for the hub, encrypted for the TPM; nil = none
}

// Authenticate checks the credentials of a client.
func (s *Service) Authenticate(c *Client) *Error {
	_, err := s.match(c)
	return err
}

// match returns the enrollment of a client. An individual enrollment comes before groups.
func (s *Service) match(c *Client) (*match, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	candidates := s.groups
	if own := s.enrollments[fold(c.ID)]; own != nil && !own.data.Group {
		candidates = []*enrollment{own}
	}
	if c.Token != nil {
		if err := s.checkToken(c); err != nil {
			return nil, Errorf(CodeUnauthorized, "%v", err)
		}
	}
	if c.Token == nil && len(c.Chain) == 0 {
		return nil, Errorf(CodeUnauthorized, "neither a token nor a certificate")
	}
	why := error(nil)
	for _, e := range candidates {
		var m *match
		var err error
		switch attests := len(e.data.Certificates) > 0; {
		case c.Token != nil && !attests:
			m, err = withToken(e.data, c)
		case c.Token == nil && attests:
			m, err = s.withCertificate(e.data, c)
		case !e.data.Group:
			err = errors.New("credentials are of another kind than the enrollment's")
		default:
			continue
		}
		if err == nil {
			m.enrollment, m.data = e, e.data
			return m, nil
		}
		why = err
	}
	if why == nil {
		return nil, Errorf(CodeNotEnrolled, "registration id %q is not enrolled", c.ID)
	}
	return nil, Errorf(CodeUnauthorized, "%v", why)
}

// checkToken checks what a token states besides its signature: time and resource. The resource may
// be percent-encoded in either letter case, or not at all.
func (s *Service) checkToken(c *Client) error {
	now := s.Net.Now()
	if end := c.Token.Deadline(s.o.TokenGrace); now.After(end) {
		return fmt.Errorf("token expired at %s, it is %s", c.Token.Deadline(0).UTC().Format(time.RFC3339),
			now.UTC().Format(time.RFC3339))
	}
	resource, err := url.PathUnescape(c.Token.Resource)
	if err != nil || !strings.EqualFold(resource, s.Scope+"/registrations/"+c.ID) {
		return fmt.Errorf("token is for %q, want %s/registrations/%s", c.Token.Resource, s.Scope, c.ID)
	}
	return nil
}

// withToken checks the signature. Clients derive the key of a device in a group from the
// registration id as they send it, or in lower case as the service's documents say.
func withToken(e dpsdata.Enrollment, c *Client) (*match, error) {
	if e.EndorsementKey != nil && c.Protocol == hubdata.MQTT {
		return nil, errors.New("a TPM registers over HTTPS or AMQP")
	}
	own := identity.KeyPair{Primary: e.PrimaryKey, Secondary: e.SecondaryKey}
	candidates := []identity.KeyPair{own}
	if e.Group {
		candidates = nil
		for _, id := range []string{c.ID, fold(c.ID)} {
			candidates = append(candidates, identity.KeyPair{
				Primary: dpsdata.DeriveKey(own.Primary, id), Secondary: dpsdata.DeriveKey(own.Secondary, id),
			})
		}
	}
	for _, keys := range candidates {
		if c.Token.SignedBy(keys) {
			return &match{keys: keys}, nil
		}
	}
	return nil, errors.New("token is signed with another key")
}

// withCertificate checks the certificate that the client presented, and its chain.
func (s *Service) withCertificate(e dpsdata.Enrollment, c *Client) (*match, error) {
	leaf, now := c.Chain[0], s.Net.Now()
	switch name := leaf.Subject.CommonName; {
	case !strings.EqualFold(name, c.ID):
		return nil, fmt.Errorf("certificate is for %q", name)
	case now.Before(leaf.NotBefore), now.After(leaf.NotAfter):
		return nil, fmt.Errorf("certificate is valid from %s to %s, it is %s", leaf.NotBefore, leaf.NotAfter, now.UTC())
	}
	roots := x509.NewCertPool()
	for _, cert := range e.Certificates {
		if cert.Equal(leaf) && !e.Group {
			return &match{leaf: leaf}, nil
		}
		if cert.IsCA {
			roots.AddCert(cert)
		}
	}
	if err := hub.VerifyChain(c.Chain, roots, now); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return &match{leaf: leaf}, nil
}
