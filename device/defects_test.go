package device_test

// Defects of the Java SDK's loop (L and a number) and problems of users of all official SDKs (Pain
// and a number), one test each.

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// A connection lost for a reason that would be terminal for a dial, and then made again, is not
// closed because of the old error.
func TestReopenedConnectionIsNotClosedForTheOldError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{}
		c, _ := client(t, f, nil)
		open(t, c)
		f.last().kill <- lost(transport.Unauthorized) // the token expired
		synctest.Wait()
		time.Sleep(time.Hour)
		require.Equal(t, device.Connected, c.Status().State)
		require.NoError(t, c.Send(t.Context(), msg(1)))
		require.Len(t, f.dialTimes(), 2)
	})
}

// Open returns the failure itself, whose hint agrees with the decision.
func TestOpenKeepsTheCauseAndItsHint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cause := lost(transport.Unauthorized)
		c, _ := client(t, &fake{dial: failing(cause)}, nil)
		err := c.Open(t.Context())
		require.Same(t, cause, err)
		require.False(t, errfilter.Retryable(err))
		require.Contains(t, c.Status().Hint(), "check key")
	})
}

// Messages in flight are sent again first on the next connection, in order and marked; no
// message overtakes them.
func TestInFlightMessagesGoAgainInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{}
		f.verdict = func(conn int, it transport.Item) error {
			if conn == 1 && it.Msg.ID != "3" { // 3 is acknowledged out of order
				return errHold
			}
			return nil
		}
		c, _ := client(t, f, &device.Options{Window: 5})
		var rs [9]device.Receipt
		for i := range rs {
			require.NoError(t, c.Enqueue(t.Context(), msg(i+1), &rs[i]))
		}
		open(t, c) // five are sent at once
		synctest.Wait()
		f.last().kill <- lost(transport.Network)
		for i := range rs {
			require.NoError(t, rs[i].Wait(t.Context()))
		}
		var second []received
		for _, r := range f.received() {
			if r.conn == 2 {
				second = append(second, r)
			}
		}
		sixth := slices.Contains(f.received(), received{1, "6", false}) // it may have taken the slot of 3
		want := []received{{2, "1", true}, {2, "2", true}, {2, "4", true}, {2, "5", true}, {2, "6", sixth}, {2, "7", false},
			{2,
				"8", false}, {2, "9", false}}
		require.Equal(t, want, second)
	})
}

// The order of a stream survives many losses. On each connection the numbers only grow,
// and resent messages are marked.
func TestOrderSurvivesManyLosses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(16, 16))
		f := &fake{verdict: func(int, transport.Item) error {
			if r.IntN(4) == 0 {
				return errHold
			}
			return nil
		}}
		c, _ := client(t, f, &device.Options{Window: 8, RetryPolicy: constant(time.Second), AckTimeout: 2 * time.Second})
		open(t, c)
		for i := 1; i <= 300; i++ {
			require.NoError(t, c.Enqueue(t.Context(), msg(i), nil))
		}
		require.NoError(t, c.Flush(t.Context()))
		newest, seen := map[int]int{}, map[string]bool{}
		for _, m := range f.received() {
			n, err := strconv.Atoi(m.id)
			require.NoError(t, err)
			require.Greater(t, n, newest[m.conn], "on connection %d", m.conn)
			newest[m.conn] = n
			require.Equal(t, seen[m.id], m.again, "message %s", m.id)
			seen[m.id] = true
		}
		require.Len(t, seen, 300)
		require.Greater(t, len(newest), 10, "there were many losses")
	})
}

// Close does not wait for a back-off or an attempt.
func TestCloseEndsAWaitAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: func(int, context.Context) error { return lost(transport.Network) }}
		c, _ := client(t, f, &device.Options{RetryPolicy: constant(time.Hour)})
		require.NoError(t, c.Start())
		time.Sleep(time.Second)
		start := time.Now()
		require.NoError(t, c.Close())
		require.Zero(t, time.Since(start))
	})
}

// Messages that wait for the window when the connection is lost stay queued and do not fail.
func TestMessagesWaitingForTheWindowSurviveALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: func(conn int, _ transport.Item) error {
			if conn == 1 {
				return errHold
			}
			return nil
		}}
		c, _ := client(t, f, &device.Options{Window: 1})
		open(t, c)
		results := make(chan error, 8)
		for i := range 8 {
			go func() { results <- c.Send(t.Context(), msg(i)) }()
		}
		synctest.Wait()
		f.last().kill <- lost(transport.Network)
		for range 8 {
			require.NoError(t, <-results)
		}
	})
}

