package device_test

// Corner cases of the outbox and the loop.

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

func down(int, context.Context) error { return lost(transport.Network) }

// sized returns a message of n bytes.
func sized(id string, n int) *transport.Message {
	return &transport.Message{ID: id, Body: make([]byte, n-len(id))}
}

// OperationTimeout limits a Send, also while the outbox is full.
func TestASendWaitingForRoomIsBoundedByOperationTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := client(t, &fake{dial: down}, &device.Options{MaxMessages: 1, OperationTimeout: time.Minute})
		require.NoError(t, c.Start())
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		done := make(chan error, 1)
		go func() { done <- c.Send(context.Background(), msg(2)) }()
		time.Sleep(time.Hour)
		require.NotEmpty(t, done, "Send still blocked after 1 h with OperationTimeout 1 min")
	})
}

// A Send that waits for room ends when the client becomes Disconnected.
func TestASendWaitingForRoomReportsDisconnected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: func(int, transport.Item) error { return errHold }}
		c, _ := client(t, f, &device.Options{MaxMessages: 1})
		open(t, c)
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		done := make(chan error, 1)
		go func() { done <- c.Send(context.Background(), msg(2)) }()
		synctest.Wait()
		f.last().kill <- lost(transport.Forbidden)
		time.Sleep(time.Hour)
		require.Equal(t, device.Disconnected, c.Status().State)
		require.NotEmpty(t, done, "Send still blocked 1 h after Disconnected")
	})
}

// Callers that wait for room sleep until there is some, even if one of them gives up.
func TestCallersBlockedByBytesDoNotSpin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := client(t, &fake{}, &device.Options{MaxBytes: 100})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		require.NoError(t, c.Enqueue(ctx, sized("1", 80), nil))
		counting := &countingCtx{Context: ctx}
		for range 32 {
			go func() { _ = c.Enqueue(counting, sized("2", 50), nil) }()
		}
		ctx3, cancel3 := context.WithCancel(ctx)
		go func() { _ = c.Enqueue(ctx3, sized("3", 50), nil) }()
		synctest.Wait()
		before := counting.n.Load()
		cancel3() // gives up: no room was made
		time.Sleep(time.Second)
		require.Equal(t, before, counting.n.Load(), "wake-ups without any room")
		cancel()
		synctest.Wait()
	})
}

// countingCtx counts the waits on it.
type countingCtx struct {
	context.Context
	n atomic.Int64
}

func (c *countingCtx) Done() <-chan struct{} { c.n.Add(1); return c.Context.Done() }

// When a new policy ends a pause, the status reports the end.
func TestAPauseEndedByANewPolicyIsReportedAsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: func(_ int, it transport.Item) error {
			if it.Msg.ID == "1" {
				return refused(transport.Unavailable)
			}
			return nil
		}}
		c, _ := client(t, f, &device.Options{RetryPolicy: constant(time.Hour)})
		open(t, c)
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		synctest.Wait()
		require.Equal(t, device.Paused, c.Status().Reason)
		require.NoError(t, c.SetRetryPolicy(retrypolicy.NoRetry{}))
		require.NoError(t, c.Send(t.Context(), msg(2)), "flows again")
		time.Sleep(time.Hour * 3)
		require.Equal(t, device.ConnectionOK, c.Status().Reason)
	})
}

// The result of a message that the hub may have says so, whatever ends the message.
func TestAnUnknownOutcomeIsReportedHoweverTheMessageEnds(t *testing.T) {
	for _, how := range []string{"disconnected", "close", "expired"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := &fake{verdict: func(int, transport.Item) error { return errHold }}
				f.dial = func(n int, _ context.Context) error {
					if n > 1 {
						return lost(transport.Network)
					}
					return nil
				}
				c, _ := client(t, f, nil)
				open(t, c)
				sent := make(chan error, 1)
				m := msg(1)
				if how == "expired" {
					m.Expires = time.Now().Add(10 * time.Second)
				}
				go func() { sent <- c.Send(context.Background(), m) }()
				synctest.Wait()
				require.Len(t, f.received(), 1, "the hub has it")
				switch how {
				case "disconnected":
					f.last().kill <- lost(transport.Forbidden)
				case "close":
					_ = c.Close()
				case "expired":
					f.last().kill <- lost(transport.Network)
				}
				require.ErrorIs(t, <-sent, transport.ErrOutcomeUnknown)
			})
		})
	}
}

