package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// readings are the messages, each with its receipt, the hash of its body, and its final result.
type readings struct {
	messages []transport.Message
	hashes   [][sha256.Size]byte
	receipts []device.Receipt
	accepted int
	results  []error
}

func newReadings(n int) *readings {
	r := &readings{messages: make([]transport.Message, n), hashes: make([][sha256.Size]byte, n),
		receipts: make([]device.Receipt, n)}
	for i := range r.messages {
		body := fmt.Sprintf(`{"number":%d,"temperature":%.2f}`, i+1, 20+5*math.Sin(float64(i)/50))
		r.messages[i] = transport.Message{
			ID: strconv.Itoa(i + 1), ContentType: "application/json", ContentEncoding: "utf-8",
			Properties: []transport.Property{{Name: "sensor", Value: "roof"}},
			Body:       []byte(body),
		}
		r.hashes[i] = sha256.Sum256([]byte(body))
	}
	return r
}

// send puts so many readings a second into the queue, in any state of the connection, and prints
// the progress each second.
func (r *readings) send(ctx context.Context, c *device.Client, rate float64) error {
	began := time.Now()
	tick := time.NewTicker(min(50*time.Millisecond, time.Duration(float64(time.Second)/rate)))
	defer tick.Stop()
	printed := began
	for r.accepted < len(r.messages) {
		due := 1 + int(time.Since(began).Seconds()*rate)
		for ; r.accepted < min(len(r.messages), due); r.accepted++ {
			if err := c.Enqueue(ctx, &r.messages[r.accepted], &r.receipts[r.accepted]); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return err
			}
		}
		if time.Since(printed) >= time.Second {
			printed = time.Now()
			s := c.Stats()
			say("progress   sent %d, acknowledged %d, waiting %d", s.Accepted, s.Acknowledged, s.Queued)
		}
		if s := c.Status(); s.State == device.StateDisconnected {
			return fmt.Errorf("the client gave up: %w", s.Err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// ledger prints the report and returns an error for any reading that is missing in it. All have
// their results. With a real hub, nil, it knows only the device's side.
func (r *readings) ledger(s device.Stats, hub *testbroker.Hub) error {
	failed := 0
	var first error
	for i := range r.accepted {
		err := r.receipts[i].Wait(context.Background())
		if r.results = append(r.results, err); err != nil {
			failed++
			first = cmp.Or(first, err)
		}
	}
	fmt.Printf("\nledger\n  sent            %6d\n  acknowledged    %6d\n", r.accepted, r.accepted-failed)
	var errs []error
	if failed > 0 {
		fmt.Printf("  not delivered   %6d   (each has an error; the first: %v)\n", failed, first)
		errs = append(errs, fmt.Errorf("%d readings were not delivered", failed))
	}
	if hub != nil {
		errs = append(errs, r.check(hub.Messages()))
	}
	fmt.Printf("  reconnects      %6d   in %d attempts\n  longest outage  %6.2fs\n", max(1, s.Connections)-1,
		max(1, s.Attempts)-1, s.LongestOutage.Seconds())
	return errors.Join(errs...)
}

// check compares the hub's log with the acknowledged readings, by number and by hash of the body.
func (r *readings) check(log []hubdata.Message) error {
	seen := make(map[string]int, len(log))
	corrupt := 0
	for _, e := range log {
		n, err := strconv.Atoi(e.MessageID)
		if err != nil || n < 1 || n > r.accepted || sha256.Sum256(e.Body) != r.hashes[n-1] {
			corrupt++
			continue
		}
		seen[e.MessageID]++
	}
	lost := 0
	for i, err := range r.results {
		if err == nil && seen[strconv.Itoa(i+1)] == 0 {
			lost++
			fmt.Printf("  LOST            reading %d was acknowledged and the hub does not have it\n", i+1)
		}
	}
	fmt.Printf("  received        %6d   different readings at the hub, number and hash of the body compared\n", len(seen))
	fmt.Printf("  duplicates      %6d   sent again because an acknowledgement was lost; the id is the same\n"+
		"  corrupt         %6d\n  lost            %6d\n", len(log)-corrupt-len(seen), corrupt, lost)
	switch {
	case lost > 0:
		return fmt.Errorf("%d readings were lost", lost)
	case corrupt > 0:
		return fmt.Errorf("%d readings were corrupted", corrupt)
	}
	return nil
}
