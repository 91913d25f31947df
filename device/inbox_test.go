package device_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// handled collects the messages that a handler got.
type handled struct {
	mu  sync.Mutex
	ids []string
}

func (h *handled) add(id string) {
	h.mu.Lock()
	h.ids = append(h.ids, id)
	h.mu.Unlock()
}

func (h *handled) list() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.ids...)
}

func TestMessagesAreHandledInOrderAndTheReturnValueSettles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handled{}
		f := &fake{}
		c, _ := client(t, f, nil)
		c.HandleMessages(func(_ context.Context, m *transport.Message) error {
			require.Equal(t, "body of "+m.ID, string(m.Body))
			h.add(m.ID)
			switch m.ID {
			case "2":
				return errors.New("not now")
			case "3":
				return fmt.Errorf("nonsense: %w", device.ErrReject)
			case "4":
				panic("boom")
			}
			return nil
		})
		open(t, c)
		for i := range 6 {
			require.True(t, f.last().deliver(strconv.Itoa(i+1)))
		}
		synctest.Wait()
		require.Equal(t, ids(1, 6), h.list())
		require.Equal(t, []settled{{1, "1", transport.OutcomeAccept}, {1, "2", transport.OutcomeRelease},
			{1, "3", transport.OutcomeReject}, {1,
				"4", transport.OutcomeRelease},
			{1, "5", transport.OutcomeAccept}, {1, "6", transport.OutcomeAccept}}, f.verdicts())
		s := c.Stats()
		require.Equal(t, []uint64{6, 3, 2, 1, 1}, []uint64{s.Received, s.MessagesAccepted, s.MessagesReleased,
			s.MessagesRejected, s.HandlerPanics})
	})
}

// A broker may send messages of an earlier program's subscription. Without a verdict they would
// fill the place of those that the handler waits for.
func TestMessagesThatNoSubscriptionAsksForAreAcceptedWithoutTheHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handled{}
		f := &fake{}
		reports := make(chan error, 10)
		c, _ := client(t, f, &device.Options{Trace: &device.Trace{HandlerPanic: func(v any) { reports <- v.(error) }}})
		c.HandleMessages(func(_ context.Context, m *transport.Message) error {
			h.add(m.ID)
			return errors.New("not now")
		})
		open(t, c)
		require.True(t, f.last().deliver("1"))
		require.True(t, f.last().deliverUnasked("2"))
		require.True(t, f.last().deliver("3"))
		synctest.Wait()
		report := <-reports
		require.ErrorIs(t, report, transport.NotFound)
		require.ErrorContains(t, report, `a message on topic "old/2" went to no handler`)
		require.Empty(t, reports)
		require.Equal(t, []string{"1", "3"}, h.list())
		require.Equal(t, []settled{{1, "1", transport.OutcomeRelease}, {1, "2", transport.OutcomeAccept},
			{1, "3", transport.OutcomeRelease}},
			f.verdicts())
		s := c.Stats()
		require.Equal(t, []uint64{2, 0, 2}, []uint64{s.Received, s.MessagesAccepted, s.MessagesReleased})
	})
}

// Those without a reference need no room, and those of a minute, or that come while the handler
// runs, are reported together. None waits for a handler, and none allocates memory.
func TestMessagesThatNoSubscriptionAsksForAreReported(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		var reports []string
		c, _ := client(t, f, &device.Options{Inbox: 1, Trace: &device.Trace{HandlerPanic: func(v any) {
			reports = append(reports, v.(error).Error())
			runtime.Goexit()
		}}})
		c.HandleMessages(func(context.Context, *transport.Message) error {
			time.Sleep(time.Second)
			return nil
		})
		open(t, c)
		require.True(t, f.last().deliver("1"))
		synctest.Wait()
		sink := f.last().cfg.Sink
		d := transport.Delivery{Name: []byte(strings.Repeat("x/", 1<<15)), Msg: new(transport.Message)}
		require.Zero(t, testing.AllocsPerRun(999, func() { sink.Deliver(&d) }))
		require.False(t, f.last().deliver("2"))
		time.Sleep(time.Minute)
		c.HandleMessages(nil)
		require.True(t, f.last().deliverUnasked(""))
		require.True(t, f.last().deliverUnasked("3"))
		time.Sleep(time.Minute)
		require.True(t, f.last().deliverUnasked("4"))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, []settled{{1, "1", transport.OutcomeAccept}, {1, "3", transport.OutcomeAccept},
			{1, "4", transport.OutcomeAccept}}, f.verdicts())
		require.Len(t, reports, 3)
		for i, text := range []string{`1000 messages, the first on topic "x/x/`, `2 messages, the first on topic "old/"`,
			`a message on topic "old/4"`} {
			require.Contains(t, reports[i], text)
		}
		require.EqualValues(t, 3, c.Stats().HandlerPanics)
	})
}

