package device_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// call delivers a method call and reports whether it was taken.
func (s *fakeSession) call(ref, name, body string) bool {
	return s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureMethods, Name: []byte(name), Ref: []byte(ref),
		Msg: &transport.Message{Body: []byte(body)}})
}

// answers returns the answers to methods as "ref status body", in the order of their references.
func (f *fake) answers() (all []string) {
	for _, r := range f.requests() {
		if r.Op == transport.OpRespond {
			all = append(all, fmt.Sprint(string(r.Ref), " ", r.Status, " ", string(r.Body)))
		}
	}
	slices.Sort(all)
	return all
}

func TestMethods(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		var panics []any
		c, _ := client(t, f, &device.Options{Trace: &device.Trace{HandlerPanic: func(v any) { panics = append(panics, v) }}})
		require.NoError(t, c.HandleMethod("echo",
			func(_ context.Context, m *device.MethodCall) (int, []byte) { return 200, m.Body }))
		require.NoError(t, c.HandleMethod("bad",
			func(context.Context, *device.MethodCall) (int, []byte) { return 200, []byte("{") }))
		require.NoError(t, c.HandleMethod("big", func(context.Context, *device.MethodCall) (int, []byte) {
			return 200, []byte(`"` + strings.Repeat("x", 128<<10) + `"`)
		}))
		require.NoError(t, c.HandleMethod("panic", func(context.Context, *device.MethodCall) (int, []byte) { panic("oh") }))
		require.NoError(t, c.HandleMethod("exit",
			func(context.Context, *device.MethodCall) (int, []byte) { runtime.Goexit(); return 0, nil }))
		open(t, c)
		require.Equal(t, []transport.Features{transport.FeatureMethods}, f.subscriptions())
		s := f.last()
		for i, name := range []string{"echo", "bad", "big", "panic", "exit", "none"} {
			require.True(t, s.call(fmt.Sprint(i), name, `{"a":1}`))
			synctest.Wait()
		}
		require.Equal(t, []string{
			`0 200 {"a":1}`,
			`1 500 {"message":"the method's answer is not JSON in UTF-8, nested 64 deep at most"}`,
			`2 500 {"message":"the method's answer is larger than 128 KiB"}`,
			`3 500 {"message":"the method failed"}`,
			`4 500 {"message":"the method failed"}`,
			`5 404 {"message":"the device has no such method"}`,
		}, f.answers())
		require.Len(t, panics, 4)
		require.EqualError(t, panics[0].(error), `the answer of method "bad" is not JSON in UTF-8, nested 64 deep at most`)
		require.EqualError(t, panics[1].(error), `the answer of method "big" is larger than 128 KiB`)
		require.Equal(t, "oh", panics[2])
		require.ErrorContains(t, panics[3].(error), "runtime.Goexit")

		require.NoError(t, c.HandleMethod("",
			func(_ context.Context, m *device.MethodCall) (int, []byte) { return 201, []byte(`"` + m.Name + `"`) }))
		require.NoError(t, c.HandleMethod("echo", nil))
		s.call("6", "echo", "")
		s.call("7", "other", "")
		synctest.Wait()
		require.Equal(t, []string{`6 201 "echo"`, `7 201 "other"`}, f.answers()[6:])
		st := c.Stats()
		require.EqualValues(t, 7, st.MethodCalls)
		require.EqualValues(t, 1, st.MethodsRefused)
		require.EqualValues(t, 4, st.HandlerPanics)
	})
}

// The session was up before there was a handler.
func TestAMethodOfAConnectedClientIsAnswered(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, _ := client(t, f, nil)
		open(t, c)
		require.NoError(t, c.HandleMethod("m", func(context.Context, *device.MethodCall) (int, []byte) { return 200, nil }))
		synctest.Wait()
		f.last().call("1", "m", "")
		synctest.Wait()
		require.Equal(t, []string{"1 200 "}, f.answers())
	})
}

