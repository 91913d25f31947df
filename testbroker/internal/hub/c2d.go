package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	MaxC2D       = 64 << 10
	MaxMessageID = 128
	maxTopic     = 1<<16 - 1
)

// ErrQueueFull is returned by [Hub.SendC2D] while the device's queue of C2D messages is full.
var ErrQueueFull = errors.New("testbroker: the device's queue of commands is full")

// C2DOptions are the settings of the C2D queues. The zero value of each field means its default.
type C2DOptions struct {
	// Queue is how many C2D messages may wait for one device, including unacknowledged ones. Default:
	// 50.
	Queue int
	// TTL is the time from [Hub.SendC2D] to the expiry of a C2D message without an Expiry. Default: 1
	// hour.
	TTL time.Duration
	// Lock is how long a delivered C2D message waits for its PUBACK or outcome, or over HTTP for its
	// DELETE, before it is delivered again. Default: 60 s.
	Lock time.Duration
	// MaxDeliveries is how often a C2D message is delivered before it is dead-lettered. Default: 10.
	MaxDeliveries int
	// Window is how many unacknowledged C2D messages a client over MQTT may have. Over AMQP the
	// client's credit sets the limit. Default: 16.
	Window int
}

func (o C2DOptions) withDefaults() C2DOptions {
	return C2DOptions{
		Queue:         cmp.Or(max(o.Queue, 0), 50),
		TTL:           cmp.Or(max(o.TTL, 0), time.Hour),
		Lock:          cmp.Or(max(o.Lock, 0), time.Minute),
		MaxDeliveries: cmp.Or(max(o.MaxDeliveries, 0), 10),
		Window:        cmp.Or(max(o.Window, 0), 16),
	}
}

// C2D is a cloud-to-device message. Empty fields are absent.
type C2D struct {
	MessageID       string
	CorrelationID   string
	UserID          string
	ContentType     string
	ContentEncoding string
	// Ack selects the outcomes for which the sender wants feedback: "none", "positive", "negative",
	// "full" or empty.
	Ack string
	// Expiry is a time of the hub's clock. The device receives it only if the sender has set it.
	Expiry time.Time
	// Properties are the application properties, in order. An empty value is sent as "name=".
	Properties []Property
	// Extra is text that is appended to the properties in the topic unchanged, for example "&name" for
	// a property without a value, or "/".
	Extra string
	// Body is the payload, at most [MaxC2D] bytes.
	Body []byte
}

// C2DState is the state of a C2D message.
type C2DState uint8

const (
	Enqueued C2DState = iota + 1
	Invisible
	Completed
	Expired
	DeadLettered
	Purged
	Rejected

	c2dStates = Rejected + 1
)

var c2dStateNames = [c2dStates]string{
	Enqueued: "enqueued", Invisible: "invisible", Completed: "completed", Expired: "expired",
	DeadLettered: "dead-lettered", Purged: "purged",
	Rejected: "rejected",
}

// String returns the state in lower case.
func (s C2DState) String() string {
	if s < c2dStates && s != 0 {
		return c2dStateNames[s]
	}
	return fmt.Sprintf("C2DState(%d)", uint8(s))
}

// feedbackCodes are the feedback status codes of the final states.
var feedbackCodes = [c2dStates]string{Completed: "Success", Expired: "Expired", DeadLettered: "DeliveryCountExceeded",
	Purged: "Purged", Rejected: "Rejected"}

// C2DRecord is a C2D message with its state.
type C2DRecord struct {
	// DeviceID and ModuleID name the receiver. ModuleID is empty for the device itself.
	DeviceID, ModuleID string
	// Sequence numbers the C2D messages of one receiver, from 1.
	Sequence int
	// C2D is the message as sent, with its effective expiry.
	C2D C2D
	// Topic is the topic to which it is published.
	Topic string
	// State is its state.
	State C2DState
	// Deliveries is how often it was delivered to the device. Over MQTT all deliveries but the first
	// had DUP set.
	Deliveries int
	// Connection is the number of the connection of the last delivery.
	Connection uint64
	// PacketID is the packet id of its deliveries with QoS 1. It stays the same.
	PacketID uint16
	// LockToken is the lock token of the last delivery over AMQP or HTTP.
	LockToken string
	// Enqueued and Ended are times of the hub's clock. Ended is zero while the C2D message waits.
	Enqueued, Ended time.Time
	// Feedback is the status code that the sender receives in the end: "Success", "Expired",
	// "DeliveryCountExceeded", "Purged" or "Rejected". It is empty if Ack does not ask for it.
	Feedback string
}