// Messages that no subscription asks for, and that come faster than they are reported, do not keep
// wanted ones from the handler.
func TestReportsHoldUpNoMessage(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		h, reports := &handled{}, 0
		c, _ := client(t, f, &device.Options{Inbox: 1, Trace: &device.Trace{HandlerPanic: func(any) {
			reports++
			time.Sleep(time.Second)
			f.last().deliverUnasked("")
		}}})
		c.HandleMessages(func(_ context.Context, m *transport.Message) error {
			h.add(m.ID)
			return nil
		})
		open(t, c)
		require.True(t, f.last().deliverUnasked(""))
		require.True(t, f.last().deliver("1"))
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"1"}, h.list())
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.LessOrEqual(t, reports, 10)
	})
}

// A message that is larger than the session takes is rejected without the handler, and reported.
func TestAMessageThatIsTooLargeIsRejectedAndReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handled{}
		f := &fake{}
		var reports []error
		verdicts := 0
		c, _ := client(t, f, &device.Options{Trace: &device.Trace{
			HandlerPanic: func(v any) { reports = append(reports, v.(error)) },
			Settled:      func(transport.Outcome) { verdicts++ }}})
		c.HandleMessages(func(_ context.Context, m *transport.Message) error {
			h.add(m.ID)
			return nil
		})
		open(t, c)
		for _, row := range [][2]string{{"1", "down/\xff"}, // and QoS 0:
			{"", "down?sig=c2VjcmV0c2VjcmV0&" + strings.Repeat("/x", 600)}} {
			require.True(t, f.last().cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureMessages, Ref: []byte(row[0]),
				Name: []byte(row[1])}))
		}
		require.True(t, f.last().deliver("2"))
		synctest.Wait()
		require.Equal(t, []string{"2"}, h.list())
		require.Equal(t, []settled{{1, "1", transport.OutcomeReject}, {1, "2", transport.OutcomeAccept}}, f.verdicts())
		s := c.Stats()
		require.Equal(t, []uint64{3, 1, 2, 2}, []uint64{s.Received, s.MessagesAccepted, s.MessagesRejected,
			s.HandlerPanics})
		require.Equal(t, 1, verdicts)
		require.Len(t, reports, 2)
		require.ErrorIs(t, reports[0], transport.TooLarge)
		require.ErrorContains(t, reports[0], `topic "down/\xff" is larger than the transport takes`)
		require.ErrorContains(t, reports[1], `topic "down?sig=(hidden)&/x/x`)
		require.Less(t, len(reports[1].Error()), 1200)
	})
}

// Messages with QoS 0 have no reference, so DUP, which a broker must not set in them, says nothing.
func TestMessagesWithoutAReferenceAreNotTakenForOneAnother(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		handled, verdicts := 0, 0
		c, _ := client(t, f, &device.Options{Trace: &device.Trace{Settled: func(transport.Outcome) { verdicts++ }}})
		c.HandleMessages(func(context.Context, *transport.Message) error {
			time.Sleep(time.Second)
			handled++
			return nil
		})
		open(t, c)
		for range 3 {
			require.True(t, f.last().cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureMessages, Redelivered: true,
				Msg: new(transport.Message)}))
		}
		time.Sleep(time.Minute)
		synctest.Wait() // for the race detector
		require.Equal(t, []int{3, 3}, []int{handled, verdicts})
	})
}

// A handler that takes an hour delays neither sending nor the settlement of earlier messages.
// Messages without a free slot stay with the hub.
func TestASlowHandlerHoldsUpNothingElse(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, _ := client(t, f, &device.Options{Inbox: 3})
		c.HandleMessages(func(_ context.Context, m *transport.Message) error {
			if m.ID == "2" {
				time.Sleep(time.Hour)
			}
			return nil
		})
		open(t, c)
		require.True(t, f.last().deliver("1"))
		synctest.Wait()
		require.Len(t, f.verdicts(), 1)
		for _, id := range ids(2, 4) {
			require.True(t, f.last().deliver(id))
		}
		require.False(t, f.last().deliver("5"), "no room")
		start := time.Now()
		require.NoError(t, c.Send(t.Context(), msg(1)))
		require.Zero(t, time.Since(start))
		time.Sleep(2 * time.Hour)
		require.Len(t, f.verdicts(), 4)
		require.True(t, f.last().deliver("5"))
	})
}

// Deliveries of a lost session are void. Waiting ones are discarded, and a late verdict is not
// passed to the next session, where the same reference may name another message.
func TestDeliveriesOfALostSessionAreVoid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handled{}
		f := &fake{}
		c, _ := client(t, f, nil)
		c.HandleMessages(func(_ context.Context, m *transport.Message) error {
			h.add(m.ID)
			if m.ID == "slow" {
				time.Sleep(time.Minute)
			}
			return nil
		})
		open(t, c)
		f.last().deliver("slow")
		f.last().deliver("waiting")
		synctest.Wait()
		f.lose(transport.Network, time.Second)
		require.Equal(t, device.StateConnected, c.Status().State)
		f.last().deliver("slow 2")
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"slow", "slow 2"}, h.list())
		require.Equal(t, []settled{{2, "slow 2", transport.OutcomeAccept}}, f.verdicts())
	})
}

