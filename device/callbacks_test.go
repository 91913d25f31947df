package device_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// bad are the ways in which a callback fails to return.
var bad = map[string]func(){
	"panic": func() { panic("oh dear") },
	"exit":  runtime.Goexit,
}

// failingOnce fails once, when the callback with its name is called after arm. Without a name it
// is any callback.
type failingOnce struct {
	name string
	how  func()

	mu    sync.Mutex
	armed bool
	calls int
}

func (f *failingOnce) call(name string) {
	f.mu.Lock()
	fail := f.armed && name == f.name
	if fail {
		f.armed = false
		f.calls++
	}
	f.mu.Unlock()
	if fail {
		f.how()
	}
}

func (f *failingOnce) arm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = true
}

// callbacks returns options and credentials with all callbacks that the loop calls; f is called in
// each of them. The clock jumps after 10 s if its jump is to be reported.
func (f *failingOnce) callbacks() (*device.Options, *transport.Credentials) {
	own, start := creds(), time.Now()
	own.Now = func() time.Time {
		f.call("Credentials.Now")
		if f.name == "Trace.ClockJump" && time.Since(start) > 10*time.Second {
			return time.Now().Add(time.Hour)
		}
		return time.Now()
	}
	everySecond := retrypolicy.Func(func(int, error) (bool, time.Duration) {
		f.call("Decide of the retry policy")
		return true, time.Second
	})
	return &device.Options{
		RetryPolicy: hooked{
			Policy: everySecond,
			begin:  func() { f.call("Begin of the retry policy") },
			admit: func(retrypolicy.Attempt) retrypolicy.Decision {
				f.call("Admit of the retry policy")
				return retrypolicy.Decision{Retry: true}
			},
			report: func(retrypolicy.Verdict, retrypolicy.Attempt) { f.call("Report of the retry policy") },
			end:    func() { f.call("End of the retry policy") },
		},
		Rand: func() uint64 { f.call("Options.Rand"); return 0 },
		Trace: &device.Trace{
			Connected:  func(transport.Info, time.Duration) { f.call("Trace.Connected") },
			SessionEnd: func(error, time.Duration) { f.call("Trace.SessionEnd") },
			Decision:   func(retrypolicy.Attempt, retrypolicy.Decision) { f.call("Trace.Decision") },
			Sent:       func(int) { f.call("Trace.Sent") },
			Settled:    func(transport.Outcome) { f.call("Trace.Settled") },
			ClockJump:  func(time.Duration) { f.call("Trace.ClockJump") },
		},
	}, own
}

// A callback of the loop that fails ends the client with an error that names the callback. It leaks
// no slot of the limiter, no goroutine and no message, and the client can be opened again; with
// TryAgainAfter it starts over by itself.
func TestACallbackOfTheLoopThatDoesNotReturn(t *testing.T) {
	for _, tc := range []struct {
		name string
		act  func(t *testing.T, f *fake, c *device.Client) // nil: it fails during the first attempt
	}{
		{"Decide of the retry policy", cutOff}, {"Admit of the retry policy", nil}, {"Admit of the retry policy", sendOne},
		{"Begin of the retry policy", nil}, {"Report of the retry policy", cutOff}, {"End of the retry policy", sendOne},
		{"Options.Rand", cutOff}, {"Credentials.Now", nil}, {"Credentials.Now", sendOne}, {"Trace.Connected", nil},
		{"Trace.SessionEnd", cutOff}, {"Trace.Decision", cutOff}, {"Trace.Sent", sendOne}, {"Trace.ClockJump", sendOne},
		{"Trace.Settled", func(t *testing.T, f *fake, c *device.Client) {
			c.HandleMessages(accept)
			require.True(t, f.last().deliver("c2d"))
		}},
	} {
		for how, fail := range bad {
			for _, again := range []bool{false, true} {
				name := tc.name + "/" + how
				if tc.act == nil {
					name += "/before the connection"
				}
				if again {
					name += "/TryAgainAfter"
				}
				run(t, name, func(t *testing.T) {
					f := &fake{}
					once := &failingOnce{name: tc.name, how: fail}
					o, own := once.callbacks()
					limiter := device.NewDialLimiter(1, 0)
					o.Dials = limiter
					if again {
						o.TryAgainAfter = time.Hour
					}
					c := made(t, own, f, o)
					if tc.act == nil {
						once.arm()
						require.NoError(t, c.Start())
					} else {
						require.NoError(t, c.Open(t.Context()))
						once.arm()
						tc.act(t, f, c)
					}
					time.Sleep(40 * time.Second)
					synctest.Wait()
					require.Equal(t, 1, once.calls, "the callback was called")
					s := c.Status()
					require.ErrorContains(t, s.Err, "callback "+tc.name)
					require.ErrorIs(t, s.Err, transport.Invalid)
					require.Equal(t, device.ReasonNotRetryable, s.Reason)
					if again {
						require.Equal(t, device.StateDisconnectedRetrying, s.State)
						time.Sleep(2 * time.Hour)
					} else {
						require.Equal(t, device.StateDisconnected, s.State)
						require.NoError(t, c.Open(t.Context()))
					}
					require.Equal(t, device.StateConnected, c.Status().State)
					// The slot of the limiter is free.
					other, _ := client(t, &fake{}, &device.Options{Dials: limiter})
					require.NoError(t, other.Open(t.Context()))

					require.NoError(t, c.Enqueue(t.Context(), msg(77), nil))
					require.NoError(t, c.Flush(t.Context()))
					require.Contains(t, f.ids(), "77")
					require.NoError(t, c.Close())
				})
			}
		}
	}
}

