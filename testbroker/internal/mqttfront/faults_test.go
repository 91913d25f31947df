package mqttfront_test

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestFaultsThatMeanNothingPanic(t *testing.T) {
	require.Equal(t, "Kind(99)", event.Kind(99).String())
	h, _ := hubtest.NewHub(t, nil)
	require.Panics(t, func() { h.Inject(fault.Fault{}) })
	require.Panics(t, func() { h.Inject(fault.Fault{Kind: fault.RefuseConnect, For: time.Minute}) })
}

func TestRefuseConnectWithAnyCode(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		for code := 1; code <= 255; code++ {
			in := h.Inject(fault.Fault{Kind: fault.RefuseConnect, Code: byte(code)})
			w := hubtest.Dial(t, h)
			require.Equal(t, []byte{0, byte(code)}, w.Connect(hubtest.ConnectOf(d)))
			require.Equal(t, io.EOF, w.End())
			require.Equal(t, 1, in.Fired())
			w.Conn.Close()
		}
		in := h.Inject(fault.Fault{Kind: fault.RefuseConnect, Times: 2})
		require.Equal(t, []byte{0, 3}, hubtest.Dial(t, h).Connect(hubtest.ConnectOf(d)))
		require.Equal(t, []byte{0, 3}, hubtest.Dial(t, h).Connect(hubtest.ConnectOf(d)))
		hubtest.Login(t, h, d)
		require.Equal(t, 2, in.Fired())
	})
}

func TestSelectorsOfFaults(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		mod := hubtest.AddModule(t, h, "dev-1", "mod-1")
		two := hubtest.AddDevice(t, h, "dev-2")
		code := func(d hubdata.Device) byte { return hubtest.Dial(t, h).Connect(hubtest.ConnectOf(d))[1] }
		for _, c := range []struct {
			selector       string
			dev, mod, next byte
		}{{"", 9, 9, 9}, {"dev-1", 9, 9, 0}, {"dev-1/mod-1", 0, 9, 0}, {"dev-2", 0, 0, 9}, {"dev", 0, 0, 0}} {
			in := h.Inject(fault.Fault{Kind: fault.RefuseConnect, Code: 9, Device: c.selector, Times: -1})
			require.Equal(t, []byte{c.dev, c.mod, c.next}, []byte{code(d), code(mod), code(two)}, c.selector)
			in.Remove()
			in.Remove()
		}
		require.Equal(t, []byte{0, 0, 0}, []byte{code(d), code(mod), code(two)})
	})
}

func TestAfterTimesAndForOfFaults(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		codes := func(n int) (all []byte) {
			for range n {
				all = append(all, hubtest.Dial(t, h).Connect(hubtest.ConnectOf(d))[1])
			}
			return all
		}
		in := h.Inject(fault.Fault{Kind: fault.RefuseConnect, Code: 9, After: 2, Times: 3})
		require.Equal(t, []byte{0, 0, 9, 9, 9, 0}, codes(6))
		require.Equal(t, 3, in.Fired())

		in = h.Inject(fault.Fault{Kind: fault.RefuseConnect, Code: 9, Times: -1, For: time.Minute})
		require.Equal(t, []byte{9, 9}, codes(2))
		time.Sleep(time.Minute)
		require.Equal(t, []byte{0}, codes(1))
		require.Equal(t, 2, in.Fired())

		first := h.Inject(fault.Fault{Kind: fault.RefuseConnect, Code: 7})
		second := h.Inject(fault.Fault{Kind: fault.RefuseConnect, Code: 8, After: 1})
		require.Equal(t, []byte{7, 8, 0}, codes(3), "a fault that comes too late for an event has still seen it")
		require.Equal(t, 1, first.Fired())
		require.Equal(t, 1, second.Fired())
	})
}

func TestProbabilityRepeatsWithTheSeed(t *testing.T) {
	run := func(seed uint64) (codes []byte) {
		hubtest.InBubble(t, &testbroker.Options{Seed: seed}, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			in := h.Inject(fault.Fault{Kind: fault.RefuseConnect, Times: -1, Probability: 0.5})
			fired := 0
			for range 64 {
				w := hubtest.Dial(t, h)
				c := w.Connect(hubtest.ConnectOf(d))[1]
				codes = append(codes, c)
				if c != 0 {
					fired++
				}
				w.Conn.Close()
			}
			require.Equal(t, fired, in.Fired())
			require.InDelta(t, 32, fired, 20)
		})
		return codes
	}
	require.Equal(t, run(1), run(1))
	require.NotEqual(t, run(1), run(2))
}

