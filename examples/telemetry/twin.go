package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/twin"
)

// sampler says how many readings should exist. A back end changes it by the desired property
// "interval", in seconds.
type sampler struct {
	defaultInterval float64 // seconds between two readings, unless desired otherwise

	mu       sync.Mutex
	interval float64
	since    time.Time
	due      float64 // at since
}

func newSampler(rate float64) *sampler {
	return &sampler{defaultInterval: 1 / rate, interval: 1 / rate, since: time.Now(), due: 1}
}

// count returns the number of readings since the start that should exist.
func (p *sampler) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.dueLocked(time.Now()))
}

func (p *sampler) dueLocked(now time.Time) float64 {
	return p.due + now.Sub(p.since).Seconds()/p.interval
}

// begin starts the count.
func (p *sampler) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.due = time.Now(), 1
}

// apply applies a desired property, and returns the answer.
func (p *sampler) apply(property twin.Property) twin.Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer := twin.Answer{Status: twin.StatusOK}
	interval := p.defaultInterval
	if property.Removed() {
		answer.Status, answer.Description = twin.StatusInitial, "the usual one"
	} else if err := property.Decode(&interval); err != nil || interval < 0.0001 || interval > 3600 {
		interval = p.interval
		answer.Status, answer.Description = twin.StatusBadValue, "give seconds from 0.0001 to 3600"
	}
	now := time.Now()
	p.due, p.since, p.interval = p.dueLocked(now), now, interval
	answer.Value = interval
	return answer
}

// followTwin makes the device follow its desired properties and answer the method "reboot", if the
// transport has twins and methods.
func (p *sampler) followTwin(ctx context.Context, client *device.Client, out *printer) (bool, error) {
	switch _, err := client.GetTwin(ctx); {
	case errors.Is(err, transport.Unsupported):
		out.line("device     does without the property interval and the method reboot: the transport has neither twins nor " +
			"methods")
		return false, nil
	case err != nil:
		return false, err
	}
	err := client.HandleDesired(func(ctx context.Context, d device.Desired) {
		if err := p.change(ctx, client, d, out); err != nil {
			out.line("device     cannot answer to version %d of its desired properties: %v", d.Version, err)
		}
	})
	if err != nil {
		return false, err
	}
	// The answer must use the connection that brought the call. So the reboot, here a new connection,
	// follows later.
	return true, client.HandleMethod("reboot", func(context.Context, *device.MethodCall) (int, []byte) {
		out.line("device     is asked to reboot")
		time.AfterFunc(rebootAfter, func() { client.Reconnect() }) // after Close it has no effect
		return 202, nil
	})
}

// rebootAfter is the delay of a requested reboot.
const rebootAfter = 300 * time.Millisecond

// change applies the properties in d and reports the answer.
func (p *sampler) change(ctx context.Context, client *device.Client, d device.Desired, out *printer) error {
	patch, err := p.answer(d, out)
	if err != nil || patch.Empty() {
		return err
	}
	body, err := patch.JSON()
	if err != nil {
		return err
	}
	_, err = client.PatchReported(ctx, body)
	return err
}

// answer applies the properties in d. The patch is empty if they do not contain the interval.
func (p *sampler) answer(d device.Desired, out *printer) (patch twin.Patch, err error) {
	properties, err := twin.Properties(d)
	if err != nil {
		return patch, err
	}
	isInterval := func(property twin.Property) bool { return property.Name == "interval" }
	if d.Full && !slices.ContainsFunc(properties, isInterval) {
		// no interval is desired: it may have been removed while the device was disconnected
		properties = append(properties, twin.Property{Name: "interval", Value: json.RawMessage("null"), Version: d.Version})
	}
	for _, property := range properties {
		if isInterval(property) {
			answer := p.apply(property)
			out.line("device     interval %s: %d, now %v s", property.Value, answer.Status, answer.Value)
			patch.Answer(property, answer)
		}
	}
	return patch, nil
}

// backEnd has the actions of the in-process hub's back end: half the rate for a while, and a
// reboot. Faults may happen in between, so it waits and repeats.
type backEnd struct {
	version         int64 // of the desired properties that it has set last
	defaultInterval float64
	reboot          hubdata.MethodResult
	err             error
}

// play runs the actions until ctx ends. until waits for a time of the schedule, and reports whether
// it was reached.
func (w *backEnd) play(ctx context.Context, s *faultyHub, until func(time.Duration) bool) {
	desire := func(value string) {
		version, err := s.hub.PatchDesired(s.device, `{"interval":`+value+`}`)
		s.out.line("       hub desires the interval %s: version %d", value, version)
		w.version, w.err = version, errors.Join(w.err, err)
	}
	if !until(6500 * time.Millisecond) {
		return
	}
	desire(strconv.FormatFloat(2*w.defaultInterval, 'f', -1, 64))
	until(8 * time.Second) // or the end
	desire("null")
	if !until(17600 * time.Millisecond) {
		return
	}
	for range 5 { // an answer may be lost with its connection; a second reboot does no harm
		var err error
		w.reboot, err = s.hub.CallMethod(ctx, s.device, hubdata.MethodCall{Name: "reboot", ConnectTimeout: 5 * time.Second,
			ResponseTimeout: 2 * time.Second})
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			s.out.line("       hub calls reboot: %d", w.reboot.Status)
			break
		}
		s.out.line("       hub calls reboot: %v", err)
	}
	if w.reboot.Status != 202 {
		w.err = errors.Join(w.err, fmt.Errorf("the device answered %d to the method reboot", w.reboot.Status))
	}
}

// check waits for the answer to the last change. A nil w has none.
func (w *backEnd) check(ctx context.Context, s *faultyHub) error {
	if w == nil {
		return nil
	}
	if w.err != nil || w.version == 0 {
		return w.err
	}
	err := s.hub.WaitReported(ctx, s.device, func(t hubdata.Twin) bool {
		var reported struct {
			Interval struct {
				Value float64 `json:"value"`
				AC    int     `json:"ac"`
				AV    int64   `json:"av"`
			} `json:"interval"`
		}
		err := json.Unmarshal(t.Reported, &reported)
		return err == nil && reported.Interval.AV == w.version && reported.Interval.AC == twin.StatusInitial &&
			reported.Interval.Value == w.defaultInterval
	})
	if err != nil {
		return fmt.Errorf("the device did not answer to version %d of its desired properties: %w", w.version, err)
	}
	return nil
}
