package fileupload_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// told returns the hub's record of the only upload.
func (r *rig) told(t *testing.T) hubdata.Upload {
	t.Helper()
	all := r.hub.Uploads()
	require.Len(t, all, 1)
	return all[0]
}

// noSecret checks that an error contains no part of an upload URI or a token.
func noSecret(t *testing.T, err error) {
	t.Helper()
	for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)} {
		text = strings.ReplaceAll(text, "sig=(hidden)", "")
		for _, secret := range []string{"sig=", "sig%3D", "SharedAccessSignature"} {
			require.NotContains(t, text, secret)
		}
	}
}

// failed checks an error of Upload.
func failed(t *testing.T, err error, kind transport.Kind, texts ...string) {
	t.Helper()
	require.Error(t, err)
	require.IsType(t, (*transport.Error)(nil), err)
	require.ErrorIs(t, err, kind, "%v", err)
	for _, text := range texts {
		require.ErrorContains(t, err, text)
	}
	noSecret(t, err)
}

// A pausing reader waits before each Read from the second on.
type pausing struct {
	io.Reader
	pause time.Duration
	begun bool
}

func (p *pausing) Read(b []byte) (int, error) {
	if p.begun {
		time.Sleep(p.pause)
	}
	p.begun = true
	return p.Reader.Read(b[:min(len(b), 64*kib)])
}

func TestAnUploadOutlivesItsURI(t *testing.T) {
	hours := func(h *testbroker.Options, o *fileupload.Options) { o.Parallel = 1 }
	body := content(300 * kib)

	t.Run("renewed before the end", func(t *testing.T) {
		inBubble(t, hours, func(t *testing.T, r *rig) {
			result, err := r.Upload(t.Context(), "a", &pausing{Reader: bytes.NewReader(body), pause: 55 * time.Minute}, -1)
			require.NoError(t, err)
			r.stored(t, "a", body)
			require.Empty(t, r.steps(), "nothing was ever refused")
			require.Equal(t, 4, result.Renewals)
			all := r.hub.Uploads()
			require.Equal(t, hubdata.UploadExpired, all[0].State)
			require.Equal(t, hubdata.UploadSucceeded, all[len(all)-1].State)
		})
	})
	t.Run("with a device's clock that is wrong", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			creds := credsOf(t, r.dev)
			creds.Now = func() time.Time { return time.Now().Add(500 * time.Hour) }
			u, err := fileupload.New(creds, &fileupload.Options{BlockSize: 64 * kib, Network: netopt.Options{Plaintext: true,
				Dial: r.hub.Dial(testbroker.PortHTTP)},
				Parallel: 1})
			require.NoError(t, err)
			defer u.Close()
			result, err := u.Upload(t.Context(), "a", &pausing{Reader: bytes.NewReader(body), pause: 55 * time.Minute}, -1)
			require.NoError(t, err)
			require.Equal(t, 4, result.Renewals)
			require.Zero(t, result.Retries)
		})
	})
	t.Run("after an outage", func(t *testing.T) {
		inBubble(t, hours, func(t *testing.T, r *rig) {
			in := r.hub.Inject(fault.Fault{Kind: fault.CutBlobBody, After: 2})
			go func() {
				if in.WaitFired(t.Context(), 1) == nil {
					r.hub.Inject(fault.Fault{Kind: fault.Absent, For: 3 * time.Hour})
				}
			}()
			result, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
			require.NoError(t, err)
			require.Equal(t, 1, result.Renewals)
			require.GreaterOrEqual(t, result.Duration, 3*time.Hour)
			r.stored(t, "a", body)
		})
	})
	t.Run("refused early", func(t *testing.T) {
		inBubble(t, hours, func(t *testing.T, r *rig) {
			r.hub.Inject(fault.Fault{Kind: fault.ExpireUpload, After: 2})
			result, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
			require.NoError(t, err)
			require.Equal(t, 1, result.Renewals)
			require.Zero(t, result.Retries)
			r.stored(t, "a", body)
		})
	})
	t.Run("refused for good", func(t *testing.T) {
		inBubble(t, hours, func(t *testing.T, r *rig) {
			in := r.hub.Inject(fault.Fault{Kind: fault.ExpireUpload, After: 2, Times: -1})
			result, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
			failed(t, err, transport.Unauthorized, "block 3", "storage answered 403 AuthenticationFailed")
			require.Equal(t, 2, in.Fired())
			require.Equal(t, 1, result.Renewals)
			require.Len(t, r.hub.Uploads(), 2)
		})
	})
	t.Run("when the file is complete and the hub was not notified", func(t *testing.T) {
		inBubble(t, hours, func(t *testing.T, r *rig) {
			in := r.hub.Inject(fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteUploadDone,
				Statuses: []int{500}, RetryAfter: time.Minute})
			go func() {
				if in.WaitFired(t.Context(), 1) == nil {
					require.Equal(t, 1, r.hub.ExpireUploads("dev-1"))
				}
			}()
			_, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
			require.NoError(t, err)
			r.stored(t, "a", body)
			all := r.hub.Uploads()
			require.Len(t, all, 2)
			require.Equal(t, hubdata.UploadExpired, all[0].State)
			require.Equal(t, hubdata.UploadSucceeded, all[1].State)
			require.Equal(t, int64(len(body)), all[1].Size)
		})
	})
}

