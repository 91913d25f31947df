package hub

import (
	"slices"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// A Queue holds the C2D messages of one identity, or the messages to its inputs. It exists until
// the hub is closed, across connections.
type Queue struct {
	Hub    *Hub
	Limits *hubdata.C2DOptions
	id     identity.Identity
	box    Box

	mu       sync.Mutex // guards the fields below; held over writes, which never block, so that C2D messages stay in order
	log      keep.History[*QueuedC2D]
	waiting  []*QueuedC2D // messages without a final state, in the log or not
	counts   [c2dStates]int
	to       Receiver // the receiver, perhaps paused; nil = none
	paused   bool     // the receiver has unsubscribed; it can still acknowledge delivered messages
	packetID uint16
	timer    *time.Timer // fires at the next end of a lock or expiry
	stopped  bool        // the hub is closed or was reset: the messages are forgotten

	events keep.Relay[event.Event] // state changes, in order
}

// QueuedC2D is a C2D message in a queue.
type QueuedC2D struct {
	hubdata.C2DRecord
	locked  time.Time // when its lock ends, while C2DInvisible
	Expires bool      // the sender has set the expiry
	Tag     string    // tag of the AMQP delivery that locks it
	pulled  bool      // locked by an HTTP client's request; only while C2DInvisible

	generation string // of the registry's entry when the message was queued
}

// A Receiver takes the C2D messages of an identity. Its methods are called with the queue's lock
// held and must not block.
type Receiver interface {
	// Deliver sends a C2D message while unacked other messages are locked. sent is false when the
	// receiver cannot take it; settled means that it needs no acknowledgement.
	Deliver(q *Queue, e *QueuedC2D, unacked int) (sent, settled bool)
	// Skips reports whether the receiver cannot take the message at all. Later messages then pass it;
	// otherwise they wait behind it.
	Skips(e *QueuedC2D) bool
	// Client returns the receiver's connection.
	Client() *Conn
	// Renews reports whether by is the same receiver again, so that its locks continue.
	Renews(by Receiver) bool
	// Replaced reports that a receiver on the connection by has taken over.
	Replaced(by *Conn)
}

func (q *Queue) add(m hubdata.C2D, input, topic string) error {
	generation := q.Hub.generation(q.id)
	now, expires := q.Hub.Now(), !m.Expiry.IsZero()
	if !expires {
		m.Expiry = now.Add(q.Limits.TTL)
	}
	defer q.report()
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) >= q.Limits.Queue {
		return ErrQueueFull
	}
	e := &QueuedC2D{C2DRecord: hubdata.C2DRecord{
		DeviceID: q.id.Device, ModuleID: q.id.Module, Input: input, Sequence: q.log.Total() + 1, C2D: m, Topic: topic,
		State:    hubdata.C2DEnqueued,
		Enqueued: now,
	}, Expires: expires, generation: generation}
	q.log.Add(e)
	q.Hub.Records.Touch(tableQueues, queueName{q.id, q.box}.key())
	q.waiting = append(q.waiting, e)
	q.counts[hubdata.C2DEnqueued]++
	q.noteLocked(e)
	if !q.followsLocked(e) {
		q.dispatchLocked()
	}
	return nil
}

// followsLocked reports whether the new last message changes nothing: there is no receiver, and the
// timer fires before the message expires. That keeps long queues cheap.
func (q *Queue) followsLocked(e *QueuedC2D) bool {
	if q.to != nil && !q.paused || len(q.waiting) < 2 {
		return false
	}
	before := q.waiting[len(q.waiting)-2]
	return before.State == hubdata.C2DEnqueued && !before.C2D.Expiry.After(e.C2D.Expiry)
}

// noteLocked marks a C2D message as changed and queues an event with its state. report delivers it.
func (q *Queue) noteLocked(e *QueuedC2D) {
	q.touchLocked(e)
	if q.Hub.onEvent != nil {
		q.events.Add(event.Event{
			Kind: queueEvents[q.box], Connection: e.Connection, DeviceID: q.id.Device, ModuleID: q.id.Module,
			Name:   e.C2D.MessageID,
			Detail: e.State.String(),
		})
	}
}

