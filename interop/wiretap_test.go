package interop

import (
	"encoding/binary"
	"net"
	"regexp"
	"strconv"
	"sync"
)

// number finds the number of a message in its payload, which ends with '#' and six digits.
var number = regexp.MustCompile(`#(\d{6})`)

// wire observes what a client writes and what it is answered, below the client and above TLS. It
// shows which side lost a message: the client lost it if the broker has not acknowledged it.
type wire interface {
	sent(n int, marked bool) // message n was written; marked: with the DUP flag
	acknowledged(n int)
}

// tapMQTT returns c with a tap that reads PUBLISH and PUBACK of MQTT 3.1.1 and 5.
func tapMQTT(c net.Conn, to wire) net.Conn {
	t := &mqttTap{Conn: c, to: to, ids: make(map[uint16]int)}
	t.out.packet, t.in.packet = t.written, t.read
	return t
}

type mqttTap struct {
	net.Conn
	to      wire
	mu      sync.Mutex // one write at a time; guards ended
	ended   bool
	idsMu   sync.Mutex // guards ids
	ids     map[uint16]int
	out, in mqttStream
}

func (t *mqttTap) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return t.Conn.Write(p)
	}
	t.out.add(p) // before the answer can come
	n, err := t.Conn.Write(p)
	t.ended = err != nil // what follows may begin in the middle of a packet
	return n, err
}

func (t *mqttTap) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	t.in.add(p[:n])
	return n, err
}

// written sees a whole packet of the client.
func (t *mqttTap) written(first byte, body []byte) {
	const publish, dup, qos1 = 0x30, 0x08, 0x02
	if first&0xf0 != publish || first&qos1 == 0 {
		return
	}
	topic := int(binary.BigEndian.Uint16(body))
	found := number.FindSubmatch(body[2+topic:])
	if found == nil {
		return
	}
	n, _ := strconv.Atoi(string(found[1]))
	t.idsMu.Lock()
	t.ids[binary.BigEndian.Uint16(body[2+topic:])] = n
	t.idsMu.Unlock()
	t.to.sent(n, first&dup != 0)
}

// read sees a whole packet of the broker.
func (t *mqttTap) read(first byte, body []byte) {
	const puback, failure = 0x40, 0x80
	if first&0xf0 != puback || len(body) > 2 && body[2] >= failure {
		return
	}
	t.idsMu.Lock()
	n, ok := t.ids[binary.BigEndian.Uint16(body)]
	t.idsMu.Unlock()
	if ok {
		t.to.acknowledged(n)
	}
}

// mqttStream splits one direction of a connection into packets.
type mqttStream struct {
	buf    []byte
	packet func(first byte, body []byte)
}

func (s *mqttStream) add(p []byte) {
	s.buf = append(s.buf, p...)
	for len(s.buf) > 1 {
		size, n := binary.Uvarint(s.buf[1:]) // the remaining length has the same form
		if n <= 0 || len(s.buf) < 1+n+int(size) {
			return
		}
		s.packet(s.buf[0], s.buf[1+n:1+n+int(size)])
		s.buf = s.buf[1+n+int(size):]
	}
}

// tapAMQP returns c with a tap that finds the numbers of messages in what is written. Answers of
// AMQP are not read.
func tapAMQP(c net.Conn, to wire) net.Conn { return &amqpTap{Conn: c, to: to} }

type amqpTap struct {
	net.Conn
	to   wire
	mu   sync.Mutex
	tail []byte
}

func (t *amqpTap) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tail = append(t.tail, p...)
	end := 0
	for _, at := range number.FindAllSubmatchIndex(t.tail, -1) {
		n, _ := strconv.Atoi(string(t.tail[at[2]:at[3]]))
		t.to.sent(n, true)
		end = at[1]
	}
	t.tail = append(t.tail[:0], t.tail[max(end, len(t.tail)-6):]...) // a number may continue in the next write
	return t.Conn.Write(p)
}
