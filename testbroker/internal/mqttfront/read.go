package mqttfront

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// maxPacket is the limit of a packet that BrokerOptions does not lower: body, topic, properties.
const maxPacket = hubdata.MaxMessage + 2<<16

// badPacket is the beginning of a packet with an unknown type and a length without end.
var badPacket = []byte{0x0f, 0xff, 0xff, 0xff, 0xff, 0xff}

// errTorn says that a fault has cut the connection inside a PUBLISH.
var errTorn = hub.FaultError(fault.DropDuringPublish)

// run handles packets until the connection ends, and returns why.
func (c *client) run() error {
	for {
		err := c.handleArrived()
		if err == nil {
			c.commit()
			err = c.fill()
		}
		if err != nil {
			c.flush()
			return c.fail(err)
		}
	}
}

// fill reads from the network. Each packet renews the time that the client may be silent: one and a
// half times the keep-alive [MQTT-3.1.2-24].
func (c *client) fill() error {
	if c.active && c.ready.Load() { // the hub has set a deadline for the CONNECT
		c.active = false
		deadline := time.Time{}
		if c.keep > 0 {
			deadline = time.Now().Add(c.keep + c.keep/2)
		}
		c.SetDeadline(deadline)
	}
	n, err := c.Conn.Read(c.inbox.Room())
	c.inbox.Add(n)
	if n > 0 {
		return nil
	}
	return err
}

// handleArrived handles each packet that has arrived as a whole. An error ends the connection.
func (c *client) handleArrived() error {
	limit := maxPacket
	if n := c.front.options.MaximumPacketSize; n > 0 {
		limit = int(n)
	}
	for len(c.inbox.Bytes()) > 0 {
		if c.Mode.Load() != hub.Open {
			return c.Drain() // the packet was read before the mode changed
		}
		first := c.inbox.Bytes()[0]
		if c.connect == nil {
			if err := mqtt.CheckFirst(first); err != nil {
				return err
			}
		}
		head, size, err := c.inbox.Head(limit)
		if err != nil || size == 0 {
			return err
		}
		if first>>4 == mqtt.Publish && c.ready.Load() {
			if err := c.tearing(head, size); err != nil {
				return err
			}
		}
		if len(c.inbox.Bytes()) < size {
			return nil
		}
		c.begun, c.active = false, true
		if err := c.handle(first, c.inbox.Take(size)[head:]); err != nil {
			return err
		}
	}
	return nil
}

// tearing looks for a fault when a PUBLISH begins, and cuts the connection when half of its body
// has arrived.
func (c *client) tearing(head, size int) error {
	if !c.begun {
		c.begun = true
		c.tear = c.Hub.Faults.Take(fault.DropDuringPublish, c.ID)
	}
	if c.tear == nil || len(c.inbox.Bytes()) < head+(size-head)/2 {
		return nil
	}
	c.flush()
	c.Hub.Happened(c.tear, c.Conn)
	c.tear = nil
	c.CutFor(errTorn)
	return errTorn
}

// handle handles a packet. An error ends the connection.
func (c *client) handle(first byte, body []byte) error {
	typ := first >> 4
	if typ != mqtt.Publish || c.Hub.Faults.Any() {
		// The answer comes after the PUBACKs. A fault may end the connection, but not take back what was
		// acknowledged.
		c.flush()
	}
	if err := mqtt.CheckFlags(first); err != nil {
		return err
	}
	switch {
	case typ == mqtt.Connect:
		return c.handleConnect(body)
	case typ == mqtt.Auth && c.connect != nil && c.version == mqtt.V5:
		return c.handleAuth(body)
	case !c.ready.Load():
		return errors.New("packet before the CONNACK [MQTT-3.1.0-1]")
	}
	switch typ {
	case mqtt.Publish:
		return c.handlePublish(first, body)
	case mqtt.Puback, mqtt.Pubrec, mqtt.Pubcomp:
		a, err := mqtt.DecodeAck(c.version, first, body)
		if err != nil {
			return err
		}
		return c.front.dialect.acknowledged(c, typ, a)
	case mqtt.Subscribe:
		return c.handleSubscribe(first, body)
	case mqtt.Unsubscribe:
		return c.handleUnsubscribe(first, body)
	case mqtt.Pingreq:
		if c.Fault(fault.SwallowPingresp) == nil {
			c.Write(mqtt.EncodePingresp())
		}
		return nil
	case mqtt.Disconnect:
		return c.handleDisconnect(first, body)
	}
	return &mqtt.Error{Code: mqtt.ProtocolError, Text: "packet that only a server sends"}
}
