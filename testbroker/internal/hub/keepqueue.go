package hub

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// The tables of queues: the waiting messages by queue and sequence number, and the numbers of the
// queues.
const (
	tableWaiting = "waiting"
	tableQueues  = "queues"
)

// A waitingRecord is a message that waits in a queue.
type waitingRecord struct {
	hubdata.C2DRecord
	Expires    bool
	Generation string `json:",omitempty"` // of the identity when the message was queued
}

func (h *Hub) addQueueTables() {
	h.Records.Add(tableQueues, h.queueRecord, keep.Decoded(h.restoreQueue))
	h.Records.Add(tableWaiting, h.waitingRecord, keep.Decoded(h.restoreWaiting))
}

// key returns the name of a queue: its box, and its identity, which has no second slash.
func (n queueName) key() string { return fmt.Sprintf("%d/%s", n.box, n.id) }

func parseQueue(key string) (queueName, error) {
	box, id, ok := strings.Cut(key, "/")
	n, err := strconv.Atoi(box)
	if !ok || err != nil || n < 0 || n >= len(Boxes) {
		return queueName{}, keep.ErrRecord
	}
	return queueName{identity.SplitIdentity(id), Box(n)}, nil
}

// touchLocked marks a message of the queue as changed.
func (q *Queue) touchLocked(e *QueuedC2D) {
	if !q.Hub.Records.Stores() {
		return
	}
	q.Hub.Records.Touch(tableWaiting, queueName{q.id, q.box}.key()+"/"+keep.Key(e.Sequence))
}

// queueRecord returns the last sequence number of a queue.
func (h *Hub) queueRecord(key string) []byte {
	name, err := parseQueue(key)
	if err != nil {
		return nil
	}
	q := h.PresentQueue(name.id, name.box)
	if q == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return keep.MustJSON(q.log.Total())
}

// restoreQueue makes a queue. Its log begins after the last message of the earlier run.
func (h *Hub) restoreQueue(key string, total int) error {
	name, err := parseQueue(key)
	if err != nil {
		return err
	}
	if h.orphaned(tableQueues, key, name.id) {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queueLocked(name)
	q.log.Forgotten = max(total, 0)
	return nil
}

func (h *Hub) waitingRecord(key string) []byte {
	name, sequence, err := parseWaiting(key)
	if err != nil {
		return nil
	}
	q := h.PresentQueue(name.id, name.box)
	if q == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	i, ok := slices.BinarySearchFunc(q.waiting, sequence,
		func(e *QueuedC2D, n int) int { return cmp.Compare(e.Sequence, n) })
	if !ok || q.waiting[i].State != hubdata.C2DEnqueued && q.waiting[i].State != hubdata.C2DInvisible {
		return nil
	}
	e := *q.waiting[i]
	e.C2D.Expiry, e.C2D.CreationTime = e.C2D.Expiry.UTC(), e.C2D.CreationTime.UTC() // JSON has no zone of 24 hours
	return keep.MustJSON(waitingRecord{e.C2DRecord, e.Expires, e.generation})
}

// parseWaiting returns the queue and the number in the key of a waiting message.
func parseWaiting(key string) (queueName, int, error) {
	i := strings.LastIndexByte(key, '/')
	name, err := parseQueue(key[:max(i, 0)])
	if err != nil {
		return queueName{}, 0, err
	}
	sequence, err := keep.ParseKey(key[i+1:], 1)
	return name, sequence, err
}

// restoreWaiting puts a message into its queue. A lock of the earlier run has ended with it.
func (h *Hub) restoreWaiting(key string, r waitingRecord) error {
	name, sequence, err := parseWaiting(key)
	if err != nil {
		return err
	}
	if h.orphaned(tableWaiting, key, name.id) {
		return nil
	}
	q := h.PresentQueue(name.id, name.box)
	if q == nil || sequence > q.log.Total() {
		return keep.ErrRecord
	}
	e := &QueuedC2D{C2DRecord: r.C2DRecord, Expires: r.Expires, generation: r.Generation}
	e.State, e.Sequence, e.PacketID, e.LockToken, e.Connection = hubdata.C2DEnqueued, sequence, 0, "", 0
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, e)
	q.counts[hubdata.C2DEnqueued]++
	if q.log.Keep == 0 || len(q.log.Entries) < q.log.Keep {
		q.log.Entries = append(q.log.Entries, e)
		q.log.Forgotten--
	}
	return nil
}
