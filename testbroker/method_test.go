package testbroker_test

import (
	"context"
	"errors"
	"fmt"
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

const (
	methodTopics = "$iothub/methods/POST/#"
	methodAnswer = "$iothub/methods/res/"
)

// calling is an open call.
type calling struct {
	t      testing.TB
	done   chan struct{}
	result hubdata.MethodResult
	err    error
}

func call(t testing.TB, h *testbroker.Hub, id string, m hubdata.MethodCall) *calling {
	c := &calling{t: t, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.result, c.err = h.CallMethod(t.Context(), id, m)
	}()
	return c
}

func (c *calling) ok() hubdata.MethodResult {
	c.t.Helper()
	<-c.done
	require.NoError(c.t, c.err)
	return c.result
}

// code returns the code of the error with which the call must fail.
func (c *calling) code() int {
	c.t.Helper()
	<-c.done
	return codeOf(c.t, c.err)
}

func codeOf(t testing.TB, err error) int {
	t.Helper()
	var e *hubdata.ServiceError
	require.ErrorAs(t, err, &e)
	return e.Code
}

// asked reads a method request and returns its id.
func asked(w *hubtest.Wire, name string) (rid, payload string) {
	w.T.Helper()
	topic, payload := received(w)
	rid, ok := strings.CutPrefix(topic, "$iothub/methods/POST/"+name+"/?$rid=")
	require.True(w.T, ok, topic)
	return rid, payload
}

func answerCall(w *hubtest.Wire, status int, rid, payload string) {
	w.T.Helper()
	w.Send(hubtest.PublishBytes(0, 0, fmt.Sprintf("%s%d/?$rid=%s", methodAnswer, status, rid), payload))
}

func fates(h *testbroker.Hub) []string {
	all := []string{}
	for _, a := range h.MethodAnswers("") {
		all = append(all, a.Fate.String())
	}
	return all
}

func TestMethodsOverMQTT(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := hubtest.NewHub(t, nil)
		d, err := h.AddModule("dev-1", "mod-1")
		require.NoError(t, err)
		w := hubtest.Login(t, h, d)
		w.Subscribe(1, methodTopics)
		c := call(t, h, "dev-1/mod-1", hubdata.MethodCall{Name: "reboot", Payload: []byte(`{"in":5}`)})
		rid, payload := asked(w, "reboot")
		require.Equal(t, "1", rid)
		require.Equal(t, `{"in":5}`, payload)
		log := h.MethodLog("dev-1")
		require.Equal(t, []hubdata.MethodRecord{{
			DeviceID: "dev-1", ModuleID: "mod-1",
			MethodCall: hubdata.MethodCall{Name: "reboot", Payload: []byte(`{"in":5}`), ResponseTimeout: 30 * time.Second},
			RequestID:  "1", Protocol: hubdata.MQTT, Connection: 1, Deliveries: 1, Called: time.Now(), Delivered: time.Now(),
		}}, log)
		time.Sleep(time.Second)
		answerCall(w, -7, rid, `null`)
		require.Equal(t, hubdata.MethodResult{Status: -7, Payload: []byte("null")}, c.ok())
		log = h.MethodLog("dev-1/mod-1")
		require.Equal(t, c.result, log[0].Result)
		require.Equal(t, time.Second, log[0].Ended.Sub(log[0].Delivered))
		require.Equal(t, []hubdata.MethodAnswer{{
			DeviceID: "dev-1", ModuleID: "mod-1", RequestID: "1", MethodResult: c.result, Fate: hubdata.AnswerTaken,
			Protocol:   hubdata.MQTT,
			Connection: 1, Received: time.Now(),
		}}, h.MethodAnswers("dev-1"))

		c = call(t, h, "dev-1/mod-1", hubdata.MethodCall{Name: "a%+#b"})
		rid, payload = asked(w, "a%25%2B%23b")
		require.Empty(t, payload)
		w.Publish(9, methodAnswer+"200/?$rid="+rid, "") // QoS 1, no payload
		require.EqualValues(t, 9, w.Acked())
		require.Equal(t, hubdata.MethodResult{Status: 200}, c.ok())
	})
}

func TestMethodsGoToTheNewestSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		offline := func(name string) {
			t.Helper()
			require.Equal(t, 404103, call(t, h, "dev-1", hubdata.MethodCall{Name: name}).code())
		}
		began := time.Now()
		offline("a")
		require.Equal(t, began, time.Now())
		w := hubtest.Login(t, h, d)
		offline("a") // connected, but not subscribed to methods
		w.Subscribe(0, "$iothub/methods/POST/a/#")
		offline("b")
		c := call(t, h, "dev-1", hubdata.MethodCall{Name: "a"})
		rid, _ := asked(w, "a")
		answerCall(w, 200, rid, "")
		c.ok()
		w.Send(hubtest.Frame(0xa2, []byte{0, 9}, hubtest.Str("$iothub/methods/POST/a/#")))
		w.Expect(hubtest.Unsuback)
		offline("a")
		require.Len(t, h.MethodLog("dev-1"), 5)
		require.Empty(t, h.MethodLog("")[0].RequestID)

		// A call waits for a client that connects within ConnectTimeout.
		c = call(t, h, "dev-1", hubdata.MethodCall{Name: "c", ConnectTimeout: time.Minute})
		time.Sleep(59 * time.Second)
		w.Subscribe(0, methodTopics)
		rid, _ = asked(w, "c")
		time.Sleep(29 * time.Second) // does not count for ResponseTimeout
		answerCall(w, 200, rid, "")
		c.ok()
		w.Conn.Close()
		began = time.Now()
		require.Equal(t, 404103, call(t, h, "dev-1", hubdata.MethodCall{Name: "c", ConnectTimeout: time.Minute}).code())
		require.Equal(t, time.Minute, time.Since(began))

		// A client that resumes its session gets calls without a new SUBSCRIBE, after its CONNACK.
		kept := hubtest.ConnectOf(d)
		kept.Flags = 0
		w = hubtest.Dial(t, h)
		w.Connect(kept)
		w.Subscribe(0, methodTopics)
		w.Conn.Close()
		synctest.Wait()
		c = call(t, h, "dev-1", hubdata.MethodCall{Name: "d", ConnectTimeout: time.Minute})
		w = hubtest.Dial(t, h)
		require.Equal(t, []byte{1, 0}, w.Connect(kept))
		rid, _ = asked(w, "d")
		answerCall(w, 200, rid, "")
		c.ok()
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
		require.Equal(t, c.code, codeOf(t, err), "%s %.20s", c.id, c.call)
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
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		w := hubtest.Login(t, h, d)
		w.Subscribe(0, methodTopics)
		began := time.Now()
		c := call(t, h, "dev-1", hubdata.MethodCall{Name: "slow", ResponseTimeout: 5 * time.Second})
		rid, _ := asked(w, "slow")
		answerCall(w, 200, "ff", "")
		require.Equal(t, 504101, c.code())
		require.Equal(t, 5*time.Second, time.Since(began))
		answerCall(w, 200, rid, "")
		silentNow(w)
		c = call(t, h, "dev-1", hubdata.MethodCall{Name: "twice"})
		rid, _ = asked(w, "twice")
		answerCall(w, 200, rid, "1")
		answerCall(w, 500, rid, "2")
		require.Equal(t, 200, c.ok().Status)
		silentNow(w)
		c = call(t, h, "dev-1", hubdata.MethodCall{Name: "bad"})
		rid, _ = asked(w, "bad")
		answerCall(w, 200, rid, "{")
		require.Equal(t, 502000, c.code())
		c = call(t, h, "dev-1", hubdata.MethodCall{Name: "latin-1"})
		rid, _ = asked(w, "latin-1")
		answerCall(w, 200, rid, "\"\xe4\"")
		require.Equal(t, 502000, c.code())
		c = call(t, h, "dev-1", hubdata.MethodCall{Name: "large"})
		rid, _ = asked(w, "large")
		answerCall(w, 200, rid, strings.Repeat(" ", hubdata.MaxMethodPayload)+"1")
		require.Equal(t, 413001, c.code())
		answerCall(w, 200, rid, "1")
		silentNow(w)
		require.Equal(t, []string{"unknown", "late", "taken", "repeated", "refused", "refused", "refused", "late"},
			fates(h))
	})
}

