package mqtt

import "encoding/binary"

// A publication is what a PUBLISH that the library wrote goes out as. The library is given every
// message for QoS 0: for QoS 1 it would keep an id, a token and a stored copy of each and follow
// its PUBACK through two goroutines, all of which the outbox of package device does already, and
// does across connections.
type publication struct {
	id    uint16 // the packet id, 0: at most once, and the packet stays as it is
	again bool   // it carries DUP
}

// dupFlag and qos1Flag are flags of a PUBLISH, section 3.3.1.
const dupFlag, qos1Flag = 8, 2

// appendTo appends packet, a PUBLISH with QoS 0 as a whole, with the id behind its topic.
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

// expect says what the next PUBLISH that the library is given goes out as. It writes them in the
// order in which it got them.
func (c *conn) expect(p publication) {
	c.mu.Lock()
	c.expected = append(c.expected, p)
	c.mu.Unlock()
}

// unexpect takes back the latest: the library did not take it.
func (c *conn) unexpect() {
	c.mu.Lock()
	if n := len(c.expected); n > 0 {
		c.expected = c.expected[:n-1]
	}
	c.mu.Unlock()
}

// takeExpectedLocked returns what the PUBLISH that is written goes out as; ok is false when none
// was announced.
func (c *conn) takeExpectedLocked() (p publication, ok bool) {
	if len(c.expected) == 0 {
		return p, false
	}
	p = c.expected[0]
	c.expected = append(c.expected[:0], c.expected[1:]...)
	return p, true
}

// announce says that so many messages are about to be written: until they are, little is not worth
// a write. One that is alone, because all before it are acknowledged, is written through, without a
// flusher.
func (c *conn) announce(messages int) {
	c.mu.Lock()
	c.coming += messages
	c.alone = messages == 1 && c.unacked == 0
	c.mu.Unlock()
}

// acked notes a PUBACK.
func (c *conn) acked() {
	c.mu.Lock()
	c.unacked = max(0, c.unacked-1) // the hub may say it twice
	c.mu.Unlock()
}

// forgo takes back the announcement of one message.
func (c *conn) forgo() {
	c.mu.Lock()
	c.coming--
	if c.writeDueLocked() {
		c.wakeFlusherLocked()
	}
	c.mu.Unlock()
}
