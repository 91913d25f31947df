package fileupload_test

import (
	"bytes"
	"context"
	"net"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

type failingPolicy struct{ fail func() }

func (p failingPolicy) Decide(retrypolicy.Attempt) retrypolicy.Decision {
	p.fail()
	return retrypolicy.Decision{Retry: true}
}

// A callback that panics or ends its goroutine ends the upload, and the hub is notified of the
// failure; or it ends the attempt that called it.
func TestACallbackThatDoesNotReturn(t *testing.T) {
	for _, tc := range []struct {
		name  string
		set   func(o *fileupload.Options, creds *transport.Credentials, fail func())
		kind  transport.Kind // of the error; Unknown: the attempt is repeated
		fault bool           // a request has to fail first
	}{
		{"Options.OnProgress", func(o *fileupload.Options, _ *transport.Credentials, fail func()) {
			o.OnProgress = func(fileupload.Progress) { fail() }
		}, transport.Invalid, false},
		{"Options.OnRetry", func(o *fileupload.Options, _ *transport.Credentials, fail func()) {
			o.OnRetry = func(fileupload.Retry) { fail() }
		}, transport.Invalid, true},
		{"Options.RetryPolicy, Options.Rand or Credentials.Now", func(o *fileupload.Options, _ *transport.Credentials,
			fail func()) {
			o.RetryPolicy = failingPolicy{fail}
		}, transport.Invalid, true},
		{"Options.RetryPolicy, Options.Rand or Credentials.Now", func(o *fileupload.Options, _ *transport.Credentials,
			fail func()) {
			o.Rand = func() uint64 { fail(); return 0 }
		}, transport.Invalid, true},
		{"Options.Dial", func(o *fileupload.Options, _ *transport.Credentials, fail func()) {
			dial := o.Network.Dial
			o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				fail()
				return dial(ctx, network, addr)
			}
		}, transport.Unknown, false},
		{"Credentials.Token", func(_ *fileupload.Options, creds *transport.Credentials, fail func()) {
			own := *creds
			creds.Sign, creds.Token = nil,
				func(ctx context.Context) (transport.Token, error) { fail(); return own.NewToken(ctx) }
		}, transport.Unknown, false},
		{"Credentials.Sign", func(_ *fileupload.Options, creds *transport.Credentials, fail func()) {
			sign := creds.Sign
			creds.Sign = func(ctx context.Context, text []byte) ([]byte, error) { fail(); return sign(ctx, text) }
		}, transport.Unauthorized, false},
	} {
		for how, fail := range map[string]func(){"panic": func() { panic("oh dear") }, "exit": runtime.Goexit} {
			testkit.Run(t, tc.name+"/"+how, func(t *testing.T) {
				hub, err := testbroker.New(nil)
				require.NoError(t, err)
				defer hub.Close()
				dev, err := hub.AddDevice("dev-1")
				require.NoError(t, err)
				creds := credsOf(t, dev)
				o := &fileupload.Options{BlockSize: 64 * kib, Parallel: 2, Network: netopt.Options{Plaintext: true,
					Dial: hub.Dial(testbroker.PortHTTP)}}
				var failed atomic.Bool
				var told error
				o.OnRetry = func(r fileupload.Retry) { told = r.Err }
				tc.set(o, creds, func() {
					if !failed.Swap(true) {
						fail()
					}
				})
				u, err := fileupload.New(creds, o)
				require.NoError(t, err)
				if tc.fault {
					hub.Inject(fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteBlob, Statuses: []int{503}})
				}
				body := content(300 * kib)
				_, err = u.Upload(t.Context(), "a", bytes.NewReader(body), -1)
				require.True(t, failed.Load())
				if tc.kind == transport.Unknown {
					require.NoError(t, err)
					require.ErrorContains(t, told, "callback "+tc.name)
				} else {
					require.ErrorIs(t, err, tc.kind)
					require.ErrorContains(t, err, "callback "+tc.name)
					if all := hub.Uploads(); len(all) > 0 {
						require.Equal(t, hubdata.UploadFailed, all[0].State, "the hub is notified")
					}
					_, err = u.Upload(t.Context(), "b", bytes.NewReader(body), -1)
					require.NoError(t, err)
				}
				require.NoError(t, u.Close())
			})
		}
	}
}
