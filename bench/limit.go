package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// limitWrite is the largest write of the limit. Larger ones are not faster.
const limitWrite = 64 << 10

// Limit is a minimal sender: it writes packets encoded beforehand, in chunks of up to half the
// window, and counts PUBACKs. No client can be much faster, but over TLS, whose records package tls
// writes one by one.
func Limit(p *Peer, l Load) (Sender, error) {
	creds, err := p.access.creds(0)
	if err != nil {
		return nil, err
	}
	ctx, cancel := opening()
	defer cancel()
	token, err := creds.NewToken(ctx)
	if err != nil {
		return nil, err
	}
	b := []byte("\x00\x04MQTT\x04\xC2\x00\x3C") // 3.1.1; user name, password, clean session; keep-alive of 60 s
	for _, field := range []string{creds.DeviceID, userName(creds), token.Text.Reveal()} {
		b = appendText(b, field)
	}
	return openLimit(ctx, &p.access, b, telemetryTopic(creds), nil, l)
}

// Limit5 is Limit over MQTT 5.
func Limit5(p *Peer, l Load) (Sender, error) {
	ctx, cancel := opening()
	defer cancel()
	const connect = "\x00\x04MQTT\x05\x02\x00\x3C\x00" // clean start; keep-alive of 60 s; no properties
	return openLimit(ctx, &p.access, appendText([]byte(connect), "dev-0"), brokerTopic, []byte{0}, l)
}

func appendText(b []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(text))), text...)
}

// openLimit connects with this CONNECT. properties are those of each message, as MQTT 5 has them.
func openLimit(ctx context.Context, a *access, connect []byte, topic string, properties []byte, l Load) (
	*limitSender, error) {
	c, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(openTime))
	if err := greet(c, connect); err != nil {
		_ = c.Close()
		return nil, err
	}
	_ = c.SetDeadline(time.Time{})
	return newLimit(c, topic, properties, l.Window, l.Size), nil
}

// greet sends CONNECT and reads the CONNACK.
func greet(c net.Conn, connect []byte) error {
	if _, err := c.Write(frame(0x10, connect)); err != nil {
		return err
	}
	var connack [2 + 127]byte
	if _, err := io.ReadFull(c, connack[:2]); err != nil {
		return err
	}
	rest := connack[2 : 2+connack[1]&127]
	if _, err := io.ReadFull(c, rest); err != nil {
		return err
	}
	if connack[0] != 0x20 || len(rest) < 2 || rest[1] != 0 {
		return fmt.Errorf("the peer answers CONNECT with % x", connack[:2+len(rest)])
	}
	return nil
}

// frame prepends the fixed header to the rest of a packet.
func frame(first byte, rest []byte) []byte {
	return append(binary.AppendUvarint([]byte{first}, uint64(len(rest))), rest...)
}

type limitSender struct {
	conn    net.Conn
	window  int
	packets []byte // with the ids 1 to window
	size    int    // of a packet
	acks    []byte // read buffer
	next    int    // offset in packets of the next one to send
}

func newLimit(c net.Conn, topic string, properties []byte, window, size int) *limitSender {
	l := &limitSender{conn: c, window: window, acks: make([]byte, 64<<10)}
	for id := 1; id <= window; id++ {
		b := appendText(nil, topic)
		b = append(binary.BigEndian.AppendUint16(b, uint16(id)), properties...)
		packet := frame(0x32, append(b, make([]byte, size)...))
		l.size = len(packet)
		l.packets = append(l.packets, packet...)
	}
	return l
}

func (l *limitSender) Send(ctx context.Context, n int) error {
	defer context.AfterFunc(ctx, func() { _ = l.conn.SetDeadline(time.Unix(1, 0)) })()
	most := max(1, min(l.window/2, limitWrite/l.size))
	sent, acked, part := 0, 0, 0 // part: bytes of an incomplete PUBACK
	for acked < n {
		for {
			k := min(most, n-sent)
			if k == 0 || sent-acked+k > l.window {
				break
			}
			k = min(k, l.window-l.next)
			if _, err := l.conn.Write(l.packets[l.next*l.size : (l.next+k)*l.size]); err != nil {
				return err
			}
			sent += k
			l.next = (l.next + k) % l.window
		}
		got, err := l.conn.Read(l.acks[part:])
		if err != nil {
			return err
		}
		read := l.acks[:part+got]
		for len(read) >= 4 {
			size := 2 + int(read[1]) // over MQTT 5 a reason may follow the id
			if read[0] != 0x40 || size < 4 || size > 127 {
				return fmt.Errorf("the peer sent a packet % x where a PUBACK should be", read[:4])
			}
			if len(read) < size {
				break
			}
			read = read[size:]
			acked++
		}
		part = copy(l.acks, read)
	}
	if acked != sent || part != 0 {
		return fmt.Errorf("%d PUBACKs and %d bytes for %d messages", acked, part, sent)
	}
	return nil
}

func (l *limitSender) Close() {
	_, _ = l.conn.Write([]byte{0xE0, 0}) // DISCONNECT
	_ = l.conn.Close()
}
