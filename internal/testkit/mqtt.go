package testkit

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"testing"
)

// MQTTPacket is a packet as a scripted broker sees it.
type MQTTPacket struct {
	First byte
	Body  []byte
}

// Topic returns the topic of a PUBLISH.
func (p MQTTPacket) Topic() string { return string(p.Body[2 : 2+binary.BigEndian.Uint16(p.Body)]) }

// Rest returns the bytes behind the topic of a PUBLISH: with QoS 1 its packet id, then the payload.
func (p MQTTPacket) Rest() string { return string(p.Body[2+binary.BigEndian.Uint16(p.Body):]) }

// MQTTLink is a scripted broker's end of a connection. It does not use the client's codec, so no
// bug can hide in both ends.
type MQTTLink struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

// NewMQTTLink returns the broker's end c.
func NewMQTTLink(t testing.TB, c net.Conn) *MQTTLink { return &MQTTLink{c, t, bufio.NewReader(c)} }

// Next reads a packet; io.EOF is an orderly end between packets.
func (l *MQTTLink) Next() (MQTTPacket, error) {
	first, err := l.r.ReadByte()
	if err != nil {
		return MQTTPacket{}, err
	}
	size, err := binary.ReadUvarint(l.r) // the remaining length has the same form
	if err != nil {
		return MQTTPacket{}, err
	}
	p := MQTTPacket{first, make([]byte, size)}
	_, err = io.ReadFull(l.r, p.Body)
	return p, err
}

// Expect reads a packet with this first byte.
func (l *MQTTLink) Expect(first byte) MQTTPacket {
	l.t.Helper()
	p, err := l.Next()
	if err != nil || p.First != first {
		l.t.Fatalf("a packet that begins with %#x, and error %v; want %#x", p.First, err, first)
	}
	return p
}

// Send writes bytes as they are.
func (l *MQTTLink) Send(b ...byte) {
	l.t.Helper()
	if _, err := l.Write(b); err != nil {
		l.t.Fatal(err)
	}
}

// Puback acknowledges a message.
func (l *MQTTLink) Puback(id uint16) { l.Send(0x40, 2, byte(id>>8), byte(id)) }

// Drain reads to the end and returns the packets, and the error at the end.
func (l *MQTTLink) Drain() (packets []MQTTPacket, err error) {
	for {
		p, err := l.Next()
		if err != nil {
			return packets, err
		}
		packets = append(packets, p)
	}
}

// MQTTBytes returns a packet with this first byte.
func MQTTBytes(first byte, parts ...string) []byte {
	var body []byte
	for _, p := range parts {
		body = append(body, p...)
	}
	return append(binary.AppendUvarint([]byte{first}, uint64(len(body))), body...)
}

// MQTTText returns a text with its length in front.
func MQTTText(s string) string { return string(binary.BigEndian.AppendUint16(nil, uint16(len(s)))) + s }