// An Open whose run failed reports that failure, even if Start has been called again meanwhile.
func TestOpenReportsTheEndOfItsOwnRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bad := 0
		for range 300 {
			var c *device.Client
			f := &fake{dial: func(n int, ctx context.Context) error {
				if n == 1 {
					return lost(transport.Unauthorized)
				}
				<-ctx.Done()
				return ctx.Err()
			}}
			again := make(chan struct{}, 1)
			c, err := device.New(creds(), f, &device.Options{OnStatus: func(s device.Status) {
				if s.State == device.Disconnected && s.Reason == device.NotRetryable {
					_ = c.Start() // an application that always starts again
					select {
					case again <- struct{}{}:
					default:
					}
				}
			}})
			require.NoError(t, err)
			err = c.Open(context.Background())
			if !errors.Is(err, transport.Unauthorized) {
				bad++
				if bad == 1 {
				}
			}
			<-again
			_ = c.Close()
		}
		require.Zero(t, bad)
	})
}

// The end of one Open's context does not stop a client that other callers have started.
func TestAStartIsNotUndoneByAnotherCallersContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: down}
		c, _ := client(t, f, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		a, b := make(chan error, 1), make(chan error, 1)
		go func() { a <- c.Open(ctx) }()
		synctest.Wait()
		require.NoError(t, c.Start())
		go func() { b <- c.Open(context.Background()) }()
		require.ErrorIs(t, <-a, transport.Cancelled)
		synctest.Wait()
		select {
		case err := <-b:
			t.Errorf("Open(Background) ended with %v (DeadlineExceeded: %v)", err, errors.Is(err, context.DeadlineExceeded))
		default:
		}
		require.NotEqual(t, device.Disconnected, c.Status().State, "Start returned nil and nothing tries")
	})
}

// All calls of Close return only when the client has ended.
func TestASecondCloseWaitsForTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		f := &fake{dial: func(int, context.Context) error { <-release; return lost(transport.Network) }}
		c, _ := client(t, f, &device.Options{CloseTimeout: 3 * time.Second, OnStatus: func(device.Status) { <-release }})
		require.NoError(t, c.Start())
		synctest.Wait()
		first := make(chan error, 1)
		go func() { first <- c.Close() }()
		synctest.Wait()
		require.NoError(t, c.Close())
		synctest.Wait()
		early := len(first) == 0
		close(release)
		require.False(t, early, "the second Close returned nil while the first was still at it")
	})
}

// Messages expire also while no loop runs.
func TestMessagesExpireWhileTheClientIsNotOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := client(t, &fake{}, nil)
		m := msg(1)
		m.Expires = time.Now().Add(time.Second)
		var r device.Receipt
		require.NoError(t, c.Enqueue(t.Context(), m, &r))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.ErrorIs(t, r.Wait(ctx), transport.Expired)
	})
}

// DropOldest drops nothing if that cannot make enough room.
func TestDropOldestDropsNothingInVain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: func(int, transport.Item) error { return errHold }}
		c, _ := client(t, f, &device.Options{MaxBytes: 100, Overflow: device.DropOldest, Window: 1})
		open(t, c)
		var rs [3]device.Receipt
		require.NoError(t, c.Enqueue(t.Context(), sized("1", 80), &rs[0]))
		synctest.Wait()
		require.NoError(t, c.Enqueue(t.Context(), sized("2", 20), &rs[1]))
		require.NoError(t, c.Enqueue(t.Context(), sized("3", 30), &rs[2])) // cannot fit beside the one in flight
		require.Equal(t, uint64(1), c.Stats().Dropped, "both the old and the new message were dropped")
	})
}

