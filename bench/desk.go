package bench

import (
	"context"
	"encoding/json"
	"fmt"
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
	For     time.Duration // all send as fast as the hub acknowledges
}

// DeskReport is what the hub and the devices did, in processes of their own.
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
	Took         time.Duration
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
	c, err := startChild(ctx, "desk", deskOrder{*a, b, s})
	if err != nil {
		return nil, err
	}
	var word string
	if err := c.hear(&word); err != nil {
		return nil, c.end(err)
	}
	r.Connect = time.Since(began)
	after, err := measure()
	if err != nil {
		return nil, c.end(err)
	}
	n := float64(s.Devices)
	r.Goroutines, r.Anon = float64(after.goroutines-before.goroutines)/n, (after.anon-before.anon)/n
	reader, err := openDeskReader(ctx, hub, &b)
	if err != nil {
		return nil, c.end(err)
	}
	if err := json.NewEncoder(c.in).Encode("send"); err != nil {
		return nil, c.end(err)
	}
	var sent deskSent
	if err := c.hear(&sent); err != nil {
		return nil, c.end(err)
	}
	last := time.Now()
	r.Acknowledged, r.Sent, r.Stored = sent.Acknowledged, sent.Took, hub.Len()
	read, at, err := reader.until(ctx, r.Acknowledged)
	if err != nil {
		return nil, c.end(err)
	}
	r.Read, r.Lag = read, at.Sub(last)
	level, err := measure()
	r.Hub = level.anon
	return r, c.end(err)
}

func deskChild(in *json.Decoder, say func(any)) (any, error) {
	var o deskOrder
	if err := in.Decode(&o); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.For+5*time.Minute)
	defer cancel()
	overMQTT, overAMQP := o.Access.lean(), o.AMQP.amqpOptions()
	devices := make([]*device.Client, o.Devices)
	err := each(0, o.Devices, func(i int) error {
		creds, err := o.Access.creds(i)
		if err != nil {
			return err
		}
		var t transport.Transport
		if t = overMQTT(creds); i < o.Senders && o.DeskSettings.AMQP {
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
	var word string
	if err := in.Decode(&word); err != nil {
		return nil, err
	}
	began := time.Now()
	acknowledged, err := sendAll(ctx, devices[:o.Senders], &o.DeskSettings)
	return deskSent{acknowledged, time.Since(began)}, err
}

// sendAll lets each device send until the time is over, and returns how many messages were
// acknowledged. A device waits for room in its outbox.
func sendAll(ctx context.Context, devices []*device.Client, s *DeskSettings) (int, error) {
	end := time.Now().Add(s.For)
	m := &transport.Message{Body: make([]byte, s.Body)}
	var acknowledged atomic.Int64
	errs := make(chan error, len(devices))
	for _, c := range devices {
		go func() {
			before := c.Stats().Acknowledged
			err := func() error {
				for time.Now().Before(end) {
					if err := c.Enqueue(ctx, m, nil); err != nil {
						return err
					}
				}
				return c.Flush(ctx)
			}()
			acknowledged.Add(int64(c.Stats().Acknowledged - before))
			errs <- err
		}()
	}
	for range devices {
		if err := <-errs; err != nil {
			return 0, err
		}
	}
	return int(acknowledged.Load()), nil
}
