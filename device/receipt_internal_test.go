package device

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// A result that arrives while Wait gives up is returned by this Wait or by the next one.
func TestAResultIsNotLostToAWaitThatGivesUp(t *testing.T) {
	var r Receipt
	refused := errors.New("refused")
	for range 20_000 {
		require.True(t, r.take())
		ctx, cancel := context.WithCancel(t.Context())
		set := make(chan struct{})
		go cancel()
		go func() {
			r.set(refused)
			close(set)
		}()
		err := r.Wait(ctx)
		<-set
		if !errors.Is(err, refused) {
			require.ErrorIs(t, err, transport.Cancelled)
			require.Equal(t, refused, r.Wait(t.Context()))
		}
		require.ErrorIs(t, r.Wait(t.Context()), transport.Invalid, "taken")
		require.Empty(t, r.signal)
	}
}

func TestAPolledReceiptHasNoChannel(t *testing.T) {
	var r Receipt
	require.True(t, r.take())
	r.set(nil)
	require.True(t, r.Ready())
	require.NoError(t, r.Wait(t.Context()))
	require.Nil(t, r.signal)
}

// Of two goroutines that wait at the same time one gets the result, and the other one Invalid.
func TestOneOfTwoWaitersGetsTheResult(t *testing.T) {
	refused := errors.New("refused")
	for range 5_000 {
		var r Receipt
		require.True(t, r.take())
		var errs [2]error
		begin := make(chan struct{})
		var waiters sync.WaitGroup
		for i := range errs {
			waiters.Go(func() {
				<-begin
				errs[i] = r.Wait(t.Context())
			})
		}
		waiters.Go(func() {
			<-begin
			r.set(refused)
		})
		close(begin)
		waiters.Wait()
		if !errors.Is(errs[0], refused) {
			errs[0], errs[1] = errs[1], errs[0]
		}
		require.Equal(t, refused, errs[0])
		require.ErrorIs(t, errs[1], transport.Invalid)
	}
}

// A Wait returns Invalid as long as another one has not returned, also when the result is there.
func TestAWaitThatComesSecondIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Receipt
		require.True(t, r.take())
		first := make(chan error)
		go func() { first <- r.Wait(t.Context()) }()
		synctest.Wait()
		done, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, r.Wait(t.Context()), transport.Invalid)
		require.ErrorIs(t, r.Wait(done), transport.Invalid, "not Cancelled")
		r.set(nil)
		require.ErrorIs(t, r.Wait(t.Context()), transport.Invalid, "the result belongs to the first one")
		require.NoError(t, <-first)
	})
}
