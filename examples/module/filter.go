package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// filter passes readings on that are above a threshold.
type filter struct {
	client *device.Client

	mu              sync.Mutex // guards the fields below
	threshold       float64
	received, above int
}

// take handles a reading. The gateway forgets a reading when its handler returns nil, so take waits
// until the gateway has the message that follows from it. After an error the reading comes again.
func (f *filter) take(ctx context.Context, m *transport.Message) error {
	var reading struct{ Celsius float64 }
	if err := json.Unmarshal(m.Body, &reading); err != nil {
		fmt.Printf("filter   skips %q: %v\n", m.Body, err)
		return nil // it would be as wrong the next time
	}
	f.mu.Lock()
	hot := reading.Celsius > f.threshold
	f.mu.Unlock()
	if hot {
		next := &transport.Message{Output: "hot", Body: bytes.Clone(m.Body)} // m ends with take, next may be sent later
		if err := f.client.Send(ctx, next); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.received++
	if hot {
		f.above++
	}
	return nil
}

// follow takes the threshold from the desired properties and reports it.
func (f *filter) follow(ctx context.Context, d device.Desired) {
	var desired struct{ Threshold *float64 }
	if err := json.Unmarshal(d.JSON, &desired); err != nil {
		fmt.Println("filter   cannot read the desired properties:", err)
		return
	}
	f.mu.Lock()
	if desired.Threshold != nil {
		f.threshold = *desired.Threshold
	}
	report := fmt.Appendf(nil, `{"threshold":%v}`, f.threshold)
	f.mu.Unlock()
	if _, err := f.client.PatchReported(ctx, report); err != nil {
		fmt.Println("filter   cannot report:", err)
		return
	}
	fmt.Printf("filter   reported %s\n", report)
}

// count is the direct method of that name.
func (f *filter) count(context.Context, *device.MethodCall) (int, []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 200, fmt.Appendf(nil, `{"received":%d,"above":%d}`, f.received, f.above)
}