// AMQP would cut a larger status, and hubs ignore answers with one over MQTT. Text in another
// encoding than UTF-8 is no JSON: RFC 8259, section 8.1.
func TestAnAnswerThatNoHubTakesIsReported(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		var reported []string
		c, _ := client(t, f, &device.Options{Trace: &device.Trace{HandlerPanic: func(v any) {
			reported = append(reported, v.(error).Error())
		}}})
		const badStatus = "has a status that is no number of 32 bits"
		const badText = "is not JSON in UTF-8, nested 64 deep at most"
		for i, row := range []struct {
			status    int64
			body, why string
		}{
			{1<<31 - 1, "", ""}, {-1 << 31, "", ""}, {200, "\"\u00e4\"", ""},
			{1 << 31, "", badStatus}, {-1<<31 - 1, "", badStatus}, {1 << 40, "", badStatus},
			{200, "\"\xe4\"", badText}, {200, "{\"\xed\xa0\x80\":1}", badText},
			{200, strings.Repeat("[", 64) + strings.Repeat("]", 64), ""},
			{200, strings.Repeat("[", 65) + strings.Repeat("]", 65), badText},
		} {
			if int64(int(row.status)) != row.status {
				continue // this processor's int is as small as a status
			}
			reported = nil
			require.NoError(t, c.HandleMethod("", func(context.Context, *device.MethodCall) (int, []byte) {
				return int(row.status), []byte(row.body)
			}))
			open(t, c)
			require.True(t, f.last().call(fmt.Sprint(i), "m?sig=c2VjcmV0c2VjcmV0", ""))
			synctest.Wait()
			answers := f.answers()
			if row.why == "" {
				require.Equal(t, fmt.Sprint(i, " ", row.status, " ", row.body), answers[len(answers)-1])
				require.Empty(t, reported)
				continue
			}
			require.Equal(t, fmt.Sprint(i, ` 500 {"message":"the method's answer `, row.why, `"}`), answers[len(answers)-1])
			require.Equal(t, []string{`the answer of method "m?sig=(hidden)" ` + row.why}, reported)
		}
	})
}

func TestMethodNames(t *testing.T) {
	c, _ := client(t, &fake{}, nil)
	for _, bad := range []string{"a b", "a/b", "ä", "a\x00", "$a", "a?"} {
		require.ErrorIs(t, c.HandleMethod(bad,
			func(context.Context, *device.MethodCall) (int, []byte) { return 0, nil }), transport.Invalid, bad)
	}
	require.NoError(t, c.HandleMethod("get-Log_1.2!",
		func(context.Context, *device.MethodCall) (int, []byte) { return 0, nil }))
}

func TestMethodsRunConcurrentlyUpToALimit(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, _ := client(t, f, &device.Options{MethodLimit: 2})
		var running, most atomic.Int32
		require.NoError(t, c.HandleMethod("slow", func(context.Context, *device.MethodCall) (int, []byte) {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Second)
			running.Add(-1)
			return 200, nil
		}))
		open(t, c)
		for i := range 25 {
			require.True(t, f.last().call(fmt.Sprint(i), "slow", ""))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.EqualValues(t, 2, most.Load())
		ok, busy := 0, 0
		for _, a := range f.answers() {
			switch {
			case strings.Contains(a, " 200 "):
				ok++
			case strings.Contains(a, " 503 "):
				busy++
			}
		}
		require.Equal(t, []int{18, 7}, []int{ok, busy})
	})
}

// A call that is delivered twice runs once.
func TestAMethodCallThatComesTwice(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, _ := client(t, f, nil)
		runs := 0
		require.NoError(t, c.HandleMethod("once",
			func(context.Context, *device.MethodCall) (int, []byte) { runs++; return 200, nil }))
		open(t, c)
		f.last().call("1", "once", "")
		f.last().call("1", "once", "")
		synctest.Wait()
		f.last().call("1", "once", "")
		synctest.Wait()
		require.Equal(t, 1, runs)
		require.Len(t, f.answers(), 1)
		require.EqualValues(t, 2, c.Stats().MethodsDoubled)
		f.lose(transport.Network, time.Minute)
		f.last().call("1", "once", "")
		synctest.Wait()
		require.Equal(t, 2, runs, "references belong to a session")
	})
}

// A pending call is recognized after any number of later calls.
func TestALongMethodCallThatComesTwice(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, _ := client(t, f, &device.Options{MethodLimit: 2})
		runs := 0
		require.NoError(t, c.HandleMethod("long",
			func(ctx context.Context, _ *device.MethodCall) (int, []byte) { runs++; <-ctx.Done(); return 200, nil }))
		require.NoError(t, c.HandleMethod("quick", ok))
		open(t, c)
		f.last().call("0", "long", "")
		for i := range 100 {
			f.last().call(fmt.Sprint(i+1), "quick", "")
			synctest.Wait()
		}
		f.last().call("0", "long", "")
		f.last().call("100", "quick", "")
		synctest.Wait()
		require.Equal(t, 1, runs)
		require.EqualValues(t, 2, c.Stats().MethodsDoubled)
		time.Sleep(time.Hour)
		require.Len(t, f.answers(), 101)
	})
}

// openSlow opens c with a handler of ten seconds, and returns the number of its calls.
func openSlow(t *testing.T, c *device.Client) *int {
	runs := new(int)
	require.NoError(t, c.HandleMethod("", func(context.Context, *device.MethodCall) (int, []byte) {
		*runs++
		time.Sleep(10 * time.Second)
		return 200, nil
	}))
	open(t, c)
	return runs
}

