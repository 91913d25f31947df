package main

import (
	"context"
	"fmt"
	"strings"

	goamqp "github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// amqpOptions are the options of Hubline's transport and of a Mux; the caller adds those under
// comparison.
func (a *access) amqpOptions() *amqp.Options {
	return &amqp.Options{Network: netopt.Options{Addr: a.Addr, Plaintext: a.CA == nil, TLS: a.tls()}}
}

// OverAMQP is the device client over the AMQP transport, with receipts in a ring. Messages that are
// ready at the same time share a transfer.
func OverAMQP(p *Peer, l Load) (Sender, error) { return overAMQP(p, l, 0) }

// OverAMQPAlone is OverAMQP with one transfer per message, as in the raw library.
func OverAMQPAlone(p *Peer, l Load) (Sender, error) { return overAMQP(p, l, 1) }

// OverAMQPWithIDs is OverAMQP as a program has it by default: each message gets an id.
func OverAMQPWithIDs(p *Peer, l Load) (Sender, error) {
	creds, err := p.access.creds(0)
	if err != nil {
		return nil, err
	}
	return open(creds, p.access.over("amqp")(), l, device.Options{})
}

func overAMQP(p *Peer, l Load, batch int) (Sender, error) {
	return newHubline(p, l, func() transport.Transport {
		o := p.access.amqpOptions()
		o.Auth, o.Batch = amqp.AuthPlain, batch // as in the raw library, so that the bare responder stays simple
		return amqp.New(o)
	})
}

// MoreAllocs is the number of allocations per message that Hubline may have more than the raw
// library over AMQP.
const MoreAllocs = 2

// GoAMQP is the raw library in its fastest use: one goroutine, receipts in a ring.
func GoAMQP(p *Peer, l Load) (Sender, error) {
	creds, err := p.access.creds(0)
	if err != nil {
		return nil, err
	}
	ctx, cancel := opening()
	defer cancel()
	conn, err := openGoAMQP(ctx, &p.access, creds)
	if err != nil {
		return nil, err
	}
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	sender, err := session.NewSender(ctx, eventsAddress(creds), nil)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	m := goamqp.NewMessage(make([]byte, l.Size))
	if l.Properties > 0 {
		m.ApplicationProperties = map[string]any{}
		for name, values := range l.properties() {
			m.ApplicationProperties[name] = values[0]
		}
	}
	return &goAMQPSender{conn, sender, m, make([]goamqp.SendReceipt, l.ring())}, nil
}

// openGoAMQP opens a connection of the raw library and authenticates one device by SASL PLAIN.
func openGoAMQP(ctx context.Context, a *access, creds *transport.Credentials) (*goamqp.Conn, error) {
	token, err := creds.NewToken(ctx)
	if err != nil {
		return nil, err
	}
	socket, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	hub, _, _ := strings.Cut(creds.Host, ".")
	conn, err := goamqp.NewConn(ctx, socket, &goamqp.ConnOptions{HostName: creds.Host,
		SASLType: goamqp.SASLTypePlain(creds.DeviceID+"@sas."+hub, token.Text.Reveal())})
	if err != nil {
		_ = socket.Close()
	}
	return conn, err
}

func eventsAddress(creds *transport.Credentials) string {
	return "/devices/" + creds.DeviceID + "/messages/events"
}

type goAMQPSender struct {
	conn    *goamqp.Conn
	sender  *goamqp.Sender
	message *goamqp.Message
	ring    []goamqp.SendReceipt
}

func (g *goAMQPSender) Send(ctx context.Context, n int) error {
	window := len(g.ring)
	for i := range n + window {
		slot := &g.ring[i%window]
		if i >= window && i-window < n {
			switch state, err := slot.Wait(ctx); state.(type) {
			case *goamqp.StateAccepted:
			default:
				return unaccepted(state, err)
			}
		}
		if i < n {
			var err error
			if *slot, err = g.sender.SendWithReceipt(ctx, g.message, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *goAMQPSender) Close() { _ = g.conn.Close() }

// unaccepted returns an error for an outcome other than accepted.
func unaccepted(state goamqp.DeliveryState, err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("the peer answers a message with %#v", state)
}
