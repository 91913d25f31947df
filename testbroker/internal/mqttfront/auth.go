package mqttfront

import (
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// AuthMethod is the name of the only method of enhanced authentication. Its data is a secret of
// the device: a key, or a token signed with one. A client that sends none, with CONNECT or with the
// AUTH that begins a re-authentication, gets an AUTH that asks for it.
const AuthMethod = "hubline-token"

// challenge is the data of the AUTH that asks for a secret.
const challenge = "token?"

// beginAuth begins the enhanced authentication of a CONNECT.
func (c *client) beginAuth(method string) error {
	if method != AuthMethod {
		return c.refuse(mqtt.BadAuthMethod, fmt.Errorf("no such authentication method: %q", method), nil)
	}
	return c.authData(c.connect.Properties)
}

// handleAuth handles an AUTH: the answer to a challenge, or the beginning of a re-authentication.
func (c *client) handleAuth(body []byte) error {
	a, err := mqtt.DecodeEnd(c.version, mqtt.Auth<<4, body)
	if err != nil {
		return err
	}
	method, ok := c.connect.Properties.Get(mqtt.AuthMethod)
	began := c.ready.Load()
	switch {
	case !ok:
		return &mqtt.Error{Code: mqtt.ProtocolError, Text: "AUTH on a connection without a method [MQTT-4.12.0-6]"}
	case a.Properties.Text(mqtt.AuthMethod) != method.Text:
		return &mqtt.Error{Code: mqtt.ProtocolError, Text: "AUTH with another method [MQTT-4.12.0-5]"}
	case a.Code == mqtt.ReAuthenticate && !began,
		a.Code != mqtt.ReAuthenticate && a.Code != mqtt.ContinueAuth,
		a.Code == mqtt.ContinueAuth && !c.challenged:
		return &mqtt.Error{Code: mqtt.ProtocolError, Text: fmt.Sprintf("AUTH with code 0x%02x", a.Code)}
	}
	return c.authData(a.Properties)
}

// authData checks the secret that came with a packet, or asks for it.
func (c *client) authData(all mqtt.Properties) error {
	h := c.Hub
	secret, ok := all.Get(mqtt.AuthData)
	if !ok || secret.Text == "" {
		c.challenged = true
		c.auth(mqtt.ContinueAuth, challenge)
		return nil
	}
	c.challenged = false
	if in := c.Fault(fault.SwallowAuth); in != nil {
		return nil
	}
	if in := c.Fault(fault.SlowAuth); in != nil && !c.Sleep(in.Fault.Delay) {
		return hub.FaultError(fault.SlowAuth)
	}
	if in := c.Fault(fault.RefuseAuth); in != nil {
		return c.refuseAuth(in.Fault.Code, hub.FaultError(fault.RefuseAuth), &in.Fault)
	}
	if err := h.Known(c.ID); err != nil {
		return c.refuseAuth(mqtt.NotAuthorized, err, nil)
	}
	if _, err := c.checkSecret(c.ID, secret.Text); err != nil {
		return c.refuseAuth(mqtt.NotAuthorized, err, nil)
	}
	if !c.ready.Load() {
		return c.accept()
	}
	c.front.mu.Lock()
	c.session.seen.Authentications++
	c.front.mu.Unlock()
	c.renew()
	c.auth(mqtt.Success, "")
	h.Changed.Wake()
	return nil
}

func (c *client) auth(code byte, data string) {
	all := mqtt.Properties{{ID: mqtt.AuthMethod, Text: AuthMethod}}
	if data != "" {
		all = append(all, mqtt.Property{ID: mqtt.AuthData, Text: data})
	}
	c.Write(mqtt.EncodeEnd(mqtt.Auth, mqtt.EndPacket{Code: code, Properties: all}))
}

// refuseAuth refuses an authentication by CONNACK, a re-authentication by DISCONNECT.
func (c *client) refuseAuth(code byte, why error, about *fault.Fault) error {
	if !c.ready.Load() {
		return c.refuse(code, why, about)
	}
	c.end(code, why, about)
	return nil
}

// renew moves the end of the connection to the expiry of its new token.
func (c *client) renew() {
	if c.expiry != nil {
		c.expiry.Stop()
		c.expiry = nil
	}
	if !c.until.IsZero() {
		c.expiry = time.AfterFunc(c.until.Sub(c.Hub.Now()), c.expire)
	}
}
