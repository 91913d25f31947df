package device_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// All calls of Close return only when the client has ended.
func TestASecondCloseWaitsForTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		f := &fake{dial: func(int, context.Context) error { <-release; return lost(transport.Network) }}
		c := started(t, f, &device.Options{CloseTimeout: 3 * time.Second, OnStatus: func(device.Status) { <-release }})
		synctest.Wait()
		first := async(func() error { return c.Close() })
		synctest.Wait()
		require.NoError(t, c.Close())
		synctest.Wait()
		early := len(first) == 0
		close(release)
		require.False(t, early, "the second Close returned nil while the first was still at it")
	})
}

// Close returns within its limit in every state, and no goroutine is left (the bubble
// panics otherwise).
func TestCloseIsPromptFromEveryState(t *testing.T) {
	never := hang
	for _, tc := range []struct {
		name  string
		dial  func(int, context.Context) error
		enter func(t *testing.T, c *device.Client, f *fake)
	}{
		{"new", nil, func(*testing.T, *device.Client, *fake) {}},
		{"connecting", never, func(t *testing.T, c *device.Client, _ *fake) { require.NoError(t, c.Start()) }},
		{"waiting", down,
			func(t *testing.T, c *device.Client, _ *fake) { require.NoError(t, c.Start()) }},
		{"connected", nil, func(t *testing.T, c *device.Client, f *fake) {
			f.verdict = hold
			open(t, c)
		}},
		{"paused", nil, func(t *testing.T, c *device.Client, f *fake) {
			f.verdict = refuse(transport.Throttled)
			open(t, c)
		}},
		{"disconnected", failing(lost(transport.NotFound)),
			func(t *testing.T, c *device.Client, _ *fake) { require.Error(t, c.Open(t.Context())) }},
		{"stuck in a write", nil, func(t *testing.T, c *device.Client, f *fake) {
			open(t, c)
			stuck := make(chan struct{})
			f.last().stuck = stuck
			require.NoError(t, c.Enqueue(t.Context(), msg(0), nil))
			<-stuck
		}},
		{"open under way", never, func(t *testing.T, c *device.Client, _ *fake) {
			opened := async(func() error { return c.Open(context.Background()) })
			t.Cleanup(func() { require.ErrorIs(t, <-opened, transport.Closed) })
		}},
	} {
		run(t, tc.name, func(t *testing.T) {
			f := &fake{dial: tc.dial}
			c, w := client(t, f, nil)
			tc.enter(t, c, f)
			r := pending(t, c, msg(1))
			synctest.Wait()

			start := time.Now()
			require.NoError(t, c.Close())
			require.Zero(t, time.Since(start))
			require.ErrorIs(t, r.Wait(t.Context()), transport.Closed, "a message without a result is told so")
			require.Equal(t, device.ReasonClientClosed, c.Status().Reason)
			require.Equal(t, device.ReasonClientClosed, w.list()[len(w.list())-1].Reason,
				"the last status is told before Close returns")

			require.NoError(t, c.Close(), "again")
			require.ErrorIs(t, c.Send(t.Context(), msg(2)), transport.Closed)
			require.ErrorIs(t, c.Enqueue(t.Context(), msg(2), nil), transport.Closed)
			require.ErrorIs(t, c.Open(t.Context()), transport.Closed)
			require.ErrorIs(t, c.Start(), transport.Closed)
			require.ErrorIs(t, c.Reconnect(), transport.Closed)
			require.NoError(t, c.Flush(t.Context()))
		})
	}
}