// Close returns within its limit in every state, and no goroutine is left (the bubble
// panics otherwise).
func TestCloseIsPromptFromEveryState(t *testing.T) {
	never := func(_ int, ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for _, tc := range []struct {
		name  string
		dial  func(int, context.Context) error
		enter func(t *testing.T, c *device.Client, f *fake)
	}{
		{"new", nil, func(*testing.T, *device.Client, *fake) {}},
		{"connecting", never, func(t *testing.T, c *device.Client, _ *fake) { require.NoError(t, c.Start()) }},
		{"waiting", func(int, context.Context) error { return lost(transport.Network) },
			func(t *testing.T, c *device.Client, _ *fake) { require.NoError(t, c.Start()) }},
		{"connected", nil, func(t *testing.T, c *device.Client, f *fake) {
			f.verdict = func(int, transport.Item) error { return errHold }
			open(t, c)
		}},
		{"paused", nil, func(t *testing.T, c *device.Client, f *fake) {
			f.verdict = func(int, transport.Item) error { return refused(transport.Throttled) }
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
			opened := make(chan error, 1)
			go func() { opened <- c.Open(context.Background()) }()
			t.Cleanup(func() { require.ErrorIs(t, <-opened, transport.Closed) })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := &fake{dial: tc.dial}
				c, w := client(t, f, nil)
				tc.enter(t, c, f)
				var r device.Receipt
				require.NoError(t, c.Enqueue(t.Context(), msg(1), &r))
				synctest.Wait()

				start := time.Now()
				require.NoError(t, c.Close())
				require.Zero(t, time.Since(start))
				require.ErrorIs(t, r.Wait(t.Context()), transport.Closed, "a message without a result is told so")
				require.Equal(t, device.ClientClosed, c.Status().Reason)
				require.Equal(t, device.ClientClosed, w.list()[len(w.list())-1].Reason,
					"the last status is told before Close returns")

				require.NoError(t, c.Close(), "again")
				require.ErrorIs(t, c.Send(t.Context(), msg(2)), transport.Closed)
				require.ErrorIs(t, c.Enqueue(t.Context(), msg(2), nil), transport.Closed)
				require.ErrorIs(t, c.Open(t.Context()), transport.Closed)
				require.ErrorIs(t, c.Start(), transport.Closed)
				require.ErrorIs(t, c.Reconnect(), transport.Closed)
				require.NoError(t, c.Flush(t.Context()))
			})
		})
	}
}

// A transport or callback that does not end cannot delay Close beyond its limit.
func TestCloseIsBoundedWhenTheTransportOrACallbackHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		f := &fake{dial: func(int, context.Context) error { <-release; return lost(transport.Network) }}
		c, _ := client(t, f, &device.Options{CloseTimeout: 3 * time.Second})
		require.NoError(t, c.Start())
		synctest.Wait()
		start := time.Now()
		require.ErrorIs(t, c.Close(), transport.Timeout)
		require.Equal(t, 3*time.Second, time.Since(start))
		close(release)
	})
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		c, _ := client(t, &fake{}, &device.Options{CloseTimeout: 3 * time.Second,
			OnStatus: func(device.Status) { <-release }})
		open(t, c)
		start := time.Now()
		require.ErrorIs(t, c.Close(), transport.Timeout)
		require.Equal(t, 3*time.Second, time.Since(start))
		close(release)
	})
}

// After an outage of any length the client reconnects within one capped delay, and no
// queued message is lost.
func TestReconnectsAfterALongOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		back := time.Now().Add(72 * time.Hour)
		f := &fake{}
		f.dial = func(n int, _ context.Context) error {
			if n > 1 && time.Now().Before(back) {
				return lost(transport.Network)
			}
			return nil
		}
		c, _ := client(t, f, nil)
		open(t, c)
		f.last().kill <- lost(transport.Network)
		var r device.Receipt
		require.NoError(t, c.Enqueue(t.Context(), msg(1), &r))
		require.NoError(t, r.Wait(t.Context()))
		require.Less(t, time.Since(back), 10*time.Second)
		require.Equal(t, 72*time.Hour, c.Stats().LongestOutage.Round(time.Minute))
	})
}

// A client whose retries ended can be opened again, with its queue.
func TestOpenAfterDisconnectedIsLegal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: failing(lost(transport.Network), lost(transport.Unauthorized))}
		c, _ := client(t, f, &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
		var r device.Receipt
		require.NoError(t, c.Enqueue(t.Context(), msg(1), &r))
		require.ErrorIs(t, c.Open(t.Context()), transport.RetryExpired)
		require.ErrorIs(t, c.Send(t.Context(), msg(2)), transport.RetryExpired, "a call fails at once with the reason")
		require.ErrorIs(t, c.Flush(t.Context()), transport.RetryExpired)
		require.ErrorIs(t, c.Open(t.Context()), transport.Unauthorized)
		require.Equal(t, 1, c.Stats().Queued)
		open(t, c)
		require.NoError(t, r.Wait(t.Context()))
		require.Equal(t, []string{"1"}, f.ids())
	})
}

