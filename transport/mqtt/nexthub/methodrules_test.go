package nexthub_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/nexthub"
)

// worker is a device with the method "m", which takes a while.
type worker struct {
	*device.Client
	t    *testing.T
	h    *testbroker.Hub
	runs atomic.Int64
	lost atomic.Int64 // answers

	mu      sync.Mutex
	refused []string // the calls that were not run, and why
}

func work(t *testing.T, h *testbroker.Hub, takes time.Duration, o *device.Options) *worker {
	w := &worker{t: t, h: h}
	if o == nil {
		o = &device.Options{}
	}
	o.Trace = &device.Trace{
		AnswerLost: func(string) { w.lost.Add(1) },
		MethodRefused: func(method string, why transport.Kind) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.refused = append(w.refused, fmt.Sprint(method, ": ", why))
		},
	}
	w.Client = client(t, h, &nexthub.Hub{}, o)
	require.NoError(t, w.HandleMethod("m", func(context.Context, *device.MethodCall) (int, []byte) {
		w.runs.Add(1)
		time.Sleep(takes)
		return 200, []byte(`"ok"`)
	}))
	open(t, w.Client)
	return w
}

// call calls the method, and returns 200 or the code of the service's error.
func (w *worker) call(m hubdata.MethodCall) int {
	m.Name = "m"
	r, err := w.h.CallMethod(w.t.Context(), "dev-1", m)
	if e, ok := errors.AsType[*hubdata.ServiceError](err); ok {
		return e.Code
	}
	require.NoError(w.t, err)
	return r.Status
}

// Codes of the service's errors.
const (
	notFound    = 502000
	noTime      = 504101
	busy        = 429001
	unreachable = 404103
)

func TestAMethodRunsOnceUnderEachFault(t *testing.T) {
	for name, c := range map[string]struct {
		fault   fault.Fault
		code    int
		runs    int64
		refused uint64
		doubled uint64
	}{
		"the probe comes twice":   {fault.Fault{Kind: fault.DuplicateDispatch, Message: "probe"}, 200, 1, 0, 0},
		"the exec comes twice":    {fault.Fault{Kind: fault.DuplicateDispatch, Message: "exec"}, 200, 1, 0, 1},
		"an exec without a probe": {fault.Fault{Kind: fault.ExecWithoutProbe}, unreachable, 0, 0, 1},
		"the exec is for another request": {fault.Fault{Kind: fault.MisnameDispatch, Message: "exec"},
			noTime, 0, 1, 1},
		"the exec is unreadable":    {fault.Fault{Kind: fault.GarbleDispatch, Message: "exec"}, noTime, 0, 1, 0},
		"the probe is unreadable":   {fault.Fault{Kind: fault.GarbleDispatch, Message: "probe"}, unreachable, 0, 0, 0},
		"the probe is of version 2": {fault.Fault{Kind: fault.RetypeDispatch, Message: "probe"}, unreachable, 0, 0, 0},
		"the exec is lost":          {fault.Fault{Kind: fault.SwallowDispatch, Message: "exec"}, noTime, 0, 1, 0},
		"the exec has no time": {fault.Fault{Kind: fault.WrongExpiry, Message: "exec"},
			noTime, 0, 1, 0},
		"the exec has a second": {fault.Fault{Kind: fault.WrongExpiry, Message: "exec", Delay: time.Second},
			noTime, 0, 1, 0},
		"the exec has the margin": {fault.Fault{Kind: fault.WrongExpiry, Message: "exec", Delay: 3 * time.Second},
			noTime, 0, 1, 0},
		"the exec has more": {fault.Fault{Kind: fault.WrongExpiry, Message: "exec", Delay: 4 * time.Second},
			200, 1, 0, 0},
		"the exec has no expiry":  {fault.Fault{Kind: fault.OmitExpiry, Message: "exec"}, 200, 1, 0, 0},
		"the probe has no expiry": {fault.Fault{Kind: fault.OmitExpiry, Message: "probe"}, 200, 1, 0, 0},
		"the probe has no time":   {fault.Fault{Kind: fault.WrongExpiry, Message: "probe"}, unreachable, 0, 1, 0},
		"the probe has a second": {fault.Fault{Kind: fault.WrongExpiry, Message: "probe", Delay: time.Second},
			200, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
				w := work(t, h, time.Millisecond, nil)
				in := h.Inject(c.fault)
				require.Equal(t, c.code, w.call(hubdata.MethodCall{}))
				time.Sleep(time.Hour) // tokens end
				require.Equal(t, 1, in.Fired())
				require.Equal(t, c.runs, w.runs.Load())
				s := w.Stats()
				require.Equal(t, c.refused, s.MethodsRefused, "refused")
				require.Equal(t, c.doubled, s.MethodsDoubled, "doubled")
				require.Zero(t, w.lost.Load())
				require.Equal(t, 200, w.call(hubdata.MethodCall{}), "the next one")
			})
		})
	}
}