// An answer belongs to the session that brought the call.
func TestAnAnswerWhoseSessionHasEnded(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		var lostAnswers []string
		c, _ := client(t, f, &device.Options{MethodLimit: 1,
			Trace: &device.Trace{AnswerLost: func(name string) { lostAnswers = append(lostAnswers, name) }}})
		runs := openSlow(t, c)
		f.last().call("1", "running", "")
		f.last().call("2", "waiting", "")
		synctest.Wait()
		f.lose(transport.Network, time.Minute)
		synctest.Wait()
		require.Equal(t, 1, *runs)
		require.Equal(t, []string{"waiting", "running"}, lostAnswers)
		require.Empty(t, f.answers())
		require.EqualValues(t, 2, c.Stats().AnswersLost)
	})
}

// once delivers a call whose answer goes to any session.
func (s *fakeSession) once(ref, name string) {
	s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureMethods, Name: []byte(name), Ref: []byte(ref),
		Once: true, Msg: &transport.Message{}})
}

// A call that outlives its session runs once, and its answer goes to a later session.
func TestAnAnswerForAnySession(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		f.subscribe = func(conn int) error {
			if conn == 2 {
				return errHold
			}
			return nil
		}
		c, _ := client(t, f, &device.Options{MethodLimit: 1})
		runs := openSlow(t, c)
		f.last().once("1", "running")
		f.last().once("2", "waiting")
		synctest.Wait()
		f.lose(transport.Network, 15*time.Second)
		f.last().once("1", "running") // the first answer waits for a session that is up
		f.lose(transport.Network, 15*time.Second)
		f.last().once("2", "waiting")
		synctest.Wait()
		require.Equal(t, 2, *runs)
		require.Equal(t, []string{"1 200 ", "2 200 "}, f.answers())
		require.Zero(t, c.Stats().AnswersLost)
		require.EqualValues(t, 2, c.Stats().MethodsDoubled)
	})
}

// A session may end before the client knows of it, and then takes no answer.
func TestAnAnswerForAnySessionAtTheEndOfOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{}
		f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
			if s.conn == 1 {
				s.cfg.Sink.Reply(r.ID, transport.Reply{Err: lost(transport.Network)})
			} else if string(r.Ref) == "2" { // lost for good
				s.cfg.Sink.Reply(r.ID, transport.Reply{Err: refused(transport.TooLarge)})
			}
			return transport.Reply{}, false
		}
		c, _ := client(t, f, nil)
		require.NoError(t, c.HandleMethod("", ok))
		open(t, c)
		for _, ref := range ids(1, 3) {
			f.last().once(ref, "m")
			synctest.Wait()
		}
		require.Zero(t, c.Stats().AnswersLost)
		tried := len(f.answers())
		f.lose(transport.Network, time.Minute)
		require.Equal(t, []string{"1 200 ", "2 200 ", "3 200 "}, f.answers()[tried:])
		require.EqualValues(t, 1, c.Stats().AnswersLost)
	})
}

// Close waits for answers while a session may take them, and not in an outage.
func TestCloseWaitsForNoAnswersInAnOutage(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		f.dial = func(n int, _ context.Context) error {
			if n > 1 {
				return refused(transport.Network)
			}
			return nil
		}
		c, _ := client(t, f, nil)
		require.NoError(t, c.HandleMethod("", func(context.Context, *device.MethodCall) (int, []byte) {
			time.Sleep(10 * time.Second)
			return 200, nil
		}))
		open(t, c)
		f.last().once("1", "x")
		f.lose(transport.Network, time.Minute)
		begun := time.Now()
		require.NoError(t, c.Close())
		require.Zero(t, time.Since(begun))
	})
}

func TestAMethodsTime(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, _ := client(t, f, &device.Options{MethodTimeout: 7 * time.Second})
		require.NoError(t, c.HandleMethod("wait", func(ctx context.Context, _ *device.MethodCall) (int, []byte) {
			deadline, ok := ctx.Deadline()
			if !ok || time.Until(deadline) != 7*time.Second {
				return 500, nil
			}
			<-ctx.Done()
			return 504, nil
		}))
		open(t, c)
		f.last().call("1", "wait", "")
		time.Sleep(8 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"1 504 "}, f.answers())

		f.last().call("2", "wait", "")
		synctest.Wait()
		begin := time.Now()
		require.NoError(t, c.Close())
		require.Zero(t, time.Since(begin), "Close ends the context, and the answer still goes out")
		require.Equal(t, []string{"1 504 ", "2 504 "}, f.answers())
		require.ErrorIs(t, c.Open(t.Context()), transport.Closed)
	})
}