// The hub has given up the upload before the notification. The upload that replaces it does not
// stay counted as running, whatever the policy decides about further attempts, and whenever the
// context ends.
func TestTheGrantOfTheLastStepIsGivenBack(t *testing.T) {
	body := content(1000)
	expired := func(t *testing.T, r *rig) { // between the file and the notification
		in := r.hub.Inject(fault.Fault{Kind: fault.SlowAnswer, Route: fault.RouteBlob, Delay: time.Second})
		go func() {
			if in.WaitFired(t.Context(), 1) == nil {
				r.hub.ExpireUploads("dev-1")
			}
		}()
	}
	told := func(t *testing.T, r *rig) {
		t.Helper()
		all := r.hub.Uploads()
		require.Len(t, all, 2)
		require.Equal(t, hubdata.UploadExpired, all[0].State)
		require.Equal(t, hubdata.UploadSucceeded, all[1].State)
	}
	noRetry := func(_ *testbroker.Options, o *fileupload.Options) { o.RetryPolicy = retrypolicy.NoRetry{} }
	t.Run("no retries", func(t *testing.T) {
		inBubble(t, noRetry, func(t *testing.T, r *rig) {
			expired(t, r)
			result, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
			require.NoError(t, err)
			require.Equal(t, 1, result.Renewals)
			told(t, r)
		})
	})
	t.Run("no time for a delay", func(t *testing.T) {
		slow := func(_ *testbroker.Options, o *fileupload.Options) {
			o.RetryPolicy = retrypolicy.ExponentialBackoffWithJitter{C: time.Minute, Cmin: time.Minute, Cmax: time.Minute}
		}
		inBubble(t, slow, func(t *testing.T, r *rig) {
			expired(t, r)
			r.hub.Inject(fault.Fault{Kind: fault.SwallowAnswer, Route: fault.RouteUploadDone})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := r.Upload(ctx, "a", bytes.NewReader(body), -1)
			require.NoError(t, err)
			told(t, r)
		})
	})
	t.Run("the context ends meanwhile", func(t *testing.T) {
		inBubble(t, noRetry, func(t *testing.T, r *rig) {
			expired(t, r)
			r.hub.Inject(fault.Fault{Kind: fault.SlowAnswer, Route: fault.RouteUpload, After: 1,
				Delay: 3 * time.Second})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := r.Upload(ctx, "a", bytes.NewReader(body), -1)
			require.NoError(t, err)
			told(t, r)
		})
	})
	t.Run("NotifyTimeout holds", func(t *testing.T) {
		inBubble(t, noRetry, func(t *testing.T, r *rig) {
			expired(t, r)
			r.hub.Inject(fault.Fault{Kind: fault.SwallowAnswer, Route: fault.RouteUploadDone})
			r.hub.Inject(fault.Fault{Kind: fault.SlowAnswer, Route: fault.RouteUpload, After: 1,
				Delay: 20 * time.Second})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			began := time.Now()
			result, err := r.Upload(ctx, "a", bytes.NewReader(body), -1)
			failed(t, err, transport.Cancelled, "the file is stored, but the hub was not notified")
			require.True(t, result.Stored)
			require.LessOrEqual(t, time.Since(began), 15*time.Second)
		})
	})
	t.Run("given up twice", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			expired(t, r)
			in := r.hub.Inject(fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteUploadDone, After: 1,
				Statuses: []int{503}, RetryAfter: time.Minute})
			go func() {
				if in.WaitFired(t.Context(), 1) == nil {
					r.hub.ExpireUploads("dev-1")
				}
			}()
			_, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
			failed(t, err, transport.Conflict, "the file is stored, but the hub was not notified", "400016")
			for _, up := range r.hub.Uploads() {
				require.Equal(t, hubdata.UploadExpired, up.State)
			}
		})
	})
}

