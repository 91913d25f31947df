package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
)

// OutageCPU is the budget of CPU time for a minute of Outage with its defaults.
const OutageCPU = 300 * time.Millisecond

// OutageSettings set the times during which the hub is present, absent and present again, and the
// interval between messages.
type OutageSettings struct {
	Before, Absent, After time.Duration
	Every                 time.Duration
	Secure                bool
}

// OutageReport is the client's behaviour in that time.
type OutageReport struct {
	Messages       int
	Lost           int // missing at the hub, acknowledged or not
	Unacknowledged int // without an acknowledgement at the end
	Duplicates     int // stored twice
	// user and system time of the client's process, from the first connection to the last
	// acknowledgement
	CPU time.Duration
	// the part of CPU that the clock of the measurement uses: waking up for each message without any
	// other work
	Ticks                 time.Duration
	Took                  time.Duration
	Attempts, Connections uint64
	HighWater             int // highest number of messages in the queue
}

// Over returns an error that lists the exceeded budgets, nil if there are none. The budget applies
// to CPU without Ticks, in proportion to Took, which counts as at least 20 s.
func (r *OutageReport) Over() error {
	budget := time.Duration(float64(OutageCPU) * max(r.Took, 20*time.Second).Seconds() / 60)
	switch {
	case r.Lost > 0 || r.Unacknowledged > 0:
		return fmt.Errorf("outage: %d of %d messages lost, %d without an acknowledgement", r.Lost, r.Messages,
			r.Unacknowledged)
	case r.CPU-r.Ticks > budget:
		return fmt.Errorf("outage: %v of CPU time in %v, %v of them for ticks; the budget is %v", r.CPU, r.Took, r.Ticks,
			budget)
	case r.Connections < 2:
		return fmt.Errorf("outage: there was none")
	}
	return nil
}

// outageOrder is the input of the child.
type outageOrder struct {
	Access access
	OutageSettings
}

// Outage runs one client in a child process during an absence of the hub, which is in this one.
func Outage(ctx context.Context, s OutageSettings) (*OutageReport, error) {
	hub, a, err := newHub(MQTT, 1, s.Secure, keepAll)
	if err != nil {
		return nil, err
	}
	defer hub.Close()
	r := new(OutageReport)
	var timer *time.Timer
	err = inChild(ctx, "outage", outageOrder{*a, s}, r, func() {
		timer = time.AfterFunc(s.Before, func() { hub.Inject(fault.Fault{Kind: fault.Absent, For: s.Absent}) })
	})
	if timer != nil {
		timer.Stop()
	}
	if err != nil {
		return nil, err
	}
	copies := make([]int, r.Messages)
	for _, m := range hub.Messages() {
		n, err := strconv.Atoi(m.MessageID)
		if err != nil || n < 0 || n >= len(copies) {
			return nil, fmt.Errorf("the hub has a message %q that was never sent", m.MessageID)
		}
		copies[n]++
	}
	r.Lost, r.Duplicates = ledger(copies)
	return r, nil
}

// ledger counts the missing messages and the extra copies.
func ledger(copies []int) (lost, duplicates int) {
	for _, n := range copies {
		if n == 0 {
			lost++
		} else {
			duplicates += n - 1
		}
	}
	return lost, duplicates
}

func outageChild(in *json.Decoder, say func(any)) (any, error) {
	var o outageOrder
	if err := in.Decode(&o); err != nil {
		return nil, err
	}
	creds, err := o.Access.creds(0)
	if err != nil {
		return nil, err
	}
	t := o.Access.mqtt()()
	c, err := device.New(creds, t, nil)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ticks := time.NewTicker(o.Every)
	defer ticks.Stop()
	const calibration = 3 * time.Second
	idle := cpuTime()
	for start := time.Now(); time.Since(start) < calibration; {
		<-ticks.C
	}
	idle = cpuTime() - idle

	ctx := context.Background()
	limit, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := c.Open(limit); err != nil {
		return nil, err
	}

	cpu, start := cpuTime(), time.Now()
	say("ready")
	r := new(OutageReport)
	for time.Since(start) < o.Before+o.Absent+o.After {
		<-ticks.C
		m := &transport.Message{ID: strconv.Itoa(r.Messages), Body: make([]byte, 100)}
		if err := c.Enqueue(ctx, m, nil); err != nil {
			return nil, err
		}
		r.Messages++
		r.HighWater = max(r.HighWater, c.Stats().Queued)
	}
	ticks.Stop()
	ticking := time.Since(start)
	limit, cancel = context.WithTimeout(ctx, time.Minute) // the last delay may still be running
	defer cancel()
	if err := c.Flush(limit); err != nil {
		return nil, err
	}
	r.CPU, r.Took = cpuTime()-cpu, time.Since(start)
	r.Ticks = time.Duration(float64(idle) * ticking.Seconds() / calibration.Seconds())
	s := c.Stats()
	r.Attempts, r.Connections = s.Attempts, s.Connections
	r.Unacknowledged = r.Messages - int(s.Acknowledged)
	return r, nil
}

// cpuTime returns the CPU time of the process, user and system.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
