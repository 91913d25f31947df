package device

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/stretchr/testify/require"
)

func TestLifetime(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
		l := newLifetime()
		child, end := l.within()
		other, endOther := l.within()
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
		l.end()
		l.end()
		<-child.Done()
		<-timed.Done()
		synctest.Wait()
		require.Equal(t, 10, ran)
		require.ErrorIs(t, context.Cause(timed), context.Canceled)
		l.AfterFunc(func() { ran += 100 })
		synctest.Wait()
		require.Equal(t, 110, ran)
		end()

		l = newLifetime()
		short, endShort := l.withinTime(time.Minute)
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
		long, endLong := l.withinTime(time.Hour)
		endLong()
		require.ErrorIs(t, long.Err(), context.Canceled)
		l.end()
		late, endLate := l.within()
		<-late.Done()
		endLate()
	})
}
