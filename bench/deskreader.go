package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// deskReader reads the telemetry of all devices at the endpoint for Event Hubs clients, with
// Azure's AMQP library and a link for each partition.
type deskReader struct {
	conn *amqp.Conn
	read atomic.Int64
	stop context.CancelFunc
	done chan error // of each link
}

// deskPartitions is the default of the hub.
const deskPartitions = 4

// deskCredit is the number of events that the hub may send ahead on a link.
const deskCredit = 5000

// partition attaches a link that receives all events of a partition.
func (a *access) partition(ctx context.Context, session *amqp.Session, n int) (*amqp.Receiver, error) {
	name, _, _ := strings.Cut(a.Host, ".")
	return session.NewReceiver(ctx, fmt.Sprintf("%s/ConsumerGroups/$Default/Partitions/%d", name, n),
		&amqp.ReceiverOptions{Credit: deskCredit, RequestedSenderSettleMode: amqp.SenderSettleModeSettled.Ptr(),
			Filters: []amqp.LinkFilter{amqp.NewSelectorFilter("amqp.annotation.x-opt-offset > '-1'")}})
}

// deskReading is the input of the child that reads.
type deskReading struct {
	Access  access
	Policy  string
	Key     string
	Profile string
}

// deskPatience is how long the reader waits for the next event before it takes the rest for lost.
const deskPatience = 20 * time.Second

// deskRead is its report.
type deskRead struct {
	Events int
	Last   time.Time // when the last of those came that it waited for
	CPU    time.Duration
}

// startDeskReader starts the child and waits until it has attached its links. It then waits for a
// number of events.
func startDeskReader(ctx context.Context, hub *testbroker.Hub, a *access, profile string) (*child, error) {
	policy, err := hub.AddPolicy("reader", hubdata.RightServiceConnect)
	if err != nil {
		return nil, err
	}
	c, err := startChild(ctx, "reader", deskReading{*a, policy.Name, policy.PrimaryKey, profile})
	if err != nil {
		return nil, err
	}
	if err := c.hear(new(string)); err != nil {
		return nil, c.end(err)
	}
	return c, nil
}

func deskReaderChild(in *json.Decoder, say func(any)) (any, error) {
	var o deskReading
	if err := in.Decode(&o); err != nil {
		return nil, err
	}
	ctx := context.Background()
	r, err := openDeskReader(ctx, &o)
	if err != nil {
		return nil, err
	}
	stop, err := profile(o.Profile, "reader")
	if err != nil {
		return nil, r.close(err)
	}
	defer stop()
	cpu := cpuTime()
	say("attached")
	var n int
	if err := in.Decode(&n); err != nil {
		return nil, r.close(err)
	}
	var read deskRead
	read.Events, read.Last, err = r.until(ctx, n)
	read.CPU = cpuTime() - cpu
	return read, err
}

func openDeskReader(ctx context.Context, o *deskReading) (*deskReader, error) {
	ctx, stop := context.WithCancel(ctx)
	r := &deskReader{stop: stop, done: make(chan error, deskPartitions)}
	a := &o.Access
	scheme := "amqp://"
	if a.CA != nil {
		scheme = "amqps://"
	}
	var err error
	r.conn, err = amqp.Dial(ctx, scheme+a.Addr, &amqp.ConnOptions{
		SASLType: amqp.SASLTypePlain(o.Policy, o.Key), HostName: a.Host, TLSConfig: a.tls(),
	})
	if err != nil {
		stop()
		return nil, err
	}
	session, err := r.conn.NewSession(ctx, nil)
	if err != nil {
		return nil, r.close(err)
	}
	for n := range deskPartitions {
		link, err := a.partition(ctx, session, n)
		if err != nil {
			return nil, r.close(err)
		}
		go func() {
			for {
				if _, err := link.Receive(ctx, nil); err != nil {
					r.done <- err
					return
				}
				r.read.Add(1)
			}
		}()
	}
	return r, nil
}

// until waits until the reader has n events, and for a second more, in which none may come. It
// returns how many there were, and when the last of the n came; of fewer, if some are lost.
func (r *deskReader) until(ctx context.Context, n int) (read int, last time.Time, err error) {
	defer func() { err = r.close(err) }()
	last = time.Now()
	for now, seen := int64(0), int64(0); now < int64(n) && time.Since(last) < deskPatience; now = r.read.Load() {
		if now != seen {
			seen, last = now, time.Now()
		}
		select {
		case err := <-r.done:
			return 0, last, err
		case <-ctx.Done():
			return 0, last, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	if r.read.Load() >= int64(n) {
		last = time.Now()
	}
	time.Sleep(time.Second)
	return int(r.read.Load()), last, nil
}

func (r *deskReader) close(err error) error {
	r.stop()
	_ = r.conn.Close()
	return err
}
