package edge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// twice allows one retry, after a second.
func twice(o *edge.InvokerOptions) {
	o.RetryPolicy = retrypolicy.MaxAttempts{Total: 2, Policy: retrypolicy.Fixed{Delay: time.Second}}
}

// status answers with a status and, if it has six digits, with a hub's code.
func status(code int) func(http.ResponseWriter, int) {
	return func(w http.ResponseWriter, _ int) {
		if code < 1000 {
			refuse(w, code, 0, "")
		} else {
			refuse(w, code/1000, code, "")
		}
	}
}

// Whether an answer is retried, and whether the callee may have run the method, follows from the
// status or the code. An answer is retried only if it certainly has not.
func TestEachAnswerHasItsKindAndOutcome(t *testing.T) {
	for _, c := range []struct {
		code     int
		kind     transport.Kind
		unknown  bool
		requests int
		text     string
	}{
		{400, transport.Invalid, false, 1, ""},
		{401, transport.Unauthorized, false, 1, "modules of its own device only"},
		{403, transport.Quota, false, 2, ""},
		{403007, transport.Quota, false, 2, ""},
		{403012, transport.Forbidden, false, 1, ""},
		{403800, transport.Throttled, false, 2, ""}, // too many calls of the device are running
		{404, transport.NotFound, false, 1, "Method.ConnectTimeout waits for it"},
		{404001, transport.NotFound, false, 1, ""},
		{404012, transport.Unavailable, false, 2, ""}, // the hub fails over
		{404102, transport.Unavailable, false, 2, ""}, // the device is not online
		{404103, transport.Unavailable, false, 2, ""}, // likewise
		{404104, transport.Unavailable, true, 1, ""},  // its connection was closed
		{405, transport.Unsupported, false, 1, ""},
		{409002, transport.Unavailable, false, 2, ""}, // another connection
		{409003, transport.Unavailable, false, 2, ""}, // another subscription
		{408, transport.Timeout, true, 1, ""},
		{400021, transport.Unavailable, true, 1, ""}, // the request was cancelled
		{400024, transport.Timeout, true, 1, ""},
		{400027, transport.Unavailable, true, 1, ""}, // a connection was closed
		{400028, transport.Invalid, false, 1, ""},
		{400029, transport.Unavailable, true, 1, ""},
		{413, transport.TooLarge, false, 1, ""},
		{421, transport.Unavailable, false, 2, ""},
		{425, transport.Unavailable, false, 2, ""},
		{429, transport.Throttled, false, 2, ""},
		{429001, transport.Throttled, false, 2, ""},
		{499, transport.Unavailable, true, 1, ""},
		{500, transport.Unavailable, true, 1, ""},
		{500001, transport.Unavailable, true, 1, ""},
		{501, transport.Unsupported, false, 1, ""},
		{502, transport.Unavailable, true, 1, ""},
		{503, transport.Unavailable, true, 1, ""},
		{503005, transport.Unavailable, true, 1, ""},
		{504, transport.Timeout, true, 1, "did not answer within Method.ResponseTimeout"},
		{511, transport.Network, false, 2, ""},
		{201, transport.Protocol, true, 1, "an answer to a call has status 200"},
		{204, transport.Protocol, true, 1, ""},
		{302, transport.Protocol, false, 1, ""},
		{599, transport.Unavailable, true, 1, ""},
	} {
		t.Run(fmt.Sprint(c.code), func(t *testing.T) {
			callOf(t, twice, func(t *testing.T, g *gateway, v *edge.Invoker) {
				g.answer = status(c.code)
				_, err := v.Invoke(t.Context(), modB, reboot)
				require.ErrorIs(t, err, c.kind)
				require.Equal(t, c.unknown, errors.Is(err, transport.ErrOutcomeUnknown), err)
				require.ErrorContains(t, err, `method "reboot" of edge-1/mod-b: `)
				require.ErrorContains(t, err, c.text)
				require.Len(t, g.seen(), c.requests)
				if c.requests == 2 {
					require.ErrorIs(t, err, transport.RetryExpired)
					require.ErrorIs(t, err, retrypolicy.ReasonOutOfAttempts)
				}
				refused, is := errors.AsType[*transport.StatusError](err)
				require.True(t, is)
				require.Equal(t, "gateway", refused.Service)
			})
		})
	}
}

