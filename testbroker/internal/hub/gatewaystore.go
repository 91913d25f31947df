package hub

import (
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/edge"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"
)

// A stored message is in the store of a gateway until it has reached its endpoint.
type stored struct {
	hubdata.Message
	to    edge.Endpoint
	since time.Time
}

// A line is a queue in the store of a gateway. Its goroutine exists while there is something to
// do. Guarded by Hub.mu.
type line struct {
	items []*stored
	idle  chan struct{} // closed while there is no goroutine
	wake  chan struct{} // closed, and replaced, when the goroutine must look again
}

func newLine() line {
	idle := make(chan struct{})
	close(idle)
	return line{idle: idle, wake: make(chan struct{})}
}

// clear empties the line and returns a channel that is closed when its goroutine has ended.
func (l *line) clear() <-chan struct{} {
	l.items = nil
	l.stir()
	return l.idle
}

// stir makes the goroutine look again, also when a fault delays it.
func (l *line) stir() {
	close(l.wake)
	l.wake = make(chan struct{})
}

func (l *line) idles() bool {
	select {
	case <-l.idle:
		return true
	default:
		return false
	}
}

// take puts a message in the store, once for each endpoint.
func (h *Hub) take(m hubdata.Message) {
	g := h.Gateway
	h.mu.Lock()
	defer h.mu.Unlock()
	all := g.routes.Endpoints(edge.Source{Module: m.ModuleID, Output: m.Output})
	if len(all) == 0 {
		g.counts.Unrouted++
	}
	for _, to := range all {
		l := &g.local
		if to == edge.Upstream {
			l = &g.upstream
		}
		l.items = append(l.items, &stored{m, to, time.Now()})
	}
	h.pumpLocked()
}

// pumpLocked starts the goroutines of lines that can move.
func (h *Hub) pumpLocked() {
	g := h.Gateway
	for _, l := range []*line{&g.upstream, &g.local} {
		l.stir()
		if h.headLocked(l) == nil || !l.idles() || h.closed {
			continue
		}
		idle := make(chan struct{})
		l.idle = idle
		h.Wg.Go(func() {
			for h.move(l, idle) {
			}
		})
	}
}

// headLocked returns the message that a line can move; nil if there is none.
func (h *Hub) headLocked(l *line) *stored {
	g := h.Gateway
	g.expireLocked()
	if len(l.items) == 0 || g.stopped || g.offline && l == &g.upstream {
		return nil
	}
	return l.items[0]
}

// expireLocked drops messages to the hub that are too old.
func (g *Gateway) expireLocked() {
	now, l := time.Now(), &g.upstream
	for len(l.items) > 0 && now.Sub(l.items[0].since) >= g.TTL {
		l.dropLocked()
		g.counts.Expired++
	}
}

// move moves the first message of a line to its endpoint; false when there is nothing to do, and
// the caller, the goroutine of the line, ends.
func (h *Hub) move(l *line, idle chan struct{}) bool {
	h.mu.Lock()
	head, wake := h.headLocked(l), l.wake
	if head == nil || h.closed {
		close(idle)
		h.mu.Unlock()
		return false
	}
	h.mu.Unlock()
	switch {
	case !h.hold(head, l, wake):
	case head.to == edge.Upstream:
		h.forward(head)
	default:
		h.toInput(head)
		h.mu.Lock()
		l.dropLocked()
		h.mu.Unlock()
	}
	h.Changed.Wake()
	return true
}

// dropLocked removes the first message, unless a reset has; nothing is added before that has ended.
func (l *line) dropLocked() {
	if len(l.items) > 0 {
		l.items[0] = nil // its memory is free
		l.items = l.items[1:]
	}
}

// hold applies the fault SlowRoute to the first message of a line; false when the message cannot
// move any more.
func (h *Hub) hold(head *stored, l *line, wake <-chan struct{}) bool {
	in := h.Faults.Take(fault.SlowRoute, telemetry.SenderOf(&head.Message))
	if in == nil {
		return true
	}
	h.HappenedTo(in, nil, telemetry.SenderOf(&head.Message))
	due := time.NewTimer(in.Fault.Delay)
	defer due.Stop()
	for {
		select {
		case <-due.C:
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.headLocked(l) == head
		case <-h.Done:
			return false
		case <-wake:
		}
		h.mu.Lock()
		wake = l.wake
		moves := h.headLocked(l) == head
		h.mu.Unlock()
		if !moves {
			return false
		}
	}
}

// forward adds a message to the hub's log, unless the gateway has gone off-line meanwhile.
func (h *Hub) forward(s *stored) {
	m, sender := s.Message, telemetry.SenderOf(&s.Message)
	m.Received = h.Now()
	twice, times := h.Faults.Take(fault.ForwardTwice, sender), 1
	if twice != nil {
		times = 2
	}
	h.mu.Lock()
	moves := h.headLocked(&h.Gateway.upstream) == s
	if moves {
		h.Gateway.counts.Forwarded += times
		for range times {
			h.Telemetry.Add(m, h.originLocked(sender))
		}
		h.Gateway.upstream.dropLocked()
	}
	h.mu.Unlock()
	switch {
	case moves && twice != nil:
		h.HappenedTo(twice, nil, sender)
	case twice != nil:
		h.Faults.Release(twice)
	}
	for i := 0; moves && i < times; i++ {
		h.stored(&m)
	}
}

// toInput puts a message into the queue of an input, stamped with its sender.
func (h *Hub) toInput(s *stored) {
	m := &s.Message
	sender := telemetry.SenderOf(m)
	to := h.moduleOf(s.to.Module, sender)
	err := h.SendInput(to.String(), s.to.Input, hubdata.C2D{
		MessageID: m.MessageID, CorrelationID: m.CorrelationID, UserID: m.UserID, ContentType: m.ContentType,
		ContentEncoding: m.ContentEncoding, To: m.To, Schema: m.Schema, InterfaceID: m.InterfaceID,
		Component: m.Component, ConnectionDeviceID: sender.Device, ConnectionModuleID: sender.Module,
		DiagnosticID: m.DiagnosticID, DiagnosticContext: m.DiagnosticContext,
		CreationTime: parseTime(m.CreationTime), Expiry: parseTime(m.Expiry), Properties: m.Properties, Body: m.Body,
	})
	if err == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Gateway.counts.Unrouted++
}

// parseTime parses a time in one of the forms of clients; the zero time if it has none of them.
func parseTime(text string) time.Time {
	for _, layout := range [...]string{time.RFC3339Nano, time.RFC1123} {
		if t, err := time.Parse(layout, text); err == nil {
			return t
		}
	}
	return time.Time{}
}
