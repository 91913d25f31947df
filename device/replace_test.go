package device_test

// Corner cases of replaced sessions, running handlers and slow links.

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A pause that ends while the session is being replaced must not make the loop spin.
func TestAPauseThatEndsWhileDrainingDoesNotSpin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		f := &fake{}
		f.expires = func() time.Time { return start.Add(100 * time.Second) }
		f.verdict = func(conn int, it transport.Item) error {
			if it.Msg.ID == "1" {
				return refused(transport.Throttled)
			}
			return errHold
		}
		c := made(t, spinGuard(), f, &device.Options{Rand: func() uint64 { return 0 }})
		open(t, c)
		time.Sleep(76 * time.Second) // renewal at 85 s; a pause of 10 s begins here
		enqueue(t, c, 1, 2)
		time.Sleep(20 * time.Second)
	})
}

// A cloud-to-device message whose handler calls Reconnect is settled before the connection is
// replaced.
func TestAHandlerMayCallReconnect(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		var c *device.Client
		calls := 0
		c, _ = client(t, f, nil)
		c.HandleMessages(func(context.Context, *transport.Message) error {
			calls++
			return c.Reconnect()
		})
		open(t, c)
		for i := range 10 {
			f.last().deliver(fmt.Sprint(i)) // the hub redelivers unsettled messages
			synctest.Wait()
			if len(f.verdicts()) > 0 {
				break
			}
		}
		require.NotEmpty(t, f.verdicts())
	})
}

// Reconnect replaces a connection whose network takes nothing, so that the loop is held up in Send,
// and asks no policy.
func TestReconnectOfAConnectionThatIsStuckInAWrite(t *testing.T) {
	for _, handling := range []bool{false, true} {
		run(t, fmt.Sprint("with a handler ", handling), func(t *testing.T) {
			f := &fake{}
			c, w := client(t, f, &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
			require.NoError(t, c.HandleMessages(func(ctx context.Context, _ *transport.Message) error {
				<-ctx.Done()
				return nil
			}))
			open(t, c)
			f.last().stuck = make(chan struct{})
			if handling {
				require.True(t, f.last().deliver("1"))
			}
			sent := pending(t, c, msg(1))
			time.Sleep(time.Minute)
			require.NoError(t, c.Reconnect())
			time.Sleep(2 * time.Second)
			synctest.Wait()
			require.Equal(t, []time.Duration{time.Minute + time.Second}, gaps(f))
			require.Equal(t, []device.Reason{device.ReasonPlanned, device.ReasonConnecting, device.ReasonConnectionOK},
				w.reasons()[2:])
			require.NoError(t, sent.Wait(t.Context()))
		})
	}
}

// A write that begins after Reconnect, here the answer of the handler that called it, and that the
// network does not take, does not hold up the replacement either.
func TestReconnectOfAConnectionWhoseNextWriteSticks(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		f.request = func(s *fakeSession, _ *transport.Request) (transport.Reply, bool) {
			<-s.dead
			return transport.Reply{}, false
		}
		c, w := client(t, f, &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
		require.NoError(t, c.HandleMethod("work", func(context.Context, *device.MethodCall) (int, []byte) {
			assert.NoError(t, c.Reconnect())
			time.Sleep(500 * time.Millisecond)
			return 200, nil
		}))
		open(t, c)
		require.True(t, f.last().call("1", "work", ""))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{time.Second}, gaps(f))
		require.Equal(t, []device.Reason{device.ReasonPlanned, device.ReasonConnecting, device.ReasonConnectionOK},
			w.reasons()[2:])
	})
}

// Further calls of Reconnect do not postpone the replacement that a running handler holds up.
func TestReconnectAgainAndAgainBehindAHandler(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, w := client(t, f, nil)
		require.NoError(t, c.HandleMessages(func(ctx context.Context, _ *transport.Message) error {
			<-ctx.Done()
			return nil
		}))
		open(t, c)
		require.True(t, f.last().deliver("1"))
		synctest.Wait()
		for range 20 {
			require.NoError(t, c.Reconnect())
			time.Sleep(500 * time.Millisecond)
		}
		require.NotEmpty(t, gaps(f))
		require.Equal(t, time.Second, gaps(f)[0])
		require.Equal(t, device.ReasonPlanned, w.reasons()[2])
	})
}

// A pause that ended during an outage is published with delay 0, not a negative one.
func TestDelaysAreNeverNegative(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		f.verdict = func(conn int, it transport.Item) error {
			if conn == 1 {
				return refused(transport.Throttled)
			}
			return nil
		}
		f.dial = func(n int, ctx context.Context) error {
			if n == 2 {
				time.Sleep(20 * time.Second)
			}
			return nil
		}
		c, w := client(t, f, nil)
		open(t, c)
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		time.Sleep(time.Second)
		f.lose(transport.Network, time.Minute)
		for _, s := range w.list() {
			require.GreaterOrEqual(t, s.Delay, time.Duration(0), "%v", s)
		}
	})
}

