package hub

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// A Box is one of the queues of an identity. They differ in their limits and topics only.
type Box uint8

const (
	// Commands is the queue of C2D messages.
	Commands Box = iota
	// Inputs is the queue of messages to the inputs of a module.
	Inputs
)

// Boxes are all boxes.
var Boxes = [...]Box{Commands, Inputs}

// packetIDs are the packet ids of each box. Those of an identity must differ, also from those of
// answers about certificates.
var packetIDs = [...]struct{ first, last uint16 }{Commands: {1, 0x7fff}, Inputs: {0x8000, firstAnswerID - 1}}

// A queueName names a queue of the hub.
type queueName struct {
	id  identity.Identity
	box Box
}

func (h *Hub) limits(b Box) *hubdata.C2DOptions {
	if b == Inputs {
		return &h.Inputs
	}
	return &h.C2D
}

// Queue returns a queue of a registered identity.
func (h *Hub) Queue(id identity.Identity, b Box) (*Queue, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return nil, ErrClosed
	case h.registry[id] == nil:
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return h.queueLocked(queueName{id, b}), nil
}

// queueLocked returns a queue, and makes it if there is none.
func (h *Hub) queueLocked(name queueName) *Queue {
	q := h.queues[name.id.Device][name]
	if q == nil {
		q = &Queue{Hub: h, Limits: h.limits(name.box), id: name.id, box: name.box,
			packetID: packetIDs[name.box].first - 1, log: keep.History[*QueuedC2D]{Keep: h.Keep}}
		if h.queues[name.id.Device] == nil {
			h.queues[name.id.Device] = make(map[queueName]*Queue)
		}
		h.queues[name.id.Device][name] = q
	}
	return q
}

// PresentQueue returns a queue of an identity; nil if it does not exist yet.
func (h *Hub) PresentQueue(id identity.Identity, b Box) *Queue {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.queues[id.Device][queueName{id, b}]
}

func (h *Hub) forgetQueuesLocked(id identity.Identity) {
	of := h.queues[id.Device]
	for _, b := range Boxes {
		delete(of, queueName{id, b})
		h.Records.Touch(tableQueues, queueName{id, b}.key())
	}
	if len(of) == 0 {
		delete(h.queues, id.Device)
	}
}

// queuesOf returns the queues that match a selector and are one of the boxes, sorted by name.
func (h *Hub) queuesOf(selector string, boxes ...Box) []*Queue {
	var all []*Queue
	add := func(of map[queueName]*Queue) {
		for name, q := range of {
			if name.id.Matches(selector) && slices.Contains(boxes, name.box) {
				all = append(all, q)
			}
		}
	}
	h.mu.Lock()
	if selector != "" {
		add(h.queues[identity.SplitIdentity(selector).Device])
	} else {
		for _, of := range h.queues {
			add(of)
		}
	}
	h.mu.Unlock()
	slices.SortFunc(all, func(a, b *Queue) int { return cmp.Compare(a.id.String(), b.id.String()) })
	return all
}

// Purge drops the messages in the queues that match a selector, and returns their number.
func (h *Hub) Purge(device string, boxes ...Box) int {
	n := 0
	for _, q := range h.queuesOf(device, boxes...) {
		n += q.Purge()
	}
	h.Changed.Wake()
	return n
}

// QueueLog returns the messages of the queues that match a selector, by receiver.
func (h *Hub) QueueLog(device string, b Box) []hubdata.C2DRecord {
	var all []hubdata.C2DRecord
	for _, q := range h.queuesOf(device, b) {
		all = q.appendLog(all)
	}
	return all
}

// CountQueued returns how many messages of the queues that match a selector are in a state.
func (h *Hub) CountQueued(device string, b Box, state hubdata.C2DState) int {
	n := 0
	for _, q := range h.queuesOf(device, b) {
		n += q.count(state)
	}
	return n
}

// WaitingC2D returns how many C2D messages of an identity have no final state.
func (h *Hub) WaitingC2D(id identity.Identity) int {
	q := h.PresentQueue(id, Commands)
	if q == nil {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.counts[hubdata.C2DEnqueued] + q.counts[hubdata.C2DInvisible]
}

// queueEvents are the kinds of the events of each box.
var queueEvents = [...]event.Kind{Commands: event.C2DChanged, Inputs: event.InputChanged}
