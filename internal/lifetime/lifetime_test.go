package lifetime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
)

func TestContextsEndWithTheirParentsAndInTime(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l := New()
		child, end := Within(l)
		other, endOther := Within(l)
		require.NoError(t, child.Err())
		ran := 0
		stop := l.AfterFunc(func() { ran++ })
		require.True(t, stop())
		require.False(t, stop())
		l.AfterFunc(func() { ran += 10 })

		endOther()
		require.ErrorIs(t, other.Err(), context.Canceled)
		require.Len(t, l.after, 2, "the child that ended is forgotten")

		timed, cancel := context.WithTimeout(child, time.Hour) // a child made by the standard library ends with it
		defer cancel()
		l.End()
		l.End()
		<-child.Done()
		<-timed.Done()
		synctest.Wait()
		require.Equal(t, 10, ran)
		require.ErrorIs(t, context.Cause(timed), context.Canceled)
		l.AfterFunc(func() { ran += 100 })
		synctest.Wait()
		require.Equal(t, 110, ran)
		end()

		l = New()
		short, endShort := WithinTime(l, time.Minute)
		at, ok := short.Deadline()
		require.True(t, ok)
		require.Equal(t, time.Minute, time.Until(at))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ErrorIs(t, short.Err(), context.DeadlineExceeded)
		endShort()
		require.ErrorIs(t, short.Err(), context.DeadlineExceeded)
		require.Empty(t, l.after)
		_, ok = l.Deadline()
		require.False(t, ok)
		long, endLong := WithinTime(l, time.Hour)
		endLong()
		require.ErrorIs(t, long.Err(), context.Canceled)
		l.End()
		late, endLate := Within(l)
		<-late.Done()
		endLate()
	})
}

func TestAChildHasTheValuesAndTheErrorOfItsParent(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		type key struct{}
		parent, cancel := context.WithTimeoutCause(context.WithValue(t.Context(), key{}, 7), time.Minute,
			errors.New("because"))
		defer cancel()
		child, end := WithinTime(parent, time.Hour)
		defer end()
		require.Equal(t, 7, child.Value(key{}))
		require.Nil(t, New().Value(key{}))
		<-child.Done()
		require.ErrorIs(t, child.Err(), context.DeadlineExceeded)
		require.ErrorContains(t, context.Cause(child), "because")
	})
}
