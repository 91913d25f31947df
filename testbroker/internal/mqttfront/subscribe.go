package mqttfront

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// refusedFilter is the SUBACK code of a refused filter in MQTT 3.1.1 [MQTT-3.9.3].
const refusedFilter = 0x80

// handleSubscribe handles a SUBSCRIBE, answers it, and then delivers waiting messages. An error
// ends the connection.
func (c *client) handleSubscribe(first byte, body []byte) error {
	h := c.Hub
	s, err := mqtt.DecodeSubscribe(c.version, first, body)
	if err != nil {
		return err
	}
	if in := c.Fault(fault.DropOnSubscribe); in != nil {
		c.CutFor(hub.FaultError(fault.DropOnSubscribe))
		return nil
	}
	refuse := c.Fault(fault.RefuseSubscribe)
	codes, why := c.grant(s, refuse)
	text := why
	if refuse != nil {
		text = refuse.Fault.Description
	}
	for i, code := range codes {
		if code >= refusedFilter && refuse == nil {
			h.Event(event.Event{Kind: event.Refused, Name: s.Filters[i].Name, Code: code, Err: errors.New(why)}, c.Conn)
		}
	}
	c.suback(mqtt.SubackBody(c.version, s.ID, c.reason(text, ""), codes))
	return nil
}

// grant adds filters to the session. It returns the codes of the SUBACK, and why it refused the
// last refused filter.
func (c *client) grant(s mqtt.SubscribePacket, refuse *faults.Injected) (codes []byte, why string) {
	c.front.mu.Lock()
	defer c.front.mu.Unlock()
	for _, f := range s.Filters {
		code, text := c.front.dialect.mayReceive(c, f, s.Properties)
		switch {
		case refuse != nil:
			code = refuse.Fault.Code
		case code >= refusedFilter && c.version != mqtt.V5:
			code = refusedFilter
		case code < refusedFilter:
			f.QoS = code
			c.session.filters[f.Name] = subscription{f, s.Properties.Number(mqtt.SubscriptionID, 0)}
		}
		if text != "" {
			why = text
		}
		codes = append(codes, code)
	}
	return codes, why
}

// suback sends a SUBACK, unless a fault intervenes, and messages that wait for the subscription.
func (c *client) suback(body []byte) {
	h := c.Hub
	if in := c.Fault(fault.LongSuback); in != nil {
		body = append(body, 1)
	}
	if in := c.Fault(fault.ShortSuback); in != nil {
		body = body[:len(body)-1]
	}
	if in := c.Fault(fault.SwallowSuback); in != nil {
		c.attach(nil)
		return
	}
	if in := c.Fault(fault.SlowSuback); in != nil {
		due := time.Now().Add(in.Fault.Delay)
		h.Wg.Go(func() {
			if c.Sleep(time.Until(due)) {
				c.attach(mqtt.EncodeSuback(mqtt.Suback, body))
			}
		})
		return
	}
	h.Garbage(fault.GarbageOnSubscribe, c.Conn, badPacket)
	c.attach(mqtt.EncodeSuback(mqtt.Suback, body))
}

// attach sends a packet, unless it is nil, makes the filters of the session effective, and begins
// or pauses deliveries.
func (c *client) attach(packet []byte) {
	c.enable(packet)
	c.front.dialect.receive(c)
}

// handleUnsubscribe handles an UNSUBSCRIBE and answers it. An error ends the connection.
func (c *client) handleUnsubscribe(first byte, body []byte) error {
	s, err := mqtt.DecodeSubscribe(c.version, first, body)
	if err != nil {
		return err
	}
	c.front.mu.Lock()
	var codes []byte
	for _, f := range s.Filters {
		code := byte(mqtt.Success)
		if _, ok := c.session.filters[f.Name]; !ok {
			code = mqtt.NoSubscription
		}
		delete(c.session.filters, f.Name)
		if c.version == mqtt.V5 {
			codes = append(codes, code)
		}
	}
	c.front.mu.Unlock()
	c.attach(nil)
	c.Write(mqtt.EncodeSuback(mqtt.Unsuback, mqtt.SubackBody(c.version, s.ID, nil, codes)))
	return nil
}