// Deliveries with Once outlive their session: waiting ones are handled, a late verdict goes to the
// next session, and a repetition does not come to the handler.
func TestDeliveriesWithOnceOutliveTheirSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handled{}
		f := &fake{dial: func(n int, ctx context.Context) error {
			if n != 3 {
				return nil
			}
			time.Sleep(2 * time.Minute)
			return lost(transport.Network)
		}}
		c, _ := client(t, f, &device.Options{Inbox: 5, DialTimeout: time.Hour})
		c.HandleMessages(func(_ context.Context, m *transport.Message) error {
			h.add(m.ID)
			if m.ID == "slow" || m.ID == "slow too" {
				time.Sleep(time.Minute)
			}
			return nil
		})
		open(t, c)
		s := f.last()
		require.True(t, s.deliverOnce("slow", false))
		require.True(t, s.deliver("discarded"))
		require.True(t, s.deliverOnce("waiting", false))
		require.True(t, s.deliver("discarded, too"))
		synctest.Wait()
		s.kill <- lost(transport.Network)
		time.Sleep(time.Second)
		require.Equal(t, device.StateConnected, c.Status().State)
		s = f.last()
		require.True(t, s.deliverOnce("slow", true))
		require.True(t, s.deliverOnce("waiting", true))
		for _, ref := range []string{"a", "b", "c"} {
			require.True(t, s.deliver(ref))
		}
		require.False(t, s.deliver("d"), "the five places are taken")
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"slow", "waiting", "a", "b", "c"}, h.list())
		require.Equal(t, []settled{{2, "slow", transport.OutcomeAccept}, {2, "waiting", transport.OutcomeAccept}, {2, "a",
			transport.OutcomeAccept}, {2, "b", transport.OutcomeAccept}, {2, "c", transport.OutcomeAccept}}, f.verdicts())

		// a verdict that comes while there is no connection waits for one
		require.True(t, s.deliverOnce("slow too", false))
		synctest.Wait()
		s.kill <- lost(transport.Network)
		time.Sleep(5 * time.Minute)
		require.Len(t, f.verdicts(), 6)
		require.Equal(t, settled{4, "slow too", transport.OutcomeAccept}, f.verdicts()[5])
	})
}

// A delivery without Once is with the handler when its session ends, and one with Once waits.
func TestADeliveryWithOnceWaitsBehindOneOfALostSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handled{}
		f := &fake{}
		c, _ := client(t, f, nil)
		c.HandleMessages(func(_ context.Context, m *transport.Message) error {
			if h.add(m.ID); m.ID == "slow" {
				time.Sleep(time.Minute)
			}
			return nil
		})
		open(t, c)
		require.True(t, f.last().deliver("slow"))
		require.True(t, f.last().deliverOnce("waiting", false))
		synctest.Wait()
		f.lose(transport.Network, 2*time.Minute)
		require.Equal(t, []string{"slow", "waiting"}, h.list())
		require.Equal(t, []settled{{2, "waiting", transport.OutcomeAccept}}, f.verdicts())
	})
}

// Connected means subscribed, on every connection.
func TestConnectedMeansSubscribed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		subscribed := 0
		f := &fake{}
		f.subscribe = func(conn int) error {
			switch conn {
			case 1:
				return refused(transport.Unavailable)
			case 2:
				return errHold
			}
			subscribed++
			return nil
		}
		states := &watch{}
		c, _ := client(t, f, &device.Options{
			DialTimeout: 10 * time.Second,
			OnStatus: func(s device.Status) {
				if s.State == device.StateConnected && subscribed == 0 {
					t.Error("connected before the subscription")
				}
				states.add(s)
			},
		})
		start := time.Now()
		c.HandleMessages(accept)
		open(t, c)
		require.Equal(t, 10*time.Second+250*ms, time.Since(start), "refused, 100 ms, no answer for 10 s, 150 ms, granted")
		f.lose(transport.Network, time.Second)
		require.Equal(t, device.StateConnected, c.Status().State)
		require.Equal(t, 2, subscribed)
		require.ErrorIs(t, states.list()[1].Err, transport.Unavailable)
		require.Equal(t, transport.ScopeConnection, transport.Find(states.list()[1].Err).Scope)
		require.ErrorIs(t, states.list()[3].Err, transport.Timeout)
	})
}

func TestCloseEndsTheHandlersContextAndWaitsForIt(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		ended := false
		c, _ := client(t, f, nil)
		c.HandleMessages(func(ctx context.Context, _ *transport.Message) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
			return nil
		})
		open(t, c)
		f.last().deliver("1")
		f.last().deliver("2")
		synctest.Wait()
		start := time.Now()
		require.NoError(t, c.Close())
		require.Equal(t, time.Second, time.Since(start))
		require.True(t, ended)
		require.Equal(t, uint64(1), c.Stats().MessagesReleased+c.Stats().MessagesAccepted, "the second was not begun")
		require.Equal(t, []settled{{1, "1", transport.OutcomeAccept}}, f.verdicts())
	})
}