// A message refused for now is not in flight, so DropOldest may drop it.
func TestDropOldestTakesRefusedMessagesToo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: func(int, transport.Item) error { return refused(transport.Unavailable) }}
		c, _ := client(t, f, &device.Options{MaxMessages: 2, Overflow: device.DropOldest, Window: 1,
			RetryPolicy: constant(time.Hour)})
		open(t, c)
		var rs [3]device.Receipt
		for i := range rs {
			require.NoError(t, c.Enqueue(t.Context(), msg(i), &rs[i]))
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, rs[0].Wait(ctx), transport.Dropped, "oldest not in flight")
	})
}

// OutageLimit also applies to a delay of the longest duration.
func TestOutageLimitBearsAHugeDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: func(int, context.Context) error { time.Sleep(time.Second); return lost(transport.Network) }}
		c, _ := client(t, f, &device.Options{RetryPolicy: constant(math.MaxInt64), OutageLimit: time.Minute})
		require.NoError(t, c.Start())
		time.Sleep(time.Hour)
		require.Equal(t, device.RetryExpired, c.Status().Reason)
	})
}

// A new policy decides about a pause that outlived its connection.
func TestAPauseThatOutlivedItsConnectionCanBeDecidedAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first := true
		f := &fake{verdict: func(int, transport.Item) error {
			if first {
				first = false
				return refused(transport.Unavailable)
			}
			return nil
		}}
		c, _ := client(t, f, &device.Options{MessagePolicy: constant(time.Hour), RetryPolicy: constant(time.Second)})
		open(t, c)
		start := time.Now()
		time.AfterFunc(2*time.Second, func() { f.last().kill <- lost(transport.Network) })
		time.AfterFunc(10*time.Second, func() { _ = c.SetMessagePolicy(constant(15 * time.Second)) })
		time.AfterFunc(8*time.Second,
			func() { t.Logf("status in the pause after the reconnect: %v %v", c.Status().State, c.Status().Reason) })
		require.NoError(t, c.Send(t.Context(), msg(1)))
		require.Equal(t, 15*time.Second, time.Since(start))
	})
}

// A policy's stop applies to a message whose pause outlived a planned reconnect.
func TestAVetoCountsAfterAReconnectInAPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: func(int, transport.Item) error { return refused(transport.Unavailable) }}
		c, _ := client(t, f, &device.Options{RetryPolicy: constant(time.Hour)})
		open(t, c)
		var r device.Receipt
		require.NoError(t, c.Enqueue(t.Context(), msg(1), &r))
		synctest.Wait()
		require.NoError(t, c.Reconnect())
		synctest.Wait()
		n := len(f.received())
		require.NoError(t, c.SetRetryPolicy(retrypolicy.NoRetry{}))
		synctest.Wait()
		require.Equal(t, n, len(f.received()), "vetoed, yet sent again")
	})
}

// LastError covers connections and attempts, not messages.
func TestLastErrorIsOfConnectionsOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first := true
		f := &fake{verdict: func(int, transport.Item) error {
			if first {
				first = false
				return refused(transport.Throttled)
			}
			return nil
		}}
		c, _ := client(t, f, nil)
		open(t, c)
		require.NoError(t, c.Send(t.Context(), msg(1)))
		require.NoError(t, c.Stats().LastError, "no connection or attempt failed")
	})
}

// dying is a transport whose first session refuses a message for 30 s and ends at once.
type dying struct {
	sink transport.Sink
	n    int
	die  chan struct{}
	dead chan struct{}
	at   []time.Time
}

