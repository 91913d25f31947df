package device_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// The context of a session ends with the session, however that ended: a client that reconnects for
// years keeps none.
func TestTheContextOfASessionEndsWithIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var contexts []context.Context
		f := &fake{dial: func(n int, ctx context.Context) error {
			contexts = append(contexts, ctx)
			if n == 2 {
				return lost(transport.Network)
			}
			return nil
		}}
		c := opened(t, f, nil)
		f.lose(transport.Network, time.Minute)
		require.Len(t, contexts, 3)
		require.Error(t, contexts[0].Err(), "it was lost")
		require.Error(t, contexts[1].Err(), "the attempt failed")
		require.NoError(t, contexts[2].Err())
		require.NoError(t, c.Reconnect())
		synctest.Wait()
		require.Error(t, contexts[2].Err(), "it was replaced")
	})
}

// A token is renewed before it expires, by a planned reconnect that waits for the messages
// in flight: no failure, no policy asked, nothing sent twice.
func TestTokenRenewalIsPlanned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		policy := &recorder{}
		f := &fake{expires: func() time.Time { return time.Now().Add(time.Hour) }}
		f.verdict = func(conn int, it transport.Item) error {
			if it.Msg.ID == "1" && conn == 1 {
				go func() { // the answer takes a second
					time.Sleep(time.Second)
					f.sessions[0].cfg.Sink.Done(it.Tag, nil)
				}()
				return errHold
			}
			return nil
		}
		c, w := client(t, f, &device.Options{RetryPolicy: policy})
		open(t, c)
		start := time.Now()
		time.Sleep(51*time.Minute - time.Millisecond)
		var first, second device.Receipt
		require.NoError(t, c.Enqueue(t.Context(), msg(1), &first))
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, c.Enqueue(t.Context(), msg(2), &second)) // goes out on the next connection
		require.NoError(t, second.Wait(t.Context()))
		require.NoError(t, first.Wait(t.Context()))
		require.Equal(t, 51*time.Minute-time.Millisecond+time.Second, time.Since(start), "85 % of an hour, and the answer")
		require.Equal(t, []received{{1, "1", false}, {2, "2", false}}, f.received())
		synctest.Wait()
		require.Equal(t, []device.Reason{device.ReasonConnecting, device.ReasonConnectionOK,
			device.ReasonTokenRenewal, device.ReasonConnecting,
			device.ReasonConnectionOK}, w.reasons())
		require.Empty(t, policy.asked)

		time.Sleep(24*time.Hour - time.Since(start))
		require.Equal(t, 1+24*60/51, len(f.dialTimes()))
	})
}

func TestRenewalIsJitteredAndCanBeOff(t *testing.T) {
	for _, tc := range []struct {
		draw uint64
		at   float64
		want time.Duration // 0: never
	}{
		{0, 0, 85 * time.Minute}, {1<<64 - 1, 0, 80 * time.Minute}, {0, 0.5, 50 * time.Minute}, {0, -1, 0},
	} {
		bubble(t, func(t *testing.T) {
			f := &fake{expires: func() time.Time { return time.Now().Add(100 * time.Minute) }}
			opened(t, f, &device.Options{RenewAt: tc.at, Rand: func() uint64 { return tc.draw }})
			time.Sleep(99 * time.Minute)
			if tc.want == 0 {
				require.Len(t, f.dialTimes(), 1)
				return
			}
			require.InDelta(t, float64(tc.want), float64(gaps(f)[0]), float64(time.Millisecond))
		})
	}
}

// A drain that does not end is cut off; the messages in flight are sent again.
func TestRenewalDoesNotWaitForEver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{expires: func() time.Time {
			return time.Now().Add(time.Hour)
		}, verdict: holdFirst}
		c := opened(t, f, &device.Options{AckTimeout: time.Minute})
		time.Sleep(51*time.Minute - time.Second)
		require.NoError(t, c.Send(t.Context(), msg(1)))
		require.Equal(t, []time.Duration{51*time.Minute + 5*time.Second}, gaps(f))
	})
}

// A token source that caches and returns the same token is asked again after 85 % of the remaining
// life: a few times, not over and over.
func TestASourceThatCachesIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		expires := time.Now().Add(time.Hour)
		f := &fake{expires: func() time.Time { return expires }}
		opened(t, f, nil)
		time.Sleep(24 * time.Hour)
		require.Equal(t, []time.Duration{51 * time.Minute, 459 * time.Second, 68850 * ms, 10327500 * time.Microsecond},
			gaps(f))
	})
}

// skewed is a wall clock that can be set.
type skewed struct {
	mu sync.Mutex
	by time.Duration
}

func (s *skewed) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.by)
}

func (s *skewed) move(by time.Duration) {
	s.mu.Lock()
	s.by += by
	s.mu.Unlock()
}

