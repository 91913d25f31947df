package outbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

// Flush and Run report the end of their context in the same way as a client's calls.
func TestACallWhoseContextEndsSaysSo(t *testing.T) {
	shutdown := errors.New("shutting down")
	for name, call := range map[string]func(ctx context.Context, q *outbox.Queue) error{
		"Flush": func(ctx context.Context, q *outbox.Queue) error { return q.Flush(ctx) },
		"Run":   func(ctx context.Context, q *outbox.Queue) error { return q.Run(ctx, full{}) },
	} {
		testkit.Run(t, name, func(t *testing.T) {
			q := open(t, t.TempDir(), nil)
			put(t, q, 0, 1)
			ctx, cancel := context.WithCancelCause(t.Context())
			result := make(chan error, 1)
			go func() { result <- call(ctx, q) }()
			synctest.Wait()
			cancel(shutdown)
			err := <-result
			require.ErrorIs(t, err, transport.Cancelled)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, shutdown)
			require.False(t, errfilter.Retryable(err), "%v", err)
			require.NoError(t, q.Close())
		})
	}
}

// full is a client whose outbox has no room.
type full struct{ sending }

func (full) Enqueue(ctx context.Context, _ *transport.Message, _ *device.Receipt) error {
	<-ctx.Done()
	return ctx.Err()
}