func (d *dying) Dial(_ context.Context, cfg *transport.Config) (transport.Session, error) {
	d.sink = cfg.Sink
	d.n++
	d.die, d.dead = make(chan struct{}), make(chan struct{})
	return d, nil
}
func (d *dying) Info() transport.Info { return transport.Info{} }
func (d *dying) Run(ctx context.Context) error {
	defer close(d.dead)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-d.die:
		return lost(transport.Network)
	}
}
func (d *dying) Send(batch []transport.Item) {
	d.at = append(d.at, time.Now())
	for _, it := range batch {
		if d.n == 1 {
			e := refused(transport.Throttled)
			e.RetryAfter = 30 * time.Second
			d.sink.Done(it.Tag, e)
		} else {
			d.sink.Done(it.Tag, nil)
		}
	}
	if d.n == 1 {
		close(d.die)
		<-d.dead
		time.Sleep(time.Millisecond)
	}
}
func (d *dying) Do(*transport.Request) {}

// A Retry-After that arrives with the disconnect counts.
func TestRetryAfterOutlivesAConnectionThatDiesWithTheRefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &dying{}
		c, err := device.New(creds(), d, nil)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Send(t.Context(), msg(1)))
		require.GreaterOrEqual(t, d.at[1].Sub(d.at[0]), 30*time.Second)
	})
}

// When the first queued message is removed, messages behind it that are in flight are not handed
// over again.
func TestAnExpiredFirstMessageDoesNotResendThoseInFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{}
		n := 0
		f.verdict = func(_ int, it transport.Item) error {
			if it.Msg.ID == "1" {
				if n++; n == 1 {
					return refused(transport.Unavailable)
				}
			}
			return errHold
		}
		c, _ := client(t, f, &device.Options{RetryPolicy: constant(10 * time.Second), Window: 2, AckTimeout: time.Hour})
		open(t, c)
		m := msg(1)
		m.Expires = time.Now().Add(10 * time.Second) // expires at the very moment of the resend
		require.NoError(t, c.Enqueue(t.Context(), m, nil))
		require.NoError(t, c.Enqueue(t.Context(), msg(2), nil))
		require.NoError(t, c.Enqueue(t.Context(), msg(3), nil))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"1", "2", "3"}, f.ids())
	})
}

// A message that was in flight on a lost connection is not withdrawn, because the hub may have it.
func TestASendThatWasInFlightBeforeIsUnknownNotWithdrawn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: func(int, transport.Item) error { return errHold }}
		f.dial = func(n int, _ context.Context) error {
			if n > 1 {
				return lost(transport.Network)
			}
			return nil
		}
		c, _ := client(t, f, nil)
		open(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		time.AfterFunc(time.Second, func() { f.last().kill <- lost(transport.Network) })
		require.ErrorIs(t, c.Send(ctx, msg(1)), transport.ErrOutcomeUnknown)
		require.Equal(t, 1, c.Stats().Queued)
	})
}

// Flush waits only for earlier messages.
func TestFlushIsNotHeldByLaterMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: func(_ int, it transport.Item) error {
			if it.Msg.ID == "2" {
				return errHold
			}
			time.Sleep(time.Second)
			return nil
		}}
		c, _ := client(t, f, nil)
		open(t, c)
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		done := make(chan error, 1)
		go func() { done <- c.Flush(t.Context()) }()
		synctest.Wait()
		require.NoError(t, c.Enqueue(t.Context(), msg(2), nil))
		time.Sleep(2 * time.Second)
		require.NotEmpty(t, done)
	})
}

// A waiting Flush ends when the client becomes Disconnected.
func TestFlushEndsWithDisconnected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: func(int, transport.Item) error { return errHold }}
		c, _ := client(t, f, nil)
		open(t, c)
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		done := make(chan error, 1)
		go func() { done <- c.Flush(t.Context()) }()
		synctest.Wait()
		f.last().kill <- lost(transport.Forbidden)
		synctest.Wait()
		require.ErrorIs(t, <-done, transport.Forbidden)
	})
}