// A cancelled upload is reported to the hub as failed, for at most NotifyTimeout.
func TestTheHubIsNotifiedOfCancellation(t *testing.T) {
	body := content(300 * kib)
	t.Run("cancelled", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r.hub.Inject(fault.Fault{Kind: fault.SlowBlob, Delay: 25 * time.Second, Times: -1})
			result, err := r.Upload(ctx, "a", bytes.NewReader(body), -1)
			failed(t, err, transport.Cancelled)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.False(t, result.Stored)
			up := r.told(t)
			require.Equal(t, hubdata.UploadFailed, up.State)
			require.Equal(t, 499, up.StatusCode)
			require.Less(t, up.Ended.Sub(up.Started), 62*time.Second)
			require.Empty(t, r.hub.Blobs())
		})
	})
	t.Run("cancelled while the hub grants the upload", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			r.hub.Inject(fault.Fault{Kind: fault.SlowAnswer, Route: fault.RouteUpload, Delay: 3 * time.Second,
				Times: -1})
			for i := range hubdata.MaxUploads + 1 { // none stays counted as running
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				from := bytes.NewReader(body)
				_, err := r.Upload(ctx, "a", from, -1)
				failed(t, err, transport.Cancelled, "beginning: ")
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, len(body), from.Len(), "nothing was read any more")
				up := r.hub.Uploads()[i]
				require.Equal(t, hubdata.UploadFailed, up.State)
				require.Equal(t, 499, up.StatusCode)
				cancel()
			}
			require.Empty(t, r.steps())
		})
	})
	t.Run("cancelled while the hub gives another URI", func(t *testing.T) {
		inBubble(t, func(_ *testbroker.Options, o *fileupload.Options) { o.Parallel = 1 }, func(t *testing.T, r *rig) {
			ctx, cancel := context.WithCancel(t.Context())
			r.hub.Inject(fault.Fault{Kind: fault.ExpireUpload, After: 2})
			in := r.hub.Inject(fault.Fault{Kind: fault.SlowAnswer, Route: fault.RouteUpload, After: 1,
				Delay: 3 * time.Second})
			go func() {
				if in.WaitFired(t.Context(), 1) == nil {
					cancel()
				}
			}()
			_, err := r.Upload(ctx, "a", bytes.NewReader(body), -1)
			failed(t, err, transport.Cancelled)
			all := r.hub.Uploads()
			require.Len(t, all, 2)
			require.Equal(t, hubdata.UploadFailed, all[1].State, "the one that would hold a place for an hour")
		})
	})
	t.Run("cancelled, and the hub does not answer", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			r.hub.Inject(fault.Fault{Kind: fault.SwallowAnswer, Route: fault.RouteUpload})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			_, err := r.Upload(ctx, "a", bytes.NewReader(body), -1)
			failed(t, err, transport.Cancelled, "beginning: ")
			require.Equal(t, 6*time.Second, time.Since(began), "half of NotifyTimeout more")
		})
	})
	t.Run("cancelled before the hub was asked", func(t *testing.T) {
		hang := func(_ *testbroker.Options, o *fileupload.Options) {
			o.Network.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}
		inBubble(t, hang, func(t *testing.T, r *rig) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			_, err := r.Upload(ctx, "a", bytes.NewReader(body), -1)
			failed(t, err, transport.Cancelled, "beginning: ")
			require.Equal(t, time.Second, time.Since(began))
		})
	})
	t.Run("cancelled, and the hub is unreachable", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			in := r.hub.Inject(fault.Fault{Kind: fault.CutBlobBody})
			go func() {
				if in.WaitFired(t.Context(), 1) == nil {
					r.hub.Inject(fault.Fault{Kind: fault.Absent, For: time.Hour})
				}
			}()
			began := time.Now()
			_, err := r.Upload(ctx, "a", bytes.NewReader(body), -1)
			failed(t, err, transport.Cancelled, "the hub could not be notified either", "connection refused")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.LessOrEqual(t, time.Since(began), 70*time.Second)
			require.Greater(t, time.Since(began), 60*time.Second)
			require.Equal(t, hubdata.UploadRunning, r.told(t).State)
		})
	})
}

