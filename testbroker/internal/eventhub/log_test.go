package eventhub_test

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/internal/eventhub"
)

var day = time.UnixMilli(1_700_000_000_000)

// filled returns a log whose partition 0 got n events, a second apart. Their values are their
// sequence numbers.
func filled(n, keep int) *eventhub.Log[int] {
	l := eventhub.NewLog[int](2, keep)
	for i := range n {
		l.Add(0, day.Add(time.Duration(i)*time.Second), i)
	}
	return l
}

func read(t *testing.T, l *eventhub.Log[int], from int64, n int) []int {
	t.Helper()
	all, _ := l.Read(0, from, n, nil)
	var got []int
	for _, e := range all {
		require.Equal(t, int64(e.Value), e.Sequence)
		require.Equal(t, day.Add(time.Duration(e.Value)*time.Second), e.Enqueued)
		got = append(got, e.Value)
	}
	return got
}

func TestStartPositions(t *testing.T) {
	l := filled(10, 6) // 4 to 9 are kept
	for want, all := range map[int64][]eventhub.Start{
		4: {
			{}, {By: eventhub.Sequence, Value: 0}, {By: eventhub.Sequence, Value: 3}, {By: eventhub.Offset, Value: 512},
			{By: eventhub.Sequence, Value: 4, Inclusive: true}, {By: eventhub.Time, Value: 0},
			{By: eventhub.Time, Value: day.Add(3 * time.Second).UnixMilli()},
		},
		7: {
			{By: eventhub.Sequence, Value: 6}, {By: eventhub.Sequence, Value: 7, Inclusive: true},
			{By: eventhub.Offset, Value: eventhub.OffsetOf(6)}, {By: eventhub.Offset, Value: eventhub.OffsetOf(6) + 1},
			{By: eventhub.Offset, Value: eventhub.OffsetOf(7), Inclusive: true},
			{By: eventhub.Offset, Value: eventhub.OffsetOf(7) - 1},
			{By: eventhub.Time, Value: day.Add(6 * time.Second).UnixMilli()},
			{By: eventhub.Time, Value: day.Add(7 * time.Second).UnixMilli(), Inclusive: true},
		},
		10: {
			{By: eventhub.Latest}, {By: eventhub.Sequence, Value: 9}, {By: eventhub.Offset, Value: eventhub.OffsetOf(9)},
			{By: eventhub.Sequence, Value: 10, Inclusive: true}, {By: eventhub.Time, Value: day.Add(time.Hour).UnixMilli()},
		},
	} {
		for _, s := range all {
			at, err := l.Position(0, s)
			require.Nil(t, err, s)
			require.Equal(t, want, at, s)
		}
	}
	for _, s := range []eventhub.Start{
		{By: eventhub.Sequence, Value: 10}, {By: eventhub.Offset, Value: eventhub.OffsetOf(10)},
	} {
		_, err := l.Position(0, s)
		require.NotNil(t, err, s)
		require.Equal(t, eventhub.BadArgument, err.Reason)
		require.Contains(t, err.Error(), "The last sequence number in the system is '9'")
	}
}

func TestReaderOfForgottenEventsContinuesAtTheOldest(t *testing.T) {
	l := filled(10, 6)
	require.Equal(t, []int{4, 5, 6}, read(t, l, 0, 3))
	require.Equal(t, []int{7, 8, 9}, read(t, l, 7, 100))
}

func TestReadTellsWhenTheNextEventComes(t *testing.T) {
	l := filled(1, 0)
	all, changed := l.Read(0, 1, 1, nil)
	require.Empty(t, all)
	l.Add(1, day, 0)
	select {
	case <-changed:
		require.Fail(t, "an event of another partition")
	default:
	}
	l.Add(0, day.Add(time.Second), 1)
	<-changed
	require.Equal(t, []int{1}, read(t, l, 1, 1))
}

