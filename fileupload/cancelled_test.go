package fileupload_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
)

// An upload reports the end of its context as a client's calls do, whatever it was doing.
func TestAnUploadWhoseContextEndsSaysSo(t *testing.T) {
	shutdown := errors.New("shutting down")
	body := content(300 * kib)
	for name, fault := range map[string]fault.Fault{
		"waits for an upload URI": {Kind: fault.SwallowAnswer, Route: fault.RouteUpload, Times: -1},
		"waits for a block":       {Kind: fault.SlowBlob, Delay: time.Hour, Times: -1},
		"is between two attempts": {Kind: fault.AnswerStatus, Route: fault.RouteUpload, Statuses: []int{503},
			Times: -1, RetryAfter: 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, r *rig) {
				r.hub.Inject(fault)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer time.AfterFunc(10*time.Second, func() { cancel(shutdown) }).Stop()
				_, err := r.Upload(ctx, "a", bytes.NewReader(body), -1)
				failed(t, err, transport.Cancelled)
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, shutdown)
				require.False(t, errfilter.Retryable(err), "%v", err)

				ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
				defer stop()
				_, err = r.Upload(ctx, "b", bytes.NewReader(body), -1)
				failed(t, err, transport.Cancelled)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.False(t, errfilter.Retryable(err), "%v", err)
			})
		})
	}
	t.Run("has ended already", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(shutdown)
			_, err := r.Upload(ctx, "a", bytes.NewReader(body), -1)
			failed(t, err, transport.Cancelled)
			require.ErrorIs(t, err, shutdown)
			require.False(t, errfilter.Retryable(err), "%v", err)
		})
	})
}

// NotifyTimeout is a limit of the Uploader, not of the caller's context.
func TestANotificationThatTakesTooLongIsATimeout(t *testing.T) {
	body := content(300 * kib)
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.hub.Inject(fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteBlob, Statuses: []int{403},
			Times: -1})
		r.hub.Inject(fault.Fault{Kind: fault.SwallowAnswer, Route: fault.RouteUploadDone, Times: -1})
		_, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
		failed(t, err, transport.Timeout, "the hub could not be notified either")
		require.NotErrorIs(t, err, transport.Cancelled)
	})
}