func TestWaitFired(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		in := h.Inject(fault.Fault{Kind: fault.RefuseConnect, Times: 2})
		go func() {
			for range 2 {
				time.Sleep(time.Second)
				hubtest.Dial(t, h).Connect(hubtest.ConnectOf(d))
			}
		}()
		start := time.Now()
		require.NoError(t, in.WaitFired(t.Context(), 2))
		require.Equal(t, 2*time.Second, time.Since(start))
		ctx, cancel := hubtest.ContextWithCause(errors.New("enough"))
		defer cancel()
		require.EqualError(t, in.WaitFired(ctx, 3), "enough")
		synctest.Wait()
	})
}

func TestSlowConnack(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		in := h.Inject(fault.Fault{Kind: fault.SlowConnack, Delay: 20 * time.Second})
		start := time.Now()
		hubtest.Login(t, h, d)
		require.Equal(t, 20*time.Second, time.Since(start))
		require.Equal(t, 1, in.Fired())
		hubtest.Login(t, h, d)
		require.Equal(t, 20*time.Second, time.Since(start))
	})
}

func TestSwallowConnack(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		in := h.Inject(fault.Fault{Kind: fault.SwallowConnack})
		w := hubtest.Dial(t, h)
		w.Send(hubtest.ConnectOf(d).Bytes())
		require.NoError(t, w.Conn.SetReadDeadline(time.Now().Add(24*time.Hour)))
		require.ErrorIs(t, w.End(), os.ErrDeadlineExceeded)
		require.Equal(t, 1, in.Fired())
		require.Zero(t, h.Connections(""))
		hubtest.Login(t, h, d).Ping()
	})
}

func TestCloseDoesNotWaitForFaults(t *testing.T) {
	for _, k := range []fault.Kind{fault.SlowConnack, fault.SwallowConnack, fault.SlowPuback,
		fault.HalfOpen, fault.Throttle} {
		hubtest.RunInBubble(t, k.String(), nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			if k == fault.SlowPuback || k == fault.Throttle {
				w := hubtest.Login(t, h, d)
				h.Inject(fault.Fault{Kind: k, Delay: time.Hour, Rate: 0.001, Times: -1})
				w.Publish(1, hubtest.Events, "x")
				w.Publish(2, hubtest.Events, "x")
			} else {
				h.Inject(fault.Fault{Kind: k, Delay: time.Hour})
				hubtest.Dial(t, h).Send(hubtest.ConnectOf(d).Bytes())
			}
			synctest.Wait()
			start := time.Now()
			require.NoError(t, h.Close())
			require.Zero(t, time.Since(start))
		})
	}
}

func TestDropConnect(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		in := h.Inject(fault.Fault{Kind: fault.DropConnect})
		w := hubtest.Dial(t, h)
		w.Send(hubtest.ConnectOf(d).Bytes())
		require.Equal(t, io.EOF, w.End())
		require.Equal(t, 1, in.Fired())
		hubtest.Login(t, h, d).Ping()
	})
}

