package amqp_test

import (
	"bytes"
	"context"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

const everything = transport.FeatureMessages | transport.FeatureTwin | transport.FeatureDesired |
	transport.FeatureMethods

// Lost links for the twin are attached again, and a delivery says that changes may have been
// missed.
func TestTwinLinksThatAreLost(t *testing.T) {
	for _, kind := range []fault.LinkKind{fault.LinkTwinSender, fault.LinkTwinReceiver} {
		t.Run(kind.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				r := h.dev1(t, h.options())
				require.NoError(t, r.ask(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: everything}).Err)
				require.Equal(t, 200, r.ask(&transport.Request{ID: 16, Op: transport.OpTwinGet}).Status)
				time.Sleep(10 * time.Second)
				require.Equal(t, 1, h.DetachLinks("dev-1", kind, hubdata.AMQPError{Condition: "amqp:internal-error"}))
				time.Sleep(time.Second)
				time.Sleep(time.Second)
				require.Equal(t, []string{"{}"}, r.sink.Bodies(), "changes may have been missed")
				reply := r.ask(&transport.Request{ID: 18, Op: transport.OpTwinPatch, Body: []byte(`{"a":1}`)})
				require.NoError(t, reply.Err)
				require.EqualValues(t, 2, reply.Version)
				h.PatchDesired(`{"n":1}`)
				synctest.Wait()
				require.Len(t, r.sink.Bodies(), 2)
				require.EqualValues(t, 1, h.dials.Load())
				r.requireSends("telemetry was not disturbed")
			})
		})
	}
}

// Lost links for methods are attached again.
func TestMethodLinksThatAreLost(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		require.NoError(t, r.ask(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMethods}).Err)
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, h.DetachLinks("dev-1", fault.LinkMethodReceiver, hubdata.AMQPError{}))
		time.Sleep(time.Second)
		done := make(chan int, 1)
		go func() {
			status, _, err := h.Call("x", "{}")
			require.NoError(t, err)
			done <- status
		}()
		synctest.Wait()
		require.Equal(t, []string{"{}"}, r.sink.Bodies())
		r.Do(&transport.Request{Op: transport.OpRespond, Ref: r.sink.Refs[0], Status: 207})
		require.Equal(t, 207, <-done)
		require.EqualValues(t, 1, h.dials.Load())
	})
}

// A method answer that was passed to Do just before the end of the session is sent: the method may
// have caused the end.
func TestAMethodAnswerIsSentBeforeClose(t *testing.T) {
	for name, make := range map[string]func(*amqp.Options) transport.Transport{
		"alone":  func(o *amqp.Options) transport.Transport { return amqp.New(o) },
		"shared": func(o *amqp.Options) transport.Transport { return amqp.NewMux(o) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				r := start(t, make(h.options()), h.CredsWith(t, ""))
				require.NoError(t, r.ask(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMethods}).Err)
				statuses := new(atomic.Int64)
				for range 3 {
					go func() {
						status, _, err := h.Call("x", "{}")
						if err == nil {
							statuses.Add(int64(status))
						}
					}()
				}
				synctest.Wait()
				for i := range 3 {
					r.Do(&transport.Request{Op: transport.OpRespond, Ref: r.sink.Ref(i), Status: 200})
				}
				r.cancel()
				<-r.over
				synctest.Wait()
				require.EqualValues(t, 600, statuses.Load())
			})
		})
	}
}

// A method answer is dropped when the network accepts no data.
func TestAMethodAnswerWithoutCredit(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		require.NoError(t, r.ask(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMethods}).Err)
		go h.Call("x", "{}")
		synctest.Wait()
		h.inject(fault.Fault{Kind: fault.HalfOpen})
		large := append(append([]byte{'"'}, bytes.Repeat([]byte{'x'}, 100<<10)...), '"')
		for range 40 { // more than the network buffers
			r.Do(&transport.Request{Op: transport.OpRespond, Ref: r.sink.Ref(0), Status: 200, Body: large})
		}
		synctest.Wait()
		began := time.Now()
		r.cancel()
		<-r.over
		require.Less(t, time.Since(began), time.Second)
	})
}

// Links that are lost right after each attach are not attached for ever: the session ends, and the
// device waits as its policy says.
func TestTwinLinksThatAreLostAtOnceEndTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		require.NoError(t, r.ask(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureTwin}).Err)
		h.DetachLinks("dev-1", fault.LinkTwinReceiver, hubdata.AMQPError{Condition: "amqp:internal-error"})
		r.requireEnd(transport.Unavailable)
	})
}