func skewedClient(t *testing.T, f *fake, o *device.Options) (*device.Client, *skewed, *watch) {
	t.Helper()
	k, w := &skewed{}, &watch{}
	id := creds()
	id.Now = k.now
	o.OnStatus, o.Rand = w.add, func() uint64 { return 0 }
	c, err := device.New(id, f, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c, k, w
}

// A device that slept (its clock jumped ahead) replaces its connection at once on
// waking up, with a fresh token.
func TestAConnectionIsReplacedAfterSleep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var jumps []time.Duration
		f := &fake{}
		c, k, w := skewedClient(t, f,
			&device.Options{Trace: &device.Trace{ClockJump: func(by time.Duration) { jumps = append(jumps, by) }}})
		open(t, c)
		time.Sleep(time.Hour)
		k.move(3 * time.Second)
		time.Sleep(time.Hour)
		require.Len(t, f.dialTimes(), 1, "a small correction is none")
		k.move(8 * time.Hour)
		time.Sleep(31 * time.Second)
		require.Len(t, f.dialTimes(), 2)
		synctest.Wait()
		require.Equal(t, device.ReasonClockJumped, w.list()[2].Reason)
		k.move(-8 * time.Hour)
		time.Sleep(time.Hour)
		require.Len(t, f.dialTimes(), 2, "a step back says nothing about the connection")
		synctest.Wait()
		require.Equal(t, []time.Duration{8 * time.Hour, -8 * time.Hour}, jumps)
	})
}

// A link that drops again soon after each success backs off, and the status names a
// likely cause.
func TestAFlappingConnectionHasASuspect(t *testing.T) {
	holdTwo := func(_ int, it transport.Item) error {
		if it.Msg.ID == "2" {
			return errHold
		}
		return nil
	}
	large := msg(1)
	large.Body = make([]byte, 200<<10)
	growing := []time.Duration{100 * ms, 150 * ms, 250 * ms, 450 * ms, 850 * ms}
	for _, tc := range []struct {
		name    string
		verdict func(int, transport.Item) error
		sent    []*transport.Message // on each connection, before it is lost
		want    device.Suspect
		delays  []time.Duration
	}{
		{"idle", nil, nil, device.SuspectSecondDevice, growing},
		{"nothing acknowledged", hold, []*transport.Message{msg(1)}, device.SuspectQuotaUsedUp, growing},
		{"a large message in front", hold, []*transport.Message{large}, device.SuspectBadMessage, growing},
		{"messages get through", holdTwo, []*transport.Message{msg(1), msg(2)}, device.SuspectUnstable,
			[]time.Duration{0, 0, 0, 0, 0}},
	} {
		run(t, tc.name, func(t *testing.T) {
			f := &fake{verdict: tc.verdict}
			c, w := client(t, f, &device.Options{AckTimeout: time.Hour})
			open(t, c)
			for range 5 {
				for _, m := range tc.sent {
					require.NoError(t, c.Enqueue(t.Context(), m, nil))
				}
				if tc.want == device.SuspectBadMessage { // the suspect is sent after a quiet time
					for log := f.received(); len(log) == 0 || log[len(log)-1].conn != len(f.dialTimes()); log = f.received() {
						time.Sleep(10 * ms)
					}
				} else {
					time.Sleep(time.Second)
				}
				f.lose(transport.Network, 0)
				open(t, c)
			}
			synctest.Wait()
			var flaps []int
			var suspects []device.Suspect
			var delays []time.Duration
			for _, s := range w.list() {
				if s.Reason == device.ReasonConnectionLost {
					flaps, suspects, delays = append(flaps, s.Flaps), append(suspects, s.Suspect), append(delays, s.Delay)
				}
			}
			require.Equal(t, []int{1, 2, 3, 4, 5}, flaps)
			require.Equal(t, []device.Suspect{device.SuspectNone, device.SuspectNone, tc.want, tc.want, tc.want}, suspects)
			require.Equal(t, tc.delays, delays)
			require.NotEmpty(t, tc.want.String())

			time.Sleep(time.Minute)
			f.lose(transport.Network, 0)
			require.Zero(t, c.Status().Flaps, "a connection that lasted ends the series")
		})
	}
}

// During the rest before TryAgainAfter, Reconnect begins at once, and Close ends it.
func TestReconnectAndCloseEndTheRestBeforeTryAgainAfter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: down}
		c, w := client(t, f, &device.Options{TryAgainAfter: time.Hour, RetryPolicy: retrypolicy.NoRetry{}})
		require.NoError(t, c.Start())
		time.Sleep(time.Minute)
		require.NoError(t, c.Reconnect())
		time.Sleep(time.Minute)
		require.Equal(t, []time.Duration{time.Minute}, gaps(f))
		require.Equal(t, device.ReasonRetryExpired, w.list()[1].Reason)
		start := time.Now()
		require.NoError(t, c.Close())
		require.Zero(t, time.Since(start))
	})
}