// Once the file is stored, the hub is notified of a success, also after a cancellation or Close.
func TestTheHubIsNotifiedAfterTheLastStep(t *testing.T) {
	body := content(300 * kib)
	t.Run("cancelled at the last step", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			r.hub.Inject(fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteUploadDone, Statuses: []int{500},
				RetryAfter: 19500 * time.Millisecond})
			result, err := r.Upload(ctx, "a", bytes.NewReader(body), -1)
			require.NoError(t, err, "the file is stored, so the hub is notified of a success")
			require.True(t, result.Stored)
			require.Equal(t, hubdata.UploadSucceeded, r.told(t).State)
		})
	})
	t.Run("closed at the last step", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			in := r.hub.Inject(fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteUploadDone,
				Statuses: []int{503}})
			go func() {
				if in.WaitFired(t.Context(), 1) == nil {
					r.Close()
				}
			}()
			result, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
			require.NoError(t, err, "the file is stored, so the hub is notified of a success")
			require.True(t, result.Stored)
			require.Equal(t, hubdata.UploadSucceeded, r.told(t).State)
		})
	})
	t.Run("closed at the last step, and the hub is unreachable", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			in := r.hub.Inject(fault.Fault{Kind: fault.ResetBeforeRequest, Route: fault.RouteUploadDone})
			go func() {
				if in.WaitFired(t.Context(), 1) == nil {
					r.hub.Inject(fault.Fault{Kind: fault.Absent, For: time.Hour})
					r.Close()
				}
			}()
			began := time.Now()
			result, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
			failed(t, err, transport.Closed, "the file is stored, but the hub did not acknowledge the notification",
				"connection refused")
			require.True(t, result.Stored)
			require.LessOrEqual(t, time.Since(began), 11*time.Second)
		})
	})
	t.Run("policy stops at the last step", func(t *testing.T) {
		inBubble(t, func(_ *testbroker.Options, o *fileupload.Options) {
			o.RetryPolicy = retrypolicy.NoRetry{}
		}, func(t *testing.T, r *rig) {
			in := r.hub.Inject(fault.Fault{Kind: fault.SwallowAnswer, Route: fault.RouteUploadDone, Times: -1})
			result, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
			failed(t, err, transport.RetryExpired, "the file is stored, but the hub did not acknowledge the notification")
			require.ErrorIs(t, err, retrypolicy.ReasonPolicy)
			require.NotErrorIs(t, err, context.DeadlineExceeded, "nothing ended but the time limit of one attempt")
			require.True(t, result.Stored)
			require.Equal(t, 1, in.Fired())
		})
	})
}

// Close and the policy end an upload, and the hub is notified of the failure.
func TestTheHubIsNotifiedOfFailures(t *testing.T) {
	body := content(300 * kib)
	t.Run("closed while the hub grants the upload", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			in := r.hub.Inject(fault.Fault{Kind: fault.SlowAnswer, Route: fault.RouteUpload,
				Delay: 3 * time.Second})
			go func() {
				if in.WaitFired(t.Context(), 1) == nil {
					r.Close()
				}
			}()
			_, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
			failed(t, err, transport.Closed, "beginning: ")
			require.Equal(t, hubdata.UploadFailed, r.told(t).State)
		})
	})
	t.Run("closed", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			in := r.hub.Inject(fault.Fault{Kind: fault.SwallowAnswer, Route: fault.RouteBlob})
			go func() {
				if in.WaitFired(t.Context(), 1) == nil {
					r.Close()
				}
			}()
			_, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
			failed(t, err, transport.Closed)
			require.Equal(t, hubdata.UploadFailed, r.told(t).State)
			_, err = r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
			failed(t, err, transport.Closed, "Close was called")
		})
	})
	t.Run("policy stops", func(t *testing.T) {
		inBubble(t, func(_ *testbroker.Options, o *fileupload.Options) {
			o.RetryPolicy, o.Parallel = retrypolicy.NoRetry{}, 1
		}, func(t *testing.T, r *rig) {
			r.hub.Inject(fault.Fault{Kind: fault.CutBlobBody, After: 1})
			_, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
			failed(t, err, transport.RetryExpired, "block 2")
			require.ErrorIs(t, err, retrypolicy.ReasonPolicy)
			require.ErrorIs(t, err, transport.Network, "what the write says depends on whether net/http has read of the reset")
			require.Equal(t, hubdata.UploadFailed, r.told(t).State)
		})
	})
	t.Run("out of attempts", func(t *testing.T) {
		inBubble(t, func(_ *testbroker.Options, o *fileupload.Options) {
			o.RetryPolicy = retrypolicy.MaxAttempts{Total: 3, Policy: retrypolicy.ExponentialBackoffWithJitter{}}
		}, func(t *testing.T, r *rig) {
			in := r.hub.Inject(fault.Fault{Kind: fault.CutBlobBody, Times: -1})
			_, err := r.Upload(t.Context(), "a", bytes.NewReader(body[:1000]), -1)
			failed(t, err, transport.RetryExpired, "file: out of attempts after 2 retries")
			require.ErrorIs(t, err, retrypolicy.ReasonOutOfAttempts)
			require.Equal(t, 3, in.Fired())
		})
	})
}

