package provisioning

import (
	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// Assignment is the result of a registration.
type Assignment struct {
	// Hub is the host name of the assigned hub.
	Hub string
	// DeviceID is the device's id at the hub. It may differ from the registration id.
	DeviceID string
	// ConnectionProfile is the kind of the hub in the service's words, "classic" or "mqttV5" in any
	// letter case. Empty: the service told none, which means classic. MQTTv5 compares it.
	ConnectionProfile string
	// Substatus says what the service did, in its words: "initialAssignment", "deviceDataMigrated",
	// "deviceDataReset", "reprovisionedToInitialAssignment", or one that is not known yet.
	Substatus string
	// Payload is the JSON that the allocation function of the back end returned; nil if there is none.
	Payload []byte
	// Chain is the certificate chain that was issued for Options.CSR, leaf first, each in DER; nil if
	// there is none.
	Chain [][]byte
	// SecondKey: the service accepted the key of Identity.SecondSign, after it refused the first.
	SecondKey bool
}

// MQTTv5 reports whether the hub has the connection profile mqttV5: it takes MQTT 5 and
// certificates only, and speaks another dialect than a classic hub. See package
// transport/mqtt/nexthub.
func (a *Assignment) MQTTv5() bool {
	return texts.EqualFold(a.ConnectionProfile, nextwire.ProfileMQTTv5)
}

// DataReset reports whether the twin at the hub began anew.
func (a *Assignment) DataReset() bool { return texts.EqualFold(a.Substatus, "deviceDataReset") }

// Credentials returns the credentials for the assigned hub, with the key that the service accepted.
// With an issued certificate, for a hub of the profile mqttV5, or without keys, they have no Sign:
// the certificate in the options of the transport proves the identity. Their clock is the
// Identity's, corrected by the service's as far as the carrier knows it (Timekeeper).
func (c *Client) Credentials(a *Assignment) *transport.Credentials {
	creds := &transport.Credentials{Host: a.Hub, DeviceID: a.DeviceID, Now: c.id.Now, Earliest: c.id.Earliest}
	if c.keeper != nil {
		creds.Now = c.now
	}
	if len(a.Chain) == 0 && !a.MQTTv5() {
		creds.Sign = c.id.signer(a.SecondKey)
	}
	return creds
}

// Registration returns "SCOPE/registrations/ID", which names the registration.
func (c *Client) Registration() string { return c.id.resource() }

// Login returns credentials that name the service and the registration id, for a client whose
// transport finds out the hub: see package dpstransport.
func (c *Client) Login() *transport.Credentials {
	return &transport.Credentials{Host: c.id.Endpoint, DeviceID: c.id.RegistrationID, Sign: c.id.Sign, Now: c.id.Now,
		Earliest: c.id.Earliest}
}