// A verdict counts only while the session lives, as does the answer to a method. So Close waits
// until the session has them, also when the loop is held up by a slow Send, and when the handler
// was registered after Open.
func TestCloseWaitsUntilTheSessionHasTheResult(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, method := range []bool{false, true} {
			run(t, fmt.Sprintf("late %v, method %v", late, method), func(t *testing.T) {
				gate, finish := make(chan struct{}), make(chan struct{})
				f := &fake{gate: gate}
				c, _ := client(t, f, &device.Options{CloseTimeout: time.Minute})
				if late {
					open(t, c)
				}
				if method {
					require.NoError(t, c.HandleMethod("1",
						func(context.Context, *device.MethodCall) (int, []byte) { <-finish; return 200, nil }))
				} else {
					require.NoError(t, c.HandleMessages(func(context.Context, *transport.Message) error { <-finish; return nil }))
				}
				open(t, c)
				synctest.Wait()
				if method {
					require.True(t, f.last().call("1", "1", ""))
				} else {
					require.True(t, f.last().deliver("1"))
				}
				require.NoError(t, c.Enqueue(t.Context(), msg(0), nil))
				synctest.Wait() // in the handler, and in Send
				closed := async(func() error { return c.Close() })
				synctest.Wait()
				close(finish)
				synctest.Wait()
				time.Sleep(time.Second)
				close(gate)
				require.NoError(t, <-closed)
				if method {
					require.Equal(t, []string{"1 200 "}, f.answers())
				} else {
					require.Equal(t, []settled{{1, "1", transport.OutcomeAccept}}, f.verdicts())
				}
			})
		}
	}
}

// Nor does the network take a verdict at once.
func TestCloseWaitsWhileTheSessionTakesTheVerdict(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{gate: make(chan struct{})}
		c, _ := client(t, f, &device.Options{CloseTimeout: time.Minute})
		require.NoError(t, c.HandleMessages(accept))
		open(t, c)
		require.True(t, f.last().deliver("1"))
		synctest.Wait() // the loop is in Do
		closed := async(func() error { return c.Close() })
		synctest.Wait()
		close(f.gate)
		require.NoError(t, <-closed)
		require.Equal(t, []settled{{1, "1", transport.OutcomeAccept}}, f.verdicts())
	})
}

// A hub may deliver and call, by a subscription that it remembers, before the connection is up.
func TestCloseWaitsForNoResultOfAConnectionThatIsNotUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{subscribe: func(int) error { return errHold }}
		c, _ := client(t, f, &device.Options{CloseTimeout: time.Minute})
		require.NoError(t, c.HandleMessages(func(context.Context, *transport.Message) error { return nil }))
		require.NoError(t, c.HandleMethod("m", func(context.Context, *device.MethodCall) (int, []byte) { return 200, nil }))
		require.NoError(t, c.Start())
		synctest.Wait()
		require.True(t, f.last().deliver("1"))
		require.True(t, f.last().call("2", "m", ""))
		synctest.Wait()
		start := time.Now()
		require.NoError(t, c.Close())
		require.Zero(t, time.Since(start))
	})
}

// No session can take the verdict on a message of a lost connection: Close does not wait for one.
func TestCloseWaitsForNoVerdictOfALostConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		finish := make(chan struct{})
		f := &fake{dial: func(n int, _ context.Context) error {
			if n > 1 {
				return lost(transport.Network)
			}
			return nil
		}}
		c, _ := client(t, f, &device.Options{CloseTimeout: time.Minute})
		require.NoError(t, c.HandleMessages(func(context.Context, *transport.Message) error { <-finish; return nil }))
		open(t, c)
		require.True(t, f.last().deliverOnce("1", false))
		synctest.Wait()
		f.lose(transport.Network, time.Second)
		close(finish)
		synctest.Wait()
		start := time.Now()
		require.NoError(t, c.Close())
		require.Zero(t, time.Since(start))
	})
}

// An Open that gives up while Close runs may end after it.
func TestAnOpenThatGivesUpLeavesAClosedClientClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := client(t, &fake{dial: func(int, context.Context) error {
			time.Sleep(time.Minute)
			return lost(transport.Network)
		}}, nil)
		_, err := c.GetTwin(t.Context())
		require.ErrorIs(t, err, transport.Closed, "not opened yet")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		opened := make(chan error)
		go func() { opened <- c.Open(ctx) }()
		time.Sleep(time.Second / 2)
		require.ErrorIs(t, c.Close(), transport.Timeout, "the dial takes longer than CloseTimeout")
		require.ErrorIs(t, <-opened, transport.Cancelled)
		_, err = c.GetTwin(t.Context())
		require.ErrorIs(t, err, transport.Closed, "and not to be opened again")
		require.Equal(t, device.ReasonClientClosed, c.Status().Reason)
		time.Sleep(time.Minute)
	})
}
