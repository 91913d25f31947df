package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// DeskSettings configure the measurement of a hub with many devices that all send.
type DeskSettings struct {
	Devices int
	Senders int  // how many of them send
	AMQP    bool // these are connected over AMQP, where messages share transfers
	Keep    int  // messages that the hub keeps
	Body    int  // bytes of a message
	Secure  bool
	For     time.Duration
	Rate    int    // messages a second of all senders; 0 = as fast as the hub acknowledges
	Profile string // a directory for CPU profiles of the three processes; empty = none
}

// DeskReport is what the hub, the devices and the reader did, in processes of their own.
type DeskReport struct {
	DeskSettings
	Connect      time.Duration // from the first dial until all devices are connected
	Goroutines   float64       // of the hub, per device
	Anon         float64       // of the hub, KB per device
	Acknowledged int
	Sent         time.Duration // until the last acknowledgement
	Hub          float64       // KB of anonymous memory of the hub afterwards, with its log
	Stored       int
	Read         int           // by a reader of the Event-Hubs-compatible endpoint
	Lag          time.Duration // from the last acknowledgement until the reader has all

	// CPU time of all messages, user and system.
	DevicesCPU, HubCPU, ReaderCPU time.Duration
}

// Over returns an error if messages were lost on the way to the log or to the reader.
func (r *DeskReport) Over() error {
	if r.Stored != r.Acknowledged || r.Read != r.Acknowledged {
		return fmt.Errorf("%d messages were acknowledged, %d stored and %d read", r.Acknowledged, r.Stored, r.Read)
	}
	return nil
}

// deskOrder is the input of the child with the devices.
type deskOrder struct {
	Access, AMQP access
	DeskSettings
}

// deskSent is the child's report.
type deskSent struct {
	Acknowledged int
	Took, CPU    time.Duration
}

// Desk opens devices in a child process, to a hub in this one, and lets them send. Another child
// reads.
func Desk(ctx context.Context, s DeskSettings) (*DeskReport, error) {
	hub, a, err := newHub(MQTT, s.Devices, s.Secure, s.Keep)
	if err != nil {
		return nil, err
	}
	defer hub.Close()
	port := testbroker.PortAMQP
	if s.Secure {
		port = testbroker.PortAMQPS
	}
	addr, err := hub.Listen(port, anyPort)
	if err != nil {
		return nil, err
	}
	b := *a
	b.Addr = addr.String()
	before, err := measure()
	if err != nil {
		return nil, err
	}
	r := &DeskReport{DeskSettings: s}
	began := time.Now()
	devices, err := startChild(ctx, "desk", deskOrder{*a, b, s})
	if err != nil {
		return nil, err
	}
	if err := devices.hear(new(string)); err != nil {
		return nil, devices.end(err)
	}
	r.Connect = time.Since(began)
	after, err := measure()
	if err != nil {
		return nil, devices.end(err)
	}
	n := float64(s.Devices)
	r.Goroutines, r.Anon = float64(after.goroutines-before.goroutines)/n, (after.anon-before.anon)/n
	reader, err := startDeskReader(ctx, hub, &b, s.Profile)
	if err != nil {
		return nil, devices.end(err)
	}
	if err := devices.end(r.load(hub, devices, reader)); err != nil {
		return nil, reader.end(err)
	}
	level, err := measure()
	r.Hub = level.anon
	return r, reader.end(err)
}

// load lets the devices send, and waits until the reader has all.
func (r *DeskReport) load(hub *testbroker.Hub, devices, reader *child) error {
	stop, err := profile(r.Profile, "hub")
	if err != nil {
		return err
	}
	defer stop()
	cpu := cpuTime()
	if err := devices.say("send"); err != nil {
		return err
	}
	var sent deskSent
	if err := devices.hear(&sent); err != nil {
		return err
	}
	last := time.Now()
	r.Acknowledged, r.Sent, r.Stored, r.DevicesCPU = sent.Acknowledged, sent.Took, hub.Len(), sent.CPU
	if err := reader.say(sent.Acknowledged); err != nil {
		return err
	}
	var read deskRead
	if err := reader.hear(&read); err != nil {
		return err
	}
	r.Read, r.Lag, r.ReaderCPU, r.HubCPU = read.Events, read.Last.Sub(last), read.CPU, cpuTime()-cpu
	return nil
}

