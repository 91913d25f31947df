package device

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// A policy that panics between take and Send ends the loop.
func TestABatchThatNoSessionGotLeavesNoCopies(t *testing.T) {
	s := &settings{Options: Options{MaxMessages: 8, MessageIDPrefix: "p"}}
	q := newQueue(s, time.Now, func() {})
	m := &transport.Message{Body: []byte("x")}
	for range 3 {
		q.appendLocked(m, 1, nil, false)
	}
	for range 2 {
		q.connect(8)
		batch := q.take(nil, time.Now(), time.Now(), true)
		require.Len(t, batch, 3)
		for i, id := range []string{"p-1", "p-2", "p-3"} {
			require.Equal(t, id, batch[i].Msg.ID)
			require.Equal(t, m.Body, batch[i].Msg.Body)
		}
		q.rewind()
		require.Zero(t, q.lent)
		require.Len(t, q.copies, 3)
		for _, own := range q.copies {
			require.Zero(t, *own)
		}
	}
}