func cutOff(t *testing.T, f *fake, _ *device.Client) { f.last().kill <- lost(transport.Network) }

func sendOne(t *testing.T, _ *fake, c *device.Client) {
	require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
}

// A message that was in flight when the loop's callback failed is sent again, once.
func TestMessagesInFlightSurviveAFailedCallback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: holdFirst}
		c := opened(t, f, &device.Options{Trace: &device.Trace{Sent: func(int) {
			if len(f.dialTimes()) == 1 {
				runtime.Goexit()
			}
		}}})
		var receipt device.Receipt
		require.NoError(t, c.Enqueue(t.Context(), msg(1), &receipt))
		time.Sleep(time.Second)
		require.Equal(t, device.StateDisconnected, c.Status().State)
		open(t, c)
		require.NoError(t, receipt.Wait(t.Context()))
		got := f.received()
		if len(got) == 2 { // the first connection may have ended before it took the message
			require.Equal(t, received{1, "1", false}, got[0])
			got = got[1:]
		}
		require.Equal(t, []received{{2, "1", true}}, got)
	})
}

// A callback that fails during a dial fails the attempt, and the policy decides about the next one.
func TestACallbackOfADialThatDoesNotReturn(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(creds *transport.Credentials, f *fake, fail func())
		kind transport.Kind
	}{
		{"Credentials.Token", func(creds *transport.Credentials, _ *fake, fail func()) {
			creds.Token = func(context.Context) (transport.Token, error) {
				fail()
				return transport.Token{Text: transport.Hide("t")}, nil
			}
		}, transport.Network},
		{"Credentials.Sign", func(creds *transport.Credentials, f *fake, fail func()) {
			creds.Sign = func(context.Context, []byte) ([]byte, error) { fail(); return []byte("mac"), nil }
			f.dial = func(_ int, ctx context.Context) error { _, err := creds.NewToken(ctx); return err }
		}, transport.Unauthorized},
		{"of the transport", func(_ *transport.Credentials, f *fake, fail func()) {
			f.dial = func(int, context.Context) error { fail(); return nil }
		}, transport.Network},
	} {
		for how, fail := range bad {
			run(t, tc.name+"/"+how, func(t *testing.T) {
				f, once := &fake{}, &failingOnce{how: fail, armed: true}
				limiter := device.NewDialLimiter(1, 0)
				own := creds()
				tc.set(own, f, func() { once.call("") })
				w := &watch{}
				c, err := device.New(own, f, &device.Options{Dials: limiter, OnStatus: w.add})
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
				require.NoError(t, c.Start())
				time.Sleep(time.Minute)
				if tc.kind == transport.Unauthorized {
					require.Equal(t, device.StateDisconnected, c.Status().State)
					require.NoError(t, c.Open(t.Context()))
				}
				require.Equal(t, device.StateConnected, c.Status().State)
				var told error
				for _, s := range w.list() {
					if s.Err != nil && told == nil {
						told = s.Err
					}
				}
				require.ErrorContains(t, told, "callback "+tc.name)
				require.ErrorIs(t, told, tc.kind)
				other, _ := client(t, &fake{}, &device.Options{Dials: limiter})
				require.NoError(t, other.Open(t.Context()))
				require.NoError(t, c.Close())
			})
		}
	}
}

