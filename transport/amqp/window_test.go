package amqp

import (
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// windowed returns a window with an open connection, and the connection's peer.
func windowed(t *testing.T) (*window, *memconn.Conn) {
	near, far := memconn.Pair("near", "far")
	line := dialer.NewProgressConn(near, time.Minute)
	go func() {
		header := wire.ProtocolHeader(wire.ProtocolAMQP)
		_, _ = io.ReadFull(far, header[:])
		open, err := wire.AppendFrame(nil, 0, &wire.Open{ContainerID: "far", MaxFrameSize: 1 << 16}, nil)
		if err != nil {
			panic(err)
		}
		_, _ = far.Write(append(header[:], open...))
	}()
	c, err := amqpclient.Connect(t.Context(), line, line, &amqpclient.Options{Host: "far", IdleTimeout: 1000 * time.Hour})
	require.NoError(t, err)
	w := newWindow(c, time.Minute, new(learnt))
	t.Cleanup(func() {
		w.stop()
		c.Fail(amqpclient.ErrClosed)
		c.Close()
		_ = far.Close()
	})
	return w, far
}

// chatting lets the peer send an empty frame every second.
func chatting(t *testing.T, far *memconn.Conn) {
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		for every := time.NewTicker(time.Second); ; {
			select {
			case <-every.C:
				_, _ = far.Write([]byte{0, 0, 0, 8, 2, 0, 0, 0})
			case <-stop:
				return
			}
		}
	}()
}

// sender returns the owner of exchanges. Its wake says that one of them was admitted.
func sender() *testOwner {
	o := &testOwner{t: new(telemetry), woken: make(chan struct{}, 100)}
	o.t.wake = func() { o.woken <- struct{}{} }
	return o
}

type testOwner struct {
	t     *telemetry
	woken chan struct{}
}

// take waits until x is admitted. It returns false when done is closed first.
func take(w *window, x *exchange, owner *testOwner, bytes int, done <-chan struct{}) bool {
	for !w.take(x, owner.t, bytes) {
		select {
		case <-owner.woken:
		case <-w.conn.Done():
			panic(w.conn.Loss())
		case <-done:
			w.drop(x)
			return false
		}
	}
	return true
}

// keepSending sends transfers of one batch each over a link of this rate and delay, and returns the
// number of bytes that were answered.
func keepSending(w *window, rate int, delay, during time.Duration) int {
	var answered atomic.Int64
	owner := sender()
	free := time.Now() // when the link becomes free
	for end := time.Now().Add(during); time.Now().Before(end); {
		x := new(exchange)
		if !take(w, x, owner, max(w.batch(), 1), nil) {
			break
		}
		w.wrote(x)
		free = times.Later(free, time.Now()).Add(time.Duration(x.bytes) * time.Second / time.Duration(rate))
		time.AfterFunc(time.Until(free)+delay, func() {
			answered.Add(int64(x.bytes))
			w.answered(x)
		})
		synctest.Wait()
	}
	return int(answered.Load())
}

// A slow link is used fully with no more than a few seconds in flight. A fast one is not slowed
// down, however long its answers take.
func TestTheWindowFollowsTheLink(t *testing.T) {
	for _, row := range []struct {
		rate  int
		delay time.Duration
	}{
		{1_000, 100 * time.Millisecond},
		{20_000, 100 * time.Millisecond},
		{20_000, 2 * time.Second},
		{1_000_000, 50 * time.Millisecond},
		{2_000_000, 600 * time.Millisecond},
		{300_000, 4 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, far := windowed(t)
			chatting(t, far)
			link := new(exchange)
			w.ask(link)
			time.Sleep(row.delay)
			w.answered(link)
			keepSending(w, row.rate, row.delay, time.Minute)
			answered := keepSending(w, row.rate, row.delay, time.Minute)
			used := float64(answered) / float64(row.rate*60)
			w.mu.Lock()
			out := w.out
			w.mu.Unlock()
			ahead := float64(out)/float64(row.rate) - row.delay.Seconds()
			t.Logf("%d bytes/s, %v: %.0f %% used, window %d, %.1f s in flight beyond the delay", row.rate, row.delay, used*100,
				w.size.Load(), ahead)
			require.Greater(t, used, 0.9)
			require.Less(t, ahead, 5.0)
			time.Sleep(time.Minute)
		})
	}
}

