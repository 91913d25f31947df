package provisioning

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// GlobalEndpoint is the host name of the public service.
const GlobalEndpoint = "global.azure-devices-provisioning.net"

// Identity names a device to the service, and signs its tokens. Like transport.Credentials it holds
// no key as plain data.
type Identity struct {
	// Endpoint is the service's host name, without port. Empty: GlobalEndpoint.
	Endpoint string
	// IDScope names the instance of the service, such as "0ne00ABCDEF".
	IDScope string
	// RegistrationID is the device's name: 1 to 128 ASCII letters, digits and "-._:", the last one a
	// letter, a digit or "-". It is used as given, also in derived keys. With a certificate it is the
	// certificate's common name.
	RegistrationID string

	// Sign computes the HMAC-SHA256 of text under the device's key. transport.SharedKey and GroupKey
	// make one. Nil: the certificate in the options of the carrier proves the identity.
	Sign func(ctx context.Context, text []byte) (mac []byte, err error)
	// SecondSign is the same for the enrollment's other key, which is tried when the service refuses
	// the first. Nil: there is none.
	SecondSign func(ctx context.Context, text []byte) (mac []byte, err error)
	// TPM attests the device instead of a key or a certificate, at the service and at the hub. Sign is
	// nil then, and the carrier is a TPMCarrier: the service has no attestation of a TPM over MQTT.
	// Boards built with TinyGo ignore it. Nil: there is none.
	TPM TPM
	// TokenLife is how long a token is valid. At least 5 minutes. 0: one hour.
	TokenLife time.Duration

	// Now and Earliest are those of transport.Credentials.
	Now      func() time.Time
	Earliest time.Time
}

const (
	defaultTokenLife = time.Hour
	minTokenLife     = 5 * time.Minute
	maxID            = 128
	maxHost          = 255
)

// Validate returns an *transport.Error of Kind Invalid for the first field that is missing or
// malformed.
func (id *Identity) Validate() error {
	switch {
	case id.Endpoint != "" && !consistsOf(id.Endpoint, "-_.", maxHost):
		return invalid("Endpoint " + texts.Quote(id.Endpoint) + " is not a host name" +
			hint("; give it without scheme and port, or leave it empty for "+GlobalEndpoint))
	case id.IDScope == "":
		return invalid("IDScope is empty" + hint("; copy it from the overview of the provisioning service"))
	case !consistsOf(id.IDScope, "-_.", maxID):
		return invalid("IDScope " + texts.Quote(id.IDScope) + " is not an ID scope" +
			hint("; give one such as \"0ne00ABCDEF\""))
	case id.RegistrationID == "":
		return invalid("RegistrationID is empty" + hint("; give the device's registration id"))
	case !validRegistrationID(id.RegistrationID):
		return invalid("RegistrationID " + texts.Quote(id.RegistrationID) + registrationIDRule)
	case id.Sign == nil && id.SecondSign != nil:
		return invalid("SecondSign is set without Sign" + hint("; set Sign first"))
	case id.TokenLife != 0 && id.TokenLife < minTokenLife:
		return invalid("TokenLife is less than 5m0s" + hint("; give that at least, or 0 for 1h0m0s"))
	}
	return id.checkTPM()
}

var registrationIDRule = " is not a registration id" +
	hint("; use 1 to 128 ASCII letters, digits and - . _ : and end with a letter, a digit or -")

func validRegistrationID(id string) bool {
	if !consistsOf(id, "-._:", maxID) {
		return false
	}
	last := id[len(id)-1]
	return last != '.' && last != '_' && last != ':'
}

// consistsOf reports whether s has 1 to most bytes, all ASCII letters, digits or in others.
func consistsOf(s, others string, most int) bool {
	if s == "" || len(s) > most {
		return false
	}
next:
	for i := 0; i < len(s); i++ {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' {
			continue
		}
		for j := 0; j < len(others); j++ {
			if others[j] == c {
				continue next
			}
		}
		return false
	}
	return true
}

func invalid(text string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpRegister, Err: errors.New(text)}
}

// resolved returns a copy with the defaults in place.
func (id *Identity) resolved() Identity {
	own := *id
	if own.Endpoint == "" {
		own.Endpoint = GlobalEndpoint
	}
	if own.TokenLife == 0 {
		own.TokenLife = defaultTokenLife
	}
	own.useTPM()
	return own
}

// resource returns what tokens are about; transport.SignToken percent-encodes it.
func (id *Identity) resource() string { return id.IDScope + "/registrations/" + id.RegistrationID }

// signer returns the key with this number.
func (id *Identity) signer(second bool) func(context.Context, []byte) ([]byte, error) {
	if second {
		return id.SecondSign
	}
	return id.Sign
}

// DeriveKey derives the key of one device from the key of its enrollment group. Both keys are in
// base64. registrationID is used as given. A factory that gives the derived key to the device keeps
// the group key out of the field. The error, of Kind Invalid, does not contain the key.
//
// Source: "Symmetric key attestation" of the provisioning service: the HMAC-SHA256 of the
// registration id under the group key.
func DeriveKey(groupKey, registrationID string) (string, error) {
	if !validRegistrationID(registrationID) {
		return "", invalid("RegistrationID " + texts.Quote(registrationID) + registrationIDRule)
	}
	key, err := base64.StdEncoding.DecodeString(groupKey)
	if err != nil || len(key) == 0 {
		return "", invalid("the group key is not base64; copy it whole, with its '=' at the end")
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(registrationID))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil)), nil
}

// GroupKey returns a signer for Identity.Sign with the key that DeriveKey derives.
func GroupKey(groupKey, registrationID string) (func(ctx context.Context, text []byte) ([]byte, error), error) {
	key, err := DeriveKey(groupKey, registrationID)
	if err != nil {
		return nil, err
	}
	return transport.SharedKey(key)
}