// A session whose Run panics or ends its goroutine counts as a lost connection.
func TestARunThatDoesNotReturn(t *testing.T) {
	for how, fail := range bad {
		run(t, how, func(t *testing.T) {
			f := &fake{verdict: func(conn int, _ transport.Item) error {
				if conn == 1 {
					fail()
				}
				return nil
			}}
			c := opened(t, f, nil)
			require.NoError(t, c.Send(t.Context(), msg(1)))
			require.Len(t, f.dialTimes(), 2)
			require.NoError(t, c.Close())
		})
	}
}

// The methods of an error of a transport may panic, as those of a nil pointer do, or end their
// goroutine.
func TestADialWhoseErrorPanics(t *testing.T) {
	for name, failure := range map[string]error{"a nil pointer": (*os.PathError)(nil), "Goexit": exitingError{}} {
		run(t, name, func(t *testing.T) {
			f := &fake{dial: func(n int, _ context.Context) error {
				if n == 1 {
					return failure
				}
				return nil
			}}
			c := opened(t, f, nil)
			require.Len(t, f.dialTimes(), 2)
			require.NoError(t, c.Close())
		})
	}
}

// exitingError is an error whose Error method ends its goroutine.
type exitingError struct{}

func (exitingError) Error() string { runtime.Goexit(); return "" }

// A handler or hook that runs on its own goroutine and fails affects only its own call.
func TestAHandlerThatDoesNotReturn(t *testing.T) {
	for how, fail := range bad {
		run(t, how, func(t *testing.T) {
			h := newTwinHub()
			var mu sync.Mutex
			var statuses, messages, changes, calls, panics, answers int
			count := func(n *int) {
				mu.Lock()
				*n++
				mu.Unlock()
				fail()
			}
			c, _ := client(t, h.f, &device.Options{
				OnStatus: func(device.Status) { count(&statuses) },
				Trace: &device.Trace{
					HandlerPanic: func(any) { count(&panics) },
					AnswerLost:   func(string) { count(&answers) },
					TwinUnread:   func(error) { fail() },
				},
			})
			c.HandleDesired(func(context.Context, device.Desired) { count(&changes) })
			c.HandleMessages(func(context.Context, *transport.Message) error { count(&messages); return nil })
			require.NoError(t, c.HandleMethod("",
				func(context.Context, *device.MethodCall) (int, []byte) { count(&calls); return 200, nil }))
			require.NoError(t, c.HandleMethod("slow",
				func(context.Context, *device.MethodCall) (int, []byte) { time.Sleep(20 * time.Second); return 200, nil }))
			open(t, c)
			for range 2 {
				s := h.f.last()
				require.True(t, s.deliver("1"))
				require.True(t, s.deliver("2"))
				s.call("1", "x", "")
				s.call("2", "slow", "")
				synctest.Wait()
				s.kill <- lost(transport.Network)
				time.Sleep(time.Minute)
				require.Equal(t, device.StateConnected, c.Status().State)
			}
			require.NoError(t, c.Send(t.Context(), msg(1)))
			mu.Lock()
			require.Greater(t, statuses, 5)
			require.Equal(t, 4, messages)
			require.Contains(t, h.f.verdicts(), settled{1, "1", transport.OutcomeRelease})
			require.Positive(t, changes)
			require.Equal(t, 2, calls)
			require.Equal(t, 2, answers, "of the slow ones")
			require.Equal(t, statuses+messages+changes+calls, panics)
			require.EqualValues(t, panics, c.Stats().HandlerPanics)
			mu.Unlock()
			require.NoError(t, c.Close())
		})
	}
}

