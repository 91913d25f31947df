package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/examples/internal/setup"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// load runs the devices until ctx or the duration ends, and prints the counts.
func load(ctx context.Context, s *settings) (err error) {
	senders, err := newSenders(ctx, s)
	if err != nil {
		return err
	}
	book, err := openLedger(s.ledger, s.devices)
	if err != nil {
		return err
	}
	if s.duration > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, s.duration)
		defer end()
	}
	defer context.AfterFunc(ctx, func() { s.faults.ended.Store(true) })()
	var all sync.WaitGroup
	for _, d := range senders {
		all.Go(func() { d.run(ctx, s, book) })
	}
	all.Wait()
	book.cut(s.faults.cuts.Load())
	return book.close(os.Stdout)
}

// newSenders returns the senders of all devices. None has connected yet.
func newSenders(ctx context.Context, s *settings) ([]*sender, error) {
	ports, err := setup.PortsOf(s.transport)
	if err != nil {
		return nil, err
	}
	rules, err := rulesOf(s.policy, s.fleet)
	if err != nil {
		return nil, err
	}
	hub := setup.Target{Testhub: s.testhub}
	network, err := hub.Find(ctx, ports.Testhub)
	if err != nil {
		return nil, err
	}
	var registers *service
	if s.provision != "" {
		if registers, err = newService(ctx, s.provision, &hub); err != nil {
			return nil, err
		}
	}
	dials := device.NewDialLimiter(s.dials, s.dialGap)
	senders := make([]*sender, s.devices.count)
	var shared transport.Transport
	for i := range senders {
		creds, err := s.devices.credentials(i)
		if err != nil {
			return nil, err
		}
		options, err := optionsOf(&rules, s.spread, dials)
		if err != nil {
			return nil, err
		}
		id := creds.DeviceID
		switch {
		case registers != nil:
			creds, shared, err = registers.device(creds,
				func(assigned *transport.Credentials, _ *provisioning.Assignment) transport.Transport {
					return setup.Transport(s.transport, assigned, s.faults.network(network))
				})
			if err != nil {
				return nil, err
			}
		case s.transport != "amqp":
			shared = setup.Transport(s.transport, creds, s.faults.network(network))
		case i%s.shared == 0:
			shared = amqp.NewMux(&amqp.Options{Network: s.faults.network(network)})
		}
		client, err := device.New(creds, shared, options)
		if err != nil {
			return nil, err
		}
		senders[i] = newSender(client, id, s.size)
	}
	return senders, nil
}

// run sends until ctx ends, flushes, and enters the device's counts in the ledger.
func (d *sender) run(ctx context.Context, s *settings, book *ledger) {
	err := d.client.Start() // connects in the background; the messages wait in the queue
	if err == nil {
		err = d.send(ctx, time.Duration(float64(time.Second)/s.rate), book)
	}
	flushCtx, end := context.WithTimeout(context.WithoutCancel(ctx), s.flush)
	defer end()
	if flushErr := d.client.Flush(flushCtx); err == nil {
		err = flushErr
	}
	stats := d.client.Stats()
	err = errors.Join(err, d.client.Close())
	book.ended(stats, err) // first: the messages that follow failed for this reason
	d.settle(book, true)
}

// send puts a message into the queue in each interval. The devices begin at random times of the
// first one. It returns nil when ctx ends, or the reason why the client does not connect any more.
func (d *sender) send(ctx context.Context, interval time.Duration, book *ledger) error {
	next := time.NewTimer(rand.N(interval))
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-ctx.Done():
			return nil
		}
		next.Reset(interval)
		if now := d.client.Status(); now.State == device.StateDisconnected && now.Err != nil {
			return now.Err
		}
		if err := d.enqueue(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		d.settle(book, false)
	}
}