// TestMessageFaults sends five messages; the fault hits the third.
func TestMessageFaults(t *testing.T) {
	for _, c := range []struct {
		kind   fault.Kind
		stored int      // of those sent before the end
		acked  []uint16 // PUBACKs that must arrive
		end    error    // end of the connection; nil = it stays open
	}{
		{fault.DropDuringPublish, 2, nil, syscall.ECONNRESET},
		{fault.DropBeforePublish, 2, nil, syscall.ECONNRESET},
		{fault.DropAfterPublish, 3, nil, syscall.ECONNRESET},
		{fault.DropAfterPuback, 3, []uint16{3}, io.EOF},
		{fault.SwallowPuback, 5, []uint16{4, 5}, nil},
		{fault.Forget, 4, []uint16{3, 4, 5}, nil},
	} {
		for _, burst := range []bool{false, true} {
			name := c.kind.String()
			if burst {
				name += " in a burst"
			}
			hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
				in := h.Inject(fault.Fault{Kind: c.kind, After: 2})
				w := hubtest.Login(t, h, d)
				if burst { // all in one write, so that the hub has read more when it handles the third
					var all []byte
					for id := range uint16(5) {
						all = append(all, hubtest.PublishBytes(2, id+1, hubtest.Events, "body")...)
					}
					w.Send(all)
					if !errors.Is(c.end, syscall.ECONNRESET) {
						require.Equal(t, []uint16{1, 2}, []uint16{w.Acked(), w.Acked()})
					}
				} else {
					for id := range uint16(2) {
						w.Publish(id+1, hubtest.Events, "body")
						require.Equal(t, id+1, w.Acked())
					}
					w.Publish(3, hubtest.Events, "body")
					if c.end == nil {
						w.Publish(4, hubtest.Events, "body")
						w.Publish(5, hubtest.Events, "body")
					}
				}
				for _, id := range c.acked {
					require.Equal(t, id, w.Acked())
				}
				if c.end != nil {
					if burst && errors.Is(c.end, syscall.ECONNRESET) {
						for { // PUBACKs may or may not arrive before the reset
							kind, _, err := w.Read()
							if err != nil {
								require.ErrorIs(t, err, c.end)
								break
							}
							require.Equal(t, byte(hubtest.Puback), kind)
						}
					} else {
						require.ErrorIs(t, w.End(), c.end)
					}
					w.Conn.Close()
				} else {
					w.Ping()
				}
				synctest.Wait()
				require.Equal(t, c.stored, h.Len())
				require.Equal(t, 1, in.Fired())
				require.NoError(t, in.WaitFired(t.Context(), 1))

				again := hubtest.Login(t, h, d)
				again.Publish(9, hubtest.Events, "body")
				require.Equal(t, uint16(9), again.Acked(), "it happened once")
			})
		}
	}
}

// A reset over TCP takes back no PUBACK that the hub sent before it: a client that sends in bursts
// repeats the messages that the fault hit, and the later ones.
func TestPubacksReachTheClientBeforeAReset(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a reset discards what the client has not read yet")
	}
	for kind, stored := range map[fault.Kind]int{
		fault.DropDuringPublish: 2, fault.DropBeforePublish: 2, fault.DropAfterPublish: 3,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			h, d := hubtest.NewHub(t, nil)
			addr := hubtest.Listen(t, h, testbroker.PortMQTT)
			in := h.Inject(fault.Fault{Kind: kind, After: 2})
			conn, err := net.Dial("tcp", addr.String())
			require.NoError(t, err)
			w := hubtest.NewWire(t, conn)
			require.Equal(t, []byte{0, 0}, w.Connect(hubtest.ConnectOf(d)))
			var all []byte
			for id := range uint16(5) {
				all = append(all, hubtest.PublishBytes(2, id+1, hubtest.Events, "body")...)
			}
			w.Send(all)
			require.Equal(t, []uint16{1, 2}, []uint16{w.Acked(), w.Acked()})
			require.ErrorIs(t, w.End(), syscall.ECONNRESET)
			require.Equal(t, stored, h.Len())
			require.Equal(t, 1, in.Fired())
		})
	}
}

// The end of a half-open connection is reported as it was, also when the hub had read packets that
// it discards.
func TestTheEndOfAHalfOpenConnectionIsReported(t *testing.T) {
	next := map[string][]byte{"nothing more": nil, "a PUBLISH": hubtest.PublishBytes(2, 3, hubtest.Events, "x"),
		"a PINGREQ": {0xc0, 0}}
	for name, broker := range map[string]*testbroker.BrokerOptions{"hub": nil, "broker": {}} {
		for what, more := range next {
			for _, want := range []error{io.EOF, syscall.ECONNRESET} {
				t.Run(name+", "+what+", "+want.Error(), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { endHalfOpen(t, broker, more, want) })
				})
			}
		}
	}
}