// A request whose link is refused gets a reply, and so does the next one.
func TestTwinLinksThatAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		in := h.inject(fault.Fault{Kind: fault.RefuseAttach, Times: 2, Condition: "amqp:resource-limit-exceeded"})
		for id := range uint32(2) {
			reply := r.ask(&transport.Request{ID: 16 + id, Op: transport.OpTwinGet})
			require.ErrorIs(t, reply.Err, transport.Quota)
			require.Equal(t, transport.OpTwinGet, transport.Find(reply.Err).Op)
		}
		require.Equal(t, 2, in.Fired())
		require.NoError(t, r.ask(&transport.Request{ID: 20, Op: transport.OpTwinGet}).Err)
	})
}

func TestErrorsOfTwinRequests(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		h.inject(fault.Fault{Kind: fault.RefuseTwin, RetryAfter: 7 * time.Second})
		e := transport.Find(r.ask(&transport.Request{ID: 16, Op: transport.OpTwinGet}).Err)
		require.Equal(t, transport.Throttled, e.Kind)
		require.Equal(t, 7*time.Second, e.RetryAfter)
		h.inject(fault.Fault{Kind: fault.MisnameTwin})
		r.Do(&transport.Request{ID: 17, Op: transport.OpTwinGet})
		h.inject(fault.Fault{Kind: fault.DuplicateTwin})
		require.NoError(t, r.ask(&transport.Request{ID: 18, Op: transport.OpTwinGet}).Err)
		require.NoError(t, r.ask(&transport.Request{ID: 19, Op: transport.OpTwinPatch,
			Body: []byte(`{"a":"` + strings.Repeat("x", 4000) + `"}`)}).Err)
	})
}

// Devices on a shared connection have separate twins.
func TestTwinsOnASharedConnection(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		all := fleet(t, h, amqp.NewMux(h.options()), 2)
		defer each(all, func(_ int, c *device.Client) { _ = c.Close() })
		var changes, calls [2]atomic.Int32
		for i, c := range all {
			c.HandleDesired(func(context.Context, device.Desired) { changes[i].Add(1) })
			require.NoError(t, c.HandleMethod("",
				func(context.Context, *device.MethodCall) (int, []byte) { calls[i].Add(1); return 200, nil }))
			_, err := c.PatchReported(t.Context(), []byte(`{"me":`+strconv.Itoa(i)+`}`))
			require.NoError(t, err)
		}
		synctest.Wait()
		_, err := h.Hub.PatchDesired("fleet-0", `{"for":"0"}`)
		require.NoError(t, err)
		_, err = h.CallMethod(t.Context(), "fleet-1", hubdata.MethodCall{Name: "only-1"})
		require.NoError(t, err)
		synctest.Wait()
		twin, err := h.Twin("fleet-1")
		require.NoError(t, err)
		require.JSONEq(t, `{"me":1}`, string(twin.Reported))
		require.Equal(t, []int32{2, 1}, []int32{changes[0].Load(), changes[1].Load()}, "one in the beginning, and the change")
		require.Equal(t, []int32{0, 1}, []int32{calls[0].Load(), calls[1].Load()})
		require.EqualValues(t, 1, h.dials.Load())
	})
}

// A device that only listens sends nothing on its sending links. The loss of one is noticed at
// once.
func TestTheLossOfASendingLinkIsNoticed(t *testing.T) {
	for _, condition := range []string{"", "amqp:link:detach-forced"} {
		bubble(t, func(t *testing.T, h *hub) {
			r := h.dev1(t, h.options())
			require.NoError(t, r.ask(&transport.Request{ID: 1, Op: transport.OpSubscribe,
				Want: transport.FeatureDesired | transport.FeatureMethods}).Err)
			time.Sleep(25 * time.Second)
			for _, kind := range []fault.LinkKind{fault.LinkTwinSender, fault.LinkMethodSender} {
				require.Equal(t, 1, h.DetachLinks("dev-1", kind, hubdata.AMQPError{Condition: condition}))
			}
			synctest.Wait()
			require.Equal(t, []string{"{}"}, r.sink.Bodies(), "changes may have been missed")
			h.PatchDesired(`{"n":2}`)
			synctest.Wait()
			require.Len(t, r.sink.Bodies(), 2)
			done := make(chan int, 1)
			go func() {
				status, _, err := h.Call("x", "{}")
				require.NoError(t, err)
				done <- status
			}()
			synctest.Wait()
			r.Do(&transport.Request{Op: transport.OpRespond, Ref: r.sink.Refs[len(r.sink.Refs)-1], Status: 207})
			require.Equal(t, 207, <-done)
			require.EqualValues(t, 1, h.dials.Load())
		})
	}
}

