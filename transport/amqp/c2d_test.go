package amqp_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// The C2D link is attached again at once after the loss of the link or its session, and unsettled
// messages are delivered again.
func TestALostC2DLinkIsAttachedAgain(t *testing.T) {
	for name, lose := range map[string]func(h *hub){
		"link": func(h *hub) {
			h.DetachLinks("dev-1", fault.LinkC2D, hubdata.AMQPError{Condition: "amqp:link:detach-forced"})
		},
		"session": func(h *hub) { h.EndSessions("dev-1", hubdata.AMQPError{}) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				r := h.dev1(t, h.options())
				r.subscribe(1)
				require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("down")}))
				time.Sleep(10 * time.Second)
				lose(h)
				time.Sleep(time.Second)
				require.Equal(t, []string{"down", "down"}, r.sink.Bodies())
				synctest.Wait()
				require.Equal(t, []bool{false, true}, r.sink.Redelivered)
				r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.Ref(0)}) // of the lost link
				synctest.Wait()
				require.Zero(t, h.CountC2D("dev-1", hubdata.C2DCompleted))
				r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.Ref(1)})
				synctest.Wait()
				require.Equal(t, 1, h.CountC2D("dev-1", hubdata.C2DCompleted))
				require.EqualValues(t, 1, h.dials.Load())
			})
		})
	}
}

// A link that is lost right after its attach ends the session; the retry policy sets the delay.
func TestAC2DLinkThatIsLostAtOnceEndsTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		h.inject(fault.Fault{Kind: fault.DetachWhileIdle, Link: fault.LinkC2D, Delay: time.Second,
			Condition: "amqp:internal-error"})
		r.subscribe(1)
		r.requireEnd(transport.Unavailable)
	})
}

// The hub's lock expires while a message waits for its handler: the message is handled once, and
// the late disposition settles it.
func TestARedeliveredMessageIsSettledOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		r.subscribe(1)
		for _, body := range []string{"a", "b", "c"} {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte(body)}))
		}
		time.Sleep(5*time.Minute + 10*time.Second)
		require.Greater(t, h.C2DLog("dev-1")[0].Deliveries, 3)
		require.Equal(t, []string{"a", "b", "c"}, r.sink.Bodies())
		for i, o := range []transport.Outcome{transport.OutcomeAccept, transport.OutcomeReject, transport.OutcomeAccept} {
			r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.Ref(i), Outcome: o})
		}
		synctest.Wait()
		require.Equal(t, 2, h.CountC2D("dev-1", hubdata.C2DCompleted))
		require.Equal(t, 1, h.CountC2D("dev-1", hubdata.C2DRejected))
	})
}

// The hub delivers messages again after their locks expired, and the session ends before it has
// handled the second deliveries. They are left to the next session.
func TestARedeliveryWhileTheSessionEnds(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		held, release := make(chan struct{}), make(chan struct{})
		r.sink.Set(func(k *sink) {
			k.Hold = func(body string) {
				if body == "b" && len(k.Bodies()) == 1 {
					close(held)
					<-release
				}
			}
		})
		r.subscribe(1)
		for _, body := range []string{"a", "b"} {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte(body)}))
		}
		<-held // the reading goroutine is blocked
		time.Sleep(70 * time.Second)
		require.Equal(t, 2, h.C2DLog("dev-1")[0].Deliveries, "the lock has not run out")
		r.cancel()
		synctest.Wait()
		close(release)
		<-r.over
		require.Equal(t, []string{"a", "b"}, r.sink.Bodies())
	})
}

// The number of unsettled messages never exceeds the capacity of the sink.
func TestCreditBoundsUnsettledMessages(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		r.subscribe(1)
		for range 20 {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("x")}))
		}
		time.Sleep(time.Second)
		require.Len(t, r.sink.Bodies(), 8)
		for i := range 20 {
			time.Sleep(time.Millisecond)
			r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.sink.Ref(i)})
			synctest.Wait()
		}
		require.Equal(t, 20, h.CountC2D("dev-1", hubdata.C2DCompleted))
	})
}

// A message that the sink declined is released after a while, and delivered again.
func TestADeclinedMessageIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		r.subscribe(1)
		r.sink.Set(func(k *sink) { k.Refuse = true })
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("x")}))
		time.Sleep(17 * time.Second)
		require.Len(t, r.sink.Bodies(), 4)
	})
}

// Refs that belong to no delivery are ignored.
func TestUnknownRefsAreIgnored(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := start(t, amqp.New(h.options()), h.CredsWith(t, ""))
		for _, ref := range [][]byte{nil, {1}, {0, 0, 0, 9}, make([]byte, 16)} {
			r.Do(&transport.Request{Op: transport.OpSettle, Ref: ref})
		}
		r.requireSends("x")
	})
}
