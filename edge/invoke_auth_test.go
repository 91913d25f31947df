package edge_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// authorizations returns the tokens of the requests so far.
func (g *gateway) authorizations() (all []string) {
	for _, r := range g.seen() {
		all = append(all, r.header.Get("Authorization"))
	}
	return all
}

// A token serves several calls and is renewed in time. A refused one is replaced once, also though
// the call must not run twice: the gateway has not looked for the callee.
func TestTokensOfCalls(t *testing.T) {
	callOf(t, twice, func(t *testing.T, g *gateway, v *edge.Invoker) {
		for _, wait := range []time.Duration{0, time.Minute, 51 * time.Minute} {
			time.Sleep(wait)
			_, err := v.Invoke(t.Context(), modB, reboot)
			require.NoError(t, err)
		}
		tokens := g.authorizations()
		require.Equal(t, tokens[0], tokens[1])
		require.NotEqual(t, tokens[1], tokens[2], "85 % of an hour have passed")

		time.Sleep(time.Minute)
		g.answer = func(w http.ResponseWriter, n int) {
			if n == 3 {
				status(401)(w, n)
				return
			}
			ok(w, n)
		}
		_, err := v.Invoke(t.Context(), modB, reboot)
		require.NoError(t, err)
		tokens = g.authorizations()
		require.Len(t, tokens, 5)
		require.NotEqual(t, tokens[3], tokens[4])

		time.Sleep(time.Minute)
		g.answer = status(401)
		_, err = v.Invoke(t.Context(), modB, reboot)
		require.ErrorIs(t, err, transport.Unauthorized)
		require.NotErrorIs(t, err, transport.ErrOutcomeUnknown)
		require.Len(t, g.seen(), 7, "the second refusal is final")
	})
}

// A token source is asked once more when its token was refused, as it may have kept it for too
// long.
func TestARefusedTokenOfASource(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		g := newGateway(t)
		creds, calls := caller(t), 0
		creds.Sign = nil
		creds.Token = func(context.Context) (transport.Token, error) {
			calls++
			return transport.Token{Text: transport.Hide("SharedAccessSignature sr=a&sig=b&se=" + strconv.Itoa(calls)),
				Expires: time.Now().Add(time.Hour)}, nil
		}
		g.answer = func(w http.ResponseWriter, n int) {
			if n < 5 {
				status(401)(w, n)
				return
			}
			ok(w, n)
		}
		_, err := g.invoker(creds, twice).Invoke(t.Context(), modB, reboot)
		require.ErrorIs(t, err, transport.Unauthorized)
		require.Len(t, g.seen(), 2)
		require.Equal(t, 2, calls)
	})
}

// A signer that is out of reach fails the attempt before anything is sent.
func TestASignerThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		sign  func(ctx context.Context, n int) error
		kind  transport.Kind
		calls int
	}{
		"for a while": {func(_ context.Context, n int) error {
			if n < 3 {
				return &transport.Error{Kind: transport.Network, Err: errors.New("no socket")}
			}
			return nil
		}, transport.Unknown, 3},
		"for good":  {func(context.Context, int) error { return errors.New("no key") }, transport.Unauthorized, 1},
		"it hangs":  {func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }, transport.Timeout, 4},
		"it panics": {func(context.Context, int) error { panic("signer") }, transport.Unauthorized, 1},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				g := newGateway(t)
				creds, calls := caller(t), 0
				sign := creds.Sign
				creds.Sign = func(ctx context.Context, text []byte) ([]byte, error) {
					calls++
					if err := c.sign(ctx, calls); err != nil {
						return nil, err
					}
					return sign(ctx, text)
				}
				v := g.invoker(creds, func(o *edge.InvokerOptions) {
					o.RetryPolicy = retrypolicy.MaxAttempts{Total: 4, Policy: retrypolicy.Fixed{Delay: time.Second}}
				})
				_, err := v.Invoke(t.Context(), modB, reboot)
				require.Equal(t, c.calls, calls)
				if c.kind == transport.Unknown {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, c.kind)
				require.NotErrorIs(t, err, transport.ErrOutcomeUnknown)
				require.Empty(t, g.seen())
				require.Zero(t, g.dialed())
			})
		})
	}
}

// A callback that panics or ends its goroutine ends the call, and the error names it.
func TestCallbacksOfAnInvokerThatPanic(t *testing.T) {
	for name, change := range map[string]func(*edge.InvokerOptions){
		"InvokerOptions.OnRetry": func(o *edge.InvokerOptions) { o.OnRetry = func(edge.InvokeRetry) { panic("x") } },
		"InvokerOptions.RetryPolicy, InvokerOptions.Rand or Credentials.Now": func(o *edge.InvokerOptions) {
			panicked := false
			o.Rand = func() uint64 {
				if !panicked {
					panicked = true
					panic("x")
				}
				return 0
			}
		},
	} {
		callOf(t, change, func(t *testing.T, g *gateway, v *edge.Invoker) {
			g.refuse = 1
			_, err := v.Invoke(t.Context(), modB, reboot)
			require.ErrorIs(t, err, transport.Invalid)
			failed, is := errors.AsType[*callback.Error](err)
			require.True(t, is)
			require.Equal(t, name, failed.Name)
			require.Equal(t, "x", failed.Panic)
			_, err = v.Invoke(t.Context(), modB, reboot) // the Invoker still works
			require.NoError(t, err)
		})
	}
}

// A certificate that does not verify fails the call before anything is sent. The callee is not
// called, so a policy may retry where roots can change.
func TestAGatewayThatDoesNotVerify(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		network := memconn.NewNetwork("gateway.local:443")
		defer network.Close()
		cert := testbroker.NewClientCert("gateway.local", time.Time{}, time.Time{})
		served := make(chan struct{})
		server := &http.Server{ErrorLog: log.New(io.Discard, "", 0),
			Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("called") })}
		go func() {
			defer close(served)
			_ = server.Serve(tls.NewListener(network, &tls.Config{Certificates: []tls.Certificate{cert}}))
		}()
		defer func() {
			_ = server.Close()
			<-served
		}()
		dials := 0
		v, err := edge.NewInvoker(caller(t), &edge.InvokerOptions{Network: netopt.Options{
			Dial: func(ctx context.Context, n, addr string) (net.Conn, error) {
				dials++
				return network.DialContext(ctx, n, addr)
			}}})
		require.NoError(t, err)
		defer v.Close()
		_, err = v.Invoke(t.Context(), modB, reboot)
		require.ErrorIs(t, err, transport.Untrusted)
		require.NotErrorIs(t, err, transport.ErrOutcomeUnknown)
		require.Equal(t, 1, dials)
	})
}
