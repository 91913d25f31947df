package testbroker

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// A c2dQueue holds the commands to one identity. It lives as long as the hub, over all connections.
type c2dQueue struct {
	hub *Hub
	id  identity

	mu       sync.Mutex // guards what follows; held over writes, which never wait, so that commands stay in order
	log      history[*c2dEntry]
	waiting  []*c2dEntry // those that have not ended, forgotten or not
	counts   [c2dStates]int
	to       c2dReceiver // who receives commands, or did so before; nil = nobody
	paused   bool        // it has unsubscribed; it can still acknowledge what it has
	packetID uint16
	timer    *time.Timer // the next lock or expiry that ends
	news     []Event     // of changes that were not told yet
	telling  bool
}

// c2dEntry is a command in a queue.
type c2dEntry struct {
	C2DRecord
	locked time.Time // when its lock ends, while it is Invisible
	tag    string    // of the delivery over AMQP that it is locked by
	pulled bool      // a client over HTTP has asked for it; set while it is Invisible
}

// A c2dReceiver takes the commands to an identity. Its methods are called with the queue's lock
// held, and must not wait.
type c2dReceiver interface {
	// deliver sends a command while unacked others are locked; false when it cannot. A command that is
	// settled is done.
	deliver(q *c2dQueue, e *c2dEntry, unacked int) (sent, settled bool)
	// client is the connection of the receiver.
	client() *conn
	// replaced tells the receiver that another, on the given connection, has taken its place.
	replaced(by *conn)
}

// An mqttReceiver is a client that has subscribed.
type mqttReceiver struct {
	c   *conn
	qos byte // that it was granted
}

func (r mqttReceiver) client() *conn { return r.c }

func (r mqttReceiver) replaced(*conn) { r.c.closeFor(ErrReplaced) }

func (q *c2dQueue) add(m C2D, topic string) error {
	now := q.hub.now()
	if m.Expiry.IsZero() {
		m.Expiry = now.Add(q.hub.c2d.TTL)
	}
	q.mu.Lock()
	defer q.unlock()
	if len(q.waiting) >= q.hub.c2d.Queue {
		return ErrQueueFull
	}
	e := &c2dEntry{C2DRecord: C2DRecord{
		DeviceID: q.id.device, ModuleID: q.id.module, Sequence: q.log.total() + 1, C2D: m, Topic: topic, State: Enqueued,
		Enqueued: now,
	}}
	q.log.add(e)
	q.waiting = append(q.waiting, e)
	q.counts[Enqueued]++
	q.noteLocked(e)
	q.dispatchLocked()
	return nil
}

// noteLocked has unlock tell of the state of a command.
func (q *c2dQueue) noteLocked(e *c2dEntry) {
	if q.hub.onEvent != nil {
		q.news = append(q.news, Event{
			Kind: CommandChanged, Connection: e.Connection, DeviceID: q.id.device, ModuleID: q.id.module, Name: e.C2D.MessageID,
			Detail: e.State.String(),
		})
	}
}

// unlock releases mu after something may have changed, and tells of what has changed, in order.
// Another may be doing so.
func (q *c2dQueue) unlock() {
	defer q.mu.Unlock()
	relay(&q.mu, &q.telling, &q.news, func(e Event) { q.hub.event(e, nil) })
}

func (q *c2dQueue) becomeLocked(e *c2dEntry, s C2DState) {
	q.counts[e.State]--
	q.counts[s]++
	e.State = s
	q.noteLocked(e)
	if s != Enqueued && s != Invisible {
		e.Ended = q.hub.now()
		e.Feedback = e.C2D.feedback(s)
	}
}

// releaseLocked ends the lock of a command that was not acknowledged.
func (q *c2dQueue) releaseLocked(e *c2dEntry) {
	if e.Deliveries >= q.hub.c2d.MaxDeliveries {
		q.becomeLocked(e, DeadLettered)
		return
	}
	q.becomeLocked(e, Enqueued)
}

// takeLocked makes a receiver the one that receives. What the one before has not acknowledged is
// delivered again.
func (q *c2dQueue) takeLocked(to c2dReceiver) {
	before, paused := q.to, q.paused
	q.to, q.paused = to, false
	if before == nil {
		return
	}
	if _, mqtt := before.(mqttReceiver); mqtt && before.client() == to.client() {
		return // it has subscribed once more
	}
	q.unlockLocked()
	if !paused {
		before.replaced(to.client())
	}
}

// leaveLocked ends deliveries to a receiver, if it is the one that receives.
func (q *c2dQueue) leaveLocked(of func(c2dReceiver) bool) {
	if q.to == nil || !of(q.to) {
		return
	}
	q.to = nil
	q.unlockLocked()
	q.dispatchLocked()
}

// unlockLocked ends the locks of the receiver.
func (q *c2dQueue) unlockLocked() {
	for _, e := range q.waiting {
		if e.State == Invisible && !e.pulled {
			q.releaseLocked(e)
		}
	}
}

