package mqttfront

import (
	"errors"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
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
	case k.Name != "MQTT" || !c.front.dialect.speaks(k.Level):
		if k.Level > mqtt.V5 && c.front.dialect.speaks(mqtt.V5) {
			c.version = mqtt.V5
		}
		why := fmt.Errorf("protocol %s level %d is not spoken", k.Name, k.Level)
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
	id, code, err := c.front.dialect.identify(c, k)
	c.Identify(id)
	if fail := c.connectFaults(); fail != nil {
		return fail
	}
	if err != nil {
		return c.refuse(code, err, nil)
	}
	if method, ok := k.Properties.Get(mqtt.AuthMethod); ok {
		return c.beginAuth(method.Text)
	}
	if code, err := c.front.dialect.authenticate(c, k); err != nil {
		return c.refuse(code, err, nil)
	}
	return c.accept()
}

// connectFaults applies the faults and limits of a CONNECT. An error ends the connection.
func (c *client) connectFaults() error {
	h := c.Hub
	if err := c.ConnectFaults(c.ID); err != nil {
		return err
	}
	if wait, ok := h.Limits.Connect(); !ok {
		return c.refuse(mqtt.ServerUnavailable, faults.ErrThrottled, nil)
	} else if !c.Sleep(wait) {
		return faults.ErrThrottled
	}
	if in := c.Fault(fault.RefuseConnect); in != nil {
		return c.refuse(in.Fault.Code, hub.FaultError(fault.RefuseConnect), &in.Fault)
	}
	if in := h.Faults.InForce(fault.Throttle, c.ID); in != nil {
		h.Happened(in, c.Conn)
		return c.refuse(mqtt.ServerUnavailable, hub.FaultError(fault.Throttle), nil)
	}
	if err := c.standing(); err != nil {
		return err
	}
	if in := h.Faults.Exhausted(c.ID, h.Now()); in != nil && !in.Fault.AcceptConnects {
		h.Happened(in, c.Conn)
		return c.refuse(mqtt.QuotaExceeded, faults.ErrQuota, nil)
	} else if in != nil {
		c.spent = in
	}
	if in := c.Fault(fault.SlowConnack); in != nil && !c.Sleep(in.Fault.Delay) {
		return hub.FaultError(fault.SlowConnack)
	}
	return nil
}

// refuse answers a CONNECT with a reason code and ends the connection. A code that MQTT 3.1.1 does
// not have becomes "server unavailable", unless a fault asks for it. The service has codes of MQTT
// 3.1.1 alone, so a fault can ask for any.
func (c *client) refuse(code byte, why error, about *fault.Fault) error {
	h := c.Hub
	c.answered = true
	if about == nil || c.front.hasCodes() {
		code = connackCode(c.version, code)
	}
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

// accept establishes the connection of an authenticated client.
func (c *client) accept() error {
	h, f, k := c.Hub, c.front, c.connect
	if k.Will != nil {
		m, code, err := f.dialect.will(c, k.Will)
		switch {
		case err != nil && code == 0:
			return err
		case err != nil:
			return c.refuse(code, err, nil)
		}
		c.will, c.delay = &m, time.Duration(k.Will.Properties.Number(mqtt.WillDelay, 0))*time.Second
	}
	if err := f.takeOver(c); err != nil {
		return err
	}
	f.dialect.joined(c)
	clientID := k.ClientID
	if clientID == "" {
		clientID = fmt.Sprintf("%s-%d", c.ID, c.Number)
	}
	present := f.resume(c, clientID, k)
	if !h.Registered(c.ID) { // removed since the authentication
		f.Forget(c.ID.String())
	}
	c.keep = f.dialect.keepAlive(k)
	expiry := f.expiryOf(k)
	f.note(c, present, expiry)
	c.Establish()
	h.Event(event.Event{Kind: event.Connected}, c.Conn)
	h.Changed.Wake()
	if in := c.brokerFault(fault.WrongSessionPresent); in != nil {
		h.Happened(in, c.Conn)
		present = !present
	}
	connack := mqtt.EncodeConnack(c.version, present, 0, c.announcement(clientID, expiry))
	if c.spent != nil {
		c.Write(connack)
		c.ready.Store(true)
		h.Happened(c.spent, c.Conn)
		if c.version == mqtt.V5 {
			c.end(mqtt.QuotaExceeded, faults.ErrQuota, nil)
		}
		c.CloseGracefully(faults.ErrQuota) // the client reads the CONNACK first
		return nil
	}
	c.enable(connack)
	c.ready.Store(true)
	if !c.until.IsZero() {
		c.expiry = time.AfterFunc(c.until.Sub(h.Now()), c.expire)
	}
	if in := c.brokerFault(fault.DisconnectWhileIdle); in != nil {
		h.Later(in.Fault.Delay, c.Closed, func() {
			h.Happened(in, c.Conn)
			c.end(in.Fault.Code, hub.FaultError(fault.DisconnectWhileIdle), &in.Fault)
		})
	}
	h.Garbage(fault.GarbageOnConnect, c.Conn, badPacket)
	c.release()
	f.dialect.receive(c)
	return nil
}

// brokerFault takes a fault of a kind that needs MQTT 5; the caller applies it.
func (c *client) brokerFault(kind fault.Kind) *faults.Injected {
	if !c.front.hasCodes() {
		return nil
	}
	return c.Hub.Faults.Take(kind, c.ID)
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
		f.hub.DisplaceCalls(before.Conn, c.ID)
		before.displace(mqtt.SessionTakenOver, hub.ErrReplaced)
		<-before.Done
	}
	return nil
}
