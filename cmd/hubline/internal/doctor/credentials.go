package doctor

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

const (
	keyBytes   = 32 // of the keys that the service makes
	tokenSoon  = 24 * time.Hour
	certsSoon  = 14 * 24 * time.Hour
	keyPattern = "sharedaccesskey="
)

// runCredentials checks what proves the identity, without a connection.
func runCredentials(ctx context.Context, p *Probe, _ subject) []Row {
	ctx, cancel := p.limit(ctx)
	defer cancel()
	if p.Target.Network.Certificate != nil {
		return p.certificate(ctx)
	}
	c := p.Target.Creds
	switch {
	case p.Target.Identity != nil:
		return keyRow(keyLength(p.Target.Key.Text.Reveal()))
	case c.Sign == nil && c.Token == nil && p.Target.URL != nil:
		return []Row{{Mark: OK, Figure: "none in the URL", Hint: "the URL has no user name and password, so the broker has " +
			"to take every client"}}
	case c.Sign == nil && c.Token == nil:
		return wrong(transport.Invalid, "no proof of identity", "the connection string says x509=true: give -cert "+
			"and -cert-key")
	}
	token, err := c.NewToken(ctx)
	if err != nil && !p.implausible() {
		return bad(err)
	}
	switch {
	case p.Target.URL != nil:
		return fine("user name and password")
	case c.Sign != nil:
		return keyRow(keyLength(p.Target.Key.Text.Reveal()))
	}
	left := token.Expires.Sub(p.now())
	figure := "token until " + token.Expires.UTC().Format(stamp)
	if left < tokenSoon {
		return warn(figure, "it expires in "+took(left)+" and cannot be renewed; put a key into the connection string, or "+
			"get a new token")
	}
	return fine(figure)
}

// keyLength returns the length of the key in a connection string, or of the text itself, in bytes.
func keyLength(text string) int {
	if i := strings.Index(strings.ToLower(text), keyPattern); i >= 0 {
		text, _, _ = strings.Cut(text[i+len(keyPattern):], ";")
	}
	key, err := base64.StdEncoding.DecodeString(strings.Trim(text, "\"' \t\r\n"))
	if err != nil {
		return 0
	}
	return len(key)
}

func keyRow(n int) []Row {
	figure := fmt.Sprintf("key of %d bytes", n)
	if n < keyBytes {
		return warn(figure, fmt.Sprintf("shorter than the %d bytes of the service's own keys, so easier to guess; make "+
			"a new one", keyBytes))
	}
	return fine(figure)
}

// certificate checks the device's certificate.
func (p *Probe) certificate(ctx context.Context) []Row {
	pair, err := p.Target.Network.Certificate(ctx)
	if err != nil {
		return bad(err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return bad(err)
	}
	now := p.now()
	figure := fmt.Sprintf("certificate %q until %s", leaf.Subject.CommonName, leaf.NotAfter.UTC().Format(stamp))
	switch {
	case p.implausible():
		return warn(figure, "its dates cannot be checked while the clock is not set")
	case now.After(leaf.NotAfter):
		return wrong(transport.Unauthorized, figure, "it has expired: the hub refuses it; get a new one")
	case now.Before(leaf.NotBefore):
		return wrong(transport.Unauthorized, figure, "it is valid from "+leaf.NotBefore.UTC().Format(stamp)+
			" on: wait, or set the clock")
	case p.misnamed(leaf.Subject.CommonName) != "":
		return warn(figure, p.misnamed(leaf.Subject.CommonName))
	case leaf.NotAfter.Sub(now) < certsSoon:
		return warn(figure, "it expires in "+took(leaf.NotAfter.Sub(now))+"; renew it")
	}
	return fine(figure)
}

// misnamed returns what is wrong with the common name of the device's certificate; empty: nothing.
func (p *Probe) misnamed(name string) string {
	switch c, id := p.Target.Creds, p.Target.Identity; {
	case id != nil && !strings.EqualFold(name, id.RegistrationID):
		return fmt.Sprintf("the registration id is %q: the provisioning service refuses a certificate with another common "+
			"name; correct -registration-id, or get a certificate for that name", id.RegistrationID)
	case id == nil && c.DeviceID != "" && name != c.DeviceID:
		return fmt.Sprintf("the device is %q: a hub that checks by authority refuses another common name", c.DeviceID)
	}
	return ""
}