// An attempt leaves no goroutine behind.
func TestAttemptsLeaveNoGoroutines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: func(n int, _ context.Context) error {
			if n%2 == 0 {
				return lost(transport.Network)
			}
			return nil
		}}
		c, _ := client(t, f, &device.Options{RetryPolicy: constant(time.Second)})
		open(t, c)
		synctest.Wait()
		before := bounded.Goroutines()
		for range 1000 {
			f.last().kill <- lost(transport.Network)
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		require.Equal(t, device.Connected, c.Status().State)
		require.Less(t, bounded.Goroutines(), before+10, "a leak would be one for each of 2,000 attempts")
		require.Equal(t, uint64(2001), c.Stats().Attempts)
		require.Equal(t, uint64(1001), c.Stats().Connections)
	})
}

// No Send blocks for ever. A silent hub is detected by the missing answer; the context or
// OperationTimeout also ends it.
func TestEverySendEnds(t *testing.T) {
	t.Run("a silent peer is replaced after AckTimeout", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			f := &fake{verdict: func(conn int, _ transport.Item) error {
				if conn == 1 {
					return errHold
				}
				return nil
			}}
			c, w := client(t, f, &device.Options{AckTimeout: 20 * time.Second})
			open(t, c)
			time.Sleep(time.Minute)
			start := time.Now()
			require.NoError(t, c.Send(t.Context(), msg(1)))
			require.Equal(t, 20*time.Second+100*ms, time.Since(start))
			synctest.Wait()
			require.ErrorIs(t, w.list()[2].Err, transport.Timeout)
		})
	})
	t.Run("the session says how long answers take, unless the program does", func(t *testing.T) {
		for _, row := range []struct{ option, session, want time.Duration }{
			{0, 0, 30 * time.Second}, {0, 2 * time.Minute, 2 * time.Minute}, {0, time.Second, 30 * time.Second},
			{20 * time.Second, 2 * time.Minute, 20 * time.Second}, {30 * time.Second, 2 * time.Minute, 30 * time.Second},
			{time.Minute, time.Second, time.Minute},
		} {
			bubble(t, func(t *testing.T) {
				f := &fake{ackTimeout: row.session, verdict: func(conn int, _ transport.Item) error {
					if conn == 1 {
						return errHold
					}
					return nil
				}}
				c, _ := client(t, f, &device.Options{AckTimeout: row.option})
				open(t, c)
				start := time.Now()
				require.NoError(t, c.Send(t.Context(), msg(1)))
				require.Equal(t, row.want+100*ms, time.Since(start), row)
			})
		}
	})
	t.Run("the oldest message counts, not the latest", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			f := &fake{verdict: func(conn int, it transport.Item) error {
				if conn == 1 && it.Msg.ID == "1" {
					return errHold
				}
				return nil
			}}
			c, _ := client(t, f, &device.Options{AckTimeout: 20 * time.Second})
			open(t, c)
			start := time.Now()
			var r device.Receipt
			require.NoError(t, c.Enqueue(t.Context(), msg(1), &r))
			for range 15 {
				time.Sleep(time.Second)
				require.NoError(t, c.Send(t.Context(), msg(2)))
			}
			require.NoError(t, r.Wait(t.Context()))
			require.Equal(t, 20*time.Second+100*ms, time.Since(start))
		})
	})
}

