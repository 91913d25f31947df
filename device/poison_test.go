package device_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// endsAt makes sessions end, after a round trip, at messages that poison names.
func endsAt(poison func(id string) bool) *fake {
	f := &fake{}
	f.verdict = func(_ int, it transport.Item) error {
		s := f.last()
		switch {
		case s.broken:
			return errHold
		case poison(it.Msg.ID):
			s.broken = true
			time.AfterFunc(20*time.Millisecond, func() { s.kill <- lost(transport.Network) })
			return errHold
		}
		return nil
	}
	return f
}

// detachesAt makes sessions lose the link for messages, after a round trip, at those that poison
// names. The next message has another link.
func detachesAt(poison func(id string) bool) *fake {
	f := &fake{}
	var mu sync.Mutex
	var held []uint16 // in flight on a link that ends
	f.verdict = func(_ int, it transport.Item) error {
		mu.Lock()
		defer mu.Unlock()
		if len(held) == 0 {
			if !poison(it.Msg.ID) {
				return nil
			}
			time.AfterFunc(20*time.Millisecond, func() {
				mu.Lock()
				tags := held
				held = nil
				mu.Unlock()
				for _, tag := range tags {
					f.last().cfg.Sink.Done(tag, linkLost(transport.Network))
				}
			})
		}
		held = append(held, it.Tag)
		return errHold
	}
	return f
}

// linkLost returns the error of a message that was in flight on a link that was lost.
func linkLost(k transport.Kind) error {
	return operr.OutcomeUnknown(&transport.Error{Kind: transport.Unavailable, Op: transport.OpSend, Err: lost(k)})
}

// results enqueues messages with the ids 0 to n-1 and returns their receipts.
func results(t *testing.T, c *device.Client, n int) []device.Receipt {
	all := make([]device.Receipt, n)
	for i := range all {
		require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: strconv.Itoa(i), Body: []byte("x")}, &all[i]))
	}
	return all
}

// parts are what a peer ends at a message.
var parts = map[string]func(poison func(id string) bool) *fake{"connection": endsAt, "link": detachesAt}

func TestAMessageThatEndsEachConnectionIsRefusedAndTheQueueGoesOn(t *testing.T) {
	for name, poisons := range map[string]map[string]bool{
		"first":                       {"0": true},
		"in the middle":               {"7": true},
		"second to last":              {"18": true},
		"two, one behind the other":   {"3": true, "4": true},
		"every other one of the last": {"13": true, "15": true, "17": true},
	} {
		for part, ends := range parts {
			run(t, part+", "+name, func(t *testing.T) {
				c := opened(t, ends(func(id string) bool { return poisons[id] }), nil)
				all := results(t, c, 20)
				ctx := within(t, time.Hour)
				require.NoError(t, c.Flush(ctx))
				for i := range all {
					err := all[i].Wait(t.Context())
					if !poisons[strconv.Itoa(i)] {
						require.NoError(t, err, i)
						continue
					}
					require.ErrorIs(t, err, transport.Poison, i)
					require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
					require.False(t, errors.Is(err, transport.Network), "it is not retried elsewhere")
					require.ErrorContains(t, err, "connections in a row for this message")
				}
				require.EqualValues(t, len(poisons), c.Stats().Refused)
				if part == "link" {
					require.EqualValues(t, 1, c.Stats().Connections)
				}
			})
		}
	}
}

// A hub that puts off each other message on each connection does not hide the one that ends it.
func TestARefusalOfAnotherMessageHidesNoPoison(t *testing.T) {
	run(t, "", func(t *testing.T) {
		f := endsAt(func(id string) bool { return id == "0" })
		ends, last, refusals := f.verdict, (*fakeSession)(nil), 0
		f.verdict = func(n int, it transport.Item) error {
			s := f.last()
			if it.Msg.ID != "0" && !s.broken && s != last {
				last = s
				refusals++
				return refused(transport.Unavailable)
			}
			return ends(n, it)
		}
		c := opened(t, f, nil)
		all := results(t, c, 5)
		require.NoError(t, c.Flush(within(t, time.Hour)))
		require.ErrorIs(t, all[0].Wait(t.Context()), transport.Poison)
		require.NotZero(t, refusals)
	})
}

