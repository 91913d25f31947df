package mqttfront

import (
	"errors"
	"net"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// fail ends the connection for an error of the client or of the network, and returns the cause.
func (c *client) fail(err error) error {
	var wrong *mqtt.Error
	var late net.Error
	switch {
	case errors.As(err, &wrong):
		c.end(wrong.Code, err, nil)
	case errors.As(err, &late) && late.Timeout() && c.ready.Load():
		c.SetDeadline(time.Now().Add(hub.CloseLimit)) // else the DISCONNECT is late too
		c.end(mqtt.KeepAliveTimeout, err, nil)
	default:
		c.SetCause(err)
		return err
	}
	c.Drain()
	return err
}

// end ends the connection in order. A client that speaks MQTT 5 gets a DISCONNECT before, with the
// text and the server reference of about, or else with those of the cause. Any goroutine may call
// it.
func (c *client) end(code byte, cause error, about *fault.Fault) {
	if !c.ready.Load() || c.version != mqtt.V5 {
		c.CloseFor(cause)
		return
	}
	text, reference := cause.Error(), ""
	if about != nil {
		text, reference = about.Description, about.ServerReference
	}
	c.Write(mqtt.EncodeEnd(mqtt.Disconnect, mqtt.EndPacket{Code: code, Properties: c.reason(text, reference)}))
	c.CloseGracefully(cause)
}

// reason returns the properties of a refusal.
func (c *client) reason(text, reference string) (all mqtt.Properties) {
	if text != "" && !c.silent {
		all = append(all, mqtt.Property{ID: mqtt.ReasonString, Text: text})
	}
	if reference != "" {
		all = append(all, mqtt.Property{ID: mqtt.ServerReference, Text: reference})
	}
	return all
}

// displace ends the connection from outside. A half-open connection just ends, because its client
// would not notice more.
func (c *client) displace(code byte, cause error) {
	if c.Mode.Load() == hub.Open {
		c.end(code, cause, nil)
		return
	}
	c.CloseFor(cause)
}

// expire ends the connection when its token expires. A half-open connection stays, because its
// client would not notice.
func (c *client) expire() {
	if c.Mode.Load() != hub.Silent {
		c.end(mqtt.MaximumConnectTime, hub.ErrTokenExpired, nil)
	}
}

// handleDisconnect handles a DISCONNECT. It drops the will, unless the client says otherwise.
func (c *client) handleDisconnect(first byte, body []byte) error {
	d, err := mqtt.DecodeEnd(c.version, first, body)
	if err != nil {
		return err
	}
	if p, ok := d.Properties.Get(mqtt.SessionExpiry); ok {
		if !c.prolong(p.Number) {
			return &mqtt.Error{Code: mqtt.ProtocolError, Text: "session expiry set by DISCONNECT after 0 [MQTT-3.14.2-2]"}
		}
	}
	c.parted = d.Code != mqtt.WithWill
	return hub.ErrDisconnect
}

func (c *client) Expel(_ string, cause error, _ string) {
	code := byte(mqtt.AdministrativeAction)
	if errors.Is(cause, hub.ErrDisabled) || errors.Is(cause, hub.ErrRemoved) {
		code = mqtt.NotAuthorized
	}
	c.displace(code, cause)
}

// Finish publishes the will, unless the client dropped it or it is delayed, and reports the end of
// the connection.
func (c *client) Finish(cause error, live, closed bool) {
	h := c.Hub
	if c.expiry != nil {
		c.expiry.Stop()
	}
	if c.tear != nil {
		h.Faults.Release(c.tear)
	}
	switch {
	case !live || c.will == nil || c.parted || closed:
	case c.late:
		c.front.delayWill(c.session, c.delay)
	default:
		c.front.storeWill(*c.will)
	}
	switch {
	case live:
		h.Event(event.Event{Kind: event.Disconnected, Err: cause}, c.Conn)
	case !c.answered:
		h.Unserved(c.Conn, cause)
	}
}