func TestCallsThatTheDeviceDoesNotTake(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		w := work(t, h, time.Minute, &device.Options{MethodLimit: 1})
		_, err := h.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: "other"})
		e, _ := errors.AsType[*hubdata.ServiceError](err)
		require.Equal(t, notFound, e.Code)
		require.Equal(t, noTime, w.call(hubdata.MethodCall{ResponseTimeout: time.Second}))
		synctest.Wait()
		synctest.Wait()
		require.EqualValues(t, 2, w.Stats().MethodsRefused)
		w.mu.Lock()
		require.Equal(t, []string{"other: not found", "m: message expired"}, w.refused)
		w.mu.Unlock()

		codes := make(chan int, 40)
		for range cap(codes) {
			go func() { codes <- w.call(hubdata.MethodCall{ResponseTimeout: 5 * time.Minute}) }()
		}
		synctest.Wait()
		count := map[int]int{}
		for len(codes) > 0 { // refused at once
			count[<-codes]++
		}
		require.Equal(t, map[int]int{busy: 40 - 16}, count)
		require.EqualValues(t, 2+40-16, w.Stats().MethodsRefused)
		w.mu.Lock()
		require.Len(t, w.refused, 2+40-16)
		require.Equal(t, "m: throttled", w.refused[2])
		w.mu.Unlock()
		for range 16 {
			count[<-codes]++
		}
		require.Positive(t, count[200])
		require.EqualValues(t, 16, count[200]+count[noTime])
		require.Equal(t, 200, w.call(hubdata.MethodCall{ResponseTimeout: 5 * time.Minute}), "there is room again")
	})
}

func TestALateAnswerIsDroppedAndSeen(t *testing.T) {
	for takes, late := range map[time.Duration]bool{29 * time.Second: false, 30 * time.Second: true, time.Hour: true} {
		t.Run(fmt.Sprint(takes), func(t *testing.T) {
			inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
				w := work(t, h, takes, nil)
				code := w.call(hubdata.MethodCall{})
				time.Sleep(2 * time.Hour)
				if late {
					require.Equal(t, noTime, code)
					require.EqualValues(t, 1, w.lost.Load())
					require.EqualValues(t, 1, w.Stats().AnswersLost)
				} else {
					require.Equal(t, 200, code)
					require.Zero(t, w.lost.Load())
				}
				require.EqualValues(t, 1, w.runs.Load())
			})
		})
	}
}

// The service's own client for C takes 8 names of methods, 4 calls at a time, results of 512 bytes,
// 16 messages without a PUBACK, 8 requests about the twin and 16 properties.
func TestThereAreNoSmallLimits(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		c := client(t, h, &nexthub.Hub{}, &device.Options{MethodLimit: 12})
		large := []byte(`"` + strings.Repeat("x", 50<<10) + `"`)
		for i := range 12 {
			require.NoError(t, c.HandleMethod(fmt.Sprint("m", i), func(_ context.Context, m *device.MethodCall) (int, []byte) {
				time.Sleep(time.Second)
				return i, m.Body
			}))
		}
		open(t, c)
		begin := time.Now()
		var calls sync.WaitGroup
		for i := range 12 {
			calls.Go(func() {
				r, err := h.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: fmt.Sprint("m", i), Payload: large})
				require.NoError(t, err)
				require.Equal(t, hubdata.MethodResult{Status: i, Payload: large}, r)
			})
		}
		calls.Wait()
		require.Equal(t, time.Second, time.Since(begin))

		h.Inject(fault.Fault{Kind: fault.SlowPuback, Delay: time.Second, Times: -1})
		h.Inject(fault.Fault{Kind: fault.SlowDispatch, Message: "get-response", Delay: time.Second, Times: -1})
		begin = time.Now()
		properties := make([]transport.Property, 40)
		for i := range properties {
			properties[i] = transport.Property{Name: fmt.Sprint("p", i), Value: "v"}
		}
		for range 40 {
			require.NoError(t, c.Enqueue(t.Context(), &transport.Message{Properties: properties}, nil))
		}
		for range 12 {
			calls.Go(func() {
				_, err := c.GetTwin(t.Context())
				require.NoError(t, err)
			})
		}
		require.NoError(t, c.Flush(t.Context()))
		calls.Wait()
		require.Equal(t, time.Second, time.Since(begin))
		require.Len(t, h.Messages(), 40)
		require.Len(t, h.Messages()[39].Properties, 40)
	})
}