// A used-up quota ends the connection for any message.
func TestNoMessageIsRefusedWhileNoneGetsThrough(t *testing.T) {
	for part, ends := range parts {
		run(t, part, func(t *testing.T) {
			var used atomic.Bool
			c := opened(t, ends(func(string) bool { return used.Load() }), nil)
			require.NoError(t, c.Send(t.Context(), &transport.Message{ID: "before", Body: []byte("x")}))
			used.Store(true)
			all := results(t, c, 20)
			time.Sleep(20 * time.Hour)
			require.EqualValues(t, 20, c.Stats().Queued)
			used.Store(false)
			require.NoError(t, c.Flush(t.Context()))
			for i := range all {
				require.NoError(t, all[i].Wait(t.Context()))
			}
		})
	}
}

// A message with QoS 0 has its result when it was written. That is no answer of the hub.
func TestMessagesWithQoS0ProveNothing(t *testing.T) {
	written := &transport.Message{Body: []byte("w"), AtMostOnce: true}
	run(t, "a quota is used up", func(t *testing.T) {
		c := opened(t, endsAt(func(string) bool { return true }), nil)
		all := results(t, c, 5)
		for range 20 * 60 {
			require.NoError(t, c.Enqueue(t.Context(), written, nil))
			time.Sleep(time.Minute)
		}
		require.EqualValues(t, len(all), c.Stats().Queued)
		require.Zero(t, c.Stats().Refused)
	})
	run(t, "a message ends each connection", func(t *testing.T) {
		f := endsAt(func(id string) bool { return id == "0" })
		c := opened(t, f, nil)
		all := results(t, c, 1)
		for i := range 20 * 60 * 20 {
			require.NoError(t, c.Enqueue(t.Context(), written, nil))
			if i%1000 == 0 {
				require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: "other", Body: []byte("x")}, nil))
			}
			time.Sleep(50 * time.Millisecond)
		}
		require.EqualValues(t, 1, c.Stats().Refused)
		require.ErrorIs(t, all[0].Wait(t.Context()), transport.Poison)
	})
	run(t, "the connection is no success", func(t *testing.T) {
		connected, sent := 0, 0
		counts := func(n *int) retrypolicy.Policy {
			return hooked{Policy: constant(time.Second), report: func(retrypolicy.Verdict, retrypolicy.Attempt) { *n++ }}
		}
		c := opened(t, &fake{verdict: func(int, transport.Item) error { return errHold }}, &device.Options{
			RetryPolicy: counts(&connected), MessagePolicy: counts(&sent), StableTime: 10 * time.Second})
		time.Sleep(time.Second)
		require.NoError(t, c.Enqueue(t.Context(), written, nil))
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		time.Sleep(20 * time.Second)
		require.EqualValues(t, 1, c.Stats().Acknowledged)
		require.Equal(t, 1, sent, "it has no other result")
		require.Zero(t, connected, "a hub that answers nothing")
	})
}

func TestAMessageWithoutAnotherOneBesideItIsSentAgainLikeAny(t *testing.T) {
	for part, ends := range parts {
		run(t, part, func(t *testing.T) {
			c := opened(t, ends(func(id string) bool { return id == "0" }), nil)
			all := results(t, c, 1)
			time.Sleep(20 * time.Hour)
			require.EqualValues(t, 1, c.Stats().Queued)
			require.NoError(t, c.Send(t.Context(), &transport.Message{ID: "other", Body: []byte("x")}))
			require.ErrorIs(t, all[0].Wait(t.Context()), transport.Poison)
		})
	}
}

// The connection, or the link for messages, is cut at fixed or random intervals, whatever is sent.
func TestACutLinkCostsNoMessage(t *testing.T) {
	for _, roundTrip := range []time.Duration{time.Millisecond, 50 * time.Millisecond, time.Second, 4 * time.Second} {
		for _, life := range []time.Duration{1, 2, 10, 21, 25, 40} {
			for _, random := range []bool{false, true} {
				life := life * roundTrip / 2
				name := "round trip " + roundTrip.String() + ", life " + life.String() + map[bool]string{true: " at random"}[random]
				run(t, name, func(t *testing.T) { cutLink(t, cutConnections, roundTrip, life, random) })
				run(t, "link, "+name, func(t *testing.T) { cutLink(t, cutLinks, roundTrip, life, random) })
			}
		}
	}
}

