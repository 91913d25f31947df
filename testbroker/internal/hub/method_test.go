package hub_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestMethodsOverMQTT(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		d := hubtest.AddModule(t, h, "dev-1", "mod-1")
		w := hubtest.Login(t, h, d)
		w.Subscribe(1, hubtest.MethodTopics)
		c := hubtest.Call(t, h, "dev-1/mod-1", hubdata.MethodCall{Name: "reboot", Payload: []byte(`{"in":5}`)})
		rid, payload := hubtest.Asked(w, "reboot")
		require.Equal(t, "1", rid)
		require.Equal(t, `{"in":5}`, payload)
		log := h.MethodLog("dev-1")
		require.Equal(t, []hubdata.MethodRecord{{
			DeviceID: "dev-1", ModuleID: "mod-1",
			MethodCall: hubdata.MethodCall{Name: "reboot", Payload: []byte(`{"in":5}`), ResponseTimeout: 30 * time.Second},
			RequestID:  "1", Protocol: hubdata.MQTT, Connection: 1, Deliveries: 1, Called: time.Now(), Delivered: time.Now(),
		}}, log)
		time.Sleep(time.Second)
		hubtest.AnswerCall(w, -7, rid, `null`)
		require.Equal(t, hubdata.MethodResult{Status: -7, Payload: []byte("null")}, c.Result())
		log = h.MethodLog("dev-1/mod-1")
		require.Equal(t, c.Answer, log[0].Result)
		require.Equal(t, time.Second, log[0].Ended.Sub(log[0].Delivered))
		require.Equal(t, []hubdata.MethodAnswer{{
			DeviceID: "dev-1", ModuleID: "mod-1", RequestID: "1", MethodResult: c.Answer, Fate: hubdata.AnswerTaken,
			Protocol:   hubdata.MQTT,
			Connection: 1, Received: time.Now(),
		}}, h.MethodAnswers("dev-1"))

		c = hubtest.Call(t, h, "dev-1/mod-1", hubdata.MethodCall{Name: "a%+#b"})
		rid, payload = hubtest.Asked(w, "a%25%2B%23b")
		require.Empty(t, payload)
		w.Publish(9, hubtest.MethodAnswer+"200/?$rid="+rid, "") // QoS 1, no payload
		require.EqualValues(t, 9, w.Acked())
		require.Equal(t, hubdata.MethodResult{Status: 200}, c.Result())
	})
}

func TestMethodsGoToTheNewestSubscriber(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		offline := func(name string) {
			t.Helper()
			require.Equal(t, 404103, hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: name}).Code())
		}
		began := time.Now()
		offline("a")
		require.Equal(t, began, time.Now())
		w := hubtest.Login(t, h, d)
		offline("a") // connected, but not subscribed to methods
		w.Subscribe(0, "$iothub/methods/POST/a/#")
		offline("b")
		c := hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "a"})
		rid, _ := hubtest.Asked(w, "a")
		hubtest.AnswerCall(w, 200, rid, "")
		c.Result()
		w.Send(hubtest.Frame(0xa2, []byte{0, 9}, hubtest.Str("$iothub/methods/POST/a/#")))
		w.Expect(hubtest.Unsuback)
		offline("a")
		require.Len(t, h.MethodLog("dev-1"), 5)
		require.Empty(t, h.MethodLog("")[0].RequestID)

		// A call waits for a client that connects within ConnectTimeout.
		c = hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "c", ConnectTimeout: time.Minute})
		time.Sleep(59 * time.Second)
		w.Subscribe(0, hubtest.MethodTopics)
		rid, _ = hubtest.Asked(w, "c")
		time.Sleep(29 * time.Second) // does not count for ResponseTimeout
		hubtest.AnswerCall(w, 200, rid, "")
		c.Result()
		w.Conn.Close()
		began = time.Now()
		require.Equal(t, 404103, hubtest.Call(t, h, "dev-1",
			hubdata.MethodCall{Name: "c", ConnectTimeout: time.Minute}).Code())
		require.Equal(t, time.Minute, time.Since(began))

		// A client that resumes its session gets calls without a new SUBSCRIBE, after its CONNACK.
		kept := hubtest.ConnectOf(d)
		kept.Flags = 0
		w = hubtest.Dial(t, h)
		w.Connect(kept)
		w.Subscribe(0, hubtest.MethodTopics)
		w.Conn.Close()
		synctest.Wait()
		c = hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "d", ConnectTimeout: time.Minute})
		w = hubtest.Dial(t, h)
		require.Equal(t, []byte{1, 0}, w.Connect(kept))
		rid, _ = hubtest.Asked(w, "d")
		hubtest.AnswerCall(w, 200, rid, "")
		c.Result()
	})
}

