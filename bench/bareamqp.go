package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

const (
	bareFrame  = 1 << 20 // every message and batch fits in one frame
	bareWindow = 1 << 20 // of the session
	bareCredit = 10_000  // of the link; renewed when half of it is used
)

// answerAMQP gives every frame the shortest answer that AMQP 1.0 allows. It accepts every login,
// every address, and every transfer together with all others read at once. It supports any number
// of sessions and links, but expects transfers only on the link that was attached last, with
// deliveries numbered from 0. It allocates nothing for a transfer.
func answerAMQP(c net.Conn) error {
	b := &bareAMQP{r: bufio.NewReaderSize(c, 64<<10), c: c}
	for {
		if b.r.Buffered() == 0 {
			if err := b.flush(); err != nil {
				return err
			}
		}
		if err := b.next(); err != nil {
			return err
		}
	}
}

type bareAMQP struct {
	r   *bufio.Reader
	c   net.Conn
	out []byte

	body     []byte // of a frame other than a transfer
	channel  uint16 // of the session
	handle   uint32 // of the link
	transfer uint32 // the number of the next delivery
	accepted uint32 // number of accepted deliveries
	granted  uint32 // number of granted deliveries
}

// next reads a protocol header or a frame.
func (b *bareAMQP) next() error {
	head, err := b.r.Peek(wire.HeaderSize)
	if err != nil {
		return err
	}
	if bytes.HasPrefix(head, []byte("AMQP")) {
		b.out = append(b.out, head...)
		sasl := head[4] == wire.ProtocolSASL
		_, _ = b.r.Discard(len(head)) // already buffered
		if sasl {
			return b.say(0, &wire.Mechanisms{Mechanisms: []wire.Symbol{"PLAIN"}})
		}
		return nil
	}
	size := int(binary.BigEndian.Uint32(head))
	channel := binary.BigEndian.Uint16(head[6:])
	const transfer = "\x00\x53\x14"
	if size > len(head)+len(transfer) {
		if head, err = b.r.Peek(len(head) + len(transfer)); err != nil {
			return err
		}
		if string(head[wire.HeaderSize:]) == transfer {
			b.transfer++
			_, err = b.r.Discard(size)
			return err
		}
	}
	if size > bareFrame {
		return fmt.Errorf("frame of %d bytes", size)
	}
	b.body = append(b.body[:0], make([]byte, size)...)
	if _, err := io.ReadFull(b.r, b.body); err != nil {
		return err
	}
	f, _, err := wire.Split(b.body, bareFrame)
	if err != nil || len(f.Body) == 0 {
		return err
	}
	p, _, err := f.Performative()
	if err != nil {
		return err
	}
	return b.answer(channel, p)
}

// answer handles frames other than transfers.
func (b *bareAMQP) answer(channel uint16, p wire.Performative) error {
	switch p := p.(type) {
	case *wire.Init:
		return b.say(0, &wire.Outcome{Code: wire.SASLOK})
	case *wire.Open:
		return b.say(0, &wire.Open{ContainerID: "bare", MaxFrameSize: bareFrame, ChannelMax: 1<<16 - 1})
	case *wire.Begin:
		return b.say(channel, &wire.Begin{RemoteChannel: wire.Some(channel), IncomingWindow: bareWindow,
			OutgoingWindow: bareWindow, HandleMax: 255})
	case *wire.Attach:
		if err := b.say(channel, &wire.Attach{
			Name: p.Name, Handle: p.Handle, Role: !p.Role, Source: p.Source, Target: p.Target,
			InitialDeliveryCount: wire.Some[uint32](0),
		}); err != nil || p.Role == wire.RoleReceiver {
			return err
		}
		b.channel, b.handle = channel, p.Handle
		return b.credit()
	case *wire.Detach:
		return b.say(channel, &wire.Detach{Handle: p.Handle, Closed: true})
	case *wire.End:
		return b.say(channel, &wire.End{})
	case *wire.Close:
		if err := b.say(0, &wire.Close{}); err != nil {
			return err
		}
		_ = b.flush()
		return io.EOF
	}
	return nil // flow
}

// credit grants the link bareCredit messages from the current one on.
func (b *bareAMQP) credit() error {
	b.granted = b.transfer + bareCredit
	return b.say(b.channel, &wire.Flow{
		NextIncomingID: wire.Some(b.transfer), IncomingWindow: bareWindow, OutgoingWindow: bareWindow,
		Handle: wire.Some(b.handle), DeliveryCount: wire.Some(b.transfer), LinkCredit: wire.Some[uint32](bareCredit),
	})
}

// flush accepts the received transfers and writes all pending frames.
func (b *bareAMQP) flush() error {
	if b.accepted != b.transfer {
		if err := b.say(b.channel, &wire.Disposition{Role: wire.RoleReceiver, First: b.accepted,
			Last: wire.Some(b.transfer - 1), Settled: true, State: &wire.Accepted{}}); err != nil {
			return err
		}
		b.accepted = b.transfer
		if b.granted-b.transfer < bareCredit/2 {
			if err := b.credit(); err != nil {
				return err
			}
		}
	}
	if len(b.out) == 0 {
		return nil
	}
	_, err := b.c.Write(b.out)
	b.out = b.out[:0]
	return err
}

func (b *bareAMQP) say(channel uint16, p wire.Performative) (err error) {
	b.out, err = wire.AppendFrame(b.out, channel, p, nil)
	return err
}