func endHalfOpen(t *testing.T, broker *testbroker.BrokerOptions, more []byte, want error) {
	var last event.Event
	h, d := hubtest.NewHub(t, &testbroker.Options{Broker: broker, OnEvent: func(e event.Event) { last = e }})
	in := h.Inject(fault.Fault{Kind: fault.HalfOpen, After: 1})
	var w *hubtest.Wire
	topic := hubtest.Events
	if broker == nil {
		w = hubtest.Login(t, h, d)
	} else {
		con := hubtest.ConnectOf(d)
		con.User, con.Password = d.ID, d.PrimaryKey
		w, topic = hubtest.Dial(t, h), "devices/dev-1/up"
		require.Equal(t, []byte{0, 0}, w.Connect(con))
	}
	w.Send(slices.Concat(hubtest.PublishBytes(2, 1, topic, "x"), hubtest.PublishBytes(2, 2, topic, "x"), more))
	require.Equal(t, uint16(1), w.Acked())
	synctest.Wait()
	require.Equal(t, 1, in.Fired())
	if errors.Is(want, io.EOF) {
		w.Conn.Close()
	} else {
		w.Conn.(*memconn.Conn).Reset()
	}
	synctest.Wait()
	require.Equal(t, event.Disconnected, last.Kind)
	require.ErrorIs(t, last.Err, want)
}

func TestMessageFaultsCountAcrossConnections(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		in := h.Inject(fault.Fault{Kind: fault.DropAfterPublish, After: 1, Times: 2, Device: "dev-1"})
		for _, cut := range []bool{false, true, true, false} {
			w := hubtest.Login(t, h, d)
			w.Publish(1, hubtest.Events, "x")
			if cut {
				require.ErrorIs(t, w.End(), syscall.ECONNRESET)
			} else {
				w.Acked()
			}
		}
		require.Equal(t, 4, h.Len())
		require.Equal(t, 2, in.Fired())
	})
}

func TestFaultsOfMessagesWithoutPuback(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		var unfit []*testbroker.Injected
		for _, k := range []fault.Kind{fault.Forget, fault.SwallowPuback, fault.SlowPuback,
			fault.DropAfterPuback} {
			unfit = append(unfit, h.Inject(fault.Fault{Kind: k, Delay: time.Hour}))
		}
		in := h.Inject(fault.Fault{Kind: fault.DropAfterPublish, After: 1})
		w := hubtest.Login(t, h, d)
		w.Send(hubtest.PublishBytes(0, 0, hubtest.Events, "x"))
		w.Ping()
		w.Send(hubtest.PublishBytes(0, 0, hubtest.Events, "x"))
		require.ErrorIs(t, w.End(), syscall.ECONNRESET)
		require.Equal(t, 2, h.Len())
		require.Equal(t, 1, in.Fired())
		for _, u := range unfit {
			require.Zero(t, u.Fired())
		}
	})
}

func TestDelayedPubackKeepsOrderAndLetsOthersFlow(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		in := h.Inject(fault.Fault{Kind: fault.SlowPuback, Delay: 10 * time.Second, After: 1})
		w := hubtest.Login(t, h, d)
		start := time.Now()
		for id := range uint16(4) {
			w.Publish(id+1, hubtest.Events, "x")
		}
		require.Equal(t, uint16(1), w.Acked())
		w.Ping()
		require.Zero(t, time.Since(start))
		require.Equal(t, 4, h.Len(), "the messages are stored at once")
		for id := range uint16(3) {
			require.Equal(t, id+2, w.Acked())
			require.Equal(t, 10*time.Second, time.Since(start))
		}
		require.Equal(t, 1, in.Fired())
		w.Publish(5, hubtest.Events, "x")
		w.Acked()
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}

func TestDropAfterADelayedPuback(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		h.Inject(fault.Fault{Kind: fault.SlowPuback, Delay: time.Second})
		in := h.Inject(fault.Fault{Kind: fault.DropAfterPuback})
		w := hubtest.Login(t, h, d)
		w.Publish(1, hubtest.Events, "x")
		w.Publish(2, hubtest.Events, "x")
		require.Equal(t, uint16(1), w.Acked())
		require.Equal(t, io.EOF, w.End())
		require.Equal(t, 1, in.Fired())
	})
}