func TestRefusedCalls(t *testing.T) {
	h, _ := hubtest.NewHub(t, nil)
	large := []byte(`"` + strings.Repeat("x", hubdata.MaxMethodPayload-2) + `"`)
	for _, c := range []struct {
		id   string
		call hubdata.MethodCall
		code int
	}{
		{"dev-2", hubdata.MethodCall{Name: "a"}, 404001},
		{"dev-1/mod-1", hubdata.MethodCall{Name: "a"}, 404010},
		{"dev-1", hubdata.MethodCall{}, 400004},
		{"dev-1", hubdata.MethodCall{Name: "a b"}, 400004},
		{"dev-1", hubdata.MethodCall{Name: "a/b"}, 400004},
		{"dev-1", hubdata.MethodCall{Name: "ä"}, 400004},
		{"dev-1", hubdata.MethodCall{Name: "a", Payload: []byte("{")}, 400004},
		{"dev-1", hubdata.MethodCall{Name: "a", Payload: []byte("\"\xe4\"")}, 400004},
		{"dev-1", hubdata.MethodCall{Name: "a", Payload: append(large, ' ')}, 413001},
		{"dev-1", hubdata.MethodCall{Name: "a", Payload: large}, 404103},
	} {
		_, err := h.CallMethod(t.Context(), c.id, c.call)
		require.Equal(t, c.code, hubtest.CodeOf(t, err), "%s %.20s", c.id, c.call)
	}
	ctx, cancel := hubtest.ContextWithCause(errors.New("enough"))
	defer cancel()
	_, err := h.CallMethod(ctx, "dev-1", hubdata.MethodCall{Name: "a", ConnectTimeout: time.Hour})
	require.EqualError(t, err, "enough")
	require.NoError(t, h.Close())
	_, err = h.CallMethod(context.Background(), "dev-1", hubdata.MethodCall{Name: "a", ConnectTimeout: time.Hour})
	require.ErrorIs(t, err, testbroker.ErrClosed)
}

func TestIgnoredAnswers(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		w.Subscribe(0, hubtest.MethodTopics)
		began := time.Now()
		c := hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "slow", ResponseTimeout: 5 * time.Second})
		rid, _ := hubtest.Asked(w, "slow")
		hubtest.AnswerCall(w, 200, "ff", "")
		require.Equal(t, 504101, c.Code())
		require.Equal(t, 5*time.Second, time.Since(began))
		hubtest.AnswerCall(w, 200, rid, "")
		hubtest.Quiet(w)
		c = hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "twice"})
		rid, _ = hubtest.Asked(w, "twice")
		hubtest.AnswerCall(w, 200, rid, "1")
		hubtest.AnswerCall(w, 500, rid, "2")
		require.Equal(t, 200, c.Result().Status)
		hubtest.Quiet(w)
		c = hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "bad"})
		rid, _ = hubtest.Asked(w, "bad")
		hubtest.AnswerCall(w, 200, rid, "{")
		require.Equal(t, 502000, c.Code())
		c = hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "latin-1"})
		rid, _ = hubtest.Asked(w, "latin-1")
		hubtest.AnswerCall(w, 200, rid, "\"\xe4\"")
		require.Equal(t, 502000, c.Code())
		c = hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "large"})
		rid, _ = hubtest.Asked(w, "large")
		hubtest.AnswerCall(w, 200, rid, strings.Repeat(" ", hubdata.MaxMethodPayload)+"1")
		require.Equal(t, 413001, c.Code())
		hubtest.AnswerCall(w, 200, rid, "1")
		hubtest.Quiet(w)
		require.Equal(t, []string{"unknown", "late", "taken", "repeated", "refused", "refused", "refused", "late"},
			hubtest.Fates(h))
	})
}

