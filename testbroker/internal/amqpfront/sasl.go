package amqpfront

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// Mechanisms returns the mechanisms of the hub.
func (a *conn) Mechanisms() []wire.Symbol {
	var all []wire.Symbol
	for _, m := range a.hub.AMQP.Mechanisms {
		all = append(all, wire.Symbol(m))
	}
	return all
}

// Authenticate checks the response for the chosen mechanism.
func (a *conn) Authenticate(mechanism wire.Symbol, response []byte) uint8 {
	if in := a.hub.Strike(fault.RefuseSASL, identity.Identity{}, a.c, nil); in != nil {
		a.refused(identity.Identity{}, hub.FaultError(fault.RefuseSASL))
		return in.Fault.Code
	}
	var err error
	switch mechanism {
	case "PLAIN":
		err = a.plain(string(response))
	case "EXTERNAL":
		err = a.external(string(response))
	default: // the others need no check
	}
	if err != nil {
		a.c.SetCause(err)
		a.refused(identity.Identity{}, err)
		return wire.SASLAuth
	}
	return wire.SASLOK
}

// plain checks [authzid] NUL authcid NUL password. A device or module has the name "device@sas.hub"
// and a token, a policy the name "policy@sas.root.hub" or "policy" and a token or its key.
func (a *conn) plain(response string) error {
	part := strings.Split(response, "\x00")
	if len(part) != 3 || part[0] != "" && part[0] != part[1] {
		return errors.New("SASL PLAIN: not a user and a password")
	}
	name, _, _ := strings.Cut(a.hub.Host, ".")
	user, at := part[1], ""
	if i := strings.LastIndex(user, "@sas."); i >= 0 {
		user, at = user[:i], user[i:]
	}
	switch {
	case at == "", strings.EqualFold(at, "@sas.root."+name):
		return a.plainPolicy(user, part[2])
	case !strings.EqualFold(at, "@sas."+name):
		return fmt.Errorf("SASL PLAIN: user name %q is not of this hub", part[1])
	}
	tok, err := identity.ParseToken(part[2])
	if err != nil {
		return fmt.Errorf("SASL PLAIN: %w", err)
	}
	s := scope{id: identity.SplitIdentity(user)}
	if err := a.accept(s, tok, true); err != nil {
		return err
	}
	a.c.Identify(s.id)
	return nil
}

// plainPolicy checks the password of a policy: a token with its name, or one of its keys. The token
// of a device names no policy, and is refused here.
func (a *conn) plainPolicy(policy, password string) error {
	if policy == "" {
		return errors.New("SASL PLAIN: no user name; use policy@sas.root.hub or device@sas.hub")
	}
	if !identity.IsToken(password) {
		rights, err := a.hub.KeyRights(policy, password)
		if err != nil {
			return fmt.Errorf("SASL PLAIN: %w", err)
		}
		return a.grant(scope{policy: policy}, rights, time.Time{}, true)
	}
	tok, err := identity.ParseToken(password)
	if err != nil {
		return fmt.Errorf("SASL PLAIN: %w", err)
	}
	if tok.Policy != policy {
		return fmt.Errorf("SASL PLAIN: token is not of the policy %q", policy)
	}
	s, err := a.front.scopeOf(tok)
	if err != nil {
		return fmt.Errorf("SASL PLAIN: %w", err)
	}
	return a.accept(s, tok, true)
}

// external checks whether the client's certificate is that of any device, or of the device that the
// response names. The rights of the certificate are checked when a link is attached.
func (a *conn) external(response string) error {
	chain := a.chain()
	if len(chain) == 0 {
		return errors.New("SASL EXTERNAL: no certificate")
	}
	if !a.hub.CertifiesAny(response, chain) {
		return errors.New("SASL EXTERNAL: certificate is of no device")
	}
	return nil
}

// chain returns the client's certificates.
func (a *conn) chain() []*x509.Certificate {
	if a.c.TLS == nil {
		return nil
	}
	return a.c.TLS.ConnectionState().PeerCertificates
}