// The spread keeps a fleet from reconnecting together: the retries of 1,000 devices are spread over
// the whole duration. By default the first retry is not spread, and the second is by 2 s.
func TestRetriesOfAFleetAreSpread(t *testing.T) {
	for _, row := range []struct {
		option time.Duration
		retry  int           // whose delay is looked at
		from   time.Duration // its least delay
		most   time.Duration // how much comes on top
	}{{100 * time.Second, 1, 100 * ms, 100 * time.Second}, {0, 1, 100 * ms, 0}, {0, 2, 150 * ms, 2025 * ms}} {
		bubble(t, func(t *testing.T) {
			var tenths [10]int
			clients := make([]*device.Client, 1000)
			for i := range clients {
				id := creds()
				id.DeviceID = strconv.Itoa(i)
				clients[i] = made(t, id, &fake{dial: down}, &device.Options{ReconnectSpread: row.option})
				require.NoError(t, clients[i].Start())
			}
			time.Sleep(time.Duration(row.retry-1) * 120 * ms)
			synctest.Wait()
			for _, c := range clients {
				at := c.Status()
				require.Equal(t, row.retry, at.Retry)
				require.GreaterOrEqual(t, at.Delay, row.from)
				require.LessOrEqual(t, at.Delay, row.from+row.most)
				if row.most > 0 {
					tenths[min(9, (at.Delay-row.from)*10/row.most)]++
				}
			}
			for _, n := range tenths {
				if row.most > 0 {
					require.InDelta(t, 100, n, 60)
				}
			}
		})
	}
}

// A shared limiter allows at most two attempts at a time, which begin at least 10 ms apart. Clients
// that wait for their turn can be closed.
func TestDialLimiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		limiter := device.NewDialLimiter(2, 10*time.Millisecond)
		var mu sync.Mutex
		var now, most int
		var begins []time.Time
		r := rand.New(rand.NewPCG(1, 2))
		dial := func(_ int, ctx context.Context) error {
			mu.Lock()
			now++
			most = max(most, now)
			begins = append(begins, time.Now())
			wait := time.Duration(r.IntN(100)) * time.Millisecond
			mu.Unlock()
			time.Sleep(wait)
			mu.Lock()
			now--
			mu.Unlock()
			return nil
		}
		var all []*device.Client
		for i := range 50 {
			id := creds()
			id.DeviceID = strconv.Itoa(i)
			c, err := device.New(id, &fake{dial: dial}, &device.Options{Dials: limiter})
			require.NoError(t, err)
			all = append(all, c)
			require.NoError(t, c.Start())
		}
		time.Sleep(200 * time.Millisecond)
		for _, c := range all[40:] {
			start := time.Now()
			require.NoError(t, c.Close())
			require.Less(t, time.Since(start), time.Second)
		}
		for _, c := range all[:40] {
			require.NoError(t, c.Open(t.Context()))
			require.NoError(t, c.Close())
		}
		require.Equal(t, 2, most)
		for i := 1; i < len(begins); i++ {
			require.GreaterOrEqual(t, begins[i].Sub(begins[i-1]), 10*time.Millisecond)
		}
	})
}

func TestTraceReportsWhatStatusLeavesOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told []string
		var mu sync.Mutex
		tell := func(s string) { mu.Lock(); told = append(told, s); mu.Unlock() }
		f := &fake{dial: failing(lost(transport.Network))}
		c, _ := client(t, f, &device.Options{
			Trace: &device.Trace{
				Connected:  func(_ transport.Info, took time.Duration) { tell("connected " + took.String()) },
				SessionEnd: func(err error, up time.Duration) { tell("end " + up.String()) },
				Decision: func(a retrypolicy.Attempt, d retrypolicy.Decision) {
					tell("decision " + strconv.Itoa(a.Retry) + " " + d.Delay.String())
				},
				Sent:         func(n int) { tell("sent " + strconv.Itoa(n)) },
				Settled:      func(o transport.Outcome) { tell("settled " + strconv.Itoa(int(o))) },
				HandlerPanic: func(v any) { tell("panic " + v.(string)) },
			},
		})
		c.HandleMessages(func(context.Context, *transport.Message) error { panic("boom") })
		open(t, c)
		require.NoError(t, c.Send(t.Context(), msg(1)))
		synctest.Wait() // the answer may arrive before the loop has reported that it sent
		f.last().deliver("1")
		time.Sleep(time.Second)
		f.lose(transport.Network, time.Second)
		synctest.Wait()
		require.NoError(t, c.Close())
		require.Equal(t, []string{"decision 1 100ms", "connected 0s", "sent 1", "panic boom", "settled 1", "end 1s",
			"decision 1 100ms", "connected 0s", "end 1s"}, told)
	})
}