// A stable connection ends a series of flaps, for any end of the connection.
func TestFlapsEndWithAConnectionThatLasts(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, w := client(t, f, nil)
		open(t, c)
		for range 3 {
			time.Sleep(time.Second)
			f.lose(transport.Network, 11*time.Second)
		}
		time.Sleep(24 * time.Hour)
		require.Zero(t, c.Status().Flaps)
		require.Equal(t, device.SuspectNone, c.Status().Suspect)
		require.NoError(t, c.Reconnect())
		time.Sleep(time.Second)
		f.lose(transport.Network, 0)
		l := w.list()
		require.Equal(t, 1, l[len(l)-1].Flaps)
	})
}

// The delay of TryAgainAfter is at least what the service asked for.
func TestTryAgainAfterRespectsTheService(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		e := lost(transport.Throttled)
		e.RetryAfter = time.Hour
		f.dial = failing(e, e, e)
		c, _ := client(t, f, &device.Options{OutageLimit: 10 * time.Minute, TryAgainAfter: time.Minute,
			ReconnectSpread: 30 * time.Second, Rand: func() uint64 { return 1<<63 + 12345678912 }})
		require.NoError(t, c.Start())
		time.Sleep(3 * time.Hour)
		d := f.dialTimes()
		require.GreaterOrEqual(t, d[1].Sub(d[0]), time.Hour)
	})
}

// A redelivery of the message that a handler is working on is not handled again; one verdict
// settles both.
func TestARedeliveryDuringItsHandlerIsNotHandledTwice(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		h := &handled{}
		c, _ := client(t, f, nil)
		c.HandleMessages(func(_ context.Context, m *transport.Message) error {
			h.add(m.ID)
			time.Sleep(150 * time.Second)
			return nil
		})
		open(t, c)
		f.last().deliver("1")
		for range 2 {
			time.Sleep(time.Minute)
			require.True(t, f.last().cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureMessages, Redelivered: true,
				Ref: []byte("1"), Msg: &transport.Message{ID: "1"}}))
		}
		time.Sleep(time.Hour)
		require.Equal(t, []string{"1"}, h.list())
		require.Len(t, f.verdicts(), 1)
	})
}

func TestOptionsThatWouldHammerOrHangAreRefused(t *testing.T) {
	for name, o := range map[string]*device.Options{"RenewAt": {RenewAt: 0.02},
		"Dials": {Dials: new(device.DialLimiter)}} {
		_, err := device.New(creds(), &fake{}, o)
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, name)
	}
}

// One answer cannot stop a device for years.
func TestRetryAfterIsCapped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := lost(transport.Unavailable)
		e.RetryAfter = 1 << 62
		f := &fake{dial: failing(e)}
		opened(t, f, nil)
		require.Equal(t, []time.Duration{time.Hour}, gaps(f))
	})
}

// While a connection waits to be replaced, the handler of messages finishes the one it has and
// begins no further one, which the end of the connection would cut off. Those with Once wait for
// the next connection.
func TestNoMessageIsBegunWhileItsConnectionIsReplaced(t *testing.T) {
	for name, row := range map[string]struct {
		begin time.Duration // when the first handler begins, 200 ms before the replacement
		renew func(*fakeSession, *transport.Request) (transport.Reply, bool)
		ask   bool // calls Reconnect
		once  bool
	}{
		"token renewal":       {begin: 84800 * time.Millisecond},
		"renewal is silent":   {begin: 94800 * time.Millisecond, renew: silent},
		"Reconnect":           {ask: true},
		"Reconnect with Once": {ask: true, once: true},
	} {
		run(t, name, func(t *testing.T) {
			start, h := time.Now(), &handled{}
			f := &fake{expires: func() time.Time { return start.Add(100 * time.Second) }, request: row.renew}
			c, _ := client(t, f, &device.Options{AckTimeout: 10 * time.Second})
			require.NoError(t, c.HandleMessages(func(_ context.Context, m *transport.Message) error {
				h.add(m.ID)
				time.Sleep(500 * time.Millisecond)
				return nil
			}))
			open(t, c)
			time.Sleep(row.begin)
			want := []settled{{1, "1", transport.OutcomeAccept}}
			for _, id := range ids(1, 12) {
				if !row.once {
					require.True(t, f.last().deliver(id))
					continue
				}
				require.True(t, f.last().deliverOnce(id, false))
				if id != "1" {
					want = append(want, settled{2, id, transport.OutcomeAccept})
				}
			}
			time.Sleep(200 * time.Millisecond)
			if row.ask {
				require.NoError(t, c.Reconnect())
			}
			time.Sleep(6500 * time.Millisecond)
			synctest.Wait()
			require.Equal(t, row.begin+500*time.Millisecond, f.dialTimes()[1].Sub(start))
			require.Len(t, h.list(), len(want))
			require.Equal(t, want, f.verdicts())
		})
	}
}

