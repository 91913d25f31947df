package amqpfront

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
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
	h := a.hub
	if in := h.Faults.Take(fault.RefuseSASL, hub.Identity{}); in != nil {
		h.Happened(in, a.c)
		a.refused(hub.Identity{}, hub.FaultError(fault.RefuseSASL))
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
		a.refused(hub.Identity{}, err)
		return wire.SASLAuth
	}
	return wire.SASLOK
}

// plain checks [authzid] NUL authcid NUL password, where authcid is "device@sas.hub" or
// "policy@sas.root.hub".
func (a *conn) plain(response string) error {
	part := strings.Split(response, "\x00")
	if len(part) != 3 || part[0] != "" && part[0] != part[1] {
		return errors.New("SASL PLAIN: not a user and a password")
	}
	h := a.hub
	name, _, _ := strings.Cut(h.Host, ".")
	tok, err := hub.ParseToken(part[2])
	if err != nil {
		return fmt.Errorf("SASL PLAIN: %w", err)
	}
	at := strings.LastIndex(part[1], "@sas.")
	switch {
	case at < 0:
		return errors.New("SASL PLAIN: user name without @sas")
	case strings.EqualFold(part[1][at:], "@sas.root."+name):
		if tok.Policy != part[1][:at] {
			return fmt.Errorf("SASL PLAIN: token is not of the policy %q", part[1][:at])
		}
		if err := h.AuthorizePolicy(tok, hubdata.DeviceConnect); err != nil {
			return err
		}
		return a.grant(hub.Identity{}, tok, true)
	case !strings.EqualFold(part[1][at:], "@sas."+name):
		return fmt.Errorf("SASL PLAIN: user name %q is not of this hub", part[1])
	}
	id := hub.SplitIdentity(part[1][:at])
	if err := h.Authorize(h.Host, id, tok); err != nil {
		return err
	}
	a.c.Identify(id)
	return a.grant(id, tok, true)
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