func deskChild(in *json.Decoder, say func(any)) (any, error) {
	var o deskOrder
	if err := in.Decode(&o); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.For+5*time.Minute)
	defer cancel()
	overMQTT, overAMQP := o.Access.mqtt(), o.AMQP.amqpOptions()
	devices := make([]*device.Client, o.Devices)
	err := each(0, o.Devices, func(i int) (err error) {
		creds, err := o.Access.creds(i)
		if err != nil {
			return err
		}
		var t transport.Transport
		if t = overMQTT(); i < o.Senders && o.DeskSettings.AMQP {
			t = amqp.New(overAMQP)
		}
		if devices[i], err = device.New(creds, t, nil); err != nil {
			return err
		}
		return devices[i].Open(ctx)
	})
	if err != nil {
		return nil, err
	}
	say("connected")
	if err := in.Decode(new(string)); err != nil {
		return nil, err
	}
	stop, err := profile(o.Profile, "devices")
	if err != nil {
		return nil, err
	}
	defer stop()
	began, cpu := time.Now(), cpuTime()
	acknowledged, err := sendAll(ctx, o.Senders, func(ctx context.Context, i int) (int, error) {
		due := pace{end: began.Add(o.For)}
		if o.Rate > 0 {
			due.next, due.each = began, time.Second*time.Duration(o.Senders)/time.Duration(o.Rate)
		}
		return sendUntil(ctx, devices[i], &transport.Message{Body: make([]byte, o.Body)}, &due)
	})
	return deskSent{acknowledged, time.Since(began), cpuTime() - cpu}, err
}

// sendAll lets n devices send, and returns how many messages were acknowledged.
func sendAll(ctx context.Context, n int, send func(ctx context.Context, i int) (int, error)) (int, error) {
	var acknowledged atomic.Int64
	errs := make(chan error, n)
	for i := range n {
		go func() {
			count, err := send(ctx, i)
			acknowledged.Add(int64(count))
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			return 0, err
		}
	}
	return int(acknowledged.Load()), nil
}

// pace is when a sender sends.
type pace struct {
	next, end time.Time
	each      time.Duration // for one message; 0: at once
}

// wait waits until the next n messages are due. It returns false when the time is over.
func (p *pace) wait(n int) bool {
	time.Sleep(time.Until(p.next))
	p.next = p.next.Add(p.each * time.Duration(n))
	return time.Now().Before(p.end)
}

// sendUntil sends until the time is over. The device waits for room in its outbox.
func sendUntil(ctx context.Context, c *device.Client, m *transport.Message, due *pace) (int, error) {
	const some = 64 // a sleep for each message would cost more than the message
	before := c.Stats().Acknowledged
	for due.wait(some) {
		for range some {
			if err := c.Enqueue(ctx, m, nil); err != nil {
				return 0, err
			}
		}
	}
	err := c.Flush(ctx)
	return int(c.Stats().Acknowledged - before), err
}

// deskLoad measures a hub with many devices. It fails if a message was lost.
func deskLoad(args []string) error {
	flags := flag.NewFlagSet("desk", flag.ExitOnError)
	var s DeskSettings
	flags.IntVar(&s.Devices, "devices", 10_000, "connected devices")
	flags.IntVar(&s.Senders, "senders", 100, "how many of them send")
	flags.BoolVar(&s.AMQP, "amqp", false, "the senders are connected over AMQP, the others over MQTT")
	flags.IntVar(&s.Keep, "keep", 100_000, "messages that the hub keeps")
	flags.IntVar(&s.Body, "body", 100, "bytes of a message")
	flags.BoolVar(&s.Secure, "tls", false, "over TLS")
	flags.DurationVar(&s.For, "for", 20*time.Second, "how long they send")
	flags.IntVar(&s.Rate, "rate", 0, "messages a second of all senders; 0 = as fast as the hub acknowledges")
	flags.StringVar(&s.Profile, "profile", "", "a directory for CPU profiles of the three processes")
	_ = flags.Parse(args) // exits on an error
	if s.Senders > s.Devices {
		return fmt.Errorf("-senders %d is more than -devices %d", s.Senders, s.Devices)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.For+10*time.Minute)
	defer cancel()
	r, err := Desk(ctx, s)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d devices, TLS %v: connected in %.1f s; the hub has %.2f goroutines and %.1f KB for each\n",
		runtime.Version(), r.Devices, r.Secure, r.Connect.Seconds(), r.Goroutines, r.Anon)
	fmt.Printf("%d senders, %d B: %d messages in %.1f s, %.0f a second; %d stored, %d read, the last %v after its "+
		"acknowledgement, %.0f a second over all; then the hub has %.0f MB\n", r.Senders, r.Body, r.Acknowledged,
		r.Sent.Seconds(), float64(r.Acknowledged)/r.Sent.Seconds(), r.Stored, r.Read, r.Lag.Round(time.Millisecond),
		float64(r.Read)/(r.Sent+r.Lag).Seconds(), r.Hub/1024)
	each := func(cpu time.Duration) float64 { return float64(cpu.Microseconds()) / float64(max(r.Acknowledged, 1)) }
	fmt.Printf("µs of CPU time for each message: devices %.2f, hub %.2f, reader %.2f\n", each(r.DevicesCPU),
		each(r.HubCPU), each(r.ReaderCPU))
	return r.Over()
}