// A session ends even if a request is sent at the same moment.
func TestASessionThatEndsWhileARequestGoesOut(t *testing.T) {
	for i := range 200 {
		bubble(t, func(t *testing.T, h *hub) {
			r := h.dev1(t, h.options())
			require.NoError(t, r.ask(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: everything}).Err)
			busy := make(chan struct{})
			go func() {
				defer close(busy)
				for id := range uint32(40) {
					r.Do(&transport.Request{ID: 16 + id, Op: transport.OpTwinGet})
					runtime.Gosched()
				}
			}()
			for range i % 80 {
				runtime.Gosched()
			}
			r.cancel()
			r.requireEnd(transport.Network)
			<-busy
		})
	}
}

// Without an answer to the subscription the session ends, because it would miss changes.
func TestASubscriptionToChangesThatIsNotAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		h.inject(fault.Fault{Kind: fault.SwallowTwin, Operation: hubdata.TwinSubscribe})
		r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureDesired})
		time.Sleep(19 * time.Second)
		r.requireAlive()
		time.Sleep(2 * time.Second)
		r.requireEnd(transport.Timeout)
	})
}

// A subscription that the hub refuses is not tried again on new links, where a refusal would end
// the session, and with it everything else.
func TestARefusedSubscriptionToChangesIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		in := h.inject(fault.Fault{Kind: fault.RefuseTwin, Operation: hubdata.TwinSubscribe, Status: 501, Times: -1})
		require.ErrorIs(t, r.ask(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureDesired}).Err,
			transport.Unsupported)
		time.Sleep(time.Minute)
		h.DetachLinks("dev-1", fault.LinkTwinReceiver, hubdata.AMQPError{Condition: "amqp:link:detach-forced"})
		time.Sleep(time.Minute)
		r.requireAlive()
		require.NoError(t, r.ask(&transport.Request{ID: 20, Op: transport.OpTwinGet}).Err)
		require.Equal(t, 1, in.Fired())
		r.requireSends("x")
	})
}

// Requests that the caller has given up have no answer; their number is bounded.
func TestAHubThatAnswersNoTwinRequestEndsTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		h.inject(fault.Fault{Kind: fault.SwallowTwin, Times: -1})
		for id := range uint32(1024) {
			r.Do(&transport.Request{ID: 16 + id, Op: transport.OpTwinGet})
			time.Sleep(100 * time.Millisecond)
		}
		r.requireAlive()
		r.Do(&transport.Request{ID: 2000, Op: transport.OpTwinGet})
		r.requireEnd(transport.Timeout)
	})
}

// A request that exceeds the hub's limit for a link fails, and the link stays.
func TestCallsThatAreTooLargeForTheirLink(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		require.NoError(t, r.ask(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: everything}).Err)
		large := []byte(`"` + strings.Repeat("x", 1200<<10) + `"`)
		reply := r.ask(&transport.Request{ID: 16, Op: transport.OpTwinPatch, Body: large})
		require.ErrorIs(t, reply.Err, transport.TooLarge)
		go func() { _, _, _ = h.Call("x", "{}") }()
		synctest.Wait()
		r.Do(&transport.Request{Op: transport.OpRespond, Ref: r.sink.Refs[0], Status: 200, Body: large})
		synctest.Wait()
		require.NoError(t, r.ask(&transport.Request{ID: 17, Op: transport.OpTwinGet}).Err)
		r.requireAlive()
		time.Sleep(time.Minute) // the time-out of the call
	})
}

// The hub's limit is known when the links are attached, which the first request asks for.
func TestAFirstRequestThatIsTooLargeForItsLink(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		large := []byte(`"` + strings.Repeat("x", 1200<<10) + `"`)
		reply := r.ask(&transport.Request{ID: 16, Op: transport.OpTwinPatch, Body: large})
		require.ErrorIs(t, reply.Err, transport.TooLarge)
		require.NoError(t, r.ask(&transport.Request{ID: 17, Op: transport.OpTwinGet}).Err)
	})
}

// When one link of a pair is refused, the other one is detached, at each attempt.
func TestAPairWithOneLinkRefused(t *testing.T) {
	for refused, other := range map[fault.LinkKind]fault.LinkKind{
		fault.LinkTwinSender: fault.LinkTwinReceiver, fault.LinkTwinReceiver: fault.LinkTwinSender,
	} {
		bubble(t, func(t *testing.T, h *hub) {
			r := h.dev1(t, h.options())
			r.requireSends("the session is begun")
			before := goroutines()
			in := h.inject(fault.Fault{Kind: fault.RefuseAttach, Link: refused, Times: -1,
				Condition: "amqp:resource-limit-exceeded"})
			for i := range 20 {
				require.ErrorIs(t, r.ask(&transport.Request{ID: uint32(16 + i), Op: transport.OpTwinGet}).Err, transport.Quota)
			}
			require.Equal(t, 20, in.Fired())
			require.Zero(t, h.Links("dev-1", other))
			time.Sleep(10 * time.Second)
			synctest.Wait()
			require.LessOrEqual(t, goroutines(), before)
			in.Remove()
			require.Equal(t, 200, r.ask(&transport.Request{ID: 15, Op: transport.OpTwinGet}).Status)
		})
	}
}