// A token renewal waits for running handlers, and a handler may wait for the session: for a message
// that it sends, or an answer about the twin.
func TestAHandlerMayUseTheClientWhileTheTokenIsRenewed(t *testing.T) {
	for name, call := range map[string]func(context.Context, *device.Client) error{
		"Send":    func(ctx context.Context, c *device.Client) error { return c.Send(ctx, msg(1)) },
		"GetTwin": func(ctx context.Context, c *device.Client) error { _, err := c.GetTwin(ctx); return err },
	} {
		for _, method := range []bool{false, true} {
			run(t, fmt.Sprintf("%s, method %v", name, method), func(t *testing.T) {
				start := time.Now()
				f := &fake{expires: func() time.Time { return start.Add(100 * time.Second) }}
				f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
					if r.Op == transport.OpRenew {
						return transport.Reply{Err: refused(transport.Unsupported)}, true
					}
					return transport.Reply{Status: 200, Body: []byte(twinDoc)}, true
				}
				var c *device.Client
				work := func(ctx context.Context) error {
					time.Sleep(2 * time.Second)
					return call(ctx, c)
				}
				c, w := client(t, f, nil)
				require.NoError(t, c.HandleMessages(func(ctx context.Context, _ *transport.Message) error { return work(ctx) }))
				require.NoError(t, c.HandleMethod("work", func(ctx context.Context, _ *device.MethodCall) (int, []byte) {
					require.NoError(t, work(ctx))
					return 200, nil
				}))
				open(t, c)
				time.Sleep(84 * time.Second)
				if method {
					require.True(t, f.last().call("1", "work", ""))
				} else {
					require.True(t, f.last().deliver("1"))
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				require.Equal(t, 86*time.Second, f.dialTimes()[1].Sub(start), "replaced at its end")
				require.Equal(t, device.ReasonTokenRenewal, w.reasons()[2])
				if method {
					require.Equal(t, []string{"1 200 "}, f.answers())
				} else {
					require.Equal(t, []settled{{1, "1", transport.OutcomeAccept}}, f.verdicts())
				}
			})
		}
	}
}

// A handler that begins while a token renewal waits for something else, here a twin, may wait for
// the session, too: for a message of its own, or for all of them.
func TestAHandlerThatBeginsDuringATokenRenewalIsServed(t *testing.T) {
	for name, call := range map[string]func(context.Context, *device.Client) error{
		"Send":  func(ctx context.Context, c *device.Client) error { return c.Send(ctx, msg(2)) },
		"Flush": func(ctx context.Context, c *device.Client) error { return c.Flush(ctx) },
	} {
		run(t, name, func(t *testing.T) {
			start := time.Now()
			f := &fake{expires: func() time.Time { return start.Add(100 * time.Second) }}
			f.request = func(_ *fakeSession, r *transport.Request) (transport.Reply, bool) {
				return transport.Reply{Err: refused(transport.Unsupported)}, r.Op != transport.OpTwinGet
			}
			c, _ := client(t, f, nil)
			require.NoError(t, c.HandleMethod("work", func(ctx context.Context, _ *device.MethodCall) (int, []byte) {
				assert.NoError(t, call(ctx, c))
				return 200, nil
			}))
			open(t, c)
			time.Sleep(84 * time.Second)
			twin := async(func() error { _, err := c.GetTwin(within(t, 10*time.Second)); return err })
			time.Sleep(2 * time.Second) // the renewal began after 1 s
			require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
			synctest.Wait()
			require.Empty(t, f.ids())
			require.True(t, f.last().call("1", "work", ""))
			synctest.Wait()
			require.Equal(t, []string{"1 200 "}, f.answers())
			require.ErrorIs(t, <-twin, transport.Cancelled)
			require.Equal(t, 90*time.Second, f.dialTimes()[1].Sub(start))
		})
	}
}

// A handler that takes longer than a renewal waits costs no message: none is in flight at the end.
func TestALongHandlerCostsNoMessageAtATokenRenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		f := &fake{expires: func() time.Time { return start.Add(100 * time.Second) }}
		f.verdict = func(int, transport.Item) error {
			time.Sleep(30 * time.Millisecond)
			return nil
		}
		c, _ := client(t, f, nil)
		require.NoError(t, c.HandleMessages(func(ctx context.Context, _ *transport.Message) error {
			<-ctx.Done()
			return nil
		}))
		open(t, c)
		time.Sleep(84 * time.Second)
		require.True(t, f.last().deliver("1"))
		time.Sleep(40 * time.Millisecond)
		for i := range 120 { // the last one 10 ms before the end
			require.NoError(t, c.Enqueue(t.Context(), msg(i), nil))
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, 90*time.Second, f.dialTimes()[1].Sub(start))
		require.Equal(t, ids(0, 119), f.ids(), "each once")
	})
}