// feedback returns the status code that the sender receives for a final state; empty if none.
func (m C2D) feedback(end C2DState) string {
	if m.Ack == "full" || m.Ack == "positive" && end == Completed || m.Ack == "negative" && end != Completed {
		return feedbackCodes[end]
	}
	return ""
}

func (m C2D) check() error {
	switch {
	case len(m.Body) > MaxC2D:
		return fmt.Errorf("command of %d bytes, at most %d are allowed", len(m.Body), MaxC2D)
	case len(m.MessageID) > MaxMessageID:
		return fmt.Errorf("message id of %d characters, at most %d are allowed", len(m.MessageID), MaxMessageID)
	case !slices.Contains([]string{"", "none", "positive", "negative", "full"}, m.Ack):
		return fmt.Errorf("ack %q", m.Ack)
	}
	for _, p := range m.Properties {
		if p.Name == "" {
			return errors.New("property without a name")
		}
	}
	return nil
}

// SendC2D implements testbroker.Hub.SendC2D.
func (h *Hub) SendC2D(id string, m C2D) error {
	who := SplitIdentity(id)
	if err := m.check(); err != nil {
		return fmt.Errorf("testbroker: %w", err)
	}
	topic := m.topic(who)
	if len(topic) > maxTopic {
		return fmt.Errorf("testbroker: command with a topic of %d bytes, at most %d are allowed", len(topic), maxTopic)
	}
	q, err := h.Queue(who)
	if err != nil {
		return err
	}
	if in := h.Faults.Exhausted(who, h.Now()); in != nil {
		h.Happened(in, nil)
		return ErrQuota
	}
	m.Body, m.Properties = slices.Clone(m.Body), slices.Clone(m.Properties)
	if err := q.add(m, topic); err != nil {
		return err
	}
	h.Faults.Spend(who, h.Now(), m.size())
	h.Changed.Wake()
	return nil
}

// size counts as the service does for limits and quotas.
func (m C2D) size() int {
	n := len(m.Body) + len(m.MessageID) + len(m.CorrelationID) + len(m.UserID) + len(m.ContentType) +
		len(m.ContentEncoding)
	for _, p := range m.Properties {
		n += len(p.Name) + len(p.Value)
	}
	return n
}

// Queue returns the queue of a registered identity.
func (h *Hub) Queue(id Identity) (*Queue, error) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	switch {
	case h.closed:
		return nil, ErrClosed
	case h.Registry[id] == nil:
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return h.QueueLocked(id), nil
}

func (h *Hub) QueueLocked(id Identity) *Queue {
	q := h.Queues[id]
	if q == nil {
		q = &Queue{Hub: h, id: id, log: history[*Command]{keep: h.keep}}
		h.Queues[id] = q
	}
	return q
}

// queuesOf returns the queues that match a selector, sorted by name.
func (h *Hub) queuesOf(selector string) []*Queue {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	var all []*Queue
	for id, q := range h.Queues {
		if id.Matches(selector) {
			all = append(all, q)
		}
	}
	slices.SortFunc(all, func(a, b *Queue) int { return cmp.Compare(a.id.String(), b.id.String()) })
	return all
}

// PurgeC2D implements testbroker.Hub.PurgeC2D.
func (h *Hub) PurgeC2D(device string) int {
	n := 0
	for _, q := range h.queuesOf(device) {
		n += q.Purge()
	}
	h.Changed.Wake()
	return n
}

// C2DLog implements testbroker.Hub.C2DLog.
func (h *Hub) C2DLog(device string) []C2DRecord {
	var all []C2DRecord
	for _, q := range h.queuesOf(device) {
		all = q.appendLog(all)
	}
	return all
}

// CountC2D implements testbroker.Hub.CountC2D.
func (h *Hub) CountC2D(device string, state C2DState) int {
	n := 0
	for _, q := range h.queuesOf(device) {
		n += q.count(state)
	}
	return n
}

// WaitC2D waits until at least n C2D messages to a device, named as in [Hub.Connections], are in a
// state. It fails when the context ends or the hub is closed.
func (h *Hub) WaitC2D(ctx context.Context, device string, state C2DState, n int) error {
	return h.until(ctx, func() bool { return h.CountC2D(device, state) >= n })
}
