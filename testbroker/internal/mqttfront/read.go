package mqttfront

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

const (
	maxPacket = hubdata.MaxMessage + 1<<16 + 16 // body, topic, lengths

	// The sizes of the buffer of an idle client and of one that sends without a pause. A larger packet
	// gets a larger one.
	leastRead = 512
	mostRead  = 16 << 10
)

// An inbox holds the bytes that a client has sent and nobody has handled.
type inbox struct {
	buf  []byte
	in   []byte // the part of buf with such bytes
	full bool   // the last read filled the buffer
	few  bool   // the last read was of less than leastRead
}

// room returns where to put the next bytes. A buffer grows with what has arrived, whatever length
// a packet claims. It shrinks with a small packet, such as the PINGREQ of an idle client, so that a
// client that sends in bursts keeps it.
func (b *inbox) room() []byte {
	size := len(b.buf)
	switch {
	case size == 0 || b.few && len(b.in) < leastRead:
		size = leastRead
	case len(b.in) == size:
		size = max(2*size, mostRead)
	case b.full:
		size = max(size, mostRead)
	case len(b.in) < mostRead:
		size = min(size, mostRead) // frees the memory of a large packet
	}
	old := b.in
	if size != len(b.buf) {
		b.buf = make([]byte, size)
	}
	b.in = b.buf[:copy(b.buf, old)]
	return b.buf[len(b.in):]
}

// add adds n bytes that were put into the room.
func (b *inbox) add(n int) {
	b.full = len(b.in)+n == len(b.buf)
	b.few = n < leastRead && !b.full
	b.in = b.buf[:len(b.in)+n]
}

// head reads the fixed header of the packet in front: its first byte, the size of the header, and
// the size of the packet, 0 while the header is incomplete.
func (b *inbox) head() (first byte, head, size int, err error) {
	if len(b.in) == 0 {
		return 0, 0, 0, nil
	}
	n := 0
	for i := 1; i < len(b.in) && i <= 4; i++ {
		n |= int(b.in[i]&0x7f) << (7 * (i - 1))
		if b.in[i]&0x80 == 0 {
			return b.in[0], i + 1, i + 1 + n, nil
		}
	}
	if len(b.in) > 4 {
		return 0, 0, 0, errors.New("length of more than four bytes [MQTT-2.2.3]")
	}
	return b.in[0], 0, 0, nil
}

// take removes bytes from the front.
func (b *inbox) take(n int) []byte {
	p := b.in[:n:n]
	b.in = b.in[n:]
	return p
}

// Read passes the client's packets to the broker, but for each PUBLISH after a CONNECT, which the
// front handles itself: the broker would decode and copy it once more.
func (c *client) Read(p []byte) (int, error) {
	for {
		if c.pass > 0 && len(c.inbox.in) > 0 {
			n := copy(p, c.inbox.take(min(c.pass, len(c.inbox.in), len(p))))
			c.pass -= n
			return n, nil
		}
		if c.pass == 0 {
			err := c.handle()
			if err != nil || c.pass > 0 {
				c.flush() // the broker's answer, or the end, comes after the PUBACKs
			}
			if err != nil {
				c.SetCause(err)
				return 0, err
			}
		}
		if c.pass == 0 || len(c.inbox.in) == 0 {
			c.commit()
			if err := c.fill(); err != nil {
				c.flush()
				return 0, err
			}
		}
	}
}

// fill reads from the network. A PUBLISH renews the time that the client may be silent; the broker
// does the same for other packets.
func (c *client) fill() error {
	if c.active {
		c.active = false
		c.SetDeadline(time.Now().Add(c.silence))
	}
	n, err := c.Conn.Read(c.inbox.room())
	c.inbox.add(n)
	if n > 0 {
		return nil
	}
	return err
}

// handle handles each complete PUBLISH up to a packet for the broker, and sets how many bytes that
// has.
func (c *client) handle() error {
	for {
		if !c.known && len(c.inbox.in) > 0 {
			if err := mqtt.CheckFirst(c.inbox.in[0]); err != nil {
				return err
			}
		}
		first, head, size, err := c.inbox.head()
		if err != nil || size == 0 {
			return err
		}
		if first>>4 != packetPublish || !c.known {
			c.pass = size
			return nil
		}
		if c.Mode.Load() != hub.Open {
			return c.Drain() // the packet was read before the mode changed
		}
		if size > maxPacket {
			return fmt.Errorf("packet of %d bytes, at most %d are allowed", size, maxPacket)
		}
		if err := c.tearing(head, size); err != nil {
			return err
		}
		if len(c.inbox.in) < size {
			return nil
		}
		c.begun, c.active = false, true
		if err := c.front.received(c, first, c.inbox.take(size)[head:]); err != nil {
			return err
		}
	}
}

// tearing looks for a fault when a PUBLISH begins, and cuts the connection when half of its body
// has arrived.
func (c *client) tearing(head, size int) error {
	if !c.begun {
		c.begun = true
		c.tear = c.Hub.Faults.Take(fault.DropDuringPublish, c.ID)
	}
	if c.tear == nil || len(c.inbox.in) < head+(size-head)/2 {
		return nil
	}
	c.flush()
	c.Hub.Happened(c.tear, c.Conn)
	c.CutFor(hub.FaultError(fault.DropDuringPublish))
	c.tear = nil
	return hub.FaultError(fault.DropDuringPublish)
}

// received handles a PUBLISH. An error closes the connection: MQTT 3.1.1 has no other answer.
func (f *Front) received(c *client, first byte, body []byte) error {
	if f.hub.Faults.Any() {
		c.flush() // a fault may end the connection, but not take back what was acknowledged
	}
	pk, err := mqtt.DecodePublish(mqtt.V311, first, body)
	if err != nil {
		return err
	}
	if pk.QoS > 1 {
		return errors.New("publish with QoS 2")
	}
	pk.Payload = bytes.Clone(pk.Payload)
	if strings.HasPrefix(pk.Topic, requestTopics) {
		return f.request(c, pk)
	}
	m, err := f.inspect(c, pk)
	if err != nil {
		return err
	}
	f.publish(c, m)
	return nil
}