// The hints for a gateway's answers are not given to a web page.
func TestAWebPageIsNoAnswerOfTheGateway(t *testing.T) {
	for _, status := range []int{401, 404} {
		callOf(t, twice, func(t *testing.T, g *gateway, v *edge.Invoker) {
			g.answer = func(w http.ResponseWriter, _ int) {
				w.Header().Set("Content-Type", "text/html")
				w.WriteHeader(status)
			}
			_, err := v.Invoke(t.Context(), modB, reboot)
			require.ErrorIs(t, err, transport.Protocol)
			require.ErrorContains(t, err, "a proxy or a captive portal")
			require.NotContains(t, err.Error(), "callee")
			require.NotContains(t, err.Error(), "gateway takes")
		})
	}
}

// The status, the code and the code's name may come from different servers and disagree. The call
// is sent again, also with another token, only if all of them say that the callee has not run.
func TestAnAnswerThatDisagreesWithItselfHasTheWorseOutcome(t *testing.T) {
	for _, c := range []struct {
		status, code int
		name         string
		kind         transport.Kind
		unknown      bool
		requests     int
	}{
		// the status alone leaves it open
		{500, 0, "IotHubUnauthorizedAccess", transport.Unauthorized, true, 1},
		{504, 0, "IotHubUnauthorizedAccess", transport.Unauthorized, true, 1},
		{408, 0, "IotHubUnauthorizedAccess", transport.Unauthorized, true, 1},
		{500, 401002, "", transport.Unauthorized, true, 1},
		{599, 401003, "", transport.Unauthorized, true, 1},
		{204, 401002, "", transport.Protocol, true, 1},
		{502, 429001, "", transport.Throttled, true, 1},
		{503, 404103, "", transport.Unavailable, true, 1},
		{504, 404001, "", transport.NotFound, true, 1},
		// the code alone does
		{400, 504101, "", transport.Timeout, true, 1},
		{404, 500008, "", transport.Timeout, true, 1},
		{409, 503005, "", transport.Unavailable, true, 1},
		{403, 504101, "", transport.Timeout, true, 1},
		{400, 500001, "", transport.Unavailable, true, 1},
		{401, 500001, "", transport.Unavailable, true, 1},
		{302, 502000, "", transport.Unavailable, true, 1},
		{429, 499000, "", transport.Unavailable, true, 1},
		{429, 400027, "", transport.Unavailable, true, 1},
		{501, 0, "GatewayTimeout", transport.Timeout, true, 1},
		{429, 504101, "ThrottlingException", transport.Timeout, true, 1},
		{400, 503005, "A new name", transport.Unavailable, true, 1},
		// the name alone does
		{429, 429001, "GatewayTimeout", transport.Throttled, true, 1},
		{401, 401002, "ServerError", transport.Unauthorized, true, 1},
		// none does
		{429, 429001, "A new name", transport.Throttled, false, 2},
		{403, 0, "IotHubUnauthorizedAccess", transport.Unauthorized, false, 2}, // with another token
		{400, 429001, "", transport.Throttled, false, 2},
		{429, 404001, "", transport.NotFound, false, 1},
		{404, 0, "DeviceNotOnline", transport.Unavailable, false, 2},
	} {
		t.Run(fmt.Sprint(c.status, " ", c.code, " ", c.name), func(t *testing.T) {
			callOf(t, twice, func(t *testing.T, g *gateway, v *edge.Invoker) {
				_, err := v.Invoke(t.Context(), modB, reboot)
				require.NoError(t, err)
				time.Sleep(time.Minute) // the token is not fresh: another one may be accepted
				g.answer = func(w http.ResponseWriter, _ int) { refuse(w, c.status, c.code, c.name) }
				_, err = v.Invoke(t.Context(), modB, reboot)
				require.ErrorIs(t, err, c.kind)
				require.Equal(t, c.unknown, errors.Is(err, transport.ErrOutcomeUnknown), err)
				require.Len(t, g.seen(), 1+c.requests)
			})
		})
	}
}