// A refused sending link fails the request at once, independent of the receiving link.
func TestARefusedSenderOfAPairFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		refused := h.inject(fault.Fault{Kind: fault.RefuseAttach, Link: fault.LinkTwinSender, Times: -1,
			Condition: "amqp:resource-limit-exceeded"})
		silent := h.inject(fault.Fault{Kind: fault.SwallowAttach, Link: fault.LinkTwinReceiver, Times: -1})
		began := time.Now()
		require.ErrorIs(t, r.ask(&transport.Request{ID: 1, Op: transport.OpTwinGet}).Err, transport.Quota)
		require.Less(t, time.Since(began), 100*time.Millisecond)
		require.Equal(t, 1, refused.Fired())
		require.Zero(t, silent.Fired(), "an attach that would be left behind")
		refused.Remove()
		silent.Remove()
		require.Equal(t, 200, r.ask(&transport.Request{ID: 2, Op: transport.OpTwinGet}).Status)
	})
}

// A refused receiving link fails the request at once, even if the hub does not answer the detach of
// the sending link.
func TestARefusedReceiverOfAPairFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		o := h.options()
		dial := o.Network.Dial
		var detaches atomic.Int32
		o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			return &filter{c, func(_ uint16, p wire.Performative) bool {
				detach, ok := p.(*wire.Detach)
				ours := ok && detach.Handle == 0 // of the sending link
				if ours {
					detaches.Add(1)
				}
				return !ours
			}}, err
		}
		r := h.dev1(t, o)
		refused := h.inject(fault.Fault{Kind: fault.RefuseAttach, Link: fault.LinkTwinReceiver,
			Condition: "amqp:resource-limit-exceeded"})
		began := time.Now()
		require.ErrorIs(t, r.ask(&transport.Request{ID: 1, Op: transport.OpTwinGet}).Err, transport.Quota)
		require.Less(t, time.Since(began), 100*time.Millisecond)
		require.Equal(t, 1, refused.Fired())
		synctest.Wait()
		require.EqualValues(t, 1, detaches.Load())
	})
}

// When the AMQP session ends between the attaches of a pair, both links are attached on a new one,
// and the loss of the former link does not count against them.
func TestASessionThatEndsBetweenTheAttachesOfAPair(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		o := h.options()
		dial := o.Network.Dial
		var ended atomic.Bool
		o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			return &filter{c, func(channel uint16, p wire.Performative) bool {
				attach, ok := p.(*wire.Attach)
				if !ok || attach.Role != wire.RoleReceiver || channel == 0 || ended.Swap(true) { // 0: of the tokens
					return true
				}
				h.EndSessions("dev-1", hubdata.AMQPError{Condition: "amqp:session:errant-link"})
				return false
			}}, err
		}
		r := h.dev1(t, o)
		require.Equal(t, 200, r.ask(&transport.Request{ID: 1, Op: transport.OpTwinGet}).Status)
		require.True(t, ended.Load())
		r.requireAlive()
	})
}

// Answers for a hub without credit are bounded; further ones are reported as not sent.
func TestQueuedMethodAnswersAreBounded(t *testing.T) {
	const credit = 500 // the credit that the hub fixture gives a link; so many answers are sent
	for _, tc := range []struct {
		name string
		body int
		kept int
	}{
		{"by count", 2, credit + 64},
		{"by bytes", 100 << 10, credit + 4<<20/(100<<10)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				r := h.dev1(t, h.options())
				require.NoError(t, r.ask(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMethods}).Err)
				go h.Call("x", "{}")
				synctest.Wait()
				h.inject(fault.Fault{Kind: fault.HalfOpen})
				answer := func(id int) error {
					r.Do(&transport.Request{ID: uint32(id), Op: transport.OpRespond, Ref: r.sink.Ref(0), Status: 200,
						Body: bytes.Repeat([]byte{'1'}, tc.body)})
					reply, _ := r.sink.ReplyTo(uint32(id))
					return reply.Err
				}
				kept := 0
				for i := range 4000 {
					if answer(100+i) == nil {
						kept++
					}
					synctest.Wait()
				}
				require.Equal(t, tc.kept, kept)
				require.ErrorIs(t, answer(9999), transport.Unavailable)
			})
		})
	}
}
