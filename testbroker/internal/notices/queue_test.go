package notices

import (
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// A clock is a host that is never closed.
type clock func() time.Time

func (c clock) Now() time.Time { return c() }
func (clock) Enter() bool      { return true }
func (clock) Leave()           {}

func (clock) Tag(name string) (tag [16]byte) {
	copy(tag[:], identity.Derived(1, "%s", name))
	return tag
}

func newQueue(t *testing.T, now clock) *Queue {
	records := new(keep.Saver)
	records.Init(nil, nil)
	q := new(Queue)
	q.Init(Feedback, now, records)
	t.Cleanup(q.Stop)
	return q
}

// The queue for back ends that never receive is bounded: the oldest notices are dropped.
func TestNoticesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, time.Now)
		for i := range maxWaiting + 10 {
			q.Add([]byte(strconv.Itoa(i)))
		}
		require.Len(t, q.waiting, maxWaiting)
		n, ok := q.Pull()
		require.True(t, ok)
		require.Equal(t, "10", string(n.Body))
		time.Sleep(life)
		synctest.Wait()
		require.Empty(t, q.waiting, "they end without a receiver")
	})
}

// A notice ends even if the clock passes its end between two readings of the queue.
func TestNoticesEndBetweenReadings(t *testing.T) {
	for early := range int64(6) {
		synctest.Test(t, func(t *testing.T) {
			var readings atomic.Int64 // those that remain before the clock passes the end
			var late atomic.Bool
			start := time.Now()
			q := newQueue(t, func() time.Time {
				switch {
				case !late.Load():
					return start
				case readings.Add(-1) >= 0:
					return start.Add(life - 1)
				}
				return start.Add(life)
			})
			q.Add(nil)
			readings.Store(early)
			late.Store(true)
			q.Kick()
			time.Sleep(time.Second)
			synctest.Wait()
			q.mu.Lock()
			defer q.mu.Unlock()
			require.Empty(t, q.waiting, early)
		})
	}
}

// A modelNotice is what a simple model of the queue knows of a notice.
type modelNotice struct {
	deliveries int
	until      time.Time // of its lock
	lock       string
}

// The queue does what a model does that looks at all notices each time.
func TestNoticesAgreeWithAModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		q := newQueue(t, time.Now)
		model := make(map[int]*modelNotice)
		first := func() int { // the notice that waits longest; zero: none
			least := 0
			for number, m := range model {
				if !m.until.After(time.Now()) {
					if m.deliveries >= maxDeliveries {
						delete(model, number)
					} else if least == 0 || number < least {
						least = number
					}
				}
			}
			return least
		}
		settle := func(again bool) {
			for number, m := range model { // in an order at random
				locked := m.until.After(time.Now())
				require.Equal(t, locked, q.Settle(m.lock, again))
				if locked && !again {
					delete(model, number)
				}
				if locked {
					m.until = time.Time{}
				}
				return
			}
		}
		for range 3000 {
			switch random.IntN(8) {
			case 0, 1:
				q.Add(nil)
				model[q.number] = &modelNotice{}
			case 2, 3, 4:
				want := first()
				n, ok := q.Pull()
				require.Equal(t, want != 0, ok)
				require.Equal(t, want, n.Number)
				if ok {
					m := model[want]
					*m = modelNotice{m.deliveries + 1, time.Now().Add(lockTime), n.LockToken}
				}
			case 5:
				settle(false)
			case 6:
				settle(true)
			case 7:
				time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
			}
		}
		synctest.Wait() // the timer of a lock may have fired at this moment
		first()
		require.Len(t, model, len(q.waiting)+len(q.locked))
	})
}

// A boundReceiver takes notices up to a size, while it has credit.
type boundReceiver struct {
	size, credit int
	got          []string
}

func (r *boundReceiver) Deliver(n *Notice, _ [16]byte) Outcome {
	switch {
	case r.credit == 0:
		return Later
	case len(n.Body) > r.size:
		return Never
	}
	r.credit--
	r.got = append(r.got, string(n.Body))
	return Sent
}

// A notice that a receiver cannot carry holds up no others, and waits for a receiver that can.
func TestNoticesPassOneThatIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, time.Now)
		small, large := &boundReceiver{1, 10, nil}, &boundReceiver{10, 0, nil}
		q.Receive(small)
		q.Receive(large)
		for _, body := range []string{"large", "a", "large too", "b", "c"} {
			q.Add([]byte(body))
		}
		require.Equal(t, []string{"a", "b", "c"}, small.got)
		require.Empty(t, large.got)
		large.credit = 10
		q.Kick()
		require.Equal(t, []string{"large", "large too"}, large.got)
		q.Unreceive(large)
		q.Unreceive(small)
		for _, body := range []string{"large", "a", "large too", "b", "c"} {
			n, ok := q.Pull()
			require.True(t, ok)
			require.Equal(t, body, string(n.Body))
		}
	})
}

// A stopped queue takes no notices, and sets no timers for them.
func TestStoppedQueuesTakeNoNotices(t *testing.T) {
	q := newQueue(t, time.Now)
	q.Stop()
	q.Add(nil)
	require.Empty(t, q.waiting)
	require.Nil(t, q.timer)
}
