package notices

import (
	"math"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// TableFeedback has the feedback that no back end has settled, by number.
const TableFeedback = "feedback"

// maxFeedback bounds the numbers of feedback in a store. No hub comes near it.
const maxFeedback = math.MaxInt / 2

// A feedbackState is a notice in the store.
type feedbackState struct {
	Body       []byte
	Enqueued   time.Time
	Deliveries int `json:",omitempty"`
}

func (q *Queue) record(key string) []byte {
	number, err := keep.ParseKey(key, 1)
	if err != nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var n *Notice
	if i, waits := q.search(number); waits {
		n = q.waiting[i]
	} else if i := slices.IndexFunc(q.locked, func(n *Notice) bool { return n.Number == number }); i >= 0 {
		n = q.locked[i]
	} else {
		return nil
	}
	return keep.MustJSON(feedbackState{n.Body, n.Enqueued, n.Deliveries})
}

// restore makes a notice wait. A lock of the earlier run has ended with it.
func (q *Queue) restore(key string, r feedbackState) error {
	number, err := keep.ParseKey(key, 1)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if number <= q.number || number > maxFeedback { // a store returns them in their order
		return keep.ErrRecord
	}
	q.number = number
	n := &Notice{Number: number, Body: r.Body, Enqueued: r.Enqueued, Deliveries: r.Deliveries}
	if n.Deliveries >= maxDeliveries {
		q.touchLocked(n)
		return nil
	}
	n.tag = q.tagOf(n)
	q.waiting = append(q.waiting, n)
	return nil
}
