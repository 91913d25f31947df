package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
)

// Sender has a connection to a peer and sends messages of one size, with a window of them in
// flight. Each is acknowledged.
type Sender interface {
	// Send sends n messages and returns when all are acknowledged, or with an error when ctx ends.
	Send(ctx context.Context, n int) error
	Close()
}

// Paho is the raw library in its fastest use: one goroutine, tokens in a ring.
func Paho(p *Peer, window, size int) (Sender, error) {
	creds, err := p.access.creds(0)
	if err != nil {
		return nil, err
	}
	ctx, cancel := opening()
	defer cancel()
	o, err := p.access.rawOptions(ctx, creds)
	if err != nil {
		return nil, err
	}
	c := paho.NewClient(o.SetCleanSession(true)) // otherwise its tokens would never report a lost connection
	if t := c.Connect(); t.Wait() && t.Error() != nil {
		return nil, t.Error()
	}
	return &pahoSender{c, telemetryTopic(creds), make([]byte, size), make([]paho.Token, window)}, nil
}

type pahoSender struct {
	client paho.Client
	topic  string
	body   []byte
	ring   []paho.Token
}

func (p *pahoSender) Send(ctx context.Context, n int) error {
	window := len(p.ring)
	for i := range n + window {
		slot := &p.ring[i%window]
		if *slot != nil {
			select {
			case <-(*slot).Done():
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if err := (*slot).Error(); err != nil {
				return err
			}
			*slot = nil
		}
		if i < n {
			*slot = p.client.Publish(p.topic, 1, false, p.body)
		}
	}
	return nil
}

func (p *pahoSender) Close() { p.client.Disconnect(250) }

// OverPaho is the device client over the MQTT transport on the raw library, with receipts in a
// ring.
func OverPaho(p *Peer, window, size int) (Sender, error) {
	return newHubline(p, window, size, p.access.over("paho"))
}

// OverMQTT is the device client over Hubline's own MQTT engine.
func OverMQTT(p *Peer, window, size int) (Sender, error) {
	return newHubline(p, window, size, p.access.mqtt())
}

// OverMQTTWithIDs is OverMQTT as a program has it by default: each message gets an id.
func OverMQTTWithIDs(p *Peer, window, size int) (Sender, error) {
	creds, err := p.access.creds(0)
	if err != nil {
		return nil, err
	}
	return open(creds, p.access.mqtt()(), size, device.Options{Window: window})
}

// OverTopics is the device client over Hubline's own MQTT engine and MQTT 3.1.1, with a topic map
// in place of a hub's topics.
func OverTopics(p *Peer, window, size int) (Sender, error) { return overTopics(p, nil, window, size) }

// OverMQTT5 is OverTopics over MQTT 5.
func OverMQTT5(p *Peer, window, size int) (Sender, error) {
	return overTopics(p, mqtt.MQTT5(nil), window, size)
}

func overTopics(p *Peer, protocol mqtt.Protocol, window, size int) (Sender, error) {
	creds := &transport.Credentials{Host: p.access.Host, DeviceID: "dev-0"} // anonymous
	return open(creds, p.access.overTopics(protocol), size, withoutIDs(window))
}

func newHubline(p *Peer, window, size int, over func() transport.Transport) (Sender,
	error) {
	creds, err := p.access.creds(0)
	if err != nil {
		return nil, err
	}
	return open(creds, over(), size, withoutIDs(window))
}

// withoutIDs are options for a comparison with raw libraries, which send no message ids.
func withoutIDs(window int) device.Options {
	return device.Options{Window: window, NoMessageIDs: true}
}

// open opens the device client.
func open(creds *transport.Credentials, t transport.Transport, size int, o device.Options) (Sender, error) {
	c, err := device.New(creds, t, &o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := opening()
	defer cancel()
	if err := c.Open(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &hublineSender{c, &transport.Message{Body: make([]byte, size)}, make([]device.Receipt, o.Window)}, nil
}

// openTime is the time limit for a sender to connect.
const openTime = 10 * time.Second

func opening() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), openTime)
}

type hublineSender struct {
	client  *device.Client
	message *transport.Message
	ring    []device.Receipt
}

func (h *hublineSender) Send(ctx context.Context, n int) error {
	window := len(h.ring)
	for i := range n + window {
		r := &h.ring[i%window]
		if i >= window && i-window < n {
			if err := r.Wait(ctx); err != nil {
				return err
			}
		}
		if i < n {
			if err := h.client.Enqueue(ctx, h.message, r); err != nil {
				return err
			}
		}
	}
	if s := h.client.Stats(); s.Connections != 1 || s.Resent > 0 {
		return fmt.Errorf("the connection was lost meanwhile: %d connections, %d messages sent again", s.Connections,
			s.Resent)
	}
	return nil
}

func (h *hublineSender) Close() { _ = h.client.Close() }

// Figures are the performance of a sender and its cost for this process.
type Figures struct {
	Rate   float64 // messages per second
	CPU    float64 // ns of CPU time per message, user and system, including the garbage collector
	Allocs float64 // allocations per message
	Bytes  float64 // bytes allocated per message
}

// Measure lets s send n messages. It collects earlier garbage first.
func Measure(ctx context.Context, s Sender, n int) (Figures, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cpu, start := cpuTime(), time.Now()
	err := s.Send(ctx, n)
	took, used := time.Since(start), cpuTime()-cpu
	runtime.ReadMemStats(&after)
	each := func(v uint64) float64 { return float64(v) / float64(n) }
	return Figures{
		Rate: float64(n) / took.Seconds(), CPU: float64(used) / float64(n),
		Allocs: each(after.Mallocs - before.Mallocs), Bytes: each(after.TotalAlloc - before.TotalAlloc),
	}, err
}
