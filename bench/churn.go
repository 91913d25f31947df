package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
)

// ChurnReport is the result for messages sent while connections were reset.
type ChurnReport struct {
	Messages, Resets, Window int

	Lost          int // the hub does not have them
	FalseErrors   int // reported as failed although the client was never closed and the messages were valid
	FalseSuccess  int // reported as acknowledged, and lost
	Duplicates    int // extra copies at the hub
	OutOfOrder    int // first copies that came after a later message
	Resent        uint64
	Connections   uint64
	LongestOutage time.Duration
	Took          time.Duration
}

// Over returns an error that lists the exceeded budgets, nil if there are none.
func (r *ChurnReport) Over() error {
	if r.Lost+r.FalseErrors+r.FalseSuccess+r.OutOfOrder > 0 || r.Duplicates > r.Window*r.Resets {
		return fmt.Errorf("churn: %d lost, %d false errors, %d false successes, %d out of order, %d duplicates; the budget "+
			"is 0, 0, 0, 0 and %d",
			r.Lost, r.FalseErrors, r.FalseSuccess, r.OutOfOrder, r.Duplicates, r.Window*r.Resets)
	}
	if r.Connections != uint64(r.Resets)+1 {
		return fmt.Errorf("churn: %d connections for %d resets", r.Connections, r.Resets)
	}
	return nil
}

// Churn sends n messages over loopback, with window in flight, while the hub resets the connection
// at regular intervals.
func Churn(ctx context.Context, n, resets, window int) (*ChurnReport, error) {
	hub, a, err := newHub(MQTT, 1, false, keepAll)
	if err != nil {
		return nil, err
	}
	defer hub.Close()
	creds, err := a.creds(0)
	if err != nil {
		return nil, err
	}
	t := a.mqtt()()
	// StableTime makes each reset a separate outage, so that the delays stay at the first one's.
	c, err := device.New(creds, t, &device.Options{Window: window, StableTime: time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.Open(ctx); err != nil {
		return nil, err
	}

	start := time.Now()
	cutting := make(chan error, 1)
	go func() { cutting <- cut(ctx, hub, c, n, resets) }() // ends with the last reset, or ctx
	r := &ChurnReport{Messages: n, Resets: resets, Window: window}
	results := make([]error, n)
	ring := make([]device.Receipt, 2*window)
	for i := range n + len(ring) {
		slot := &ring[i%len(ring)]
		if done := i - len(ring); done >= 0 && done < n {
			results[done] = slot.Wait(ctx)
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if results[done] != nil {
				r.FalseErrors++
			}
		}
		if i < n {
			m := &transport.Message{ID: strconv.Itoa(i), Body: make([]byte, 100)}
			if err := c.Enqueue(ctx, m, slot); err != nil {
				return nil, err
			}
		}
	}
	r.Took = time.Since(start)
	if err := <-cutting; err != nil {
		return nil, err
	}
	// On a busy machine the last reset may come after the last acknowledgement.
	if err := connected(ctx, c, uint64(resets)+1); err != nil {
		return nil, err
	}
	s := c.Stats()
	r.Resent, r.Connections, r.LongestOutage = s.Resent, s.Connections, s.LongestOutage

	copies := make([]int, n)
	last := -1
	for _, m := range hub.Messages() {
		i, err := strconv.Atoi(m.MessageID)
		if err != nil || i < 0 || i >= n {
			return nil, fmt.Errorf("the hub has a message %q that was never sent", m.MessageID)
		}
		if copies[i]++; copies[i] == 1 {
			if i < last {
				r.OutOfOrder++
			}
			last = max(last, i)
		}
	}
	r.Lost, r.Duplicates = ledger(copies)
	for i, err := range results {
		if err == nil && copies[i] == 0 {
			r.FalseSuccess++
		}
	}
	return r, nil
}

// cut resets the connection each time that another part of the messages was stored. The hub lists a
// reset connection until it has ended, so cut asks the client for the number of the next
// connection.
func cut(ctx context.Context, hub *testbroker.Hub, c *device.Client, n, resets int) error {
	for i := range resets {
		if err := hub.WaitMessages(ctx, (i+1)*n/(resets+1)); err != nil {
			return err
		}
		if err := connected(ctx, c, uint64(i)+1); err != nil {
			return err
		}
		if hub.Drop("") == 0 {
			return errors.New("churn: nothing to reset")
		}
	}
	return nil
}

// connected waits until the client has connected that many times.
func connected(ctx context.Context, c *device.Client, connections uint64) error {
	for c.Stats().Connections < connections {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}
