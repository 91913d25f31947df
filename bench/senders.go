package bench

import (
	"context"
	"errors"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
	"github.com/hubline-iot/hubline/transport/mqtt/lean/leannet"
)

// A Sender sends n messages of the given body at QoS 1 with window in flight and returns when all are acknowledged.
type Sender interface {
	Send(n, window int, body []byte) error
	Close()
}

// Paho is the raw library, used as well as its interface allows: one goroutine, tokens in a ring.
func Paho(addr string) (Sender, error) {
	o := paho.NewClientOptions().AddBroker("tcp://" + addr).SetClientID("dev-1").SetProtocolVersion(4).
		SetAutoReconnect(false).SetCleanSession(true).SetOrderMatters(false).SetWriteTimeout(10 * time.Second)
	c := paho.NewClient(o)
	if t := c.Connect(); t.Wait() && t.Error() != nil {
		return nil, t.Error()
	}
	return pahoSender{c}, nil
}

type pahoSender struct{ c paho.Client }

func (p pahoSender) Send(n, window int, body []byte) error {
	ring := make([]paho.Token, window)
	for i := range n + window {
		slot := &ring[i%window]
		if *slot != nil {
			(*slot).Wait()
			if err := (*slot).Error(); err != nil {
				return err
			}
			*slot = nil
		}
		if i < n {
			*slot = p.c.Publish("devices/dev-1/messages/events/", 1, false, body)
		}
	}
	return nil
}

func (p pahoSender) Close() { p.c.Disconnect(250) }

// Hubline is the device client over the MQTT transport on the raw library, receipts in a ring.
func Hubline(addr string, window int) (Sender, error) {
	creds := benchCreds()
	return newHubline(creds, mqtt.New(&mqtt.Options{Addr: addr, Plaintext: true}), window)
}

// Lean is the same client over the MQTT engine of our own.
func Lean(addr string, window int) (Sender, error) {
	creds := benchCreds()
	return newHubline(creds, lean.New(leannet.Dialer(creds, &leannet.Options{Addr: addr, Plaintext: true}), nil), window)
}

func benchCreds() *transport.Credentials {
	return &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1"}
}

func newHubline(creds *transport.Credentials, t transport.Transport, window int) (Sender, error) {
	c, err := device.New(creds, t, &device.Options{Window: window})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.Open(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return hublineSender{c}, nil
}

type hublineSender struct{ c *device.Client }

func (h hublineSender) Send(n, window int, body []byte) error {
	ctx := context.Background()
	ring := make([]device.Receipt, window)
	m := &transport.Message{Body: body}
	for i := range n + window {
		r := &ring[i%window]
		if i >= window && i-window < n {
			if err := r.Wait(ctx); err != nil {
				return err
			}
		}
		if i < n {
			if err := h.c.Enqueue(ctx, m, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h hublineSender) Close() { _ = h.c.Close() }
