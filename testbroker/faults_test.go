package testbroker_test

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
)

func TestEveryFaultHasAName(t *testing.T) {
	for _, k := range fault.Kinds() {
		require.NotContains(t, k.String(), "FaultKind")
	}
	require.Len(t, fault.Kinds(), 89)
	require.Equal(t, "Kind(99)", fault.Kind(99).String())
	require.Equal(t, "Kind(99)", event.Kind(99).String())
	h, _ := newHub(t, nil)
	require.Panics(t, func() { h.Inject(fault.Fault{}) })
	require.Panics(t, func() { h.Inject(fault.Fault{Kind: fault.RefuseConnect, For: time.Minute}) })
}

func TestRefuseConnectWithAnyCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		for code := 1; code <= 255; code++ {
			in := h.Inject(fault.Fault{Kind: fault.RefuseConnect, Code: byte(code)})
			w := dial(t, h)
			require.Equal(t, []byte{0, byte(code)}, w.connect(connectOf(d)))
			require.Equal(t, io.EOF, w.end())
			require.Equal(t, 1, in.Fired())
			w.conn.Close()
		}
		in := h.Inject(fault.Fault{Kind: fault.RefuseConnect, Times: 2})
		require.Equal(t, []byte{0, 3}, dial(t, h).connect(connectOf(d)))
		require.Equal(t, []byte{0, 3}, dial(t, h).connect(connectOf(d)))
		login(t, h, d)
		require.Equal(t, 2, in.Fired())
	})
}

func TestSelectorsOfFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		mod, err := h.AddModule("dev-1", "mod-1")
		require.NoError(t, err)
		two, err := h.AddDevice("dev-2")
		require.NoError(t, err)
		code := func(d hubdata.Device) byte { return dial(t, h).connect(connectOf(d))[1] }
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
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		codes := func(n int) (all []byte) {
			for range n {
				all = append(all, dial(t, h).connect(connectOf(d))[1])
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
		synctest.Test(t, func(t *testing.T) {
			h, d := newHub(t, &testbroker.Options{Seed: seed})
			in := h.Inject(fault.Fault{Kind: fault.RefuseConnect, Times: -1, Probability: 0.5})
			fired := 0
			for range 64 {
				w := dial(t, h)
				c := w.connect(connectOf(d))[1]
				codes = append(codes, c)
				if c != 0 {
					fired++
				}
				w.conn.Close()
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
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		in := h.Inject(fault.Fault{Kind: fault.RefuseConnect, Times: 2})
		go func() {
			for range 2 {
				time.Sleep(time.Second)
				dial(t, h).connect(connectOf(d))
			}
		}()
		start := time.Now()
		require.NoError(t, in.WaitFired(t.Context(), 2))
		require.Equal(t, 2*time.Second, time.Since(start))
		ctx, cancel := contextWithCause(errors.New("enough"))
		defer cancel()
		require.EqualError(t, in.WaitFired(ctx, 3), "enough")
		synctest.Wait()
	})
}

func TestSlowConnack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		in := h.Inject(fault.Fault{Kind: fault.SlowConnack, Delay: 20 * time.Second})
		start := time.Now()
		login(t, h, d)
		require.Equal(t, 20*time.Second, time.Since(start))
		require.Equal(t, 1, in.Fired())
		login(t, h, d)
		require.Equal(t, 20*time.Second, time.Since(start))
	})
}

func TestSwallowConnack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		in := h.Inject(fault.Fault{Kind: fault.SwallowConnack})
		w := dial(t, h)
		w.send(connectOf(d).bytes())
		require.NoError(t, w.conn.SetReadDeadline(time.Now().Add(24*time.Hour)))
		require.ErrorIs(t, w.end(), os.ErrDeadlineExceeded)
		require.Equal(t, 1, in.Fired())
		require.Zero(t, h.Connections(""))
		login(t, h, d).ping()
	})
}

func TestCloseDoesNotWaitForFaults(t *testing.T) {
	for _, k := range []fault.Kind{fault.SlowConnack, fault.SwallowConnack, fault.SlowPuback,
		fault.HalfOpen, fault.Throttle} {
		t.Run(k.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := newHub(t, nil)
				if k == fault.SlowPuback || k == fault.Throttle {
					w := login(t, h, d)
					h.Inject(fault.Fault{Kind: k, Delay: time.Hour, Rate: 0.001, Times: -1})
					w.publish(1, events, "x")
					w.publish(2, events, "x")
				} else {
					h.Inject(fault.Fault{Kind: k, Delay: time.Hour})
					dial(t, h).send(connectOf(d).bytes())
				}
				synctest.Wait()
				start := time.Now()
				require.NoError(t, h.Close())
				require.Zero(t, time.Since(start))
			})
		})
	}
}

func TestDropConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		in := h.Inject(fault.Fault{Kind: fault.DropConnect})
		w := dial(t, h)
		w.send(connectOf(d).bytes())
		require.Equal(t, io.EOF, w.end())
		require.Equal(t, 1, in.Fired())
		login(t, h, d).ping()
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
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h, d := newHub(t, nil)
					in := h.Inject(fault.Fault{Kind: c.kind, After: 2})
					w := login(t, h, d)
					if burst { // all in one write, so that the hub has read more when it handles the third
						var all []byte
						for id := range uint16(5) {
							all = append(all, publishBytes(2, id+1, events, "body")...)
						}
						w.send(all)
						if c.end != syscall.ECONNRESET {
							require.Equal(t, []uint16{1, 2}, []uint16{w.acked(), w.acked()})
						}
					} else {
						for id := range uint16(2) {
							w.publish(id+1, events, "body")
							require.Equal(t, id+1, w.acked())
						}
						w.publish(3, events, "body")
						if c.end == nil {
							w.publish(4, events, "body")
							w.publish(5, events, "body")
						}
					}
					for _, id := range c.acked {
						require.Equal(t, id, w.acked())
					}
					if c.end != nil {
						if burst && c.end == syscall.ECONNRESET {
							for { // PUBACKs may or may not arrive before the reset
								kind, _, err := w.read()
								if err != nil {
									require.ErrorIs(t, err, c.end)
									break
								}
								require.Equal(t, byte(puback), kind)
							}
						} else {
							require.ErrorIs(t, w.end(), c.end)
						}
						w.conn.Close()
					} else {
						w.ping()
					}
					synctest.Wait()
					require.Equal(t, c.stored, h.Len())
					require.Equal(t, 1, in.Fired())
					require.NoError(t, in.WaitFired(t.Context(), 1))

					again := login(t, h, d)
					again.publish(9, events, "body")
					require.Equal(t, uint16(9), again.acked(), "it happened once")
				})
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
			h, d := newHub(t, nil)
			addr, err := h.Listen(testbroker.PortMQTT, "127.0.0.1:0")
			require.NoError(t, err)
			in := h.Inject(fault.Fault{Kind: kind, After: 2})
			conn, err := net.Dial("tcp", addr.String())
			require.NoError(t, err)
			w := newWire(t, conn)
			require.Equal(t, []byte{0, 0}, w.connect(connectOf(d)))
			var all []byte
			for id := range uint16(5) {
				all = append(all, publishBytes(2, id+1, events, "body")...)
			}
			w.send(all)
			require.Equal(t, []uint16{1, 2}, []uint16{w.acked(), w.acked()})
			require.ErrorIs(t, w.end(), syscall.ECONNRESET)
			require.Equal(t, stored, h.Len())
			require.Equal(t, 1, in.Fired())
		})
	}
}

// The end of a half-open connection is reported as it was, also when the hub had read packets that
// it discards.
func TestTheEndOfAHalfOpenConnectionIsReported(t *testing.T) {
	next := map[string][]byte{"nothing more": nil, "a PUBLISH": publishBytes(2, 3, events, "x"), "a PINGREQ": {0xc0, 0}}
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
	h, d := newHub(t, &testbroker.Options{Broker: broker, OnEvent: func(e event.Event) { last = e }})
	in := h.Inject(fault.Fault{Kind: fault.HalfOpen, After: 1})
	var w *wire
	topic := events
	if broker == nil {
		w = login(t, h, d)
	} else {
		c := loginPlain(t, h, d, 4)
		w, topic = &wire{t, c.conn, c.in}, "devices/dev-1/up"
	}
	w.send(slices.Concat(publishBytes(2, 1, topic, "x"), publishBytes(2, 2, topic, "x"), more))
	require.Equal(t, uint16(1), w.acked())
	synctest.Wait()
	require.Equal(t, 1, in.Fired())
	if want == io.EOF {
		w.conn.Close()
	} else {
		w.conn.(*memconn.Conn).Reset()
	}
	synctest.Wait()
	require.Equal(t, event.Disconnected, last.Kind)
	require.ErrorIs(t, last.Err, want)
}

func TestMessageFaultsCountAcrossConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		in := h.Inject(fault.Fault{Kind: fault.DropAfterPublish, After: 1, Times: 2, Device: "dev-1"})
		for _, cut := range []bool{false, true, true, false} {
			w := login(t, h, d)
			w.publish(1, events, "x")
			if cut {
				require.ErrorIs(t, w.end(), syscall.ECONNRESET)
			} else {
				w.acked()
			}
		}
		require.Equal(t, 4, h.Len())
		require.Equal(t, 2, in.Fired())
	})
}

