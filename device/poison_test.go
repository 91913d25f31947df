package device_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
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

// results enqueues messages with the ids 0 to n-1 and returns their receipts.
func results(t *testing.T, c *device.Client, n int) []device.Receipt {
	all := make([]device.Receipt, n)
	for i := range all {
		require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: strconv.Itoa(i), Body: []byte("x")}, &all[i]))
	}
	return all
}

func TestAMessageThatEndsEachConnectionIsRefusedAndTheQueueGoesOn(t *testing.T) {
	for name, poisons := range map[string]map[string]bool{
		"first":                       {"0": true},
		"in the middle":               {"7": true},
		"second to last":              {"18": true},
		"two, one behind the other":   {"3": true, "4": true},
		"every other one of the last": {"13": true, "15": true, "17": true},
	} {
		run(t, name, func(t *testing.T) {
			c := opened(t, endsAt(func(id string) bool { return poisons[id] }), nil)
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
		})
	}
}

// A used-up quota ends the connection for any message.
func TestNoMessageIsRefusedWhileNoneGetsThrough(t *testing.T) {
	bubble(t, func(t *testing.T) {
		used := false
		f := endsAt(func(string) bool { return used })
		c := opened(t, f, nil)
		require.NoError(t, c.Send(t.Context(), &transport.Message{ID: "before", Body: []byte("x")}))
		used = true
		all := results(t, c, 20)
		time.Sleep(20 * time.Hour)
		require.EqualValues(t, 20, c.Stats().Queued)
		used = false
		require.NoError(t, c.Flush(t.Context()))
		for i := range all {
			require.NoError(t, all[i].Wait(t.Context()))
		}
	})
}

func TestAMessageWithoutAnotherOneBesideItIsSentAgainLikeAny(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, endsAt(func(id string) bool { return id == "0" }), nil)
		all := results(t, c, 1)
		time.Sleep(20 * time.Hour)
		require.EqualValues(t, 1, c.Stats().Queued)
		require.NoError(t, c.Send(t.Context(), &transport.Message{ID: "other", Body: []byte("x")}))
		require.ErrorIs(t, all[0].Wait(t.Context()), transport.Poison)
	})
}

// The connection is cut at fixed or random intervals, whatever is sent.
func TestACutLinkCostsNoMessage(t *testing.T) {
	for _, roundTrip := range []time.Duration{time.Millisecond, 50 * time.Millisecond, time.Second, 4 * time.Second} {
		for _, life := range []time.Duration{1, 2, 10, 21, 25, 40} {
			for _, random := range []bool{false, true} {
				life := life * roundTrip / 2
				t.Run("round trip "+roundTrip.String()+", life "+life.String()+map[bool]string{true: " at random"}[random],
					func(t *testing.T) {
						bubble(t, func(t *testing.T) { cutLink(t, roundTrip, life, random) })
					})
			}
		}
	}
}

func cutLink(t *testing.T, roundTrip, life time.Duration, random bool) {
	f := &fake{}
	var mended atomic.Bool
	draw := newDraws(7)
	f.dial = func(int, context.Context) error {
		if !mended.Load() {
			after := life
			if random {
				after = time.Duration(draw() % uint64(2*life))
			}
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
	c := started(t, f, nil)
	all := results(t, c, 50)
	time.Sleep(6 * time.Hour)
	mended.Store(true)
	require.NoError(t, c.Flush(t.Context()))
	for i := range all {
		require.NoError(t, all[i].Wait(t.Context()), i)
	}
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
