package mqtt

import "encoding/binary"

// A publication says how a PUBLISH of the library is sent. The library gets every message with QoS
// 0: for QoS 1 it would keep an id, a token and a stored copy of each and pass its PUBACK through
// two goroutines. The outbox of package device does all of that already, and across connections.
type publication struct {
	id    uint16 // packet id; 0: QoS 0, and the packet is not changed
	again bool   // sets DUP
	// atMostOnce: it is the message with this tag, done when it is written.
	atMostOnce bool
	tag        uint16
}

// isMessage reports whether it was announced.
func (p *publication) isMessage() bool { return p.atMostOnce || p.id > issueID }

// dupFlag and qos1Flag are flags of a PUBLISH, section 3.3.1.
const dupFlag, qos1Flag = 8, 2

// appendTo appends packet, a whole PUBLISH with QoS 0, and inserts the id behind its topic.
func (p publication) appendTo(out, packet []byte) []byte {
	if p.id == 0 {
		return append(out, packet...)
	}
	head := packet[0] | qos1Flag
	if p.again {
		head |= dupFlag
	}
	size, n := binary.Uvarint(packet[1:]) // the remaining length has the same form
	body := packet[1+n:]
	topic := 2 + int(binary.BigEndian.Uint16(body))
	out = binary.AppendUvarint(append(out, head), size+2)
	out = append(out, body[:topic]...)
	out = binary.BigEndian.AppendUint16(out, p.id)
	return append(out, body[topic:]...)
}

// expect records how to send the PUBLISH that the library gets next. The library writes them in the
// order in which it got them.
func (c *conn) expect(p publication) {
	c.mu.Lock()
	c.expected = append(c.expected, p)
	c.mu.Unlock()
}

// unexpect removes the latest publication, whose PUBLISH the library refused.
func (c *conn) unexpect() {
	c.mu.Lock()
	if n := len(c.expected); n > 0 {
		c.expected = c.expected[:n-1]
	}
	c.mu.Unlock()
}

// takeExpectedLocked returns and removes the first publication; ok is false when there is none.
func (c *conn) takeExpectedLocked() (p publication, ok bool) {
	if len(c.expected) == 0 {
		return p, false
	}
	p = c.expected[0]
	c.expected = append(c.expected[:0], c.expected[1:]...)
	return p, true
}

// announce records that this many messages follow; until they are written, small writes wait. A
// single message while none is unacknowledged is written through, without a flusher.
func (c *conn) announce(messages int) {
	c.mu.Lock()
	c.announced += messages
	c.singleInFlight = messages == 1 && c.unacked == 0
	c.mu.Unlock()
}

// acked notes a PUBACK. It returns false for one that is ignored, because its message is not
// written yet or was acknowledged before: until a message is written, the library may read it.
func (c *conn) acked(tag uint16) bool {
	c.mu.Lock()
	ours := c.written.Remove(tag)
	if ours {
		c.unacked--
	}
	c.mu.Unlock()
	return ours
}

// withdraw withdraws the announcement of one message.
func (c *conn) withdraw() {
	c.mu.Lock()
	c.announced--
	if c.writeDueLocked() {
		c.wakeFlusherLocked()
	}
	c.mu.Unlock()
}
