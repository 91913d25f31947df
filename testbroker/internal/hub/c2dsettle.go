package hub

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// Pull locks the first waiting C2D message for a client that asked for one over HTTP. This lock
// does not end with a connection.
func (q *Queue) Pull(c *Conn) (hubdata.C2DRecord, bool) {
	defer q.report()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dispatchLocked() // ends expired messages and locks
	if q.cutOff() {
		return hubdata.C2DRecord{}, false
	}
	i := slices.IndexFunc(q.waiting, func(e *QueuedC2D) bool { return e.State == hubdata.C2DEnqueued })
	if i < 0 {
		return hubdata.C2DRecord{}, false
	}
	e := q.waiting[i]
	e.Tag, e.LockToken = "", identity.GUID(q.Hub.LockToken(e))
	e.pulled = true
	e.Deliveries++
	e.Connection = c.Number
	q.becomeLocked(e, hubdata.C2DInvisible)
	e.locked = time.Now().Add(q.Limits.Lock)
	q.dispatchLocked()
	return e.C2DRecord, true
}

// Settle applies an outcome over HTTPS to the C2D message that was pulled under a lock token. It
// returns false when the lock has ended.
func (q *Queue) Settle(lock string, to hubdata.C2DState) bool {
	defer q.report()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dispatchLocked()
	i := slices.IndexFunc(q.waiting, func(e *QueuedC2D) bool {
		return e.State == hubdata.C2DInvisible && e.pulled && strings.EqualFold(e.LockToken, lock)
	})
	if i < 0 {
		return false
	}
	if to == hubdata.C2DEnqueued {
		q.releaseLocked(q.waiting[i])
	} else {
		q.becomeLocked(q.waiting[i], to)
	}
	q.dispatchLocked()
	return true
}

// Acknowledge applies an outcome over MQTT to the C2D message that was delivered with a packet id.
// It returns false when there is none, or its lock has ended.
func (q *Queue) Acknowledge(c *Conn, packetID uint16, to hubdata.C2DState) bool {
	if q.loses(c) {
		return true
	}
	defer q.report()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.waiting {
		if e.PacketID == packetID && e.State == hubdata.C2DInvisible && !e.pulled && q.to != nil && q.to.Client() == c {
			q.becomeLocked(e, to)
			q.dispatchLocked()
			return true
		}
	}
	return false
}

// loses reports whether a gateway loses an acknowledgement or outcome.
func (q *Queue) loses(c *Conn) bool {
	return q.Hub.Gateway != nil && q.Hub.Strike(fault.LoseSettlement, q.id, c, nil) != nil
}

// SettleTag applies an outcome over AMQP to the C2D message that was delivered to a receiver with a
// tag; [hubdata.C2DEnqueued] delivers it again. It returns false when the lock has ended.
func (q *Queue) SettleTag(r Receiver, tag string, to hubdata.C2DState) bool {
	if q.loses(r.Client()) {
		return true
	}
	defer q.Hub.Changed.Wake()
	defer q.report()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.waiting {
		if e.Tag != tag || e.State != hubdata.C2DInvisible || q.to != r {
			continue
		}
		if to == hubdata.C2DEnqueued {
			q.releaseLocked(e)
		} else {
			q.becomeLocked(e, to)
		}
		q.dispatchLocked()
		return true
	}
	return false
}

// LockToken returns the tag of a delivery.
func (h *Hub) LockToken(e *QueuedC2D) [16]byte {
	return h.Tag(fmt.Sprintf("%s/%s %d %d", e.DeviceID, e.ModuleID, e.Sequence, e.Deliveries))
}

// Tag returns the tag of the delivery with a name: 16 bytes, as some clients require, random or
// derived from the seed.
func (h *Hub) Tag(name string) (tag [16]byte) {
	if h.Seed == 0 {
		rand.Read(tag[:]) // never fails
		return tag
	}
	copy(tag[:], identity.Derived(h.Seed, "tag\n%s", name))
	return tag
}