// The window shrinks when the link becomes slower.
func TestTheWindowShrinksWithTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, far := windowed(t)
		chatting(t, far)
		keepSending(w, 1_000_000, 50*time.Millisecond, time.Minute)
		require.Greater(t, w.size.Load(), int64(1<<20))
		keepSending(w, 10_000, 50*time.Millisecond, 10*time.Minute)
		require.Less(t, w.size.Load(), int64(40_000))
		time.Sleep(time.Minute)
	})
}

// Waiting devices are admitted in order, and a device that leaves loses its place.
func TestDevicesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := windowed(t)
		now := new(exchange)
		require.True(t, take(w, now, sender(), firstWindow, nil))
		w.wrote(now)
		var order []int
		leave, end := make(chan struct{}), make(chan struct{})
		defer close(end)
		for i := range 5 {
			done := end
			if i == 2 {
				done = leave
			}
			go func() {
				x := new(exchange)
				if !take(w, x, sender(), firstWindow, done) {
					return
				}
				w.wrote(x)
				order, now = append(order, i), x
			}()
			synctest.Wait()
		}
		close(leave)
		synctest.Wait()
		for _, want := range [][]int{{0}, {0, 1}, {0, 1, 3}, {0, 1, 3, 4}} {
			w.drop(now)
			synctest.Wait()
			require.Equal(t, want, order)
		}
		w.drop(now)
		require.Zero(t, w.out)
		require.Nil(t, w.first)
		require.Nil(t, w.last)
	})
}

// A transfer that waits for credit loses its place to another device, and counts again when it is
// written.
func TestATransferWithoutCreditLosesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := windowed(t)
		stuck, next := new(exchange), new(exchange)
		require.True(t, take(w, stuck, sender(), firstWindow, nil))
		began := time.Now()
		require.True(t, take(w, next, sender(), firstWindow, nil))
		require.Equal(t, reclaimAfter, time.Since(began))
		require.Equal(t, firstWindow, w.out)
		w.wrote(stuck)
		require.Equal(t, 2*firstWindow, w.out)
		w.wrote(next)
		w.answered(stuck)
		w.answered(next)
		require.Zero(t, w.out)
	})
}

// The peer answers nothing to one device.
func TestADeviceWithoutAnswersDoesNotBlockTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, far := windowed(t)
		chatting(t, far)
		mute, other := sender(), sender()
		send := func(owner *testOwner, bytes int, answers bool) (took time.Duration) {
			x, began := new(exchange), time.Now()
			require.True(t, take(w, x, owner, bytes, nil))
			took = time.Since(began)
			w.wrote(x)
			if answers {
				time.Sleep(50 * time.Millisecond)
				w.answered(x)
			}
			return took
		}
		require.Zero(t, send(other, 200, true))
		for range 3 {
			require.Zero(t, send(mute, firstWindow, false))
			require.Less(t, send(other, 200, true), fullDelay+time.Second)
			require.Less(t, send(other, 200, true), aimDelay+time.Second)
			require.Zero(t, send(other, 200, true))
		}
	})
}

// The wait for the answer to a transfer starts when the peer last answered an earlier one, or first
// answered a later one.
func TestProgressOfADevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := windowed(t)
		began := time.Now()
		at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
		mine := sender()
		progress := func() time.Time { at, _ := w.progressOf(mine.t); return at }
		require.Zero(t, progress(), "it has nothing in flight")
		var all []*exchange
		for i := range 5 {
			owner := sender()
			if i == 2 {
				owner = mine
			}
			x := new(exchange)
			require.True(t, take(w, x, owner, 1, nil))
			w.wrote(x)
			all = append(all, x)
		}
		require.Equal(t, began, progress())
		for i, x := range []int{0, 1, 3, 4} {
			time.Sleep(time.Second)
			w.answered(all[x])
			require.Equal(t, at(min(i+1, 3)), progress(), "after the answer to %d", x)
		}
		w.answered(all[2])
		require.Zero(t, progress())
	})
}

