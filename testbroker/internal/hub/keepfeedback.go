package hub

import (
	"encoding/json"
	"math"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// tableFeedback has the feedback that no back end has settled, by number. File notifications are
// not kept, because the files of uploads are not.
const tableFeedback = "feedback"

// maxFeedback bounds the numbers of feedback in a store. No hub comes near it.
const maxFeedback = math.MaxInt / 2

// A feedbackState is a notice in the store.
type feedbackState struct {
	Body       []byte
	Enqueued   time.Time
	Deliveries int `json:",omitempty"`
}

func (h *Hub) addFeedbackTable() {
	h.Records.Add(tableFeedback, h.feedbackState, h.restoreFeedback)
}

// touchLocked marks a notice as changed.
func (q *Notices) touchLocked(n *Notice) {
	if q.kind == Feedback && q.hub.Records.Stores() {
		q.hub.Records.Touch(tableFeedback, keep.Key(n.Number))
	}
}

func (h *Hub) feedbackState(key string) []byte {
	number, err := keep.ParseKey(key, 1)
	if err != nil {
		return nil
	}
	q := h.Notices(Feedback)
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.unsettled[number]
	if n == nil {
		return nil
	}
	return keep.MustJSON(feedbackState{n.Body, n.Enqueued, n.Deliveries})
}

// restoreFeedback makes a notice wait. A lock of the earlier run has ended with it.
func (h *Hub) restoreFeedback(key string, record []byte) error {
	number, err := keep.ParseKey(key, 1)
	if err != nil {
		return err
	}
	var r feedbackState
	if err := json.Unmarshal(record, &r); err != nil {
		return err
	}
	q := h.Notices(Feedback)
	q.mu.Lock()
	defer q.mu.Unlock()
	if number <= q.number || number > maxFeedback { // a store returns them in their order
		return keep.ErrRecord
	}
	q.number = number
	n := &Notice{Number: number, Body: r.Body, Enqueued: r.Enqueued, Deliveries: r.Deliveries}
	if n.Deliveries >= noticeDeliveries {
		q.touchLocked(n)
		return nil
	}
	n.tag = q.tagOf(n)
	q.unsettled[number] = n
	q.waiting = append(q.waiting, n)
	return nil
}
