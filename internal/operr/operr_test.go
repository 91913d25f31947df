package operr_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

func TestTheErrorOfAContextIsNotRetryableAndShowsItsCauses(t *testing.T) {
	state := &transport.Error{Kind: transport.Network, Err: errors.New("no route")}
	shutdown := errors.New("shutting down")
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	caused, cancelCause := context.WithCancelCause(context.Background())
	cancelCause(shutdown)
	expired, stop := context.WithTimeout(context.Background(), 0)
	defer stop()

	for name, c := range map[string]struct {
		ctx   context.Context
		state error
		is    []error
		text  string
	}{
		"cancelled": {cancelled, nil, []error{context.Canceled}, "send: cancelled: context canceled"},
		"with a cause": {caused, nil, []error{context.Canceled, shutdown},
			"send: cancelled: context canceled; shutting down"},
		"expired, with a state": {expired, state, []error{context.DeadlineExceeded, state},
			"send: cancelled: context deadline exceeded; network failure: no route"},
		"all": {caused, state, []error{context.Canceled, shutdown, state},
			"send: cancelled: context canceled; shutting down; network failure: no route"},
	} {
		t.Run(name, func(t *testing.T) {
			err := operr.Cancelled(c.ctx, transport.OpSend, transport.Operation, c.state)
			for _, target := range c.is {
				require.ErrorIs(t, err, target)
			}
			require.ErrorIs(t, err, transport.Cancelled)
			require.NotErrorIs(t, err, transport.Timeout)
			require.False(t, errfilter.Retryable(err))
			require.EqualError(t, err, c.text)
		})
	}
}

func TestTooLargeNamesSizeAndLimit(t *testing.T) {
	err := operr.TooLarge(70_000, 65_536)
	require.ErrorIs(t, err, transport.TooLarge)
	require.EqualError(t, err,
		"send: too large: message of 70000 bytes is over the limit of 65536; split it or upload it as a file")
}