// dispatchLocked ends what is due, delivers what may be delivered, in order, and sets the timer.
func (q *c2dQueue) dispatchLocked() {
	now, clock := time.Now(), q.hub.now()
	unacked := 0
	for _, e := range q.waiting {
		if e.State == Invisible && !e.locked.After(now) {
			q.releaseLocked(e)
		}
		if e.State == Enqueued && !e.C2D.Expiry.After(clock) {
			q.becomeLocked(e, Expired)
		}
		if e.State == Invisible && !e.pulled {
			unacked++
		}
	}
	var next time.Duration // until something is due; zero = nothing
	for _, e := range q.waiting {
		if e.State == Enqueued && q.to != nil && !q.paused && q.deliverLocked(e, unacked) {
			if e.State == Invisible {
				unacked++
			}
		}
		var wait time.Duration
		switch e.State {
		case Enqueued:
			wait = e.C2D.Expiry.Sub(clock)
		case Invisible:
			wait = e.locked.Sub(now)
		default:
			continue
		}
		if next == 0 || wait < next {
			next = wait
		}
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(e *c2dEntry) bool { return e.State != Enqueued && e.State != Invisible })
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

// tick runs when something is due.
func (q *c2dQueue) tick() {
	if !q.hub.enter() {
		return
	}
	defer q.hub.wg.Done()
	q.mu.Lock()
	q.dispatchLocked()
	q.unlock()
	q.hub.changed.wake()
}

// deliverLocked hands a command to the receiver; false when it does not take it.
func (q *c2dQueue) deliverLocked(e *c2dEntry, unacked int) bool {
	sent, settled := q.to.deliver(q, e, unacked)
	if !sent {
		return false
	}
	e.pulled = false
	e.Deliveries++
	e.Connection = q.to.client().number
	if settled {
		q.becomeLocked(e, Completed)
		return true
	}
	q.becomeLocked(e, Invisible)
	e.locked = time.Now().Add(q.hub.c2d.Lock)
	return true
}

// deliver publishes a command; false when the window is full or the connection is over. A client at
// the other end of a dead link would not learn of it, and the hub does not know.
func (r mqttReceiver) deliver(q *c2dQueue, e *c2dEntry, unacked int) (sent, settled bool) {
	if mode := r.c.mode.Load(); unacked >= q.hub.c2d.Window || mode != open && mode != silent {
		return false, false
	}
	flags := r.qos << 1
	var id []byte
	if r.qos > 0 {
		if e.PacketID == 0 {
			e.PacketID = q.nextIDLocked()
		}
		id = []byte{byte(e.PacketID >> 8), byte(e.PacketID)}
		if e.Deliveries > 0 {
			flags |= 8
		}
	}
	topic := []byte{byte(len(e.Topic) >> 8), byte(len(e.Topic))}
	_, err := r.c.Write(packet(packetPublish<<4|flags, append(topic, e.Topic...), id, e.C2D.Body))
	return err == nil, r.qos == 0
}

// nextIDLocked returns a packet id that no waiting command has.
func (q *c2dQueue) nextIDLocked() uint16 {
	for {
		q.packetID++
		if q.packetID != 0 && !slices.ContainsFunc(q.waiting, func(e *c2dEntry) bool { return e.PacketID == q.packetID }) {
			return q.packetID
		}
	}
}

// attach lets through to a connection what its session says, and commands that wait.
func (h *Hub) attach(c *conn) {
	qos, ok := h.commands(c)
	h.mu.Lock()
	c.heard = maps.Clone(c.session.filters)
	q := h.queues[c.id]
	if q == nil && ok && h.registry[c.id] != nil {
		q = h.queueLocked(c.id)
	}
	h.mu.Unlock()
	if q == nil {
		h.changed.wake()
		return
	}
	q.mu.Lock()
	switch {
	case !ok && q.to != nil && q.to.client() == c:
		q.paused = true
	case ok && c.mode.Load() != over: // or it would never be detached
		q.takeLocked(mqttReceiver{c, qos})
		q.dispatchLocked()
	}
	q.unlock()
	h.changed.wake()
}

// detach stops deliveries to a connection. What it has not acknowledged is delivered again to the
// next.
func (h *Hub) detach(c *conn) {
	h.mu.Lock()
	q := h.queues[c.id]
	h.mu.Unlock()
	if q == nil {
		return
	}
	q.mu.Lock()
	q.leaveLocked(func(r c2dReceiver) bool { return r.client() == c })
	q.unlock()
	h.changed.wake()
}

// complete is told of a PUBACK. One that comes after the lock has ended finds nothing.
func (h *Hub) complete(c *conn, packetID uint16) {
	h.mu.Lock()
	q := h.queues[c.id]
	h.mu.Unlock()
	if q == nil {
		return
	}
	q.mu.Lock()
	for _, e := range q.waiting {
		if e.PacketID == packetID && e.State == Invisible && !e.pulled && q.to != nil && q.to.client() == c {
			q.becomeLocked(e, Completed)
			q.dispatchLocked()
			break
		}
	}
	q.unlock()
	h.changed.wake()
}

func (q *c2dQueue) purge() int {
	q.mu.Lock()
	defer q.unlock()
	n := len(q.waiting)
	for _, e := range q.waiting {
		q.becomeLocked(e, Purged)
	}
	q.dispatchLocked()
	return n
}

func (q *c2dQueue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timer != nil {
		q.timer.Stop()
	}
}

func (q *c2dQueue) appendLog(all []C2DRecord) []C2DRecord {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.log.entries {
		r := e.C2DRecord
		r.C2D.Body, r.C2D.Properties = slices.Clone(r.C2D.Body), slices.Clone(r.C2D.Properties)
		all = append(all, r)
	}
	return all
}

func (q *c2dQueue) count(s C2DState) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s >= c2dStates {
		return 0
	}
	return q.counts[s]
}
