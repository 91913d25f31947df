package device_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// tags collects the tags of the messages that a fake hub leaves without an answer.
func tags(into *[]uint16) func(int, transport.Item) error {
	return func(_ int, it transport.Item) error {
		*into = append(*into, it.Tag)
		return errHold
	}
}

// A late answer to a message whose Send gave up is not the result of the next Send.
func TestALateAnswerIsNotTheResultOfTheNextSend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var held []uint16
		f := &fake{}
		f.verdict = tags(&held)
		c := opened(t, f, nil)
		ctx := within(t, time.Second)
		require.ErrorIs(t, c.Send(ctx, msg(1)), transport.ErrOutcomeUnknown)

		sent := async(func() error { return c.Send(t.Context(), msg(2)) })
		synctest.Wait()
		require.Len(t, held, 2)
		f.last().cfg.Sink.Done(held[0], refused(transport.Invalid))
		synctest.Wait()
		require.Empty(t, sent, "the second message has no answer yet")
		f.last().cfg.Sink.Done(held[1], nil)
		require.NoError(t, <-sent)
	})
}

// A message whose Send gave up while it was in flight counts as enqueued: it stays when the client
// becomes Disconnected.
func TestAMessageWhoseSendGaveUpStaysForTheNextOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: holdFirst}
		c := opened(t, f, nil)
		ctx := within(t, time.Second)
		require.ErrorIs(t, c.Send(ctx, msg(1)), transport.ErrOutcomeUnknown)
		f.lose(transport.NotFound, 0)
		require.Equal(t, device.StateDisconnected, c.Status().State)
		require.Equal(t, 1, c.Stats().Queued)
		open(t, c)
		require.NoError(t, c.Flush(t.Context()))
		require.Equal(t, []received{{1, "1", false}, {2, "1", true}}, f.received())
	})
}

// An acknowledgement of a message that was in flight when its session ended, and is queued again,
// is ignored.
func TestAnAnswerForAMessageThatIsQueuedAgainIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var held []uint16
		f := &fake{dial: func(n int, _ context.Context) error {
			if n == 2 {
				return lost(transport.Network)
			}
			return nil
		}}
		f.verdict = func(conn int, it transport.Item) error {
			if conn == 1 {
				held = append(held, it.Tag)
				return errHold
			}
			return nil
		}
		c := opened(t, f, &device.Options{RetryPolicy: constant(10 * time.Second)})
		r := pending(t, c, msg(1))
		synctest.Wait()
		first := f.last()
		first.kill <- lost(transport.Network)
		synctest.Wait()
		go first.cfg.Sink.Done(held[0], nil) // as above
		synctest.Wait()
		require.Equal(t, 1, c.Stats().Queued, "it waits for the next connection")
		require.NoError(t, r.Wait(t.Context()))
		require.Len(t, f.received(), 2)
	})
}

// After Disconnected, a message that the service had refused for now is sent at once on the next
// connection: the pause ended with the run.
func TestARefusedMessageGoesAtOnceAfterTheNextOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: func(conn int, _ transport.Item) error {
			if conn == 1 {
				return refused(transport.Unavailable)
			}
			return nil
		}}
		c := opened(t, f, &device.Options{MessagePolicy: constant(time.Hour)})
		r := pending(t, c, msg(1))
		synctest.Wait()
		f.lose(transport.NotFound, 0)
		require.Equal(t, device.StateDisconnected, c.Status().State)

		start := time.Now()
		open(t, c)
		require.NoError(t, r.Wait(t.Context()))
		require.Zero(t, time.Since(start))
	})
}

// A large message gets one second more for each KiB before its answer is overdue.
func TestALargeMessageHasMoreTimeForItsAnswer(t *testing.T) {
	for _, size := range []int{100, 40 << 10, 200 << 10} {
		bubble(t, func(t *testing.T) {
			var lostAfter time.Duration
			f := &fake{verdict: holdFirst}
			c := opened(t, f, &device.Options{AckTimeout: 20 * time.Second,
				Trace: &device.Trace{SessionEnd: func(_ error, up time.Duration) { lostAfter = up }}})
			m := sized("1", size)
			require.NoError(t, c.Send(t.Context(), m))
			require.Equal(t, 20*time.Second+time.Duration(m.Size()/1024)*time.Second, lostAfter, size)
		})
	}
}

