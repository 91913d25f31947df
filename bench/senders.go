package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"runtime"
	"strconv"
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

// Load is what a sender sends: messages of Size bytes with so many properties, with Window of them
// in flight. Senders with a queue have up to Queue messages in it; others have as many in flight.
type Load struct{ Window, Size, Properties, Queue int }

// ring is the number of messages that a sender waits for at a time.
func (l Load) ring() int { return max(l.Window, l.Queue) }

// properties are names and values as programs have them, which no protocol needs to escape.
func (l Load) properties() url.Values {
	all := url.Values{}
	for i := range l.Properties {
		all.Set("property-"+strconv.Itoa(i), "value-"+strconv.Itoa(i))
	}
	return all
}

// Paho is the raw library in its fastest use: one goroutine, tokens in a ring.
func Paho(p *Peer, l Load) (Sender, error) {
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
	return &pahoSender{c, telemetryTopic(creds), l.properties(), make([]byte, l.Size), make([]paho.Token, l.ring())}, nil
}

type pahoSender struct {
	client     paho.Client
	topic      string
	properties url.Values
	body       []byte
	ring       []paho.Token
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
			*slot = p.client.Publish(p.topic+p.properties.Encode(), 1, false, p.body)
		}
	}
	return nil
}

func (p *pahoSender) Close() { p.client.Disconnect(250) }

// OverPaho is the device client over the MQTT transport on the raw library, with receipts in a
// ring.
func OverPaho(p *Peer, l Load) (Sender, error) {
	return newHubline(p, l, p.access.over("paho"))
}

// OverMQTT is the device client over Hubline's own MQTT engine.
func OverMQTT(p *Peer, l Load) (Sender, error) {
	return newHubline(p, l, p.access.mqtt())
}

// OverMQTTWithIDs is OverMQTT as a program has it by default: each message gets an id.
func OverMQTTWithIDs(p *Peer, l Load) (Sender, error) {
	creds, err := p.access.creds(0)
	if err != nil {
		return nil, err
	}
	return open(creds, p.access.mqtt()(), l, device.Options{})
}

// OverTopics is the device client over Hubline's own MQTT engine and MQTT 3.1.1, with a topic map
// in place of a hub's topics.
func OverTopics(p *Peer, l Load) (Sender, error) { return overTopics(p, nil, l) }

// OverMQTT5 is OverTopics over MQTT 5.
func OverMQTT5(p *Peer, l Load) (Sender, error) {
	return overTopics(p, mqtt.MQTT5(nil), l)
}

func overTopics(p *Peer, protocol mqtt.Protocol, l Load) (Sender, error) {
	creds := &transport.Credentials{Host: p.access.Host, DeviceID: "dev-0"} // anonymous
	return open(creds, p.access.overTopics(protocol), l, withoutIDs)
}

func newHubline(p *Peer, l Load, over func() transport.Transport) (Sender, error) {
	creds, err := p.access.creds(0)
	if err != nil {
		return nil, err
	}
	return open(creds, over(), l, withoutIDs)
}

// withoutIDs are options for a comparison with raw libraries, which send no message ids.
var withoutIDs = device.Options{NoMessageIDs: true}

// open opens the device client.
func open(creds *transport.Credentials, t transport.Transport, l Load, o device.Options) (Sender, error) {
	o.Window, o.MaxMessages, o.MaxBytes = l.Window, max(l.Queue, 4096), math.MaxInt32
	c, err := device.New(creds, t, &o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := opening()
	defer cancel()
	if err := c.Open(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	m := &transport.Message{Body: make([]byte, l.Size)}
	for name, values := range l.properties() {
		m.Properties = append(m.Properties, transport.Property{Name: name, Value: values[0]})
	}
	return &hublineSender{c, m, make([]device.Receipt, l.ring())}, nil
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