// An answer counts only on the connection of the request.
func TestMethodsAndReconnects(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		w.Subscribe(0, hubtest.MethodTopics)
		c := hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "a"})
		rid, _ := hubtest.Asked(w, "a")
		w.Conn.Close()
		synctest.Wait()
		w = hubtest.Login(t, h, d)
		hubtest.AnswerCall(w, 200, rid, "")
		require.Equal(t, 504101, c.Code())

		w.Subscribe(0, hubtest.MethodTopics)
		c = hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "b"})
		hubtest.Asked(w, "b")
		began := time.Now()
		hubtest.Login(t, h, d) // while the previous connection is still open
		require.Equal(t, 400027, c.Code())
		require.Equal(t, began, time.Now())
		require.Equal(t, []string{"elsewhere"}, hubtest.Fates(h))
	})
}

func TestMethodsOverAMQP(t *testing.T) {
	hubtest.InBubble(t, &testbroker.Options{Seed: 1}, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.LoginAMQP(t, h, d)
		so, ro := hubtest.PairOptions("methods:1")
		session := p.Session()
		r, err := session.NewReceiver(t.Context(), "/devices/dev-1/methods/devicebound", ro)
		require.NoError(t, err)
		require.Equal(t, 404103, hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "a"}).Code(), "one link is not enough")
		s, err := session.NewSender(t.Context(), "/devices/dev-1/methods/devicebound", so)
		require.NoError(t, err)
		synctest.Wait()

		answer := func(id any, status any, text string) error {
			return s.Send(t.Context(), &amqp.Message{
				Properties:            &amqp.MessageProperties{CorrelationID: id},
				ApplicationProperties: map[string]any{"IoThub-status": status}, Data: [][]byte{[]byte(text)},
			}, nil)
		}
		for i, asText := range []bool{false, true} {
			c := hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "reboot", Payload: []byte("[1]")})
			m, err := r.Receive(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, r.AcceptMessage(t.Context(), m))
			require.Equal(t, "reboot", m.ApplicationProperties["IoThub-methodname"])
			require.Equal(t, "[1]", string(m.GetData()))
			id, ok := m.Properties.CorrelationID.(amqp.UUID)
			require.True(t, ok)
			require.Regexp(t, regexp.MustCompile("^.{8}-.{4}-4.{3}-[89ab].{3}-.{12}$"), id.String())
			require.Equal(t, id.String(), h.MethodLog("dev-1")[i+1].RequestID)
			var correlation any = id
			if asText {
				correlation = strings.ToUpper(id.String())
			}
			require.NoError(t, answer(correlation, int32(200+i), `{"ok":true}`))
			require.Equal(t, hubdata.MethodResult{Status: 200 + i, Payload: []byte(`{"ok":true}`)}, c.Result())
			require.NoError(t, answer(correlation, int32(200), `{}`), "one that does not count is accepted all the same")
		}
		require.Equal(t, "amqp:invalid-field", hubtest.Condition(t, answer("x", "200", "")))
		require.NoError(t, answer("x", int64(200), ""))
		require.Equal(t, []string{"taken", "repeated", "taken", "repeated", "unknown"}, hubtest.Fates(h))

		c := hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "b"})
		_, err = r.Receive(t.Context(), nil)
		require.NoError(t, err)
		hubtest.Pair(hubtest.LoginAMQP(t, h, d), "/devices/dev-1/methods/devicebound", "methods:2")
		require.Equal(t, 400027, c.Code())

		w := hubtest.Login(t, h, d)
		w.Subscribe(0, hubtest.MethodTopics)
		c = hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "c"})
		rid, _ := hubtest.Asked(w, "c") // the newest connection gets the call
		hubtest.AnswerCall(w, 200, rid, "")
		c.Result()
	})
}