// A caller whose Send ended with the client's last failure finds the client Disconnected.
func TestAFailedSendFindsTheClientDisconnected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const sends = 500
		for range 10 {
			f := &fake{verdict: hold}
			c := opened(t, f, &device.Options{Window: sends, MaxMessages: sends})
			states := make(chan device.State, sends)
			for i := range sends {
				go func() {
					_ = c.Send(t.Context(), msg(i))
					states <- c.Status().State
				}()
			}
			synctest.Wait()
			f.last().kill <- lost(transport.NotFound)
			for range sends {
				require.Equal(t, device.StateDisconnected, <-states)
			}
		}
	})
}

// A Flush whose context ends does not end other Flushes.
func TestAFlushThatGivesUpLeavesTheOthersWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var held []uint16
		f := &fake{}
		f.verdict = tags(&held)
		c := opened(t, f, nil)
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		flushed := make(chan error, 3)
		for i := range 3 {
			// the second Flush gives up first
			ctx := within(t, time.Duration(10-9*(i%2))*time.Second)
			go func() { flushed <- c.Flush(ctx) }()
			synctest.Wait()
		}
		require.ErrorIs(t, <-flushed, transport.Cancelled)
		f.last().cfg.Sink.Done(held[0], nil)
		require.NoError(t, <-flushed)
		require.NoError(t, <-flushed)
	})
}

// Flushes that gave up keep no memory while the message that they waited for stays.
func TestFlushesThatGaveUpAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := started(t, &fake{dial: down}, &device.Options{RetryPolicy: constant(24 * time.Hour)})
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		over, cancel := context.WithCancel(t.Context())
		cancel()
		const flushes = 50_000
		grown := heapGrowth(func() {
			for range flushes {
				require.ErrorIs(t, c.Flush(over), transport.Cancelled)
			}
		})
		require.Less(t, grown, int64(20*flushes), "bytes kept")
	})
}

// A Reconnect during an attempt does not end the session that the attempt makes.
func TestReconnectDuringAnAttemptIsAnsweredByThatAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: func(int, context.Context) error { time.Sleep(5 * time.Second); return nil }}
		c := started(t, f, nil)
		time.Sleep(2 * time.Second)
		require.NoError(t, c.Reconnect())
		time.Sleep(time.Hour)
		require.Len(t, f.dialTimes(), 1)
		require.Equal(t, device.StateConnected, c.Status().State)
	})
}

// A new policy ends the wait that the previous policy's gate asked for.
func TestANewPolicyEndsAHold(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		w := newWitness(constant(time.Second))
		w.admit = func(retrypolicy.Attempt) retrypolicy.Decision {
			return retrypolicy.Decision{Retry: true, Delay: time.Hour}
		}
		c := opened(t, f, &device.Options{RetryPolicy: constant(time.Second), MessagePolicy: w})
		start := time.Now()
		r := pending(t, c, msg(1))
		time.Sleep(time.Second)
		require.Empty(t, f.received())
		require.NoError(t, c.SetMessagePolicy(constant(time.Second)))
		require.NoError(t, r.Wait(t.Context()))
		require.Equal(t, time.Second, time.Since(start))
	})
}

// A session may answer a request after it has ended. The next session must ignore that answer.
func TestAnAnswerAfterTheEndOfItsSessionIsIgnored(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		die := func(s *fakeSession) {
			s.kill <- lost(transport.Network)
			time.Sleep(time.Millisecond) // the loop waits here; the session does not
		}
		f.subscribe = func(conn int) error {
			if conn == 1 {
				die(f.last())
			}
			return nil
		}
		f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
			if r.Op == transport.OpRenew {
				die(s)
				return transport.Reply{Err: refused(transport.Unsupported)}, true
			}
			return answering(s, r)
		}
		start := time.Now()
		f.expires = func() time.Time {
			if len(f.sessions) == 1 {
				return start.Add(time.Hour)
			}
			return time.Time{}
		}
		f.dial = func(int, context.Context) error { time.Sleep(time.Second); return nil }
		c, w := client(t, f, nil)
		open(t, c)
		_, err := c.GetTwin(t.Context())
		require.NoError(t, err)
		require.Equal(t, device.StateConnected, c.Status().State)
		time.Sleep(2 * time.Hour)
		require.Equal(t, device.StateConnected, c.Status().State)
		require.Len(t, f.dialTimes(), 3)
		require.Equal(t, []device.Reason{
			device.ReasonConnecting, device.ReasonConnectionOK, device.ReasonConnectionLost, device.ReasonConnecting,
			device.ReasonConnectionOK,
			device.ReasonConnectionLost, device.ReasonConnecting, device.ReasonConnectionOK,
		}, w.reasons())
	})
}
