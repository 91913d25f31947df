package sim_test

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// Over every engine, a dial callback that panics or ends its goroutine is a failed attempt, and the
// error names the callback. The next attempt connects, also that of another client of the same
// limiter, and Close leaves nothing behind.
func TestACallbackOfADialThatDoesNotReturn(t *testing.T) {
	const clockUnset = "clock not set"
	for _, with := range engines {
		for _, tc := range []struct {
			name string
			set  func(w *way, creds *transport.Credentials, fail func())
		}{
			{"callback Options.Dial", func(w *way, _ *transport.Credentials, fail func()) {
				dial := w.Dial
				w.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					fail()
					return dial(ctx, network, addr)
				}
			}},
			{"callback Options.TLS", func(w *way, _ *transport.Credentials, fail func()) {
				w.TLS.VerifyConnection = func(tls.ConnectionState) error { fail(); return nil }
			}},
			{"callback Credentials.Token", func(_ *way, creds *transport.Credentials, fail func()) {
				own := *creds
				creds.Sign, creds.Token = nil,
					func(ctx context.Context) (transport.Token, error) { fail(); return own.NewToken(ctx) }
			}},
			{"callback Credentials.Sign", func(_ *way, creds *transport.Credentials, fail func()) {
				sign := creds.Sign
				creds.Sign = func(ctx context.Context, text []byte) ([]byte, error) { fail(); return sign(ctx, text) }
			}},
			{clockUnset, func(_ *way, creds *transport.Credentials, fail func()) {
				creds.Now = func() time.Time {
					var stack [16 << 10]byte
					if text := string(stack[:runtime.Stack(stack[:], false)]); strings.Contains(text, "withSafeClock") {
						fail()
					}
					return time.Now()
				}
			}},
		} {
			for how, fail := range map[string]func(){"panic": func() { panic("oh dear") }, "exit": runtime.Goexit} {
				testkit.Run(t, with.name+"/"+tc.name+"/"+how, func(t *testing.T) {
					if with.next && (tc.name == clockUnset || strings.Contains(tc.name, "Credentials")) {
						t.Skip("there are no tokens")
					}
					hub := hubfixture.Open(t, with.options(testbroker.Options{}))
					with.add(t, hub, "dev-1")
					with.add(t, hub, "dev-2")
					limiter := device.NewDialLimiter(1, 0)
					var failed atomic.Int32
					times := int32(1)
					if tc.name == clockUnset {
						times = 2 // a Mux compares the clocks of its devices before it asks for a token
					}
					var mu sync.Mutex
					var told error
					start := func(id string, set func(w *way, creds *transport.Credentials)) *device.Client {
						creds := with.credsOf(t, hub, id)
						w := with.inMemory(hub, true)
						set(w, creds)
						c, err := device.New(creds, with.make(creds, w), &device.Options{Dials: limiter, TryAgainAfter: time.Minute,
							OnStatus: func(s device.Status) {
								mu.Lock()
								defer mu.Unlock()
								if s.Err != nil && told == nil {
									told = s.Err
								}
							}})
						require.NoError(t, err)
						return c
					}
					c := start("dev-1", func(w *way, creds *transport.Credentials) {
						tc.set(w, creds, func() {
							if failed.Add(1) <= times {
								fail()
							}
						})
					})
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
					defer cancel()
					require.NoError(t, c.Open(ctx))
					require.NoError(t, c.Send(ctx, &transport.Message{Body: []byte("x")}))
					require.GreaterOrEqual(t, failed.Load(), times)
					mu.Lock()
					first := told
					mu.Unlock()
					if tc.name != clockUnset || with.protocol != hubdata.HTTP { // HTTP asks the hub for the time
						require.ErrorContains(t, first, tc.name)
					}
					other := start("dev-2", func(*way, *transport.Credentials) {})
					require.NoError(t, other.Open(ctx))
					require.NoError(t, other.Close())
					require.NoError(t, c.Close())
				})
			}
		}
	}
}