// A reader that fails, panics or ends its goroutine fails the upload, and the hub is notified.
func TestTheHubIsNotifiedOfFailedReaders(t *testing.T) {
	body := content(300 * kib)
	t.Run("reader fails", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			broken := errors.New("disk on fire")
			_, err := r.Upload(t.Context(), "a", io.MultiReader(bytes.NewReader(body), iotest.ErrReader(broken)), -1)
			failed(t, err, transport.Invalid, "reader of the file: disk on fire")
			require.ErrorIs(t, err, broken)
			require.Equal(t, hubdata.UploadFailed, r.told(t).State)
			_, err = r.Upload(t.Context(), "a", iotest.ErrReader((*os.PathError)(nil)), -1) // its methods panic
			failed(t, err, transport.Invalid, "reader of the file: an error whose Error method panics")
			require.NotErrorIs(t, err, broken)
		})
	})
	for name, data := range map[string][]byte{"reader is cut": body, "reader is cut behind a block": content(256 * kib)} {
		t.Run(name, func(t *testing.T) { // as a response whose connection was lost
			inBubble(t, nil, func(t *testing.T, r *rig) {
				cut := io.MultiReader(bytes.NewReader(data), iotest.ErrReader(io.ErrUnexpectedEOF))
				_, err := r.Upload(t.Context(), "a", cut, -1)
				failed(t, err, transport.Invalid, "reader of the file: unexpected EOF")
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				require.Equal(t, hubdata.UploadFailed, r.told(t).State)
			})
		})
	}
	t.Run("reader ends early", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			_, err := r.Upload(t.Context(), "a", bytes.NewReader(body), int64(len(body))+1)
			failed(t, err, transport.Invalid, "ended after 307200 of 307201 bytes")
			require.Equal(t, hubdata.UploadFailed, r.told(t).State)
		})
	})
	t.Run("reader panics", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			for i := range hubdata.MaxUploads + 1 { // none stays counted as running
				before := body[:len(body)*(i%2)] // in the first block or in a later one
				require.PanicsWithValue(t, "reader", func() {
					_, _ = r.Upload(t.Context(), "a", io.MultiReader(bytes.NewReader(before), reader(func() { panic("reader") })), -1)
				})
				require.Equal(t, hubdata.UploadFailed, r.hub.Uploads()[i].State)
			}
			require.Empty(t, r.steps())
		})
	})
	t.Run("reader ends the goroutine", func(t *testing.T) {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = r.Upload(t.Context(), "a", reader(runtime.Goexit), -1)
				t.Error("Goexit returned")
			}()
			<-ended
			require.Equal(t, hubdata.UploadFailed, r.told(t).State)
		})
	})
}

// reader is a reader whose Read does not return.
type reader func()

func (f reader) Read([]byte) (int, error) {
	f()
	return 0, io.ErrUnexpectedEOF
}

func TestReadsNoMoreThanTheSizeGiven(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		body := content(200 * kib)
		from := bytes.NewReader(body)
		_, err := r.Upload(t.Context(), "a", from, 150*kib)
		require.NoError(t, err)
		r.stored(t, "a", body[:150*kib])
		require.Equal(t, 50*kib, from.Len())
	})
}