// A Send ends with its context, its time-out, or the client.
func TestASendEndsWithItsContextItsTimeOutOrTheClient(t *testing.T) {
	t.Run("context, message still queued: withdrawn", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			f := &fake{dial: func(int, context.Context) error { return lost(transport.Network) }}
			c, _ := client(t, f, nil)
			require.NoError(t, c.Start())
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			err := c.Send(ctx, msg(1))
			require.ErrorIs(t, err, transport.Cancelled)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, transport.ErrOutcomeUnknown)
			require.ErrorIs(t, err, transport.Network, "what stood in the way is told")
			require.Zero(t, c.Stats().Queued)
		})
	})
	t.Run("context, message in flight: unknown", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			f := &fake{verdict: func(int, transport.Item) error { return errHold }}
			c, _ := client(t, f, nil)
			open(t, c)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			err := c.Send(ctx, msg(1))
			require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, 1, c.Stats().Queued)
		})
	})
	t.Run("operation time-out", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			f := &fake{dial: func(int, context.Context) error { return lost(transport.Network) }}
			c, _ := client(t, f, nil)
			require.NoError(t, c.Start())
			start := time.Now()
			require.ErrorIs(t, c.Send(t.Context(), msg(1)), transport.Timeout)
			require.Equal(t, 4*time.Minute, time.Since(start))
		})
	})
	t.Run("a full outbox ends with the context", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c, _ := client(t, &fake{}, &device.Options{MaxMessages: 1})
			require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, c.Enqueue(ctx, msg(2), nil), transport.Cancelled)
		})
	})
	t.Run("a client that was not opened says so", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c, _ := client(t, &fake{}, nil)
			require.ErrorIs(t, c.Send(t.Context(), msg(1)), transport.Closed)
		})
	})
	t.Run("a Send under way when the client gives up", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			f := &fake{verdict: func(int, transport.Item) error { return errHold }}
			c, _ := client(t, f, nil)
			open(t, c)
			sent := make(chan error, 1)
			go func() { sent <- c.Send(t.Context(), msg(1)) }()
			synctest.Wait()
			f.last().kill <- lost(transport.Forbidden)
			require.ErrorIs(t, <-sent, transport.Forbidden)
		})
	})
}

// Each accepted message gets exactly one result, whatever happens. A second result would
// block the sender of the result for ever, a missing one the waiter; both show as a stalled bubble.
func TestEachMessageGetsExactlyOneResult(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			bubble(t, func(t *testing.T) { oneResultEach(t, seed) })
		})
	}
}

func oneResultEach(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 9))
	draw := rand.New(rand.NewPCG(seed, 10)) // for the session's goroutine
	f := &fake{dial: func(n int, _ context.Context) error {
		if n%3 == 0 {
			return lost(transport.Network)
		}
		return nil
	}}
	f.verdict = func(int, transport.Item) error {
		switch draw.IntN(10) {
		case 0:
			return errHold
		case 1:
			return refused(transport.Unavailable)
		case 2:
			return refused(transport.Invalid)
		}
		return nil
	}
	o := &device.Options{
		RetryPolicy: constant(time.Second), Window: 1 + rnd.IntN(20), MaxMessages: 20 + rnd.IntN(100),
		AckTimeout: 5 * time.Second,
		Overflow:   device.Overflow(rnd.IntN(4)),
	}
	c, _ := client(t, f, o)
	open(t, c)

	const n = 400
	var rs [n]device.Receipt
	accepted := 0
	var taken [n]bool
	for i := range rs {
		m := msg(i)
		if rnd.IntN(4) == 0 {
			m.Expires = time.Now().Add(time.Duration(rnd.IntN(10_000)) * ms)
		}
		err := c.Enqueue(t.Context(), m, &rs[i])
		if err == nil {
			accepted++
			taken[i] = true
		} else {
			require.True(t, errors.Is(err, transport.Dropped) || errors.Is(err, transport.Expired), "%v", err)
		}
		switch rnd.IntN(40) {
		case 0:
			time.Sleep(time.Duration(rnd.IntN(3000)) * ms)
		case 1:
			if c.Status().State == device.Connected {
				select {
				case f.last().kill <- lost(transport.Network):
				default:
				}
			}
		case 2:
			require.NoError(t, c.Reconnect())
		}
	}
	if rnd.IntN(2) == 0 {
		require.NoError(t, c.Flush(t.Context()))
		require.Zero(t, c.Stats().Queued)
	} else {
		require.NoError(t, c.Close())
	}
	acked, other := 0, 0
	for i := range rs {
		if !taken[i] {
			continue
		}
		if err := rs[i].Wait(t.Context()); err == nil {
			acked++
		} else {
			other++
		}
		require.ErrorIs(t, rs[i].Wait(t.Context()), transport.Invalid, "one result, no second")
	}
	require.Equal(t, accepted, acked+other)
	s := c.Stats()
	require.Equal(t, uint64(accepted), s.Accepted)
	require.Equal(t, uint64(acked), s.Acknowledged)
	require.Equal(t, uint64(other), s.Refused+s.Expired+s.Dropped+s.Cancelled, "%+v", s)
}

// A refusal with unknown outcome is remembered: a caller that gives up later learns that the hub
// may have the message.
func TestARefusalWithAnUnknownOutcome(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			f := &fake{verdict: func(int, transport.Item) error {
				e := refused(transport.Throttled)
				if unknown {
					e = operr.OutcomeUnknown(e)
				}
				return e
			}}
			c, _ := client(t, f, nil)
			open(t, c)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // its retry is due after 10 s
			defer cancel()
			err := c.Send(ctx, msg(1))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, unknown, errors.Is(err, transport.ErrOutcomeUnknown))
		})
	}
}
