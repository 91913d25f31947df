package amqpconn

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/hubline-iot/hubline/internal/amqpscreen"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

const (
	// maxSASLFrame bounds a frame of a SASL dialogue, for which the standard allows 512 bytes.
	maxSASLFrame = 8 << 10
	// maxChallenges bounds a SASL dialogue.
	maxChallenges = 100
)

// Authenticate runs a SASL dialogue that the library does not have, before Connect. It begins with
// the first of inits whose mechanism the peer offers. respond returns the response to a challenge;
// nil: none is expected. On error the socket is closed; the error is that of respond, or a cause
// for dialer.Protocol.
func Authenticate(ctx context.Context, outer, socket net.Conn, inits []wire.Init,
	respond func(challenge []byte) ([]byte, error)) error {
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer stop()
	err := authenticate(outer, inits, respond)
	if err == nil {
		return nil
	}
	_ = socket.Close()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return amqpscreen.ErrHubClosed
	}
	return err
}

func authenticate(c net.Conn, inits []wire.Init, respond func(challenge []byte) ([]byte, error)) error {
	head := wire.ProtocolHeader(wire.ProtocolSASL)
	if _, err := c.Write(head[:]); err != nil {
		return err
	}
	var got [wire.HeaderSize]byte
	if _, err := io.ReadFull(c, got[:]); err != nil {
		return err
	}
	switch {
	case string(got[:4]) != "AMQP":
		return amqpscreen.ErrNotAMQP
	case got != head:
		return ErrNoMechanism
	}
	p, err := readSASL(c)
	if err != nil {
		return err
	}
	offer, ok := p.(*wire.Mechanisms)
	if !ok {
		return amqpscreen.BrokenHandshake("the first frame is not sasl-mechanisms")
	}
	at := slices.IndexFunc(inits, func(i wire.Init) bool { return slices.Contains(offer.Mechanisms, i.Mechanism) })
	if at < 0 {
		return ErrNoMechanism
	}
	if err := writeSASL(c, &inits[at]); err != nil {
		return err
	}
	for range maxChallenges {
		p, err := readSASL(c)
		if err != nil {
			return err
		}
		switch p := p.(type) {
		case *wire.Outcome:
			if p.Code != wire.SASLOK {
				return &SASLError{int(p.Code)}
			}
			return nil
		case *wire.Challenge:
			if respond == nil {
				return amqpscreen.BrokenHandshake("a challenge, which the mechanism does not have")
			}
			response, err := respond(p.Challenge)
			if err != nil {
				return err
			}
			if err := writeSASL(c, &wire.Response{Response: response}); err != nil {
				return err
			}
		default:
			return amqpscreen.BrokenHandshake("a frame is neither sasl-challenge nor sasl-outcome")
		}
	}
	return amqpscreen.BrokenHandshake("the dialogue does not end")
}

// readSASL reads a frame, and nothing behind it.
func readSASL(c net.Conn) (wire.Performative, error) {
	b := make([]byte, 4, 512)
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(b)
	if size < wire.HeaderSize || size > maxSASLFrame {
		return nil, amqpscreen.BrokenHandshake("a frame has a wrong size")
	}
	b = append(b, make([]byte, size-4)...)
	if _, err := io.ReadFull(c, b[4:]); err != nil {
		return nil, err
	}
	f, n, err := wire.Split(b, maxSASLFrame)
	if err != nil || n == 0 || f.Type != wire.FrameSASL {
		return nil, amqpscreen.BrokenHandshake("a frame is not one of SASL")
	}
	p, _, err := f.Performative()
	if err != nil {
		return nil, amqpscreen.BrokenHandshake("a frame cannot be decoded")
	}
	return p, nil
}

func writeSASL(c net.Conn, p wire.Performative) error {
	b, err := wire.AppendFrame(nil, 0, p, nil)
	if err != nil {
		return err
	}
	_, err = c.Write(b)
	clear(b) // it may hold a token
	return err
}