// report delivers the queued events. It is called without mu, after a possible change.
func (q *Queue) report() {
	q.events.Deliver(func(e event.Event) { q.Hub.Event(e, nil) })
}

func (q *Queue) becomeLocked(e *QueuedC2D, s hubdata.C2DState) {
	q.counts[e.State]--
	q.counts[s]++
	e.State = s
	if s != hubdata.C2DEnqueued && s != hubdata.C2DInvisible {
		e.Ended = q.Hub.Now()
		if e.Feedback = feedbackOf(e.C2D, s); e.Feedback != "" && q.box == Commands && !q.stopped {
			q.Hub.feedback(e) // before the message leaves the store: a kill between them loses neither
		}
	}
	q.noteLocked(e)
}

// releaseLocked ends the lock of an unacknowledged C2D message. The end of a lock counts like an
// outcome that releases the message. Pages of the service disagree: those about errors say that
// both count toward DeliveryCountExceeded. Over MQTT, which has no such outcome, nothing else ends
// a message that the device never acknowledges before it expires.
func (q *Queue) releaseLocked(e *QueuedC2D) {
	if e.Deliveries >= q.Limits.MaxDeliveries {
		q.becomeLocked(e, hubdata.C2DDeadLettered)
		return
	}
	q.becomeLocked(e, hubdata.C2DEnqueued)
}

// takeLocked makes to the receiver. Messages that the previous receiver has not acknowledged are
// delivered again.
func (q *Queue) takeLocked(to Receiver) {
	before, paused := q.to, q.paused
	q.to, q.paused = to, false
	if before == nil {
		return
	}
	if before.Renews(to) {
		return
	}
	q.unlockLocked()
	if !paused {
		before.Replaced(to.Client())
	}
}

// leave is leaveLocked for callers without the lock.
func (q *Queue) leave(of func(Receiver) bool) {
	defer q.report()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leaveLocked(of)
}

// leaveLocked ends deliveries to the receiver if of accepts it.
func (q *Queue) leaveLocked(of func(Receiver) bool) {
	if q.to == nil || !of(q.to) {
		return
	}
	q.to = nil
	q.unlockLocked()
	q.dispatchLocked()
}

// unlockLocked ends the locks of the receiver.
func (q *Queue) unlockLocked() {
	for _, e := range q.waiting {
		if e.State == hubdata.C2DInvisible && !e.pulled {
			q.releaseLocked(e)
		}
	}
}

// dispatchLocked ends expired locks and messages, delivers in order as much as the receiver takes,
// and sets the timer.
func (q *Queue) dispatchLocked() {
	if q.stopped {
		return
	}
	now, clock := time.Now(), q.Hub.Now()
	unacked := 0
	for _, e := range q.waiting {
		if e.State == hubdata.C2DInvisible && !e.locked.After(now) {
			q.releaseLocked(e)
		}
		if e.State == hubdata.C2DEnqueued && !e.C2D.Expiry.After(clock) {
			q.becomeLocked(e, hubdata.C2DExpired)
		}
		if e.State == hubdata.C2DInvisible && !e.pulled {
			unacked++
		}
	}
	var next time.Duration // until the next lock or expiry ends; zero = none
	takes := q.to != nil && !q.paused && !q.cutOff()
	for _, e := range q.waiting {
		switch {
		case e.State != hubdata.C2DEnqueued || !takes:
		case !q.deliverLocked(e, unacked):
			// A receiver that is ready again meanwhile must not get later messages first.
			takes = q.to.Skips(e)
		case e.State == hubdata.C2DInvisible:
			unacked++
		}
		var wait time.Duration
		switch e.State {
		case hubdata.C2DEnqueued:
			wait = e.C2D.Expiry.Sub(clock)
		case hubdata.C2DInvisible:
			wait = e.locked.Sub(now)
		default:
			continue
		}
		if next == 0 || wait < next {
			next = wait
		}
	}
	q.waiting = slices.DeleteFunc(q.waiting,
		func(e *QueuedC2D) bool { return e.State != hubdata.C2DEnqueued && e.State != hubdata.C2DInvisible })
	switch {
	case next == 0:
		if q.timer != nil {
			q.timer.Stop()
		}
	case q.timer == nil:
		q.timer = time.AfterFunc(next, q.tick)
	default:
		q.timer.Reset(next)
	}
}

