package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// SoakSettings configure a long run of devices against a hub with faults. The devices with even
// numbers are on Hubline's own MQTT engine, the others on AMQP.
type SoakSettings struct {
	Devices int
	Every   time.Duration // each device sends a message
	Body    int           // bytes of a message
	Keep    int           // messages that the hub keeps
	Fault   time.Duration // the hub begins a fault
	Measure time.Duration // both processes measure their memory
	For     time.Duration
	Seed    uint64 // of the faults
}

// SoakLevel is the memory and the goroutines of the hub and of the process with the devices and the
// reader.
type SoakLevel struct {
	At                              time.Duration
	Hub, Devices                    float64 // anonymous memory in KB
	HubGoroutines, DeviceGoroutines int
	Acknowledged                    int
}

// SoakReport is what a run did. Lost are messages that were acknowledged and not read.
type SoakReport struct {
	SoakSettings
	Acknowledged, Failed, Read, Doubled, Lost int
	Faults                                    map[string]int
	Connections                               uint64 // of the devices
	Levels                                    []SoakLevel
}

// Over returns an error if a message was lost or failed.
func (r *SoakReport) Over() error {
	if r.Lost > 0 || r.Failed > 0 {
		return fmt.Errorf("%d acknowledged messages were lost, and %d failed", r.Lost, r.Failed)
	}
	return nil
}

// Soak runs devices and a reader of their messages against a hub in another process. It calls tell
// with each level. The numbers of the messages of a device are the ledger: it sends one after the
// other, so what the reader has not seen when a later one comes is lost.
func Soak(ctx context.Context, s SoakSettings, tell func(SoakLevel)) (*SoakReport, error) {
	c, err := startChild(ctx, "soak", s)
	if err != nil {
		return nil, err
	}
	var at soakAccess
	if err := c.hear(&at); err != nil {
		return nil, c.end(err)
	}
	run := &soak{SoakSettings: s, last: make([]atomic.Int64, s.Devices)}
	report, err := run.run(ctx, c, &at, tell)
	return report, c.end(err)
}

type soak struct {
	SoakSettings
	last   []atomic.Int64 // the number of the latest acknowledged message of each device, from 1
	failed atomic.Int64
}

func (s *soak) run(ctx context.Context, c *child, at *soakAccess, tell func(SoakLevel)) (*SoakReport, error) {
	reader := startSoakReader(ctx, at, s.Devices)
	devices, err := s.open(ctx, at)
	if err != nil {
		reader.stop()
		return nil, err
	}
	began := time.Now()
	working, stop := context.WithDeadline(ctx, began.Add(s.For))
	defer stop()
	var senders sync.WaitGroup
	for i, d := range devices {
		senders.Go(func() { s.send(ctx, working, i, d) })
	}
	r := &SoakReport{SoakSettings: s.SoakSettings}
	for n := 1; working.Err() == nil; n++ {
		select {
		case <-working.Done():
		case <-time.After(time.Until(began.Add(time.Duration(n) * s.Measure))):
			l, err := s.level(c, time.Since(began))
			if err != nil {
				return nil, err
			}
			r.Levels = append(r.Levels, l)
			tell(l)
		}
	}
	if err := json.NewEncoder(c.in).Encode("end"); err != nil { // of the faults
		return nil, err
	}
	if err := c.hear(&r.Faults); err != nil {
		return nil, err
	}
	senders.Wait()
	r.Acknowledged, r.Failed = s.acknowledged(), int(s.failed.Load())
	reader.await(ctx, s.last)
	r.Read, r.Doubled, r.Lost = reader.balance(s.last)
	for _, d := range devices {
		r.Connections += d.Stats().Connections
		if err := d.Close(); err != nil {
			return nil, err
		}
	}
	return r, ctx.Err()
}

func (s *soak) acknowledged() (n int) {
	for i := range s.last {
		n += int(s.last[i].Load())
	}
	return n
}

// level measures both processes.
func (s *soak) level(c *child, at time.Duration) (SoakLevel, error) {
	l := SoakLevel{At: at, Acknowledged: s.acknowledged()}
	if err := json.NewEncoder(c.in).Encode("measure"); err != nil {
		return l, err
	}
	mine, err := measure()
	if err != nil {
		return l, err
	}
	l.Devices, l.DeviceGoroutines = mine.anon, mine.goroutines
	var its soakMeasure
	if err := c.hear(&its); err != nil {
		return l, err
	}
	l.Hub, l.HubGoroutines = its.Anon, its.Goroutines
	return l, nil
}

func (s *soak) open(ctx context.Context, at *soakAccess) ([]*device.Client, error) {
	devices := make([]*device.Client, s.Devices)
	overMQTT, overAMQP := at.MQTT.mqtt(), at.AMQP.amqpOptions()
	return devices, each(0, s.Devices, func(i int) error {
		creds, err := at.MQTT.creds(i)
		if err != nil {
			return err
		}
		var t transport.Transport
		if t = overMQTT(); i%2 == 1 {
			t = amqp.New(overAMQP)
		}
		// An outage is found soon, so that there are many of them.
		o := &device.Options{AckTimeout: 5 * time.Second, OperationTimeout: -1}
		if devices[i], err = device.New(creds, t, o); err != nil {
			return err
		}
		return devices[i].Open(ctx)
	})
}

// send sends one message after the other until working ends. Each waits for its acknowledgement.
func (s *soak) send(ctx, working context.Context, i int, d *device.Client) {
	tick := time.NewTicker(s.Every)
	defer tick.Stop()
	body := make([]byte, s.Body)
	for n := int64(1); ; n++ {
		select {
		case <-working.Done():
			return
		case <-tick.C:
		}
		if err := d.Send(ctx, &transport.Message{ID: fmt.Sprintf("%d %d", i, n), Body: body}); err != nil {
			s.failed.Add(1)
			return
		}
		s.last[i].Store(n)
	}
}