// An answer that waits for the loop is sent before Close ends the session. The loop drew lots
// between the answer and the end, so the test runs often.
func TestCloseSendsTheAnswersThatWait(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T) {
			f := &fake{gate: make(chan struct{})}
			c, _ := client(t, f, nil)
			require.NoError(t, c.HandleMethod("stop", ok))
			open(t, c)
			go func() { _ = c.Send(t.Context(), msg(1)) }()
			synctest.Wait() // the loop is in Send
			f.last().call("1", "stop", "")
			synctest.Wait()
			closed := make(chan error)
			go func() { closed <- c.Close() }()
			synctest.Wait()
			close(f.gate)
			require.NoError(t, <-closed)
			require.Equal(t, []string{"1 200 "}, f.answers())
			require.Zero(t, c.Stats().AnswersLost)
		})
	}
}

// The time of a call runs while it waits. A call whose time has ended does not run; a call that
// runs gets the rest of its time.
func TestAMethodsTimeRunsWhileItWaits(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, _ := client(t, f, &device.Options{MethodLimit: 1, MethodTimeout: 30 * time.Second})
		begin := time.Now()
		var ran []string
		require.NoError(t, c.HandleMethod("", func(ctx context.Context, m *device.MethodCall) (int, []byte) {
			deadline, _ := ctx.Deadline()
			ran = append(ran, fmt.Sprint(m.Name, " ", deadline.Sub(begin)))
			time.Sleep(20 * time.Second)
			return 200, nil
		}))
		open(t, c)
		for i := range 4 {
			f.last().call(fmt.Sprint(i), fmt.Sprint("m", i), "")
		}
		time.Sleep(25 * time.Second)
		f.last().call("4", "m4", "")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"m0 30s", "m1 30s", "m4 55s"}, ran)
		const late = ` 503 {"message":"the device was too busy to run the call in its time"}`
		require.Equal(t, []string{"0 200 ", "1 200 ", "2" + late, "3" + late, "4 200 "}, f.answers())
		require.EqualValues(t, 2, c.Stats().MethodsRefused)
		require.EqualValues(t, 5, c.Stats().MethodCalls)
	})
}

// Close ends the contexts of all handlers at once: a handler that ignores its context does not
// delay the end of others.
func TestCloseEndsAllHandlersAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newTwinHub()
		c, _ := client(t, h.f, nil)
		c.HandleDesired(func(context.Context, device.Desired) { time.Sleep(4 * time.Second) })
		c.HandleMessages(func(context.Context, *transport.Message) error {
			time.Sleep(3 * time.Second)
			return nil
		})
		var ended time.Duration
		begin := time.Now()
		require.NoError(t, c.HandleMethod("", func(ctx context.Context, _ *device.MethodCall) (int, []byte) {
			<-ctx.Done()
			ended = time.Since(begin)
			return 200, nil
		}))
		open(t, c)
		h.f.last().call("1", "x", "")
		require.True(t, h.f.last().deliver("1"))
		synctest.Wait()
		require.NoError(t, c.Close())
		require.Zero(t, ended)
	})
}

// An answer that the session could not send is reported as lost, once, whatever was answered before
// and after it.
func TestAnAnswerThatTheSessionCouldNotSend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var ids []uint32
		f := &fake{}
		f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
			if r.Op == transport.OpRespond {
				ids = append(ids, r.ID)
				if string(r.Ref) == "1" { // reported inside Do
					s.cfg.Sink.Reply(r.ID, transport.Reply{Err: lost(transport.Network)})
				}
				return transport.Reply{}, false
			}
			return answering(s, r)
		}
		var lostAnswers []string
		c, _ := client(t, f, &device.Options{Trace: &device.Trace{AnswerLost: func(name string) {
			lostAnswers = append(lostAnswers, name)
		}}})
		require.NoError(t, c.HandleMethod("", ok))
		open(t, c)
		for i := range 4 {
			f.last().call(fmt.Sprint(i), fmt.Sprint("m", i), "")
			synctest.Wait()
		}
		require.Equal(t, []string{"m1"}, lostAnswers)
		reply := func(id uint32, err error) { f.last().cfg.Sink.Reply(id, transport.Reply{Err: err}) }
		reply(ids[3], refused(transport.TooLarge)) // reported later
		reply(ids[3], refused(transport.TooLarge))
		reply(ids[1], refused(transport.TooLarge))
		reply(ids[0], nil)
		reply(ids[0]+99, refused(transport.TooLarge))
		require.Equal(t, []string{"m1", "m3"}, lostAnswers)
		require.EqualValues(t, 2, c.Stats().AnswersLost)
		_, err := c.GetTwin(t.Context())
		require.NoError(t, err)
	})
}
