package backend

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

func newState(t *testing.T, o *hub.Options) *State {
	h, err := hub.New(o)
	require.NoError(t, err)
	return New(h, nil)
}

// endless is a transfer that ends with its context only.
var endless = TransferRequest{Kind: "export", Run: func(ctx context.Context, progress func(done, all int)) error {
	progress(1, 4)
	<-ctx.Done()
	return ctx.Err()
}}

func TestOneTransferRunsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newState(t, &hub.Options{})
		defer h.hub.Close()
		first, err := h.StartTransfer(endless)
		require.NoError(t, err)
		_, err = h.StartTransfer(endless)
		var refused *hubdata.ServiceError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, codeTransferRuns, refused.Code)
		synctest.Wait()
		state, err := h.Transfer(first.ID)
		require.NoError(t, err)
		require.Equal(t, []any{JobRunning, 25}, []any{state.Status, state.Progress})
		require.NoError(t, h.CancelTransfer(first.ID))
		state, err = h.Transfer(first.ID)
		require.NoError(t, err)
		require.Equal(t, JobCancelled, state.Status)
		require.False(t, state.Ended.IsZero())

		failed, err := h.StartTransfer(TransferRequest{Run: func(context.Context, func(int, int)) error {
			return errors.New("full")
		}})
		require.NoError(t, err)
		synctest.Wait()
		state, err = h.Transfer(failed.ID)
		require.NoError(t, err)
		require.Equal(t, []string{JobFailed, "full"}, []string{state.Status, state.Reason})
		require.NoError(t, h.CancelTransfer(failed.ID))
		state, err = h.Transfer(failed.ID)
		require.NoError(t, err)
		require.Equal(t, JobFailed, state.Status, "an ended one stays as it is")
		for _, ended := range h.transfers.all {
			require.Nil(t, ended.Run, "an ended one keeps no file in memory")
		}
	})
}

func TestTheHubEndsItsTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newState(t, &hub.Options{})
		_, err := h.StartTransfer(endless)
		require.NoError(t, err)
		h.hub.Reset()
		require.Empty(t, h.Transfers())
		for i := range maxTransfers + 1 {
			_, err := h.StartTransfer(TransferRequest{Kind: strconv.Itoa(i), Run: func(context.Context, func(int, int)) error {
				return nil
			}})
			require.NoError(t, err)
			synctest.Wait()
		}
		require.Len(t, h.Transfers(), maxTransfers)
		require.Equal(t, "1", h.Transfers()[0].Kind)
		_, err = h.StartTransfer(endless)
		require.NoError(t, err)
		require.NoError(t, h.hub.Close(), "it waits for the transfer")
		all := h.Transfers()
		require.Equal(t, JobCancelled, all[len(all)-1].Status)
		_, err = h.StartTransfer(endless)
		require.ErrorIs(t, err, hub.ErrClosed)
	})
}

// A reset waits for the transfer that it ends. One that begins meanwhile belongs after it, and
// Close must find it.
func TestATransferThatBeginsDuringAResetStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s transfers
		cancelled := func(error) {}
		old, begun := &transfer{cancel: cancelled, done: make(chan struct{})}, &transfer{cancel: cancelled}
		require.True(t, s.add(old))
		go s.clear()
		synctest.Wait()
		s.end(old, errJobCancelled, time.Now())
		require.True(t, s.add(begun))
		close(old.done)
		synctest.Wait()
		require.Equal(t, []*transfer{begun}, s.all)
	})
}