// A later answer does not hide that the callee may have run.
func TestAnUnknownOutcomeIsNotFollowedByACertainOne(t *testing.T) {
	for name, prepare := range map[string]func(*transport.Credentials){
		"own tokens": func(*transport.Credentials) {},
		"a token source": func(creds *transport.Credentials) {
			creds.Sign = nil
			creds.Token = func(context.Context) (transport.Token, error) {
				return transport.Token{Text: transport.Hide("SharedAccessSignature sr=a&sig=b&se=4102444800"),
					Expires: time.Now().Add(time.Hour)}, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			callOf(t, nil, func(t *testing.T, g *gateway, _ *edge.Invoker) {
				creds := caller(t)
				prepare(creds)
				v := g.invoker(creds, nil)
				_, err := v.Invoke(t.Context(), modB, reboot)
				require.NoError(t, err)
				time.Sleep(time.Minute) // the token is not fresh: another one may be accepted
				g.answer = func(w http.ResponseWriter, n int) {
					switch n {
					case 1:
						refuse(w, http.StatusInternalServerError, 0, "IotHubUnauthorizedAccess")
					case 2:
						w.WriteHeader(http.StatusTooManyRequests)
					default:
						ok(w, n)
					}
				}
				_, err = v.Invoke(t.Context(), modB, reboot)
				require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
				require.ErrorIs(t, err, transport.Unauthorized)
				require.NotErrorIs(t, err, transport.RetryExpired)
				require.Len(t, g.seen(), 2)
			})
		})
	}
}

// refuse answers with a status and a hub's code and its name, if they are set.
func refuse(w http.ResponseWriter, status, code int, name string) {
	if name != "" {
		w.Header().Set("iothub-errorcode", name)
	}
	w.WriteHeader(status)
	if code != 0 && status != http.StatusNoContent {
		_, _ = fmt.Fprintf(w, `{"Message":"{\"errorCode\":%d,\"trackingId\":\"t\",\"message\":\"no\"}"}`, code)
	}
}

// No status is repeated while its outcome is unknown, and none that nobody has heard of.
func TestNoStatusIsRepeatedWithAnUnknownOutcome(t *testing.T) {
	repeated := []int{}
	for code := 200; code < 600; code++ {
		if code == 200 || code == 304 {
			continue
		}
		callOf(t, twice, func(t *testing.T, g *gateway, v *edge.Invoker) {
			g.answer = status(code)
			_, err := v.Invoke(t.Context(), modB, reboot)
			require.Error(t, err)
			if len(g.seen()) > 1 {
				repeated = append(repeated, code)
				require.NotErrorIs(t, err, transport.ErrOutcomeUnknown, code)
			}
			if code >= 500 && code != 501 && code != 505 && code != 511 || code < 300 {
				require.ErrorIs(t, err, transport.ErrOutcomeUnknown, code)
			}
		})
	}
	// 402, 403: an allowance that refills; 423, 424: a hub is busy
	require.Equal(t, []int{402, 403, 421, 423, 424, 425, 429, 511}, repeated)
}