func TestHalfOpen(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		two := hubtest.AddDevice(t, h, "dev-2")
		w, w2 := hubtest.Login(t, h, d), hubtest.Login(t, h, two)
		in := h.Inject(fault.Fault{Kind: fault.HalfOpen, For: time.Hour})
		require.Equal(t, 2, in.Fired())

		fresh := hubtest.Dial(t, h)
		for _, c := range []*hubtest.Wire{w, w2, fresh} {
			c.Send(hubtest.PublishBytes(2, 1, hubtest.Events, "into the void"))
			c.Send([]byte{0xc0, 0})
			require.NoError(t, c.Conn.SetReadDeadline(time.Now().Add(10*time.Minute)))
			require.ErrorIs(t, c.End(), os.ErrDeadlineExceeded, "neither an answer nor an end")
		}
		require.Equal(t, 3, in.Fired())
		require.Zero(t, h.Len())

		time.Sleep(time.Hour)
		hubtest.Login(t, h, two).Ping()
		require.NoError(t, w.Conn.SetReadDeadline(time.Now().Add(24*time.Hour)))
		w.Send([]byte{0xc0, 0})
		require.ErrorIs(t, w.End(), os.ErrDeadlineExceeded, "what is dead stays dead")
		hubtest.Login(t, h, d).Ping()
		require.Equal(t, 3, in.Fired())
	})
}

func TestHalfOpenOfOneDeviceFromAMessageOn(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		two := hubtest.AddDevice(t, h, "dev-2")
		in := h.Inject(fault.Fault{Kind: fault.HalfOpen, Device: "dev-1", After: 1})
		w, w2 := hubtest.Login(t, h, d), hubtest.Login(t, h, two)
		w.Publish(1, hubtest.Events, "x")
		w.Acked()
		require.Zero(t, in.Fired())
		w.Publish(2, hubtest.Events, "vanishes")
		require.NoError(t, in.WaitFired(t.Context(), 1))
		w2.Ping()
		require.Equal(t, 1, h.Len())

		again := hubtest.Dial(t, h)
		again.Send(hubtest.ConnectOf(d).Bytes())
		require.NoError(t, in.WaitFired(t.Context(), 2))
		require.NoError(t, again.Conn.SetReadDeadline(time.Now().Add(time.Hour)))
		require.ErrorIs(t, again.End(), os.ErrDeadlineExceeded)
		in.Remove()
		hubtest.Login(t, h, d).Ping()
	})
}

func TestHalfOpenSwallowsWhatWasAlreadyRead(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		in := h.Inject(fault.Fault{Kind: fault.HalfOpen, After: 1})
		w := hubtest.Login(t, h, d)
		var all []byte
		for id := range uint16(3) {
			all = append(all, hubtest.PublishBytes(2, id+1, hubtest.Events, "x")...)
		}
		w.Send(append(all, 0xe0, 0)) // and a DISCONNECT, all in one write
		require.Equal(t, uint16(1), w.Acked())
		require.NoError(t, w.Conn.SetReadDeadline(time.Now().Add(time.Hour)))
		require.ErrorIs(t, w.End(), os.ErrDeadlineExceeded)
		require.Equal(t, 1, h.Len())
		require.Equal(t, 1, in.Fired())
	})
}

func TestThrottle(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		in := h.Inject(fault.Fault{Kind: fault.Throttle, Rate: 2, Limit: 5, For: time.Minute})
		start := time.Now()
		for id := range uint16(5) {
			w.Publish(id+1, hubtest.Events, "x")
		}
		for id := range uint16(5) {
			require.Equal(t, id+1, w.Acked())
			require.Equal(t, time.Duration(id)*time.Second/2, time.Since(start))
		}
		require.Equal(t, 4, in.Fired(), "the first was not delayed")
		require.Equal(t, 5, h.Len())

		require.Equal(t, []byte{0, 3}, hubtest.Dial(t, h).Connect(hubtest.ConnectOf(d)))
		require.Equal(t, 5, in.Fired())

		time.Sleep(10 * time.Second)
		for id := range uint16(7) { // one is answered at once, five are delayed, the next exceeds the limit
			w.Publish(id+1, hubtest.Events, "x")
		}
		require.Equal(t, uint16(1), w.Acked())
		require.Equal(t, io.EOF, w.End())
		require.Equal(t, 11, in.Fired())
		time.Sleep(time.Minute)
		hubtest.Login(t, h, d).Ping()
	})
}