func TestFaultsOfMessagesWithoutPuback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		var unfit []*testbroker.Injected
		for _, k := range []fault.Kind{fault.Forget, fault.SwallowPuback, fault.SlowPuback,
			fault.DropAfterPuback} {
			unfit = append(unfit, h.Inject(fault.Fault{Kind: k, Delay: time.Hour}))
		}
		in := h.Inject(fault.Fault{Kind: fault.DropAfterPublish, After: 1})
		w := login(t, h, d)
		w.send(publishBytes(0, 0, events, "x"))
		w.ping()
		w.send(publishBytes(0, 0, events, "x"))
		require.ErrorIs(t, w.end(), syscall.ECONNRESET)
		require.Equal(t, 2, h.Len())
		require.Equal(t, 1, in.Fired())
		for _, u := range unfit {
			require.Zero(t, u.Fired())
		}
	})
}

func TestDelayedPubackKeepsOrderAndLetsOthersFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		in := h.Inject(fault.Fault{Kind: fault.SlowPuback, Delay: 10 * time.Second, After: 1})
		w := login(t, h, d)
		start := time.Now()
		for id := range uint16(4) {
			w.publish(id+1, events, "x")
		}
		require.Equal(t, uint16(1), w.acked())
		w.ping()
		require.Zero(t, time.Since(start))
		require.Equal(t, 4, h.Len(), "the messages are stored at once")
		for id := range uint16(3) {
			require.Equal(t, id+2, w.acked())
			require.Equal(t, 10*time.Second, time.Since(start))
		}
		require.Equal(t, 1, in.Fired())
		w.publish(5, events, "x")
		w.acked()
		require.Equal(t, 10*time.Second, time.Since(start))
	})
}

func TestDropAfterADelayedPuback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		h.Inject(fault.Fault{Kind: fault.SlowPuback, Delay: time.Second})
		in := h.Inject(fault.Fault{Kind: fault.DropAfterPuback})
		w := login(t, h, d)
		w.publish(1, events, "x")
		w.publish(2, events, "x")
		require.Equal(t, uint16(1), w.acked())
		require.Equal(t, io.EOF, w.end())
		require.Equal(t, 1, in.Fired())
	})
}

func TestHalfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		two, err := h.AddDevice("dev-2")
		require.NoError(t, err)
		w, w2 := login(t, h, d), login(t, h, two)
		in := h.Inject(fault.Fault{Kind: fault.HalfOpen, For: time.Hour})
		require.Equal(t, 2, in.Fired())

		fresh := dial(t, h)
		for _, c := range []*wire{w, w2, fresh} {
			c.send(publishBytes(2, 1, events, "into the void"))
			c.send([]byte{0xc0, 0})
			require.NoError(t, c.conn.SetReadDeadline(time.Now().Add(10*time.Minute)))
			require.ErrorIs(t, c.end(), os.ErrDeadlineExceeded, "neither an answer nor an end")
		}
		require.Equal(t, 3, in.Fired())
		require.Zero(t, h.Len())

		time.Sleep(time.Hour)
		login(t, h, two).ping()
		require.NoError(t, w.conn.SetReadDeadline(time.Now().Add(24*time.Hour)))
		w.send([]byte{0xc0, 0})
		require.ErrorIs(t, w.end(), os.ErrDeadlineExceeded, "what is dead stays dead")
		login(t, h, d).ping()
		require.Equal(t, 3, in.Fired())
	})
}

func TestHalfOpenOfOneDeviceFromAMessageOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		two, err := h.AddDevice("dev-2")
		require.NoError(t, err)
		in := h.Inject(fault.Fault{Kind: fault.HalfOpen, Device: "dev-1", After: 1})
		w, w2 := login(t, h, d), login(t, h, two)
		w.publish(1, events, "x")
		w.acked()
		require.Zero(t, in.Fired())
		w.publish(2, events, "vanishes")
		require.NoError(t, in.WaitFired(t.Context(), 1))
		w2.ping()
		require.Equal(t, 1, h.Len())

		again := dial(t, h)
		again.send(connectOf(d).bytes())
		require.NoError(t, in.WaitFired(t.Context(), 2))
		require.NoError(t, again.conn.SetReadDeadline(time.Now().Add(time.Hour)))
		require.ErrorIs(t, again.end(), os.ErrDeadlineExceeded)
		in.Remove()
		login(t, h, d).ping()
	})
}

func TestHalfOpenSwallowsWhatWasAlreadyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		in := h.Inject(fault.Fault{Kind: fault.HalfOpen, After: 1})
		w := login(t, h, d)
		var all []byte
		for id := range uint16(3) {
			all = append(all, publishBytes(2, id+1, events, "x")...)
		}
		w.send(append(all, 0xe0, 0)) // and a DISCONNECT, all in one write
		require.Equal(t, uint16(1), w.acked())
		require.NoError(t, w.conn.SetReadDeadline(time.Now().Add(time.Hour)))
		require.ErrorIs(t, w.end(), os.ErrDeadlineExceeded)
		require.Equal(t, 1, h.Len())
		require.Equal(t, 1, in.Fired())
	})
}