func TestFaultsOfMethods(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		var w *hubtest.Wire
		again := func() {
			synctest.Wait()
			w = hubtest.Login(t, h, d)
			w.Subscribe(0, hubtest.MethodTopics)
		}
		again()
		inject := func(f fault.Fault) *testbroker.Injected {
			f.Method = "a"
			return h.Inject(f)
		}
		start := func() *hubtest.Calling {
			return hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "a", Payload: []byte("1")})
		}
		inject(fault.Fault{Kind: fault.SwallowMethod})
		other := hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "b"})
		rid, _ := hubtest.Asked(w, "b")
		hubtest.AnswerCall(w, 200, rid, "")
		other.Result()
		require.Equal(t, 504101, start().Code())

		inject(fault.Fault{Kind: fault.DuplicateMethod})
		c := start()
		rid, _ = hubtest.Asked(w, "a")
		again2, _ := hubtest.Asked(w, "a")
		require.Equal(t, rid, again2)
		hubtest.AnswerCall(w, 200, rid, "")
		c.Result()

		inject(fault.Fault{Kind: fault.GarbleMethod, Bytes: []byte("]")})
		c = start()
		rid, payload := hubtest.Asked(w, "a")
		require.Equal(t, "]", payload)
		hubtest.AnswerCall(w, 400, rid, "")
		c.Result()

		inject(fault.Fault{Kind: fault.RefuseMethod, Status: 503})
		require.Equal(t, 503001, start().Code())
		inject(fault.Fault{Kind: fault.RefuseMethod, ErrorCode: 404103})
		require.Equal(t, 404103, start().Code())
		inject(fault.Fault{Kind: fault.RefuseMethod})
		require.Equal(t, 429001, start().Code())
		inject(fault.Fault{Kind: fault.MisnameMethod})
		c = start()
		rid, _ = hubtest.Asked(w, "a")
		hubtest.AnswerCall(w, 200, rid, "")
		require.Equal(t, 504101, c.Code())
		w.Ping() // otherwise the keep-alive would expire

		inject(fault.Fault{Kind: fault.SlowMethod, Delay: time.Minute})
		c = start()
		require.Equal(t, 504101, c.Code())
		rid, _ = hubtest.Asked(w, "a") // after the caller has given up
		hubtest.AnswerCall(w, 200, rid, "")
		hubtest.Quiet(w)

		inject(fault.Fault{Kind: fault.SwallowMethodAnswer})
		c = start()
		rid, _ = hubtest.Asked(w, "a")
		hubtest.AnswerCall(w, 200, rid, "")
		require.Equal(t, 504101, c.Code())

		inject(fault.Fault{Kind: fault.SlowMethodAnswer, Delay: 10 * time.Second})
		c = start()
		rid, _ = hubtest.Asked(w, "a")
		began := time.Now()
		hubtest.AnswerCall(w, 200, rid, "")
		c.Result()
		require.Equal(t, 10*time.Second, time.Since(began))

		inject(fault.Fault{Kind: fault.DropBeforeMethod})
		c = start()
		require.Error(t, w.End())
		require.Equal(t, 504101, c.Code())
		again()
		inject(fault.Fault{Kind: fault.DropAfterMethod})
		c = start()
		hubtest.Asked(w, "a")
		require.Error(t, w.End())
		require.Equal(t, 504101, c.Code())
		again()
		inject(fault.Fault{Kind: fault.DropOnMethodAnswer})
		c = start()
		rid, _ = hubtest.Asked(w, "a")
		hubtest.AnswerCall(w, 200, rid, "")
		require.Error(t, w.End())
		require.Equal(t, 504101, c.Code())
		again()
		inject(fault.Fault{Kind: fault.DropAfterMethodAnswer})
		c = start()
		rid, _ = hubtest.Asked(w, "a")
		hubtest.AnswerCall(w, 200, rid, "")
		require.Error(t, w.End())
		c.Result()

		deliveries := []int{}
		for _, r := range h.MethodLog("") {
			deliveries = append(deliveries, r.Deliveries)
		}
		require.Equal(t, []int{1, 0, 2, 1, 0, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1}, deliveries)
		require.Equal(t, []string{"taken", "taken", "taken", "unknown", "late", "lost", "taken", "lost", "taken"},
			hubtest.Fates(h))
	})
}

