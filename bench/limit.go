package bench

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// limitWrite is the largest write of the limit. Larger ones are not faster.
const limitWrite = 64 << 10

// Limit is a minimal sender: it writes packets encoded beforehand, in chunks of up to half the
// window, and counts PUBACKs. No client can be much faster.
func Limit(p *Peer, window, size int) (Sender, error) {
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
	var c net.Conn
	if settings := p.access.tls(); settings != nil {
		c, err = (&tls.Dialer{Config: settings}).DialContext(ctx, "tcp", p.access.Addr)
	} else {
		c, err = new(net.Dialer).DialContext(ctx, "tcp", p.access.Addr)
	}
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(openTime))
	if err := greet(c, creds, token.Text.Reveal()); err != nil {
		_ = c.Close()
		return nil, err
	}
	_ = c.SetDeadline(time.Time{})
	return newLimit(c, telemetryTopic(creds), window, size), nil
}

// greet sends CONNECT and reads the CONNACK.
func greet(c net.Conn, creds *transport.Credentials, password string) error {
	b := []byte("\x00\x04MQTT\x04\xC2\x00\x3C") // 3.1.1; user name, password, clean session; keep-alive of 60 s
	for _, field := range []string{creds.DeviceID, userName(creds), password} {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(field))), field...)
	}
	if _, err := c.Write(frame(0x10, b)); err != nil {
		return err
	}
	var connack [4]byte
	if _, err := io.ReadFull(c, connack[:]); err != nil {
		return err
	}
	if connack != [4]byte{0x20, 2, 0, 0} {
		return fmt.Errorf("the peer answers CONNECT with % x", connack)
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

func newLimit(c net.Conn, topic string, window, size int) *limitSender {
	l := &limitSender{conn: c, window: window, acks: make([]byte, 64<<10)}
	for id := 1; id <= window; id++ {
		b := append(binary.BigEndian.AppendUint16(nil, uint16(len(topic))), topic...)
		b = binary.BigEndian.AppendUint16(b, uint16(id))
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
		got += part
		whole := got / 4
		for i := range whole {
			if l.acks[4*i] != 0x40 {
				return fmt.Errorf("the peer sent a packet % x where a PUBACK should be", l.acks[4*i:4*i+4])
			}
		}
		acked += whole
		part = copy(l.acks, l.acks[4*whole:got])
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
