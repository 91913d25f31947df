package brokerfront

import (
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// connackCodes are the CONNACK codes of MQTT 3.1.1 for the reason codes that have one
// [MQTT-3.2.2.3].
var connackCodes = map[byte]byte{
	mqtt.UnsupportedVersion: 1, mqtt.ClientIDNotValid: 2, mqtt.ServerUnavailable: 3, mqtt.BadCredentials: 4,
	mqtt.NotAuthorized: 5,
}

// connackCode returns a reason code as the client's version has it. The codes of MQTT 3.1.1, as
// faults for the service name them, become those of MQTT 5.
func connackCode(version, code byte) byte {
	for v5, v311 := range connackCodes {
		switch {
		case version == mqtt.V5 && code == v311:
			return v5
		case version != mqtt.V5 && code == v5:
			return v311
		}
	}
	return code
}

// handleConnect handles a CONNECT. An error ends the connection.
func (c *client) handleConnect(body []byte) error {
	if c.connect != nil {
		return &mqtt.Error{Code: mqtt.ProtocolError, Text: "second CONNECT [MQTT-3.1.0-2]"}
	}
	k, err := mqtt.DecodeConnect(body)
	c.connect = k
	switch {
	case k.Name != "MQTT" && k.Name != "MQIsdp":
		return fmt.Errorf("protocol %q", k.Name)
	case k.Name != "MQTT" || k.Level != mqtt.V311 && k.Level != mqtt.V5:
		why := fmt.Errorf("protocol %s level %d, want MQTT 4 or 5", k.Name, k.Level)
		if k.Level > mqtt.V5 {
			c.version = mqtt.V5
		}
		return c.refuse(mqtt.UnsupportedVersion, why, nil)
	}
	c.version = k.Level
	c.limit = k.Properties.Number(mqtt.MaximumPacketSize, 0)
	c.window = min(int(k.Properties.Number(mqtt.ReceiveMaximum, 1<<16-1)), c.Hub.C2D.Window)
	c.silent = k.Properties.Number(mqtt.RequestProblemInfo, 1) == 0
	var wrong *mqtt.Error
	if errors.As(err, &wrong) && c.version == mqtt.V5 {
		return c.refuse(wrong.Code, err, nil)
	}
	if err != nil {
		return err
	}
	id, err := c.front.identify(k)
	c.Identify(id)
	if fail := c.connectFaults(id); fail != nil {
		return fail
	}
	if err != nil {
		return c.refuse(mqtt.ClientIDNotValid, err, nil)
	}
	if err := c.front.checkWill(id, k); err != nil {
		return c.refuse(mqtt.NotAuthorized, err, nil)
	}
	if method, ok := k.Properties.Get(mqtt.AuthMethod); ok {
		return c.beginAuth(method.Text)
	}
	if code, err := c.authenticate(id, k); err != nil {
		return c.refuse(code, err, nil)
	}
	return c.accept()
}

// identify returns the identity that a CONNECT states: by its user name, or by its client id if
// all share a password or it has no user name.
func (f *Front) identify(k *mqtt.ConnectPacket) (hub.Identity, error) {
	name, what := k.UserName, "user name"
	if name == "" || f.options.Password != "" {
		name, what = k.ClientID, "client id"
	}
	id := hub.SplitIdentity(name)
	err := hub.CheckID("device", id.Device)
	if err == nil && strings.Contains(name, "/") {
		err = hub.CheckID("module", id.Module)
	}
	switch {
	case err != nil:
		return hub.Identity{}, fmt.Errorf("%s %q names no device: %w", what, name, err)
	case !mqtt.ValidName(name):
		return hub.Identity{}, fmt.Errorf("%s %q has wildcards of topics", what, name)
	case k.ClientID == "" && k.Level == mqtt.V311 && !k.Clean:
		return id, errors.New("empty client id with CleanSession=0 [MQTT-3.1.3-8]")
	}
	return id, nil
}

// authenticate checks the credentials of a client: its password, or without one its certificate.
// code is the reason code of a refusal.
func (c *client) authenticate(id hub.Identity, k *mqtt.ConnectPacket) (code byte, err error) {
	h := c.Hub
	if err := h.Known(id); err != nil {
		return mqtt.NotAuthorized, err
	}
	if k.HasPass {
		if want := c.front.options.Password; want != "" {
			if subtle.ConstantTimeCompare([]byte(want), []byte(k.Password)) != 1 {
				return mqtt.BadCredentials, errors.New("another password")
			}
			return 0, nil
		}
		return c.checkSecret(id, k.Password)
	}
	var chain []*x509.Certificate
	if c.TLS != nil {
		chain = c.TLS.ConnectionState().PeerCertificates
	}
	if len(chain) == 0 && c.front.options.Anonymous {
		return 0, nil
	}
	if len(chain) == 0 {
		return mqtt.BadCredentials, errors.New("neither a password nor a certificate")
	}
	return mqtt.NotAuthorized, h.Certified(h.Host, id, chain)
}

// checkSecret checks a key of an identity, or a token that one of its keys has signed.
func (c *client) checkSecret(id hub.Identity, secret string) (code byte, err error) {
	h := c.Hub
	if strings.HasPrefix(secret, "SharedAccessSignature ") {
		tok, err := hub.ParseToken(secret)
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

// connectFaults applies the faults of a CONNECT. An error ends the connection.
func (c *client) connectFaults(id hub.Identity) error {
	h := c.Hub
	if err := c.ConnectFaults(id); err != nil {
		return err
	}
	if in := h.Faults.Take(fault.RefuseConnect, id); in != nil {
		h.Happened(in, c.Conn)
		return c.refuse(in.Fault.Code, hub.FaultError(fault.RefuseConnect), &in.Fault)
	}
	if in := h.Faults.InForce(fault.Throttle, id); in != nil {
		h.Happened(in, c.Conn)
		return c.refuse(mqtt.ServerUnavailable, hub.FaultError(fault.Throttle), nil)
	}
	if in := h.Faults.Exhausted(id, h.Now()); in != nil && !in.Fault.AcceptConnects {
		h.Happened(in, c.Conn)
		return c.refuse(mqtt.QuotaExceeded, hub.ErrQuota, nil)
	} else if in != nil {
		c.spent = in
	}
	if in := h.Faults.Take(fault.SlowConnack, id); in != nil {
		h.Happened(in, c.Conn)
		if !c.Sleep(in.Fault.Delay) {
			return hub.FaultError(fault.SlowConnack)
		}
	}
	return nil
}

// refuse answers a CONNECT with a reason code and ends the connection. A code that MQTT 3.1.1 does
// not have becomes "server unavailable", unless a fault asks for it.
func (c *client) refuse(code byte, why error, about *fault.Fault) error {
	h := c.Hub
	c.answered = true
	code = connackCode(c.version, code)
	text, reference := why.Error(), ""
	if about != nil {
		text, reference = about.Description, about.ServerReference
	} else if c.version != mqtt.V5 && code > 5 {
		code = connackCodes[mqtt.ServerUnavailable]
	}
	c.Write(mqtt.EncodeConnack(c.version, false, code, c.reason(text, reference)))
	c.CloseGracefully(why)
	h.Event(event.Event{Kind: event.Refused, Code: code, Err: why}, c.Conn)
	c.Drain()
	return why
}

// checkWill checks whether a device may publish its will.
func (f *Front) checkWill(id hub.Identity, k *mqtt.ConnectPacket) error {
	switch w := k.Will; {
	case w == nil:
	case w.QoS > 1:
		return fmt.Errorf("will with QoS %d", w.QoS)
	case !f.options.mayPublish(id, w.Topic):
		return fmt.Errorf("%s may not publish its will to %q", id, w.Topic)
	}
	return nil
}

// accept establishes the connection of an authenticated client.
func (c *client) accept() error {
	h, f, k := c.Hub, c.front, c.connect
	if err := f.takeOver(c); err != nil {
		return err
	}
	clientID := k.ClientID
	if clientID == "" {
		clientID = fmt.Sprintf("%s-%d", c.ID, c.Number)
	}
	present := f.resume(c, clientID, k)
	if !h.Registered(c.ID) { // removed since the authentication
		f.Forget(c.ID.String())
	}
	if k.Will != nil {
		m := messageOf(c.ID, c.Number, k.Will, h.Now())
		m.Will = true
		c.will, c.delay = &m, time.Duration(k.Will.Properties.Number(mqtt.WillDelay, 0))*time.Second
	}
	c.keep = time.Duration(k.KeepAlive) * time.Second
	if own := c.front.options.KeepAlive; own > 0 && c.version == mqtt.V5 {
		c.keep = own
	}
	expiry := f.expiryOf(k)
	f.note(c, present, expiry)
	c.Establish()
	h.Event(event.Event{Kind: event.Connected}, c.Conn)
	h.Changed.Wake()
	c.Write(mqtt.EncodeConnack(c.version, present, 0, c.announcement(clientID, expiry)))
	c.ready.Store(true)
	if !c.until.IsZero() {
		c.expiry = time.AfterFunc(c.until.Sub(h.Now()), c.expire)
	}
	if c.spent != nil {
		h.Happened(c.spent, c.Conn)
		c.end(mqtt.QuotaExceeded, hub.ErrQuota, nil)
		return nil
	}
	if in := h.Faults.Take(fault.DisconnectWhileIdle, c.ID); in != nil {
		h.Later(in.Fault.Delay, c.Closed, func() {
			h.Happened(in, c.Conn)
			c.end(in.Fault.Code, hub.FaultError(fault.DisconnectWhileIdle), &in.Fault)
		})
	}
	h.Garbage(fault.GarbageOnConnect, c.Conn, badPacket)
	c.release()
	c.receive()
	return nil
}

// note records what the CONNECT said.
func (f *Front) note(c *client, present bool, expiry uint32) {
	k := c.connect
	f.mu.Lock()
	defer f.mu.Unlock()
	c.session.expiry = expiry
	c.session.seen = hubdata.Session{
		DeviceID: c.ID.Device, ModuleID: c.ID.Module, ClientID: c.session.client, UserName: k.UserName,
		Version: c.version, CleanStart: k.Clean, Present: present, KeepAlive: c.keep, Properties: named(k.Properties),
		Authentications: 1,
	}
}

// announcement returns the properties of the CONNACK.
func (c *client) announcement(clientID string, expiry uint32) (all mqtt.Properties) {
	o, k := c.front.options, c.connect
	add := func(id byte, n uint32, when bool) {
		if when {
			all = append(all, mqtt.Property{ID: id, Number: n})
		}
	}
	add(mqtt.SessionExpiry, expiry, expiry != k.Properties.Number(mqtt.SessionExpiry, 0))
	add(mqtt.ReceiveMaximum, uint32(o.ReceiveMaximum), o.ReceiveMaximum > 0)
	if o.AtMostOnce {
		add(mqtt.MaximumQoS, 0, true)
	} else {
		add(mqtt.MaximumQoS, 1, true)
	}
	add(mqtt.RetainAvailable, 0, o.NoRetain)
	add(mqtt.MaximumPacketSize, o.MaximumPacketSize, o.MaximumPacketSize > 0)
	if k.ClientID == "" {
		all = append(all, mqtt.Property{ID: mqtt.AssignedClientID, Text: clientID})
	}
	add(mqtt.TopicAliasMaximum, uint32(o.TopicAliases), o.TopicAliases > 0)
	add(mqtt.WildcardAvailable, 0, o.NoWildcards)
	add(mqtt.SubIDsAvailable, 0, o.NoSubscriptionIDs)
	add(mqtt.SharedAvailable, 0, o.NoShared)
	add(mqtt.ServerKeepAlive, uint32(c.keep/time.Second), o.KeepAlive > 0)
	if method, ok := k.Properties.Get(mqtt.AuthMethod); ok {
		all = append(all, method)
	}
	return all
}

// takeOver makes c the connection of its identity and ends the previous one. It waits for that
// end, so that a session never has two.
func (f *Front) takeOver(c *client) error {
	if f.hub.Known(c.ID) != nil {
		return hub.ErrRemoved // removed after the authentication
	}
	f.mu.Lock()
	before := f.current[c.ID]
	f.current[c.ID] = c
	f.mu.Unlock()
	if before != nil {
		before.displace(mqtt.SessionTakenOver, hub.ErrReplaced)
		<-before.Done
	}
	return nil
}