// The gateway's delay counts, and the longest one is bounded.
func TestRetryAfterOfAGateway(t *testing.T) {
	callOf(t, nil, func(t *testing.T, g *gateway, v *edge.Invoker) {
		g.answer = func(w http.ResponseWriter, n int) {
			if n == 0 {
				w.Header().Set("Retry-After", "90")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			ok(w, n)
		}
		_, err := v.Invoke(t.Context(), modB, reboot)
		require.NoError(t, err)
		got := g.seen()
		require.Len(t, got, 2)
		require.GreaterOrEqual(t, got[1].at.Sub(got[0].at), 90*time.Second)
		require.Less(t, got[1].at.Sub(got[0].at), 110*time.Second)
	})
}

// Once the request was written, a failure without a definite answer is not repeated.
func TestACallWithAnUnknownOutcomeIsSentOnce(t *testing.T) {
	hijack := func(t *testing.T, w http.ResponseWriter) net.Conn {
		c, _, err := w.(http.Hijacker).Hijack()
		require.NoError(t, err)
		return c
	}
	const head = "HTTP/1.1 200 OK\r\nContent-Length: "
	writes := func(text string) func(*testing.T, *gateway, http.ResponseWriter) {
		return func(t *testing.T, _ *gateway, w http.ResponseWriter) {
			c := hijack(t, w)
			_, _ = io.WriteString(c, text)
			_ = c.Close()
		}
	}
	for name, c := range map[string]struct {
		answer func(*testing.T, *gateway, http.ResponseWriter)
		kind   transport.Kind
		after  time.Duration
	}{
		"closed": {writes(""), transport.Network, 0},
		"reset": {func(t *testing.T, _ *gateway, w http.ResponseWriter) {
			hijack(t, w).(*memconn.Conn).Reset()
		}, transport.Network, 0},
		"cut in the head":    {writes("HTTP/1.1 200 OK\r\nContent-Le"), transport.Network, 0},
		"cut in the body":    {writes(head + "30\r\n\r\n{\"status\":"), transport.Network, 0},
		"not HTTP":           {writes("\x16\x03\x01 nonsense\r\n\r\n"), transport.Protocol, 0},
		"not JSON":           {writes(head + "2\r\n\r\n{]"), transport.Protocol, 0},
		"no status":          {writes(head + "2\r\n\r\n{}"), transport.Protocol, 0},
		"a status of text":   {writes(head + "16\r\n\r\n{\"status\":\"200\"}"), transport.Protocol, 0},
		"a status too large": {writes(head + "21\r\n\r\n{\"status\":99999999999}"), transport.Protocol, 0},
		"too long": {func(t *testing.T, _ *gateway, w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"status":200,"payload":"`+strings.Repeat("x", 300<<10)+`"}`)
		}, transport.Protocol, 0},
		"silence": {func(_ *testing.T, g *gateway, w http.ResponseWriter) {
			g.hang(w, 0)
		}, transport.Timeout, 90 * time.Second}, // 40 s, 20 s and the margin
		"silence in the body": {func(_ *testing.T, g *gateway, w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"status":`)
			w.(http.Flusher).Flush()
			g.hang(w, 0)
		}, transport.Timeout, 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			callOf(t, twice, func(t *testing.T, g *gateway, v *edge.Invoker) {
				g.answer = func(w http.ResponseWriter, _ int) { c.answer(t, g, w) }
				began := time.Now()
				_, err := v.Invoke(t.Context(), modB, edge.Method{Name: "reboot", ResponseTimeout: 40 * time.Second,
					ConnectTimeout: 20 * time.Second})
				require.ErrorIs(t, err, c.kind)
				require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
				require.NotErrorIs(t, err, transport.RetryExpired)
				require.Equal(t, c.after, time.Since(began))
				require.Len(t, g.seen(), 1)
				require.Equal(t, 1, strings.Count(err.Error(), transport.ErrOutcomeUnknown.Error()), err)
			})
		})
	}
}

// A call that was not sent is retried under the policy.
func TestACallThatWasNotSentIsRetried(t *testing.T) {
	var retries []edge.InvokeRetry
	callOf(t, func(o *edge.InvokerOptions) {
		o.RetryPolicy = retrypolicy.Fixed{Delay: 7 * time.Second}
		o.OnRetry = func(r edge.InvokeRetry) { retries = append(retries, r) }
	}, func(t *testing.T, g *gateway, v *edge.Invoker) {
		g.refuse = 3
		began := time.Now()
		result, err := v.Invoke(t.Context(), modB, reboot)
		require.NoError(t, err)
		require.Equal(t, 200, result.Status)
		require.Equal(t, 21*time.Second, time.Since(began))
		require.Len(t, g.seen(), 1)
		require.Len(t, retries, 3)
		for i, r := range retries {
			require.Equal(t, edge.InvokeRetry{Target: edge.Target{DeviceID: "edge-1", ModuleID: "mod-b"}, Method: "reboot",
				Number: i + 1, Delay: 7 * time.Second, Err: r.Err}, r)
			require.ErrorIs(t, r.Err, transport.Network)
		}
	})
	// the default policy ends after four minutes
	callOf(t, nil, func(t *testing.T, g *gateway, v *edge.Invoker) {
		g.refuse = 1 << 30
		began := time.Now()
		_, err := v.Invoke(t.Context(), modB, reboot)
		require.ErrorIs(t, err, transport.RetryExpired)
		require.ErrorIs(t, err, transport.Network)
		require.NotErrorIs(t, err, transport.ErrOutcomeUnknown)
		require.False(t, errfilter.Retryable(err))
		require.InDelta(t, 240, time.Since(began).Seconds(), 15)
	})
	// a gateway that does not answer the dial
	callOf(t, func(o *edge.InvokerOptions) {
		twice(o)
		o.Network.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}, func(t *testing.T, _ *gateway, v *edge.Invoker) {
		began := time.Now()
		_, err := v.Invoke(t.Context(), modB, edge.Method{Name: "reboot", ResponseTimeout: 5 * time.Minute})
		require.ErrorIs(t, err, transport.RetryExpired)
		require.ErrorIs(t, err, transport.Timeout)
		require.NotErrorIs(t, err, transport.ErrOutcomeUnknown)
		require.Equal(t, 61*time.Second, time.Since(began), "twice the margin, and a delay")
	})
}