func TestRefusalsOfTheHub(t *testing.T) {
	upload := func(t *testing.T, r *rig) error {
		_, err := r.Upload(t.Context(), "a", strings.NewReader("a"), 1)
		return err
	}
	inBubble(t, nil, func(t *testing.T, r *rig) {
		require.NoError(t, r.hub.SetEnabled("dev-1", false))
		failed(t, upload(t, r), transport.Forbidden, "beginning: hub answered 403 (the device is disabled), code 403012",
			"enable the device")
		require.NoError(t, r.hub.RemoveDevice("dev-1"))
		failed(t, upload(t, r), transport.NotFound, "404001")
	})
	inBubble(t, nil, func(t *testing.T, r *rig) {
		require.NoError(t, r.hub.SetKeys("dev-1", "c2VjcmV0LWtleS1vZi10aGUtdGVzdHM=", "c2VjcmV0LWtleS1vZi10aGUtdGVzdHM="))
		failed(t, upload(t, r), transport.Unauthorized, "hub answered 401")
	})
	inBubble(t, func(h *testbroker.Options, _ *fileupload.Options) {
		h.Uploads.NoStore = true
	}, func(t *testing.T, r *rig) {
		err := upload(t, r)
		failed(t, err, transport.Unsupported, "400014", "give the hub a storage container")
		require.False(t, errfilter.Retryable(err))
	})
	for _, text := range []bool{false, true} {
		inBubble(t, func(h *testbroker.Options, _ *fileupload.Options) {
			h.HTTP.TextErrors = text
		}, func(t *testing.T, r *rig) {
			r.hub.SetEnabled("dev-1", false)
			failed(t, upload(t, r), transport.Forbidden, "403012")
		})
	}
}

func TestTheEleventhUploadWaits(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.hub.Inject(fault.Fault{Kind: fault.SlowBlob, Delay: 25 * time.Second, Times: hubdata.MaxUploads})
		done := make(chan error)
		for i := range hubdata.MaxUploads + 3 {
			go func() {
				_, err := r.Upload(t.Context(), fmt.Sprint(i), strings.NewReader("a"), 1)
				done <- err
			}()
		}
		for range hubdata.MaxUploads + 3 {
			require.NoError(t, <-done)
		}
		require.Len(t, r.hub.Blobs(), hubdata.MaxUploads+3)
		require.Contains(t, r.steps(), "beginning")
		for _, retry := range r.retries {
			require.ErrorIs(t, retry.Err, transport.Quota)
			require.GreaterOrEqual(t, retry.Delay, 10*time.Second)
		}
	})
}

func TestADeadLinkIsNoticed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		in := r.hub.Inject(fault.Fault{Kind: fault.SlowBlob, Delay: time.Second, After: 2})
		go func() {
			if in.WaitFired(t.Context(), 1) == nil {
				r.hub.Inject(fault.Fault{Kind: fault.HalfOpen, For: 5 * time.Second})
			}
		}()
		body := content(300 * kib)
		result, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
		require.NoError(t, err)
		r.stored(t, "a", body)
		require.NotZero(t, result.Retries)
		require.Less(t, result.Duration, 80*time.Second) // 30 s and 64 KiB at 8 KiB/s, twice at the most
		require.ErrorIs(t, r.retries[0].Err, transport.Timeout)
	})
}