// A clock that fails leaks no slot of the limiter, wherever in an attempt it is read.
func TestAClockThatDoesNotReturnKeepsNoPlace(t *testing.T) {
	for n := range 6 {
		bubble(t, func(t *testing.T) {
			limiter := device.NewDialLimiter(1, 0)
			own, calls := creds(), 0
			own.Now = func() time.Time {
				if calls++; calls == n {
					runtime.Goexit()
				}
				return time.Now()
			}
			c, err := device.New(own, &fake{}, &device.Options{Dials: limiter})
			require.NoError(t, err)
			require.NoError(t, c.Start())
			time.Sleep(time.Minute)
			other, _ := client(t, &fake{}, &device.Options{Dials: limiter})
			ctx := within(t, time.Minute)
			require.NoError(t, other.Open(ctx), "call %d", n)
			require.NoError(t, c.Close())
		})
	}
}

// After a callback that panicked, what waits for a retry gives back what it holds of a budget.
func TestAPanicLeavesNoSeriesBehind(t *testing.T) {
	for _, message := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			w := newWitness(constant(time.Hour))
			f := &fake{verdict: func(int, transport.Item) error { return refused(transport.Unavailable) },
				request: refusing(transport.Unavailable)}
			own, broken := creds(), atomic.Bool{}
			own.Now = func() time.Time {
				if broken.Load() {
					panic("oh dear")
				}
				return time.Now()
			}
			c, err := device.New(own, f, &device.Options{RetryPolicy: w})
			require.NoError(t, err)
			open(t, c)
			if message {
				enqueue(t, c, 0, 1)
			} else {
				go func() { _, _ = c.GetTwin(t.Context()) }()
			}
			synctest.Wait()
			broken.Store(true)
			time.Sleep(time.Minute)
			require.Equal(t, device.StateDisconnected, c.Status().State)
			require.NoError(t, c.Close())
			w.balanced(t)
		})
	}
}

// The policy panics when it hears of the answer to a twin call, and the caller has the answer.
func TestAnAnswerOutlivesAPolicyThatPanics(t *testing.T) {
	for name, answer := range map[string]transport.Reply{
		"success": {Body: []byte(`{"desired":{"$version":1},"reported":{"$version":1}}`)},
		"failure": {Err: refused(transport.Forbidden)},
	} {
		run(t, name, func(t *testing.T) {
			f := &fake{request: func(_ *fakeSession, r *transport.Request) (transport.Reply, bool) {
				if r.Op == transport.OpTwinGet {
					return answer, true
				}
				return transport.Reply{}, true
			}}
			c := opened(t, f, &device.Options{TryAgainAfter: time.Hour, RetryPolicy: hooked{Policy: constant(time.Second),
				report: func(_ retrypolicy.Verdict, a retrypolicy.Attempt) {
					if a.Scope == transport.ScopeOperation {
						panic("oh")
					}
				}}})
			_, err := c.GetTwin(within(t, 30*time.Minute))
			require.Equal(t, transport.KindOf(answer.Err), transport.KindOf(err), "%v", err)
		})
	}
}

// A policy that panics at the end of each attempt or series hears of all the others.
func TestAPolicyThatPanicsHearsOfEachSeries(t *testing.T) {
	for how, fail := range bad {
		for name, inner := range map[string]hooked{
			"Report": {report: func(retrypolicy.Verdict, retrypolicy.Attempt) { fail() }}, "End": {end: fail},
		} {
			for _, again := range []time.Duration{0, time.Hour} {
				run(t, fmt.Sprint(name, "/", how, "/", again), func(t *testing.T) {
					inner.Policy = constant(time.Hour)
					w := newWitness(inner)
					f := &fake{verdict: func(int, transport.Item) error { return refused(transport.Unavailable) },
						request: silent}
					c := opened(t, f, &device.Options{RetryPolicy: w, TryAgainAfter: again})
					for range 3 {
						go func() { _, _ = c.GetTwin(t.Context()) }()
					}
					synctest.Wait()
					enqueue(t, c, 0, 3)
					time.Sleep(time.Minute)
					require.NoError(t, c.Close())
					w.balanced(t)
				})
			}
		}
	}
}