// Only what happened to the latest attempt counts: a refusal after an unsent one is no unknown
// outcome, and the failures before do not hide one.
func TestTheLatestAttemptDecides(t *testing.T) {
	callOf(t, nil, func(t *testing.T, g *gateway, v *edge.Invoker) {
		g.refuse = 1
		g.answer = status(504)
		_, err := v.Invoke(t.Context(), modB, reboot)
		require.ErrorIs(t, err, transport.Timeout)
		require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
		require.Len(t, g.seen(), 1)
	})
}

var errShutdown = errors.New("shutting down")

// A cancelled call returns at once, and says whether the callee may have run.
func TestACancelledCall(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(g *gateway)
		unknown bool
	}{
		"while the gateway works": {func(g *gateway) { g.answer = g.hang }, true},
		"while it works, after a retry": {func(g *gateway) {
			g.refuse = 1
			g.answer = g.hang
		}, true},
		"during a delay": {func(g *gateway) { g.refuse = 1 << 30 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, closing := range []bool{false, true} {
				callOf(t, func(o *edge.InvokerOptions) { o.RetryPolicy = retrypolicy.Fixed{Delay: 2 * time.Second} },
					func(t *testing.T, g *gateway, v *edge.Invoker) {
						c.prepare(g)
						ctx, cancel := context.WithCancelCause(t.Context())
						defer cancel(nil)
						time.AfterFunc(3*time.Second, func() {
							if closing {
								_ = v.Close()
							} else {
								cancel(errShutdown)
							}
						})
						began := time.Now()
						_, err := v.Invoke(ctx, modB, reboot)
						require.Equal(t, 3*time.Second, time.Since(began))
						require.Equal(t, c.unknown, errors.Is(err, transport.ErrOutcomeUnknown), err)
						require.False(t, errfilter.Retryable(err))
						if closing {
							require.ErrorIs(t, err, transport.Closed)
						} else {
							require.ErrorIs(t, err, transport.Cancelled)
							require.ErrorIs(t, err, errShutdown)
						}
						synctest.Wait()
					})
			}
		})
	}
	callOf(t, nil, func(t *testing.T, g *gateway, v *edge.Invoker) { // before it begins
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := v.Invoke(ctx, modB, reboot)
		require.ErrorIs(t, err, transport.Cancelled)
		require.NotErrorIs(t, err, transport.ErrOutcomeUnknown)
		require.Empty(t, g.seen())
	})
}

// A deadline of the caller ends the call as a cancellation does.
func TestADeadlineOfTheCaller(t *testing.T) {
	callOf(t, nil, func(t *testing.T, g *gateway, v *edge.Invoker) {
		g.answer = g.hang
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := v.Invoke(ctx, modB, reboot)
		require.ErrorIs(t, err, transport.Cancelled)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
	})
}

// After Close, which may be repeated, nothing is called any more, and no connection is open.
func TestCloseOfAnInvoker(t *testing.T) {
	callOf(t, nil, func(t *testing.T, g *gateway, v *edge.Invoker) {
		_, err := v.Invoke(t.Context(), modB, reboot)
		require.NoError(t, err)
		require.NoError(t, v.Close())
		require.NoError(t, v.Close())
		_, err = v.Invoke(t.Context(), modB, reboot)
		require.ErrorIs(t, err, transport.Closed)
		require.Len(t, g.seen(), 1)
		_, err = g.conns[0].Write([]byte("x"))
		require.Error(t, err, "it is closed")
	})
}
