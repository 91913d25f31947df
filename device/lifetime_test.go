package device

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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

		timed, cancel := context.WithTimeout(child, time.Hour) // the standard library's contexts end with it
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
		late, endLate := l.within()
		<-late.Done()
		endLate()
	})
}
