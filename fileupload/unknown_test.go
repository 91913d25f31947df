package fileupload_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
)

// The step that makes the file, and the notification, may take effect although no answer says so.
// An upload that ends then does not claim that they failed.
func TestAnUploadThatEndsWithoutAnAnswerIsUnknown(t *testing.T) {
	once := func(_ *testbroker.Options, o *fileupload.Options) { o.RetryPolicy = retrypolicy.NoRetry{} }
	for name, step := range map[string]struct {
		size  int
		where fault.Fault
	}{
		"empty file":   {0, fault.Fault{Route: fault.RouteBlob, Blob: fault.PutBlob}},
		"file":         {1000, fault.Fault{Route: fault.RouteBlob, Blob: fault.PutBlob}},
		"commit":       {300 * kib, fault.Fault{Route: fault.RouteBlob, Blob: fault.PutBlockList}},
		"notification": {1000, fault.Fault{Route: fault.RouteUploadDone}},
	} {
		stored := name == "notification"
		for _, kind := range []fault.Kind{fault.ResetAfterRequest, fault.SwallowAnswer, fault.DropDuringAnswer,
			fault.AnswerStatusAfter} {
			t.Run(name+" "+kind.String(), func(t *testing.T) {
				inBubble(t, once, func(t *testing.T, r *rig) {
					f, body := step.where, content(step.size)
					f.Kind = kind
					r.hub.Inject(f)
					result, err := r.Upload(t.Context(), "a", bytes.NewReader(body), int64(len(body)))
					failed(t, err, transport.RetryExpired)
					require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
					require.NotContains(t, err.Error(), "was not notified")
					require.Equal(t, stored, result.Stored)
					r.stored(t, "a", body)
				})
			})
		}
		t.Run(name+" cancelled", func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, r *rig) {
				f, body := step.where, content(step.size)
				f.Kind, f.Times = fault.SwallowAnswer, -1
				r.hub.Inject(f)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				result, err := r.Upload(ctx, "a", bytes.NewReader(body), int64(len(body)))
				failed(t, err, transport.Cancelled)
				require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
				require.Equal(t, stored, result.Stored)
				r.stored(t, "a", body)
			})
		})
	}
	t.Run("refused after a lost answer", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			r.hub.Inject(fault.Fault{Kind: fault.ResetAfterRequest, Route: fault.RouteBlob, Blob: fault.PutBlob})
			r.hub.Inject(fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteBlob, Blob: fault.PutBlob, After: 1,
				Statuses: []int{409}})
			body := content(1000)
			_, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
			failed(t, err, transport.Conflict)
			require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
			r.stored(t, "a", body)
		})
	})
	commit := fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteBlob, Blob: fault.PutBlockList}
	answer := func(f fault.Fault, status int) fault.Fault {
		f.Statuses = []int{status}
		return f
	}
	for name, f := range map[string]fault.Fault{
		"commit refused":    answer(commit, 409),
		"commit throttled":  answer(commit, 429),
		"a block is lost":   {Kind: fault.SwallowAnswer, Route: fault.RouteBlob, Blob: fault.PutBlock},
		"no upload URI":     {Kind: fault.SwallowAnswer, Route: fault.RouteUpload},
		"signature refused": {Kind: fault.ExpireUpload, Blob: fault.PutBlockList, Times: -1},
		"notice refused":    answer(fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteUploadDone}, 400),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, once, func(t *testing.T, r *rig) {
				in := r.hub.Inject(f)
				_, err := r.Upload(t.Context(), "a", bytes.NewReader(content(300*kib)), -1)
				require.Error(t, err)
				require.NotErrorIs(t, err, transport.ErrOutcomeUnknown)
				require.NotZero(t, in.Fired())
			})
		})
	}
}