// A method outlives its connection: the hub takes the answer on the next one.
func TestAMethodOutlivesItsConnection(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		w := work(t, h, 10*time.Second, nil)
		code := make(chan int)
		go func() { code <- w.call(hubdata.MethodCall{ResponseTimeout: time.Minute}) }()
		time.Sleep(time.Second)
		require.NoError(t, w.Reconnect())
		require.Equal(t, 200, <-code)
		require.EqualValues(t, 1, w.runs.Load())
		require.Zero(t, w.lost.Load())
		require.EqualValues(t, 2, w.Stats().Connections)
	})
}

// A message that waits for the end of the handshake has no more time than before.
func TestExpiriesCountFromTheArrival(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		w := work(t, h, time.Second, nil)
		h.Inject(fault.Fault{Kind: fault.HalfOpen, For: time.Second}) // the probe comes on the next connection
		code := make(chan int)
		go func() { code <- w.call(hubdata.MethodCall{ConnectTimeout: 10 * time.Second}) }()
		time.Sleep(2 * time.Second)
		h.Inject(fault.Fault{Kind: fault.SlowDispatch, Message: "birth-ack", Delay: 20 * time.Second})
		require.NoError(t, w.Reconnect())
		require.Equal(t, unreachable, <-code)
		time.Sleep(25 * time.Second)
		synctest.Wait()
		require.Equal(t, device.StateConnected, w.Status().State)
		require.Equal(t, []string{"m: message expired"}, w.refused)
	})
}

// A connection may end while the acknowledgement of a probe or of an exec is on the way. The hub
// sends that message again: the yes to the probe is repeated, and the method runs once.
func TestALostAcknowledgementRunsNothingTwice(t *testing.T) {
	for message, after := range map[string]int{"probe": 0, "exec": 1} {
		t.Run(message, func(t *testing.T) {
			inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
				w := work(t, h, time.Second, nil)
				in := h.Inject(fault.Fault{Kind: fault.DropOnReceipt, After: after})
				require.Equal(t, 200, w.call(hubdata.MethodCall{}))
				require.Equal(t, 1, in.Fired())
				require.EqualValues(t, 1, w.runs.Load())
				require.Zero(t, w.lost.Load())
				require.EqualValues(t, 2, w.Stats().Connections)
				if message == "exec" { // the yes to a probe may overtake its receipt: then the exec came again, too
					require.EqualValues(t, 1, w.Stats().MethodsDoubled, "the exec came again")
				}
			})
		})
	}
}

// A token that nobody uses is given up with a word to the hub, also on another connection.
func TestATokenIsGivenUpWithAWord(t *testing.T) {
	for _, reconnect := range []bool{false, true} {
		t.Run(fmt.Sprint("another connection ", reconnect), func(t *testing.T) {
			inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
				w := work(t, h, time.Second, nil)
				h.Inject(fault.Fault{Kind: fault.SwallowDispatch, Message: "exec"})
				begin := time.Now()
				code := make(chan int)
				go func() { code <- w.call(hubdata.MethodCall{ResponseTimeout: 10 * time.Minute}) }()
				if reconnect {
					time.Sleep(time.Minute)
					h.Drop("dev-1")
				}
				require.Equal(t, noTime, <-code)
				// 30 s to answer the probe, 10 minutes to run, 10 s margin. The caller waits less.
				require.Equal(t, 10*time.Minute, time.Since(begin))
				require.Zero(t, w.Stats().MethodsRefused)
				time.Sleep(41 * time.Second)
				require.EqualValues(t, 1, w.Stats().MethodsRefused)
			})
		})
	}
}