func TestStateOfAPartition(t *testing.T) {
	l := filled(0, 3)
	s := l.State(0)
	require.Equal(t, eventhub.State{Last: -1, Empty: true}, s)
	require.Equal(t, int64(-1), s.LastOffset())
	l = filled(5, 3)
	s = l.State(0)
	require.Equal(t, eventhub.State{Begin: 2, Last: 4, LastEnqueued: day.Add(4 * time.Second)}, s)
	require.Equal(t, eventhub.OffsetOf(4), s.LastOffset())
	l.Forget(0, func(v int) bool { return v <= 3 })
	require.Equal(t, []int{4}, read(t, l, 0, 10))
	l.Forget(0, func(int) bool { return true })
	s = l.State(0)
	require.Equal(t, eventhub.State{Begin: 5, Last: 4, LastEnqueued: day.Add(4 * time.Second), Empty: true}, s)
}

func TestTimesDoNotGoBack(t *testing.T) {
	l := eventhub.NewLog[int](1, 0)
	l.Add(0, day.Add(time.Second), 0)
	l.Add(0, day, 1)
	all, _ := l.Read(0, 0, 2, nil)
	require.Equal(t, all[0].Enqueued, all[1].Enqueued)
}

func TestNumbersGoOnAfterAResume(t *testing.T) {
	l := eventhub.NewLog[int](1, 0)
	l.Resume(0, 7)
	l.Add(0, day, 7)
	all, _ := l.Read(0, 0, 2, nil)
	require.Len(t, all, 1)
	require.Equal(t, int64(7), all[0].Sequence)
	l.Resume(0, 100)
	require.Equal(t, int64(7), l.State(0).Last, "a partition with events is left alone")
}

// The bound is one for all partitions: the oldest event goes, whichever partition has it.
func TestPartitionsShareTheBound(t *testing.T) {
	l := eventhub.NewLog[int](2, 3)
	for i, partition := range []int{0, 1, 1, 1, 0, 0, 0} {
		l.Add(partition, day, i)
	}
	require.Equal(t, eventhub.State{Begin: 1, Last: 3, LastEnqueued: day}, l.State(0))
	require.Equal(t, eventhub.State{Begin: 3, Last: 2, LastEnqueued: day, Empty: true}, l.State(1))
	l.Forget(0, func(v int) bool { return v < 6 })
	l.Add(1, day, 7)
	l.Add(1, day, 8)
	require.Equal(t, eventhub.State{Begin: 3, Last: 3, LastEnqueued: day}, l.State(0))
	require.Equal(t, eventhub.State{Begin: 3, Last: 4, LastEnqueued: day}, l.State(1))
	l.Clear()
	l.Add(0, day, 9)
	require.Equal(t, int64(0), l.State(0).Begin)
}

// The partition gets no more events, so nothing moves its entries to another array.
func TestForgottenEventsAreFreed(t *testing.T) {
	for name, forget := range map[string]func(*eventhub.Log[*[1024]byte]){
		"by the bound": func(l *eventhub.Log[*[1024]byte]) {
			for range 3 {
				l.Add(1, day, nil)
			}
		},
		"some": func(l *eventhub.Log[*[1024]byte]) {
			left := 3
			l.Forget(0, func(*[1024]byte) bool { left--; return left >= 0 })
		},
		"all": func(l *eventhub.Log[*[1024]byte]) { l.Forget(0, func(*[1024]byte) bool { return true }) },
	} {
		t.Run(name, func(t *testing.T) {
			l := eventhub.NewLog[*[1024]byte](2, 4)
			var values []weak.Pointer[[1024]byte]
			for range 4 {
				value := new([1024]byte)
				values = append(values, weak.Make(value))
				l.Add(0, day, value)
			}
			runtime.GC()
			require.NotNil(t, values[0].Value(), "kept")
			forget(l)
			runtime.GC()
			for i, v := range values[:3] {
				require.Nil(t, v.Value(), i)
			}
			require.Equal(t, l.State(0).Empty, values[3].Value() == nil)
			runtime.KeepAlive(l)
		})
	}
}
