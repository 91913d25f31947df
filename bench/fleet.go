package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	goamqp "github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// The budget of a device that shares a connection with a thousand others. The heap is with the
// telemetry link only, and with the link for cloud-to-device messages too. FleetBack is the time
// until all are connected again after the connection was lost.
const (
	FleetHeapKB         = 20
	FleetMessagesHeapKB = 24
	FleetGoroutines     = 3
	FleetBack           = 3 * time.Second
)

// FleetSettings configure the measurement.
type FleetSettings struct {
	Devices  int
	Messages bool // each also receives cloud-to-device messages
	Raw      bool // sessions and links of the raw library instead of devices: the floor
}

// FleetReport is the cost of idle devices on one connection, each after one message, and the time
// until they are connected again.
type FleetReport struct {
	FleetSettings
	// Per device.
	Goroutines         float64
	Anon, Heap, Stacks float64 // KB, as for IdleReport
	// Since the connection was cut; zero with Raw.
	Back   time.Duration // all are connected
	Served time.Duration // each has had another message acknowledged
}

// Over returns an error that lists the exceeded budgets other than time, nil if there are none. Raw
// has no budget.
func (r *FleetReport) Over() error {
	kb := float64(FleetHeapKB)
	if r.Messages {
		kb = FleetMessagesHeapKB
	}
	switch {
	case r.Raw:
	case r.Goroutines > FleetGoroutines || r.Heap > kb:
		return fmt.Errorf("device on a shared connection: %.2f goroutines and %.1f KB of heap; the budget is %d and %.0f KB",
			r.Goroutines, r.Heap, FleetGoroutines, kb)
	}
	return nil
}

// Late returns an error if the devices took longer than FleetBack to connect again.
func (r *FleetReport) Late() error {
	if r.Back > FleetBack {
		return fmt.Errorf("devices on a shared connection: all back after %v; the budget is %v", r.Back, FleetBack)
	}
	return nil
}

// fleetOrder is the input of the child.
type fleetOrder struct {
	Access access
	FleetSettings
}

// fleetTimes are the child's report and times, by the clock that all processes of a machine share.
type fleetTimes struct {
	Report       FleetReport
	Back, Served time.Time
}

// Fleet opens devices on one connection in a child process, to a hub in this one. With Raw it opens
// the raw library's sessions and links, to the bare responder.
func Fleet(ctx context.Context, s FleetSettings) (*FleetReport, error) {
	if s.Raw {
		l, a, err := listenBare(AMQP, false)
		if err != nil {
			return nil, err
		}
		defer l.Close()
		var t fleetTimes
		err = inChild(ctx, "fleet", fleetOrder{*a, s}, &t, nil)
		return &t.Report, err
	}
	hub, a, err := newHub(AMQP, s.Devices+1, false, keepFew)
	if err != nil {
		return nil, err
	}
	defer hub.Close()
	var t fleetTimes
	var cut time.Time
	dropped := 0
	if err := inChild(ctx, "fleet",
		fleetOrder{*a, s}, &t, func() { cut, dropped = time.Now(), hub.Drop("") }); err != nil {
		return nil, err
	}
	if dropped != 1 {
		return nil, fmt.Errorf("there were %d connections", dropped)
	}
	r := &t.Report
	r.Back, r.Served = t.Back.Sub(cut), t.Served.Sub(cut)
	return r, nil
}

// fleetIdle is the time without traffic before the measurement of idle devices.
const fleetIdle = 3 * time.Second

func fleetChild(in *json.Decoder, say func(any)) (any, error) {
	var o fleetOrder
	if err := in.Decode(&o); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	all := o.Access.amqpOptions()
	all.Devices = o.Devices + 1
	f := fleet{order: &o, devices: make([]*device.Client, o.Devices+1), mux: amqp.NewMux(all)}
	open := f.open
	if o.Raw {
		creds, err := o.Access.creds(0)
		if err != nil {
			return nil, err
		}
		if f.raw, err = openGoAMQP(ctx, &o.Access, creds); err != nil {
			return nil, err
		}
		open = f.openRaw
	}
	if err := open(ctx, 0); err != nil { // one-time state must not count for a device
		return nil, err
	}
	rest := func() {
		if !o.Raw { // Raw is idle at once
			time.Sleep(fleetIdle)
		}
	}
	rest()
	before, err := measure()
	if err != nil {
		return nil, err
	}
	if err := each(1, o.Devices+1, func(i int) error { return open(ctx, i) }); err != nil {
		return nil, err
	}
	rest()
	after, err := measure()
	if err != nil {
		return nil, err
	}
	n := float64(o.Devices)
	t := fleetTimes{Report: FleetReport{
		FleetSettings: o.FleetSettings, Goroutines: float64(after.goroutines-before.goroutines) / n,
		Anon: (after.anon - before.anon) / n, Heap: (after.heap - before.heap) / n,
		Stacks: (after.stackMem - before.stackMem) / n,
	}}
	say("ready")
	if o.Raw {
		return t, nil
	}
	if t.Back, err = f.connected(ctx, 2); err != nil {
		return nil, err
	}
	err = each(0, len(f.devices), func(i int) error { return f.send(ctx, i) })
	t.Served = time.Now()
	return t, err
}

// fleet is the state of the child.
type fleet struct {
	order   *fleetOrder
	mux     *amqp.Mux
	devices []*device.Client

	raw   *goamqp.Conn
	links []any // keeps the raw links reachable
	mu    sync.Mutex
}

// open opens a device and sends a message.
func (f *fleet) open(ctx context.Context, i int) error {
	creds, err := f.order.Access.creds(i)
	if err != nil {
		return err
	}
	if f.devices[i], err = device.New(creds, f.mux, nil); err != nil {
		return err
	}
	if f.order.Messages {
		err := f.devices[i].HandleMessages(func(context.Context, *transport.Message) error { return nil })
		if err != nil {
			return err
		}
	}
	if err := f.devices[i].Open(ctx); err != nil {
		return err
	}
	return f.send(ctx, i)
}

func (f *fleet) send(ctx context.Context, i int) error {
	return f.devices[i].Send(ctx, &transport.Message{Body: make([]byte, 100)})
}

// connected waits until all devices are connected over the connection with that number, and returns
// that time.
func (f *fleet) connected(ctx context.Context, connection uint64) (time.Time, error) {
	for _, c := range f.devices {
		for c.Stats().Connections != connection || c.Status().State != device.StateConnected {
			if ctx.Err() != nil {
				return time.Time{}, fmt.Errorf("a device is %v after %d connections: %w", c.Status().State, c.Stats().Connections,
					ctx.Err())
			}
			time.Sleep(time.Millisecond)
		}
	}
	return time.Now(), nil
}

// openRaw begins a session with the links of a device.
func (f *fleet) openRaw(ctx context.Context, i int) error {
	session, err := f.raw.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("/devices/dev-%d/messages/", i)
	sender, err := session.NewSender(ctx, name+"events", nil)
	var receiver *goamqp.Receiver
	if err == nil && f.order.Messages {
		receiver, err = session.NewReceiver(ctx, name+"devicebound", nil)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.links = append(f.links, sender, receiver)
	return err
}

// each calls f for the numbers from first to end, a few concurrently.
func each(first, end int, f func(i int) error) error {
	const atATime = 8
	errs := make([]error, atATime)
	var wg sync.WaitGroup
	for worker := range atATime {
		wg.Go(func() {
			for i := first + worker; i < end && errs[worker] == nil; i += atATime {
				errs[worker] = f(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