// An answer counts only on the connection of the request.
func TestMethodsAndReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		w := hubtest.Login(t, h, d)
		w.Subscribe(0, methodTopics)
		c := call(t, h, "dev-1", hubdata.MethodCall{Name: "a"})
		rid, _ := asked(w, "a")
		w.Conn.Close()
		synctest.Wait()
		w = hubtest.Login(t, h, d)
		answerCall(w, 200, rid, "")
		require.Equal(t, 504101, c.code())

		w.Subscribe(0, methodTopics)
		c = call(t, h, "dev-1", hubdata.MethodCall{Name: "b"})
		asked(w, "b")
		began := time.Now()
		hubtest.Login(t, h, d) // while the previous connection is still open
		require.Equal(t, 400027, c.code())
		require.Equal(t, began, time.Now())
		require.Equal(t, []string{"elsewhere"}, fates(h))
	})
}

func TestMethodsOverAMQP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{Seed: 1})
		p := hubtest.LoginAMQP(t, h, d)
		so, ro := hubtest.PairOptions("methods:1")
		session := p.Session()
		r, err := session.NewReceiver(t.Context(), "/devices/dev-1/methods/devicebound", ro)
		require.NoError(t, err)
		require.Equal(t, 404103, call(t, h, "dev-1", hubdata.MethodCall{Name: "a"}).code(), "one link is not enough")
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
			c := call(t, h, "dev-1", hubdata.MethodCall{Name: "reboot", Payload: []byte("[1]")})
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
			require.Equal(t, hubdata.MethodResult{Status: 200 + i, Payload: []byte(`{"ok":true}`)}, c.ok())
			require.NoError(t, answer(correlation, int32(200), `{}`), "one that does not count is accepted all the same")
		}
		require.Equal(t, "amqp:invalid-field", hubtest.Condition(t, answer("x", "200", "")))
		require.NoError(t, answer("x", int64(200), ""))
		require.Equal(t, []string{"taken", "repeated", "taken", "repeated", "unknown"}, fates(h))

		c := call(t, h, "dev-1", hubdata.MethodCall{Name: "b"})
		_, err = r.Receive(t.Context(), nil)
		require.NoError(t, err)
		hubtest.Pair(hubtest.LoginAMQP(t, h, d), "/devices/dev-1/methods/devicebound", "methods:2")
		require.Equal(t, 400027, c.code())

		w := hubtest.Login(t, h, d)
		w.Subscribe(0, methodTopics)
		c = call(t, h, "dev-1", hubdata.MethodCall{Name: "c"})
		rid, _ := asked(w, "c") // the newest connection gets the call
		answerCall(w, 200, rid, "")
		c.ok()
	})
}

func TestFaultsOfMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		var w *hubtest.Wire
		again := func() {
			synctest.Wait()
			w = hubtest.Login(t, h, d)
			w.Subscribe(0, methodTopics)
		}
		again()
		inject := func(f fault.Fault) *testbroker.Injected {
			f.Method = "a"
			return h.Inject(f)
		}
		start := func() *calling {
			return call(t, h, "dev-1", hubdata.MethodCall{Name: "a", Payload: []byte("1")})
		}
		inject(fault.Fault{Kind: fault.SwallowMethod})
		other := call(t, h, "dev-1", hubdata.MethodCall{Name: "b"})
		rid, _ := asked(w, "b")
		answerCall(w, 200, rid, "")
		other.ok()
		require.Equal(t, 504101, start().code())

		inject(fault.Fault{Kind: fault.DuplicateMethod})
		c := start()
		rid, _ = asked(w, "a")
		again2, _ := asked(w, "a")
		require.Equal(t, rid, again2)
		answerCall(w, 200, rid, "")
		c.ok()

		inject(fault.Fault{Kind: fault.GarbleMethod, Bytes: []byte("]")})
		c = start()
		rid, payload := asked(w, "a")
		require.Equal(t, "]", payload)
		answerCall(w, 400, rid, "")
		c.ok()

		inject(fault.Fault{Kind: fault.RefuseMethod, Status: 503})
		require.Equal(t, 503001, start().code())
		inject(fault.Fault{Kind: fault.RefuseMethod, ErrorCode: 404103})
		require.Equal(t, 404103, start().code())
		inject(fault.Fault{Kind: fault.RefuseMethod})
		require.Equal(t, 429001, start().code())
		inject(fault.Fault{Kind: fault.MisnameMethod})
		c = start()
		rid, _ = asked(w, "a")
		answerCall(w, 200, rid, "")
		require.Equal(t, 504101, c.code())
		w.Ping() // otherwise the keep-alive would expire

		inject(fault.Fault{Kind: fault.SlowMethod, Delay: time.Minute})
		c = start()
		require.Equal(t, 504101, c.code())
		rid, _ = asked(w, "a") // after the caller has given up
		answerCall(w, 200, rid, "")
		silentNow(w)

		inject(fault.Fault{Kind: fault.SwallowMethodAnswer})
		c = start()
		rid, _ = asked(w, "a")
		answerCall(w, 200, rid, "")
		require.Equal(t, 504101, c.code())

		inject(fault.Fault{Kind: fault.SlowMethodAnswer, Delay: 10 * time.Second})
		c = start()
		rid, _ = asked(w, "a")
		began := time.Now()
		answerCall(w, 200, rid, "")
		c.ok()
		require.Equal(t, 10*time.Second, time.Since(began))

		inject(fault.Fault{Kind: fault.DropBeforeMethod})
		c = start()
		require.Error(t, w.End())
		require.Equal(t, 504101, c.code())
		again()
		inject(fault.Fault{Kind: fault.DropAfterMethod})
		c = start()
		asked(w, "a")
		require.Error(t, w.End())
		require.Equal(t, 504101, c.code())
		again()
		inject(fault.Fault{Kind: fault.DropOnMethodAnswer})
		c = start()
		rid, _ = asked(w, "a")
		answerCall(w, 200, rid, "")
		require.Error(t, w.End())
		require.Equal(t, 504101, c.code())
		again()
		inject(fault.Fault{Kind: fault.DropAfterMethodAnswer})
		c = start()
		rid, _ = asked(w, "a")
		answerCall(w, 200, rid, "")
		require.Error(t, w.End())
		c.ok()

		deliveries := []int{}
		for _, r := range h.MethodLog("") {
			deliveries = append(deliveries, r.Deliveries)
		}
		require.Equal(t, []int{1, 0, 2, 1, 0, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1}, deliveries)
		require.Equal(t, []string{"taken", "taken", "taken", "unknown", "late", "lost", "taken", "lost", "taken"}, fates(h))
	})
}

// Close does not wait for calls, nor for delayed faults.
func TestCloseDuringCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		w := hubtest.Login(t, h, d)
		w.Subscribe(0, methodTopics, desiredTopics)
		h.Inject(fault.Fault{Kind: fault.SlowMethod, Method: "a", Delay: time.Hour})
		h.Inject(fault.Fault{Kind: fault.SlowDesired, Delay: time.Hour})
		_, err := h.PatchDesired("dev-1", "{}")
		require.NoError(t, err)
		c := call(t, h, "dev-1", hubdata.MethodCall{Name: "a"})
		waiting := call(t, h, "dev-1", hubdata.MethodCall{Name: "b"})
		asked(w, "b")
		synctest.Wait()
		began := time.Now()
		require.NoError(t, h.Close())
		<-c.done
		<-waiting.done
		require.ErrorIs(t, c.err, testbroker.ErrClosed)
		require.ErrorIs(t, waiting.err, testbroker.ErrClosed)
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
			conn.Write(hubtest.SubscribeBytes(1, methodTopics))
			for err == nil {
				var kind byte
				var body []byte
				kind, body, err = w.Read()
				if _, rid, ok := strings.Cut(string(body), "$rid="); ok && kind == 3 {
					conn.Write(hubtest.PublishBytes(0, 0, methodAnswer+"200/?$rid="+rid, ""))
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
