package testbroker

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// Mechanisms returns all that the service has.
func (a *amqpConn) Mechanisms() []wire.Symbol {
	return []wire.Symbol{"MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"}
}

// Authenticate judges a choice of mechanism.
func (a *amqpConn) Authenticate(mechanism wire.Symbol, response []byte) uint8 {
	h := a.hub
	if in := h.faults.take(RefuseSASL, identity{}); in != nil {
		h.happened(in, a.c)
		a.refused(identity{}, faultError(RefuseSASL))
		return in.fault.Code
	}
	var err error
	switch mechanism {
	case "PLAIN":
		err = a.plain(string(response))
	case "EXTERNAL":
		err = a.external(string(response))
	}
	if err != nil {
		a.c.blame(err)
		a.refused(identity{}, err)
		return wire.SASLAuth
	}
	return wire.SASLOK
}

// plain reads [authzid] NUL authcid NUL password, with "device@sas.hub" or "policy@sas.root.hub"
// for authcid.
func (a *amqpConn) plain(response string) error {
	part := strings.Split(response, "\x00")
	if len(part) != 3 || part[0] != "" && part[0] != part[1] {
		return errors.New("SASL PLAIN: not a user and a password")
	}
	h := a.hub
	name, _, _ := strings.Cut(h.host, ".")
	tok, err := parseToken(part[2])
	if err != nil {
		return fmt.Errorf("SASL PLAIN: %w", err)
	}
	at := strings.LastIndex(part[1], "@sas.")
	switch {
	case at < 0:
		return errors.New("SASL PLAIN: user name without @sas")
	case strings.EqualFold(part[1][at:], "@sas.root."+name):
		if tok.policy != part[1][:at] {
			return fmt.Errorf("SASL PLAIN: token is not of the policy %q", part[1][:at])
		}
		h.mu.Lock()
		err = h.authorizePolicyLocked(tok, DeviceConnect)
		h.mu.Unlock()
		if err != nil {
			return err
		}
		return a.grant(identity{}, tok, true)
	case !strings.EqualFold(part[1][at:], "@sas."+name):
		return fmt.Errorf("SASL PLAIN: user name %q is not of this hub", part[1])
	}
	id := splitIdentity(part[1][:at])
	h.mu.Lock()
	err = h.authorizeLocked(h.host, id, tok)
	if err == nil {
		a.c.id = id
	}
	h.mu.Unlock()
	if err != nil {
		return err
	}
	return a.grant(id, tok, true)
}

// external finds out whether the client's certificate is that of any device, or of the one that it
// names. For what it may be used is looked at when a link is attached.
func (a *amqpConn) external(response string) error {
	chain := a.chain()
	if len(chain) == 0 {
		return errors.New("SASL EXTERNAL: no certificate")
	}
	h := a.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	err := errors.New("SASL EXTERNAL: certificate is of no device")
	for id, entry := range h.registry {
		if entry.x509 && (response == "" || response == id.String()) && h.certifiedLocked(h.host, id,
			chain) == nil {
			return nil
		}
	}
	return err
}

// chain returns the client's certificates.
func (a *amqpConn) chain() []*x509.Certificate {
	if a.c.tls == nil {
		return nil
	}
	return a.c.tls.ConnectionState().PeerCertificates
}