func TestAbsent(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w, mute := hubtest.Login(t, h, d), hubtest.Dial(t, h)
		in := h.Inject(fault.Fault{Kind: fault.Absent, For: time.Minute})
		require.ErrorIs(t, w.End(), syscall.ECONNRESET)
		require.ErrorIs(t, mute.End(), syscall.ECONNRESET)
		require.Equal(t, 2, in.Fired())
		for _, f := range []func() error{
			func() error { _, err := h.Dial(testbroker.PortMQTT)(t.Context(), "tcp", "hub:1883"); return err },
			func() error { _, err := h.Dial(testbroker.PortMQTTS)(t.Context(), "tcp", "hub:8883"); return err },
		} {
			require.ErrorIs(t, f(), syscall.ECONNREFUSED)
		}
		require.Equal(t, 4, in.Fired())
		time.Sleep(time.Minute)
		hubtest.Login(t, h, d).Ping()
		require.Equal(t, 4, in.Fired())
	})
}

func TestAbsentForOneDeviceFromAMessageOn(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		two := hubtest.AddDevice(t, h, "dev-2")
		w, w2 := hubtest.Login(t, h, d), hubtest.Login(t, h, two)
		in := h.Inject(fault.Fault{Kind: fault.Absent, Device: "dev-1", After: 1})
		w.Publish(1, hubtest.Events, "x")
		w.Acked()
		w.Publish(2, hubtest.Events, "x")
		require.ErrorIs(t, w.End(), syscall.ECONNRESET)
		require.Equal(t, 1, h.Len())
		again := hubtest.Dial(t, h)
		again.Send(hubtest.ConnectOf(d).Bytes())
		require.ErrorIs(t, again.End(), syscall.ECONNRESET)
		require.Equal(t, 2, in.Fired())
		w2.Ping()
		in.Remove()
		hubtest.Login(t, h, d).Ping()
	})
}

func TestDrop(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		two := hubtest.AddDevice(t, h, "dev-2")
		w, w2, mute := hubtest.Login(t, h, d), hubtest.Login(t, h, two), hubtest.Dial(t, h)
		require.Equal(t, 1, h.Drop("dev-1"))
		require.ErrorIs(t, w.End(), syscall.ECONNRESET)
		w2.Ping()
		synctest.Wait()
		require.Equal(t, 1, h.Connections(""))
		require.Equal(t, 2, h.Drop(""))
		require.ErrorIs(t, w2.End(), syscall.ECONNRESET)
		require.ErrorIs(t, mute.End(), syscall.ECONNRESET)
		synctest.Wait()
		require.Zero(t, h.Drop(""))
	})
}

func TestDropDuringPublishWithoutABody(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		in := h.Inject(fault.Fault{Kind: fault.DropDuringPublish})
		w := hubtest.Login(t, h, d)
		w.Send([]byte{0x30, 0})
		require.ErrorIs(t, w.End(), syscall.ECONNRESET)
		require.Equal(t, 1, in.Fired())
	})
}

// Messages that were read before a fault took the connection away are discarded like later ones: no
// other fault is used up by them, and none resets the connection.
func TestNoFaultHitsAConnectionThatHasEnded(t *testing.T) {
	for _, c := range []struct {
		first fault.Fault
		want  error
	}{{fault.Fault{Kind: fault.HalfOpen}, os.ErrDeadlineExceeded}, {fault.Fault{Kind: fault.DropAfterPuback}, io.EOF}} {
		hubtest.RunInBubble(t, c.first.Kind.String(), nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			w := hubtest.Login(t, h, d)
			c.first.After = 1
			first, tear := h.Inject(c.first), h.Inject(fault.Fault{Kind: fault.DropDuringPublish, After: 2})
			var all []byte
			for id := range uint16(3) {
				all = append(all, hubtest.PublishBytes(2, id+1, hubtest.Events, "x")...)
			}
			w.Send(all)
			w.Conn.SetReadDeadline(time.Now().Add(time.Hour))
			require.Equal(t, uint16(1), w.Acked())
			if errors.Is(c.want, io.EOF) {
				require.Equal(t, uint16(2), w.Acked())
			}
			require.ErrorIs(t, w.End(), c.want)
			require.Equal(t, 1, first.Fired())
			require.Zero(t, tear.Fired())
		})
	}
}