// The connection of a silent peer that owes an answer is lost; it is not lost while the peer sends
// anything.
func TestASilentPeerEndsTheConnection(t *testing.T) {
	for _, row := range []struct {
		name  string
		says  time.Duration // how often the peer sends; 0: never
		drop  time.Duration // when the exchange is dropped; 0: never
		asked bool
		last  time.Duration // when the peer last sends, unless says is set; 0: never
		lost  time.Duration // when the connection is lost; 0: never
	}{
		{name: "nothing is due"},
		{name: "silent", asked: true, lost: 30 * time.Second},
		{name: "silent, and nobody waits any more", asked: true, drop: 29 * time.Second, lost: 30 * time.Second},
		{name: "silent since it was asked, and nobody waits any more", asked: true, drop: 29 * time.Second,
			last: 5 * time.Second, lost: 35 * time.Second},
		{name: "not silent", asked: true, says: 29 * time.Second},
	} {
		testkit.Run(t, row.name, func(t *testing.T) {
			w, far := windowed(t)
			time.Sleep(time.Minute)
			began := time.Now()
			if row.asked {
				x := new(exchange)
				w.ask(x)
				if row.drop > 0 {
					time.AfterFunc(row.drop, func() { w.drop(x) })
				}
			}
			stop := make(chan struct{})
			if row.last > 0 {
				time.AfterFunc(row.last, func() { _, _ = far.Write([]byte{0, 0, 0, 8, 2, 0, 0, 0}) })
			}
			if row.says > 0 {
				go func() {
					for {
						select {
						case <-time.After(row.says):
							_, _ = far.Write([]byte{0, 0, 0, 8, 2, 0, 0, 0})
						case <-stop:
							return
						}
					}
				}()
			}
			select {
			case <-w.conn.Done():
			case <-time.After(10 * time.Minute):
			}
			close(stop)
			if row.lost == 0 {
				require.False(t, w.conn.Gone())
				return
			}
			require.Equal(t, row.lost, time.Since(began))
			require.Equal(t, errSilent, w.conn.Loss())
		})
	}
}

// A device that leaves frees its part of the window.
func TestADeviceThatLeavesFreesItsPartOfTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, c, _ := connected(t)
		audience, text := token(t, h, "dev-a", "")
		require.NoError(t, c.tokens.put(t.Context(), audience, text, nil))
		h.HoldAnswers(true)
		s, end := serving(t, h, c, "dev-a")
		s.Send([]transport.Item{{Msg: &transport.Message{Body: make([]byte, 5000)}}})
		time.Sleep(time.Second)
		c.window.mu.Lock()
		out := c.window.out
		c.window.mu.Unlock()
		require.Greater(t, out, 5000)
		end()
		c.window.mu.Lock()
		defer c.window.mu.Unlock()
		require.Zero(t, c.window.out)
	})
}

// In a process that was stopped, the check for silence comes late, and what arrived is read first.
func TestAProcessThatWasStoppedReadsWhatArrivedBeforeThePeerCountsAsSilent(t *testing.T) {
	for name, answers := range map[string]bool{"the answer has arrived": true, "there is no answer": false} {
		testkit.Run(t, name, func(t *testing.T) {
			w, far := windowed(t)
			time.Sleep(time.Minute)
			w.ask(new(exchange))
			w.mu.Lock()
			w.owed = w.owed.Add(-45 * time.Second) // the clocks went on while nothing ran
			w.mu.Unlock()
			w.checkSilence()
			require.False(t, w.conn.Gone())
			began := time.Now()
			if answers {
				_, _ = far.Write([]byte{0, 0, 0, 8, 2, 0, 0, 0})
				time.Sleep(readTime + time.Second)
				require.False(t, w.conn.Gone())
				return
			}
			<-w.conn.Done()
			require.Equal(t, readTime, time.Since(began))
			require.Equal(t, errSilent, w.conn.Loss())
		})
	}
}
