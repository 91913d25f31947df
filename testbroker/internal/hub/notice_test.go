package hub

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The queue for back ends that never receive is bounded: the oldest notices are dropped.
func TestNoticesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := New(nil)
		require.NoError(t, err)
		defer h.Close()
		q := h.Notices(Feedback)
		for i := range maxNotices + 10 {
			q.add([]byte(strconv.Itoa(i)))
		}
		require.Len(t, q.waiting, maxNotices)
		n, ok := q.Pull()
		require.True(t, ok)
		require.Equal(t, "10", string(n.Body))
		time.Sleep(noticeLife)
		synctest.Wait()
		require.Empty(t, q.waiting, "they end without a receiver")
	})
}