func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		w := login(t, h, d)
		in := h.Inject(fault.Fault{Kind: fault.Throttle, Rate: 2, Limit: 5, For: time.Minute})
		start := time.Now()
		for id := range uint16(5) {
			w.publish(id+1, events, "x")
		}
		for id := range uint16(5) {
			require.Equal(t, id+1, w.acked())
			require.Equal(t, time.Duration(id)*time.Second/2, time.Since(start))
		}
		require.Equal(t, 4, in.Fired(), "the first was not delayed")
		require.Equal(t, 5, h.Len())

		require.Equal(t, []byte{0, 3}, dial(t, h).connect(connectOf(d)))
		require.Equal(t, 5, in.Fired())

		time.Sleep(10 * time.Second)
		for id := range uint16(7) { // one is answered at once, five are delayed, the next exceeds the limit
			w.publish(id+1, events, "x")
		}
		require.Equal(t, uint16(1), w.acked())
		require.Equal(t, io.EOF, w.end())
		require.Equal(t, 11, in.Fired())
		time.Sleep(time.Minute)
		login(t, h, d).ping()
	})
}

func TestAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		w, mute := login(t, h, d), dial(t, h)
		in := h.Inject(fault.Fault{Kind: fault.Absent, For: time.Minute})
		require.ErrorIs(t, w.end(), syscall.ECONNRESET)
		require.ErrorIs(t, mute.end(), syscall.ECONNRESET)
		require.Equal(t, 2, in.Fired())
		for _, f := range []func() error{
			func() error { _, err := h.Dial(testbroker.PortMQTT)(t.Context(), "tcp", "hub:1883"); return err },
			func() error { _, err := h.Dial(testbroker.PortMQTTS)(t.Context(), "tcp", "hub:8883"); return err },
		} {
			require.ErrorIs(t, f(), syscall.ECONNREFUSED)
		}
		require.Equal(t, 4, in.Fired())
		time.Sleep(time.Minute)
		login(t, h, d).ping()
		require.Equal(t, 4, in.Fired())
	})
}

func TestAbsentForOneDeviceFromAMessageOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		two, err := h.AddDevice("dev-2")
		require.NoError(t, err)
		w, w2 := login(t, h, d), login(t, h, two)
		in := h.Inject(fault.Fault{Kind: fault.Absent, Device: "dev-1", After: 1})
		w.publish(1, events, "x")
		w.acked()
		w.publish(2, events, "x")
		require.ErrorIs(t, w.end(), syscall.ECONNRESET)
		require.Equal(t, 1, h.Len())
		again := dial(t, h)
		again.send(connectOf(d).bytes())
		require.ErrorIs(t, again.end(), syscall.ECONNRESET)
		require.Equal(t, 2, in.Fired())
		w2.ping()
		in.Remove()
		login(t, h, d).ping()
	})
}

func TestDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		two, err := h.AddDevice("dev-2")
		require.NoError(t, err)
		w, w2, mute := login(t, h, d), login(t, h, two), dial(t, h)
		require.Equal(t, 1, h.Drop("dev-1"))
		require.ErrorIs(t, w.end(), syscall.ECONNRESET)
		w2.ping()
		synctest.Wait()
		require.Equal(t, 1, h.Connections(""))
		require.Equal(t, 2, h.Drop(""))
		require.ErrorIs(t, w2.end(), syscall.ECONNRESET)
		require.ErrorIs(t, mute.end(), syscall.ECONNRESET)
		synctest.Wait()
		require.Zero(t, h.Drop(""))
	})
}

func TestDropDuringPublishWithoutABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		in := h.Inject(fault.Fault{Kind: fault.DropDuringPublish})
		w := login(t, h, d)
		w.send([]byte{0x30, 0})
		require.ErrorIs(t, w.end(), syscall.ECONNRESET)
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
		t.Run(c.first.Kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := newHub(t, nil)
				w := login(t, h, d)
				c.first.After = 1
				first, tear := h.Inject(c.first), h.Inject(fault.Fault{Kind: fault.DropDuringPublish, After: 2})
				var all []byte
				for id := range uint16(3) {
					all = append(all, publishBytes(2, id+1, events, "x")...)
				}
				w.send(all)
				w.conn.SetReadDeadline(time.Now().Add(time.Hour))
				require.Equal(t, uint16(1), w.acked())
				if c.want == io.EOF {
					require.Equal(t, uint16(2), w.acked())
				}
				require.ErrorIs(t, w.end(), c.want)
				require.Equal(t, 1, first.Fired())
				require.Zero(t, tear.Fired())
			})
		})
	}
}
