package mqttfront

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"
)

// plain is the dialect of a plain broker: devices have topics of a template, over MQTT 3.1.1 or 5.
type plain struct{ *Front }

func (plain) speaks(level byte) bool { return level == mqtt.V311 || level == mqtt.V5 }

// identify takes the identity from the user name, or from the client id if all share a password or
// there is no user name.
func (p plain) identify(_ *client, k *mqtt.ConnectPacket) (identity.Identity, byte, error) {
	name, what := k.UserName, "user name"
	if name == "" || p.options.Password != "" {
		name, what = k.ClientID, "client id"
	}
	id := identity.SplitIdentity(name)
	err := identity.CheckID("device", id.Device)
	if err == nil && strings.Contains(name, "/") {
		err = identity.CheckID("module", id.Module)
	}
	switch {
	case err != nil:
		return identity.Identity{}, mqtt.ClientIDNotValid, fmt.Errorf("%s %q names no device: %w", what, name, err)
	case !mqtt.ValidName(name):
		return identity.Identity{}, mqtt.ClientIDNotValid, fmt.Errorf("%s %q has wildcards of topics", what, name)
	case k.HasPass && !k.HasUser && k.Level == mqtt.V311:
		return id, mqtt.BadCredentials, errors.New("password without a user name [MQTT-3.1.2-22]")
	case k.ClientID == "" && k.Level == mqtt.V311 && !k.Clean:
		return id, mqtt.ClientIDNotValid, errors.New("empty client id with CleanSession=0 [MQTT-3.1.3-8]")
	}
	return id, 0, nil
}

// authenticate checks the password, or without one the certificate.
func (p plain) authenticate(c *client, k *mqtt.ConnectPacket) (code byte, err error) {
	h, id := p.hub, c.ID
	if err := h.Known(id); err != nil {
		return mqtt.NotAuthorized, err
	}
	if k.HasPass {
		if want := p.options.Password; want != "" {
			if subtle.ConstantTimeCompare([]byte(want), []byte(k.Password)) != 1 {
				return mqtt.BadCredentials, errors.New("another password")
			}
			return 0, nil
		}
		return c.checkSecret(id, k.Password)
	}
	chain := c.PeerChain()
	if len(chain) == 0 && p.options.Anonymous {
		return 0, nil
	}
	if len(chain) == 0 {
		return mqtt.BadCredentials, errors.New("neither a password nor a certificate")
	}
	return mqtt.NotAuthorized, h.Certified(h.Host, id, chain)
}

// checkSecret checks a key of an identity, or a token that one of its keys has signed.
func (c *client) checkSecret(id identity.Identity, secret string) (code byte, err error) {
	h := c.Hub
	if strings.HasPrefix(secret, "SharedAccessSignature ") {
		tok, err := identity.ParseToken(secret)
		if err != nil {
			return mqtt.BadCredentials, err
		}
		if err := h.Authorize(h.Host, id, tok); err != nil {
			return mqtt.NotAuthorized, err
		}
		c.until = tok.Deadline(h.ConnectionGrace)
		return 0, nil
	}
	r, _, _ := h.Registration(id)
	for _, key := range [...]string{r.Keys.Primary, r.Keys.Secondary} {
		if key != "" && subtle.ConstantTimeCompare([]byte(key), []byte(secret)) == 1 {
			c.until = time.Time{}
			return 0, nil
		}
	}
	return mqtt.BadCredentials, errors.New("password is no key of the device")
}

func (p plain) will(c *client, w *mqtt.PublishPacket) (m hubdata.Message, code byte, err error) {
	switch {
	case w.QoS > 1:
		return m, mqtt.NotAuthorized, fmt.Errorf("will with QoS %d", w.QoS)
	case !p.options.mayPublish(c.ID, w.Topic):
		return m, mqtt.NotAuthorized, fmt.Errorf("%s may not publish its will to %q", c.ID, w.Topic)
	}
	m = messageOf(c, w)
	m.Will = true
	return m, 0, nil
}

func (plain) joined(*client) {}

func (p plain) keepAlive(k *mqtt.ConnectPacket) time.Duration {
	if own := p.options.KeepAlive; own > 0 && k.Level == mqtt.V5 {
		return own
	}
	return time.Duration(k.KeepAlive) * time.Second
}

func (p plain) mayReceive(c *client, f mqtt.Filter, all mqtt.Properties) (code byte, why string) {
	o := p.options
	plain, shared, ok := mqtt.Unshare(f.Name)
	_, numbered := all.Get(mqtt.SubscriptionID)
	switch {
	case !ok || !mqtt.ValidFilter(plain):
		return mqtt.FilterInvalid, fmt.Sprintf("%q is no topic filter", f.Name)
	case shared && (o.NoShared || f.NoLocal):
		return mqtt.SharedNotSupported, "no shared subscriptions"
	case numbered && o.NoSubscriptionIDs:
		return mqtt.SubIDsNotSupported, "no subscription identifiers"
	case !mqtt.ValidName(plain) && o.NoWildcards:
		return mqtt.WildcardsNotSupported, "no wildcards"
	case !o.maySubscribe(c.ID, plain):
		return mqtt.NotAuthorized, fmt.Sprintf("%s may not subscribe to %q", c.ID, f.Name)
	case o.AtMostOnce:
		return 0, ""
	}
	return f.QoS, ""
}

// published takes the messages of a device on its topics. Others are refused.
func (p plain) published(c *client, k *mqtt.PublishPacket) error {
	m := messageOf(c, k)
	switch n := telemetry.SizeOf(&m); {
	case !p.options.mayPublish(c.ID, k.Topic):
		return c.reject(&m, mqtt.NotAuthorized, fmt.Sprintf("%s may not publish to %q", c.ID, k.Topic))
	case k.Properties.Number(mqtt.PayloadFormat, 0) == 1 && !utf8.Valid(k.Payload):
		return c.reject(&m, mqtt.PayloadFormatInvalid, "payload is not text")
	case n > hubdata.MaxMessage:
		return &mqtt.Error{Code: mqtt.PacketTooLarge, Text: fmt.Sprintf("message of %d bytes, at most %d are allowed", n,
			hubdata.MaxMessage)}
	}
	c.publish(m)
	return nil
}

func (plain) methodTarget(*client, string) hub.MethodTarget { return nil }

func (plain) desiredListener(*client) hub.DesiredListener { return nil }