func TestArgumentsAreChecked(t *testing.T) {
	creds := func() *transport.Credentials {
		return &transport.Credentials{Host: "hub.example.test",
			DeviceID: "d", Token: func(context.Context) (transport.Token, error) { return transport.Token{}, nil }}
	}
	for _, c := range []struct {
		o    fileupload.Options
		text string
	}{
		{fileupload.Options{BlockSize: 1}, "BlockSize is 1; give 65536 to "},
		{fileupload.Options{BlockSize: -1}, "BlockSize"},
		{fileupload.Options{BlockSize: 5 << 30}, "BlockSize"},
		{fileupload.Options{BlockSize: 1 << 20, MaxBlockSize: 1 << 19}, "MaxBlockSize"},
		{fileupload.Options{Parallel: -1}, "Parallel"},
		{fileupload.Options{Parallel: 65}, "Parallel is 65; give 1 to 64"},
		{fileupload.Options{MinRate: -1}, "MinRate"},
		{fileupload.Options{RequestTimeout: -1}, "RequestTimeout"},
		{fileupload.Options{NotifyTimeout: -1}, "NotifyTimeout"},
		{fileupload.Options{Network: netopt.Options{Addr: "nowhere"}}, "Addr"},
		{fileupload.Options{Network: netopt.Options{ProductInfo: "a\nb"}}, "ProductInfo"},
		{fileupload.Options{RetryPolicy: retrypolicy.ExponentialBackoffWithJitter{C: -1}}, "RetryPolicy"},
	} {
		_, err := fileupload.New(creds(), &c.o)
		failed(t, err, transport.Invalid, c.text)
	}
	_, err := fileupload.New(nil, nil)
	failed(t, err, transport.Invalid, "credentials are nil")
	_, err = fileupload.New(&transport.Credentials{}, nil)
	failed(t, err, transport.Invalid, "Host is empty")
	module := creds()
	module.ModuleID = "m"
	_, err = fileupload.New(module, nil)
	failed(t, err, transport.Unsupported, "use the credentials of the device")

	u, err := fileupload.New(creds(), nil)
	require.NoError(t, err)
	defer u.Close()
	for _, name := range []string{
		"", "/a", "a/", "a//b", ".", "a/../b", "a/./b", "a.", "a\\b", "a\x00", "a\nb", "a\xff", strings.Repeat("a", 1023),
		strings.Repeat("a/", 253) + "a",
	} {
		_, err := u.Upload(t.Context(), name, strings.NewReader(""), 0)
		failed(t, err, transport.Invalid, "name")
	}
	_, err = u.Upload(t.Context(), "a", nil, 0)
	failed(t, err, transport.Invalid, "reader is nil")
	_, err = u.Upload(t.Context(), "a", strings.NewReader(""), 310_000<<20+1)
	failed(t, err, transport.TooLarge, "more than 325058560000 bytes", "raise Options.BlockSize")
}

// The longest possible durations mean no limit.
func TestTheLongestTimeoutsAreNoLimit(t *testing.T) {
	longest := func(_ *testbroker.Options, o *fileupload.Options) { testkit.FillDurations(o, "Network.WriteTimeout") }
	inBubble(t, longest, func(t *testing.T, r *rig) {
		body := content(300 * kib)
		_, err := r.Upload(t.Context(), "a", bytes.NewReader(body), -1)
		require.NoError(t, err)
		require.Zero(t, len(r.steps()), "retries")
		r.stored(t, "a", body)
	})
}

// A proxy or a captive portal that answers with a page gives no upload URI, and takes no notice.
func TestAPageIsNoHubsAnswer(t *testing.T) {
	for key, status := range map[string][]int{
		"files": {200, 201, 204, 404}, "notifications": {200, 201, 202, 401},
		"block": {200, 201, 204, 302, 401, 403, 404, 407, 451}, "blocklist": {200, 201, 204, 302, 401, 403, 404, 407, 451},
	} {
		for _, status := range status {
			t.Run(fmt.Sprint(key, " ", status), func(t *testing.T) {
				_, err := script{key: func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/html")
					w.WriteHeader(status)
					if status != http.StatusNoContent {
						_, _ = io.WriteString(w, "<html>sign in to the network</html>")
					}
				}}.against(t, nil)
				failed(t, err, transport.Protocol)
				require.ErrorContains(t, err, "a proxy or a captive portal may have answered")
			})
		}
	}
}

// A notification that got no connection was not received: that the hub then does not know the
// correlation, as after a failover, is no success.
func TestANotificationThatWasNotSentIsNotReceived(t *testing.T) {
	var down atomic.Bool
	_, err := script{
		"files": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			fmt.Fprintf(w, granted, r.Host, "?sig=c2VjcmV0")
		},
		"blocklist": func(w http.ResponseWriter, _ *http.Request) {
			down.Store(true)
			w.Header().Set("x-ms-request-id", "track-1")
			w.WriteHeader(http.StatusCreated)
		},
		"notifications": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("iothub-errorcode", "InvalidFileUploadCorrelationId")
			w.WriteHeader(http.StatusBadRequest)
		},
	}.against(t, func(o *fileupload.Options) {
		o.RetryPolicy = retrypolicy.MaxAttempts{Total: 3, Policy: retrypolicy.Immediately{}}
		dial := o.Network.Dial
		o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if down.Swap(false) {
				return nil, syscall.ECONNREFUSED
			}
			return dial(ctx, network, addr)
		}
	})
	failed(t, err, transport.Conflict)
	require.ErrorContains(t, err, "the hub was not notified")
}