// cutOff reports whether an off-line gateway keeps the messages from the clients. Those to inputs
// come from the gateway itself.
func (q *Queue) cutOff() bool { return q.box == Commands && q.Hub.Offline() }

// dispatch is dispatchLocked for callers without the lock.
func (q *Queue) dispatch() {
	defer q.report()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dispatchLocked()
}

// tick runs when the timer fires.
func (q *Queue) tick() {
	if !q.Hub.Enter() {
		return
	}
	defer q.Hub.Wg.Done()
	q.dispatch()
	q.Hub.Changed.Wake()
}

// deliverLocked delivers a C2D message to the receiver; false when it does not take it.
func (q *Queue) deliverLocked(e *QueuedC2D, unacked int) bool {
	sent, settled := q.to.Deliver(q, e, unacked)
	if !sent {
		return false
	}
	e.pulled = false
	e.Deliveries++
	e.Connection = q.to.Client().Number
	if settled {
		q.becomeLocked(e, hubdata.C2DCompleted)
		return true
	}
	q.becomeLocked(e, hubdata.C2DInvisible)
	e.locked = time.Now().Add(q.Limits.Lock)
	return true
}

// NextIDLocked returns a packet id that no waiting message has and free accepts; 0 if there is
// none.
func (q *Queue) NextIDLocked(free func(id uint16) bool) uint16 {
	var used [1 << 10]uint64 // a bit for each id
	for _, e := range q.waiting {
		if e.State == hubdata.C2DEnqueued || e.State == hubdata.C2DInvisible {
			used[e.PacketID>>6] |= 1 << (e.PacketID & 63)
		}
	}
	ids := packetIDs[q.box]
	for range ids.last - ids.first + 1 {
		if q.packetID++; q.packetID < ids.first || q.packetID > ids.last {
			q.packetID = ids.first
		}
		if used[q.packetID>>6]>>(q.packetID&63)&1 == 0 && free(q.packetID) {
			return q.packetID
		}
	}
	return 0
}

// detach stops deliveries to a connection. Unacknowledged messages are delivered again to the next
// receiver.
func (h *Hub) detach(c *Conn) {
	for _, b := range Boxes {
		if q := h.PresentQueue(c.ID, b); q != nil {
			q.leave(func(r Receiver) bool { return r.Client() == c })
			h.Changed.Wake()
		}
	}
}

func (q *Queue) Purge() int {
	defer q.report()
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.waiting)
	for _, e := range q.waiting {
		q.becomeLocked(e, hubdata.C2DPurged)
	}
	q.dispatchLocked()
	return n
}

// stop ends deliveries and the timer, for good.
func (q *Queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	if q.timer != nil {
		q.timer.Stop()
	}
}

func (q *Queue) appendLog(all []hubdata.C2DRecord) []hubdata.C2DRecord {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.log.Entries {
		r := e.C2DRecord
		r.C2D.Body, r.C2D.Properties = slices.Clone(r.C2D.Body), slices.Clone(r.C2D.Properties)
		all = append(all, r)
	}
	return all
}

func (q *Queue) count(s hubdata.C2DState) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s >= c2dStates {
		return 0
	}
	return q.counts[s]
}

// Kick delivers as much as the receiver takes.
func (q *Queue) Kick() {
	q.dispatch()
	q.Hub.Changed.Wake()
}

// Receive makes to the receiver. The previous receiver loses the messages that it has not settled.
func (q *Queue) Receive(to Receiver) {
	defer q.report()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.takeLocked(to)
	q.dispatchLocked()
}

// Unreceive ends deliveries to a receiver.
func (q *Queue) Unreceive(to Receiver) {
	q.leave(func(r Receiver) bool { return r == to })
}

// Pause ends deliveries to a connection's receiver, which can still settle delivered messages.
func (q *Queue) Pause(c *Conn) {
	defer q.report()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.to != nil && q.to.Client() == c {
		q.paused = true
	}
}
