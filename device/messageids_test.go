package device_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/messageid"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// idRecorder records the message ids that sessions get, while they may use the messages.
type idRecorder struct {
	mu  sync.Mutex
	ids []string
}

func (r *idRecorder) verdict(answer func(n int) error) func(int, transport.Item) error {
	return func(_ int, item transport.Item) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ids = append(r.ids, item.Msg.ID)
		return answer(len(r.ids))
	}
}

func TestAMessageWithoutAnIDGetsOneThatItKeeps(t *testing.T) {
	for _, encodes := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			r := &idRecorder{}
			f := &fake{encodes: encodes, verdict: r.verdict(func(n int) error {
				switch n {
				case 1:
					return errHold // its connection is lost
				case 2:
					return refused(transport.Unavailable)
				}
				return nil
			})}
			c := opened(t, f, &device.Options{MessageIDPrefix: "p"})
			m := &transport.Message{Body: []byte("x")}
			var receipt device.Receipt
			require.NoError(t, c.Enqueue(t.Context(), m, &receipt))
			synctest.Wait()
			f.last().kill <- lost(transport.Network)
			require.NoError(t, receipt.Wait(t.Context()))
			require.NoError(t, c.Send(t.Context(), m), "the same message again is another message")
			own := &transport.Message{ID: "own"}
			require.NoError(t, c.Send(t.Context(), own))
			require.NoError(t, c.Send(t.Context(), m))
			require.Equal(t, []string{"p-1", "p-1", "p-1", "p-2", "own", "p-3"}, r.ids)
			require.Empty(t, m.ID, "the user's message stays as it was")
		})
	}
}

func TestMessageIDsOfTwoClientsDifferAndCanBeOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := &idRecorder{}
		for _, o := range []device.Options{{}, {}, {NoMessageIDs: true}, {NoMessageIDs: true, MessageIDPrefix: "p"}} {
			c := opened(t, &fake{verdict: r.verdict(func(int) error { return nil })}, &o)
			require.NoError(t, c.Send(t.Context(), &transport.Message{}))
		}
		require.True(t, strings.HasSuffix(r.ids[0], "-1"), r.ids[0])
		require.Len(t, r.ids[0], 10)
		require.NotEqual(t, r.ids[0], r.ids[1])
		require.Equal(t, []string{"", ""}, r.ids[2:])
	})
}

// An id must not make a message too large: for the hub, or over MQTT for a topic of 65,535 bytes,
// in which properties and id are.
func TestAMessageWithoutRoomForAnIDGetsNone(t *testing.T) {
	for _, m := range []*transport.Message{{Body: make([]byte, transport.MaxMessageSize)},
		{Properties: []transport.Property{{Name: "p", Value: strings.Repeat("x", 65_490)}}}} {
		bubble(t, func(t *testing.T) {
			r := &idRecorder{}
			c := opened(t, &fake{verdict: r.verdict(func(int) error { return nil })}, nil)
			require.NoError(t, c.Send(t.Context(), m))
			require.Equal(t, []string{""}, r.ids)
		})
	}
}

func TestAMessageIDPrefixThatNoProtocolCarries(t *testing.T) {
	for _, prefix := range []string{"a b", "a/b", strings.Repeat("x", 65)} {
		_, err := device.New(creds(), &fake{}, &device.Options{MessageIDPrefix: prefix})
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, "MessageIDPrefix")
	}
}

// The ids of 64 messages share one allocation, and the copies are reused. They hold the messages of
// the caller no longer than the session may read them.
func TestAMessageWithoutAnIDAllocatesNextToNothing(t *testing.T) {
	for _, encodes := range []bool{false, true} {
		over := &instant{info: transport.Info{Encodes: encodes}}
		c := made(t, creds(), over, nil)
		ctx := within(t, time.Minute)
		require.NoError(t, c.Open(ctx))
		m := &transport.Message{Body: []byte("x")}
		send := func() {
			if err := c.Send(ctx, m); err != nil {
				t.Fatal(err)
			}
		}
		for range 200 {
			send()
		}
		require.Less(t, testing.AllocsPerRun(6400, send), 0.1)
		require.NoError(t, c.Close())
		require.NotSame(t, m, over.last)
		require.Zero(t, *over.last)
	}
}

// holding is a transport whose sessions encode the messages, and acknowledge them when told to.
type holding struct {
	instant
	ids    []string
	tags   []uint16
	copies map[*transport.Message]bool
}

func (h *holding) Dial(_ context.Context, cfg *transport.Config) (transport.Session, error) {
	h.sink, h.info.Encodes, h.copies = cfg.Sink, true, map[*transport.Message]bool{}
	return h, nil
}

func (h *holding) Send(batch []transport.Item) {
	for _, it := range batch {
		h.ids, h.tags, h.copies[it.Msg] = append(h.ids, it.Msg.ID), append(h.tags, it.Tag), true
	}
}

// 64 messages are a batch.
func TestASessionThatEncodesSharesTheCopiesOfABatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &holding{}
		c := made(t, creds(), h, &device.Options{MessageIDPrefix: "p", Window: 256})
		m := &transport.Message{Body: []byte("x")}
		for range 200 {
			require.NoError(t, c.Enqueue(t.Context(), m, nil))
		}
		require.NoError(t, c.Open(t.Context()))
		synctest.Wait()
		source := messageid.NewSource("p")
		for _, id := range h.ids {
			require.Equal(t, source.Next(), id)
		}
		require.Len(t, h.ids, 200)
		require.Len(t, h.copies, 64)
		for own := range h.copies {
			require.Zero(t, *own)
		}
		for _, tag := range h.tags {
			h.sink.Done(tag, nil)
		}
		require.NoError(t, c.Flush(t.Context()))
		require.NoError(t, c.Close())
	})
}