// cutLink sends messages over what cut returns. It is cut after the time that draw returns, if that
// is not 0.
func cutLink(t *testing.T, cut func(roundTrip time.Duration, draw func() time.Duration) *fake,
	roundTrip, life time.Duration, random bool) {
	var mended atomic.Bool
	numbers := newDraws(7)
	c := started(t, cut(roundTrip, func() time.Duration {
		switch {
		case mended.Load():
			return 0
		case random:
			return 1 + time.Duration(numbers()%uint64(2*life))
		}
		return life
	}), nil)
	all := results(t, c, 50)
	long := time.Hour
	if testkit.Long() {
		long = 6 * time.Hour
	}
	time.Sleep(long)
	mended.Store(true)
	require.NoError(t, c.Flush(t.Context()))
	for i := range all {
		require.NoError(t, all[i].Wait(t.Context()), i)
	}
}

func cutConnections(roundTrip time.Duration, draw func() time.Duration) *fake {
	f := &fake{}
	f.dial = func(int, context.Context) error {
		if after := draw(); after > 0 {
			time.AfterFunc(after, func() { f.last().kill <- lost(transport.Network) })
		}
		return nil
	}
	f.verdict = func(_ int, it transport.Item) error {
		s := f.last()
		time.AfterFunc(roundTrip, func() {
			select {
			case <-s.dead:
			default:
				s.cfg.Sink.Done(it.Tag, nil)
			}
		})
		return errHold
	}
	return f
}

// cutLinks attaches a link for the first message, and the next one when messages were lost with it.
// One that is lost while idle is attached again for the next message.
func cutLinks(roundTrip time.Duration, draw func() time.Duration) *fake {
	f := &fake{}
	var mu sync.Mutex
	type part struct {
		tags []uint16 // in flight
		cut  bool
	}
	link := &part{cut: true}
	var attach func(awaited bool)
	attach = func(awaited bool) {
		own := new(part)
		link = own
		after := draw()
		if after == 0 {
			return
		}
		time.AfterFunc(after, func() {
			mu.Lock()
			own.cut = true
			if len(own.tags) > 0 {
				attach(false)
			}
			mu.Unlock()
			err := linkLost(transport.Network)
			if awaited {
				err = operr.OutcomeUnknown(refused(transport.Unavailable))
			}
			for _, tag := range own.tags {
				f.last().cfg.Sink.Done(tag, err)
			}
		})
	}
	f.verdict = func(_ int, it transport.Item) error {
		mu.Lock()
		defer mu.Unlock()
		if link.cut {
			attach(true)
		}
		own := link
		own.tags = append(own.tags, it.Tag)
		time.AfterFunc(roundTrip, func() {
			mu.Lock()
			defer mu.Unlock()
			if !own.cut {
				own.tags = slices.DeleteFunc(own.tags, func(tag uint16) bool { return tag == it.Tag })
				f.last().cfg.Sink.Done(it.Tag, nil)
			}
		})
		return errHold
	}
	return f
}

// newDraws returns a reproducible source of random numbers (splitmix64).
func newDraws(seed uint64) func() uint64 {
	return func() uint64 {
		seed += 0x9e3779b97f4a7c15
		z := (seed ^ seed>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
}

// A trial sends nothing for a while, so a loss then does not acquit the message in the status.
func TestALossBeforeTheTrialOfAMessageDoesNotChangeTheSuspect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := endsAt(func(string) bool { return true })
		c := opened(t, f, nil)
		require.NoError(t, c.Enqueue(t.Context(), &transport.Message{Body: make([]byte, 100<<10)}, nil))
		wait := func(state device.State, flaps int) device.Status {
			for {
				if s := c.Status(); s.State == state && s.Flaps >= flaps {
					return s
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		require.Equal(t, device.SuspectBadMessage, wait(device.StateConnected, 3).Suspect)
		f.last().kill <- lost(transport.Network)
		s := wait(device.StateDisconnectedRetrying, 4)
		require.Equal(t, device.SuspectBadMessage, s.Suspect)
	})
}