// An answer that the hub has not acknowledged goes to the next connection, whether it was sent or
// waits for its turn. The hub ignores a second one.
func TestAnAnswerOutlivesItsConnection(t *testing.T) {
	t.Run("sent", func(t *testing.T) {
		inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
			w := work(t, h, time.Second, nil)
			h.Inject(fault.Fault{Kind: fault.DropOnMethodAnswer})
			require.Equal(t, 200, w.call(hubdata.MethodCall{}))
			synctest.Wait() // the hub has the answer before the client counts its connection
			require.EqualValues(t, 1, w.runs.Load())
			require.Zero(t, w.lost.Load())
			require.EqualValues(t, 2, w.Stats().Connections)
		})
	})
	t.Run("refused", func(t *testing.T) {
		inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
			w := work(t, h, time.Second, nil)
			h.Inject(fault.Fault{Kind: fault.RefusePublish, Code: 0x97, After: 1}) // the first is for the probe
			require.Equal(t, noTime, w.call(hubdata.MethodCall{}))
			require.EqualValues(t, 1, w.lost.Load())
			require.EqualValues(t, 1, w.Stats().Connections)
		})
	})
	t.Run("ends each connection", func(t *testing.T) {
		inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
			w := work(t, h, time.Second, nil)
			in := h.Inject(fault.Fault{Kind: fault.DisconnectOnPublish, Code: 0x99, After: 1, Times: 3})
			require.Equal(t, noTime, w.call(hubdata.MethodCall{ResponseTimeout: time.Hour}))
			require.Equal(t, 2, in.Fired())
			require.EqualValues(t, 3, w.Stats().Connections)
		})
	})
	t.Run("waiting", func(t *testing.T) {
		inBubble(t, testbroker.MQTTv5Options{ReceiveMaximum: 2}, func(t *testing.T, h *testbroker.Hub) {
			w := work(t, h, 10*time.Second, nil)
			codes := make(chan int)
			for range 3 {
				go func() { codes <- w.call(hubdata.MethodCall{ResponseTimeout: time.Minute}) }()
			}
			time.Sleep(time.Second)
			h.Inject(fault.Fault{Kind: fault.HalfOpen, For: 12 * time.Second})
			time.Sleep(11 * time.Second) // the answers wait
			require.NoError(t, w.Reconnect())
			for range 3 {
				require.Equal(t, 200, <-codes)
			}
			require.EqualValues(t, 3, w.runs.Load())
			require.Zero(t, w.lost.Load())
		})
	})
}

// lingering has sessions that report the end of their connection late.
type lingering struct{ transport.Transport }

func (l lingering) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	s, err := l.Transport.Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return lingeringSession{s}, nil
}

type lingeringSession struct{ transport.Session }

func (s lingeringSession) Run(ctx context.Context) error {
	err := s.Session.Run(ctx)
	if ctx.Err() == nil {
		time.Sleep(10 * time.Second)
	}
	return err
}

// An answer may come after the end of its connection and before the client knows of that.
func TestAnAnswerBehindTheEndOfItsConnectionGoesToTheNext(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		c, err := device.New(creds(), lingering{mqtt.New(options(h, &nexthub.Hub{}))}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		require.NoError(t, c.HandleMethod("m", func(context.Context, *device.MethodCall) (int, []byte) {
			time.Sleep(5 * time.Second)
			return 200, nil
		}))
		open(t, c)
		time.AfterFunc(time.Second, func() { h.Drop("dev-1") })
		r, err := h.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: "m", ResponseTimeout: time.Minute})
		require.NoError(t, err)
		require.Equal(t, 200, r.Status)
		require.EqualValues(t, 2, c.Stats().Connections)
		require.Zero(t, c.Stats().AnswersLost)
	})
}

// failingAnswers fails the first writes of an answer of a method.
type failingAnswers struct {
	net.Conn
	left *atomic.Int32
}

func (c failingAnswers) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(nextwire.TypeResult)) && c.left.Add(-1) >= 0 {
		return 0, net.ErrWriteToConnected
	}
	return c.Conn.Write(p)
}

// A hub that takes one message at a time gets answers with QoS 0. If a write fails, the answer goes
// once more, on the next connection.
func TestAnAnswerThatCouldNotBeWrittenGoesToTheNextConnection(t *testing.T) {
	for fails, lost := range map[int32]uint64{1: 0, 2: 1} {
		t.Run(fmt.Sprint(fails, " times"), func(t *testing.T) {
			inBubble(t, testbroker.MQTTv5Options{ReceiveMaximum: 1}, func(t *testing.T, h *testbroker.Hub) {
				var left atomic.Int32
				left.Store(fails)
				o := options(h, &nexthub.Hub{})
				o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := h.Dial(testbroker.PortMQTT)(ctx, network, addr)
					return failingAnswers{c, &left}, err
				}
				c, err := device.New(creds(), mqtt.New(o), nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, c.Close()) }()
				require.NoError(t, c.HandleMethod("m", func(context.Context, *device.MethodCall) (int, []byte) {
					return 200, nil
				}))
				open(t, c)
				_, err = h.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: "m", ResponseTimeout: time.Minute})
				require.Equal(t, lost > 0, err != nil, "%v", err)
				synctest.Wait() // the hub has the answer before the client counts its connection
				require.Equal(t, lost, c.Stats().AnswersLost)
				require.EqualValues(t, fails+1, c.Stats().Connections)
			})
		})
	}
}