// OutageLimit counts from the loss of the connection.
func TestOutageLimitCountsFromTheLoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{}
		f.dial = func(n int, _ context.Context) error {
			if n > 1 {
				return lost(transport.Network)
			}
			return nil
		}
		c, _ := client(t, f, &device.Options{RetryPolicy: constant(10 * time.Second), OutageLimit: 35 * time.Second})
		open(t, c)
		time.Sleep(time.Hour)
		f.last().kill <- lost(transport.Network)
		start := time.Now()
		time.Sleep(time.Minute)
		require.Equal(t, device.RetryExpired, c.Status().Reason)
		require.Equal(t, 30*time.Second, c.Status().Since.Sub(start))
		require.Len(t, f.dialTimes(), 4)
	})
}

// A token that has expired by the device's clock, but not by the hub's, is not renewed again and
// again.
func TestAClockAheadMakesNoRenewalStorm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{expires: func() time.Time { return time.Now().Add(-10 * time.Minute) }}
		f.dial = func(n int, ctx context.Context) error {
			if n > 500 {
				<-ctx.Done()
				return ctx.Err()
			}
			time.Sleep(time.Second) // a dial takes a second
			return nil
		}
		c, _ := client(t, f, nil)
		require.NoError(t, c.Start())
		time.Sleep(5 * time.Minute)
		require.Less(t, len(f.dialTimes()), 20)
	})
}

// A session that is being replaced ends as soon as no message is in flight.
func TestARenewalEndsWithTheLastAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		expires := time.Now().Add(100 * time.Minute)
		f := &fake{verdict: func(int, transport.Item) error { return errHold }, expires: func() time.Time { return expires }}
		c, _ := client(t, f, &device.Options{RenewAt: 0.85, AckTimeout: time.Hour, Rand: func() uint64 { return 0 }})
		open(t, c)
		time.Sleep(85*time.Minute - 100*time.Millisecond)
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		synctest.Wait()
		require.Equal(t, 1, c.Stats().InFlight)
		time.Sleep(200 * time.Millisecond) // the renewal is due, the message in flight
		require.Len(t, f.dialTimes(), 1)
		s := f.last()
		s.cfg.Sink.Done(0, nil)
		answered := time.Now()
		synctest.Wait()
		require.Zero(t, c.Stats().InFlight)
		time.Sleep(time.Minute)
		require.Len(t, f.dialTimes(), 2)
		require.Zero(t, f.dialTimes()[1].Sub(answered), "replaced as soon as nothing is in flight")
	})
}

// A policy that returns the longest duration makes the client wait that long, with or without
// spread.
func TestSpreadBearsAHugeDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: func(n int, ctx context.Context) error {
			if n > 100 {
				<-ctx.Done()
				return ctx.Err()
			}
			return lost(transport.Network)
		}}
		c, _ := client(t, f, &device.Options{RetryPolicy: constant(math.MaxInt64),
			ReconnectSpread: time.Minute, Rand: func() uint64 { return 12345678 }})
		require.NoError(t, c.Start())
		time.Sleep(time.Second)
		require.Len(t, f.dialTimes(), 1)
	})
}

// The client pings a session with a KeepAlive.
func TestASessionWithAKeepAliveGetsPings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{keepAlive: time.Minute}
		c, _ := client(t, f, nil)
		open(t, c)
		time.Sleep(10*time.Minute + time.Second)
		f.mu.Lock()
		defer f.mu.Unlock()
		require.Len(t, f.pings, 10)
		for i, at := range f.pings {
			require.Equal(t, time.Duration(i+1)*time.Minute, at.Sub(f.dials[0]))
		}
	})
}

// A session may answer a request after it has ended. The next session must ignore that answer.
func TestAnAnswerAfterTheEndOfItsSessionIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{}
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
		require.Equal(t, device.Connected, c.Status().State)
		time.Sleep(2 * time.Hour)
		require.Equal(t, device.Connected, c.Status().State)
		require.Len(t, f.dialTimes(), 3)
		require.Equal(t, []device.Reason{
			device.Connecting, device.ConnectionOK, device.ConnectionLost, device.Connecting, device.ConnectionOK,
			device.ConnectionLost, device.Connecting, device.ConnectionOK,
		}, w.reasons())
	})
}
