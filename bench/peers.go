// Package bench compares Hubline with the raw library below it: the same messages, the same window, the same peer, in the same process and run.
package bench

import (
	"bufio"
	"encoding/binary"
	"io"
	"log/slog"
	"net"

	"github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
)

// A Peer is what the senders talk to, on TCP loopback.
type Peer struct {
	Name  string
	Addr  string
	Close func()
}

// Mochi is a whole broker.
func Mochi() (*Peer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := mqtt.New(&mqtt.Options{Logger: slog.New(slog.DiscardHandler), SysTopicResendInterval: 3600})
	if err := s.AddHook(new(auth.AllowHook), nil); err != nil {
		return nil, err
	}
	if err := s.AddListener(listeners.NewNet("bench", l)); err != nil {
		return nil, err
	}
	if err := s.Serve(); err != nil {
		return nil, err
	}
	return &Peer{"mochi", l.Addr().String(), func() { _ = s.Close() }}, nil
}

// Bare acknowledges and does nothing else: the peer's own cost is next to nothing.
func Bare() (*Peer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection
				_ = answer(c)
				_ = c.Close()
			}()
		}
	}()
	return &Peer{"bare", l.Addr().String(), func() { _ = l.Close() }}, nil
}

// answer gives every packet the shortest answer that MQTT 3.1.1 allows.
func answer(c net.Conn) error {
	r, w := bufio.NewReaderSize(c, 64<<10), bufio.NewWriterSize(c, 64<<10)
	for {
		if r.Buffered() == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		kind, err := r.ReadByte()
		if err != nil {
			return err
		}
		length, err := binary.ReadUvarint(r) // the remaining length has the same form
		if err != nil {
			return err
		}
		var reply []byte
		used := 0
		switch kind >> 4 {
		case 1: // CONNECT
			reply = []byte{0x20, 2, 0, 0}
		case 3: // PUBLISH
			head, err := r.Peek(2)
			if err != nil {
				return err
			}
			topic := int(binary.BigEndian.Uint16(head))
			if _, err := r.Discard(2 + topic); err != nil {
				return err
			}
			var ack [4]byte
			ack[0], ack[1] = 0x40, 2
			if _, err := io.ReadFull(r, ack[2:]); err != nil {
				return err
			}
			used = 4 + topic
			if _, err := w.Write(ack[:]); err != nil {
				return err
			}
		case 12: // PINGREQ
			reply = []byte{0xD0, 0}
		case 14: // DISCONNECT
			return nil
		}
		if _, err := r.Discard(int(length) - used); err != nil {
			return err
		}
		if _, err := w.Write(reply); err != nil {
			return err
		}
	}
}
