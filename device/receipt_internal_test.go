package device

import (
	"context"
	"errors"
	"testing"

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
		if err != refused {
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
