package main

import (
	"context"
	"sync/atomic"

	"github.com/eclipse/paho.golang/packets"
	paho "github.com/eclipse/paho.golang/paho"
	"github.com/eclipse/paho.golang/paho/session"
	"github.com/eclipse/paho.golang/paho/session/state"
)

// brokerTopic is the topic of the senders to brokers that are no hubs.
const brokerTopic = "site/dev-0/up"

// PahoGolang is the raw MQTT 5 library in its fastest use: one goroutine that does not wait for
// each acknowledgement. Its interface tells of acknowledgements only through the session.
func PahoGolang(p *Peer, l Load) (Sender, error) {
	ctx, cancel := opening()
	defer cancel()
	socket, err := p.access.dial(ctx)
	if err != nil {
		return nil, err
	}
	acks := &countedAcks{SessionManager: state.NewInMemory(), more: make(chan struct{}, 1), failed: make(chan error, 1)}
	client := paho.NewClient(paho.ClientConfig{Conn: packets.NewThreadSafeConn(socket), Session: acks,
		OnClientError: func(err error) { report(acks.failed, err) }})
	if _, err := client.Connect(ctx, &paho.Connect{ClientID: "dev-0", CleanStart: true, KeepAlive: 60}); err != nil {
		_ = socket.Close()
		return nil, err
	}
	return &pahoGolangSender{client, acks, make([]byte, l.Size), uint64(l.Window)}, nil
}

// countedAcks is a session that counts the PUBACKs which the library has handled.
type countedAcks struct {
	session.SessionManager
	acked  atomic.Uint64
	more   chan struct{} // capacity 1: acked has grown
	failed chan error    // capacity 1; nil for a client that connects again
}

func (c *countedAcks) PacketReceived(p *packets.ControlPacket, to chan<- *packets.Publish) error {
	err := c.SessionManager.PacketReceived(p, to)
	if err == nil && p.Type == packets.PUBACK {
		c.acked.Add(1)
		select {
		case c.more <- struct{}{}:
		default:
		}
	}
	return err
}

// wait waits until that many messages are acknowledged.
func (c *countedAcks) wait(ctx context.Context, acked uint64) error {
	for c.acked.Load() < acked {
		select {
		case <-c.more:
		case err := <-c.failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func report(failed chan<- error, err error) {
	select {
	case failed <- err:
	default:
	}
}

type pahoGolangSender struct {
	client *paho.Client
	acks   *countedAcks
	body   []byte
	window uint64
}

func (p *pahoGolangSender) Send(ctx context.Context, n int) error {
	before := p.acks.acked.Load()
	for sent := uint64(0); sent < uint64(n); sent++ {
		if err := p.acks.wait(ctx, before+sent+1-min(sent+1, p.window)); err != nil {
			return err
		}
		_, err := p.client.PublishWithOptions(ctx, &paho.Publish{Topic: brokerTopic, QoS: 1, Payload: p.body},
			paho.PublishOptions{Method: paho.PublishMethod_AsyncSend})
		if err != nil {
			return err
		}
	}
	return p.acks.wait(ctx, before+uint64(n))
}

func (p *pahoGolangSender) Close() { _ = p.client.Disconnect(&paho.Disconnect{}) }