// Close does not wait for calls, nor for delayed faults.
func TestCloseDuringCalls(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		w.Subscribe(0, hubtest.MethodTopics, hubtest.DesiredTopics)
		h.Inject(fault.Fault{Kind: fault.SlowMethod, Method: "a", Delay: time.Hour})
		h.Inject(fault.Fault{Kind: fault.SlowDesired, Delay: time.Hour})
		hubtest.PatchDesired(t, h, "dev-1", "{}")
		c := hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "a"})
		waiting := hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "b"})
		hubtest.Asked(w, "b")
		synctest.Wait()
		began := time.Now()
		require.NoError(t, h.Close())
		<-c.Done
		<-waiting.Done
		require.ErrorIs(t, c.Err, testbroker.ErrClosed)
		require.ErrorIs(t, waiting.Err, testbroker.ErrClosed)
		require.Equal(t, began, time.Now())
	})
}

// Many concurrent calls with reconnects: each has one end, and no answer counts for two.
func TestManyCalls(t *testing.T) {
	h, d := hubtest.NewHub(t, nil)
	stop := make(chan struct{})
	var device sync.WaitGroup
	device.Go(func() {
		for {
			conn, err := h.Dial(testbroker.PortMQTT)(context.Background(), "tcp", "hub")
			if err != nil {
				t.Error(err)
				return
			}
			w := hubtest.NewWire(t, conn)
			conn.Write(hubtest.ConnectOf(d).Bytes()) // the connection may be cut at any time
			conn.Write(hubtest.SubscribeBytes(1, hubtest.MethodTopics))
			for err == nil {
				var kind byte
				var body []byte
				kind, body, err = w.Read()
				if _, rid, ok := strings.Cut(string(body), "$rid="); ok && kind == 3 {
					conn.Write(hubtest.PublishBytes(0, 0, hubtest.MethodAnswer+"200/?$rid="+rid, ""))
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	const callers, each = 8, 40
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				h.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: "a", ConnectTimeout: time.Second,
					ResponseTimeout: 50 * time.Millisecond})
			}
		})
	}
	all.Go(func() {
		for range 20 {
			h.Drop("dev-1")
			h.Inject(fault.Fault{Kind: fault.DropAfterMethod, After: 3})
			h.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: "a", ConnectTimeout: time.Second,
				ResponseTimeout: 50 * time.Millisecond})
		}
	})
	all.Wait()
	close(stop)
	h.Drop("dev-1")
	device.Wait()
	taken := map[string]int{}
	for _, a := range h.MethodAnswers("") {
		if a.Fate == hubdata.AnswerTaken {
			taken[a.RequestID]++
		}
	}
	good := 0
	for _, r := range h.MethodLog("") {
		require.False(t, r.Ended.IsZero())
		require.Equal(t, r.Err == nil, taken[r.RequestID] == 1, "%+v", r)
		require.LessOrEqual(t, r.Deliveries, 1)
		if r.Err == nil {
			good++
		}
	}
	require.Len(t, h.MethodLog(""), callers*each+20)
	require.Positive(t, good)
	t.Log(good, "calls were answered")
}
