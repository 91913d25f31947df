package httpfront_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// invoker is the module dev-1/caller at a gateway, behind which are also dev-1/mod-1 and the leaf
// device leaf.
type invoker struct {
	*hubtest.Poster
	h       *testbroker.Hub
	mod     hubdata.Device
	leaf    hubdata.Device
	headers []string
}

func newInvoker(t *testing.T) *invoker {
	return newInvokerAt(t, &testbroker.GatewayOptions{Name: "gateway.test"})
}

func newInvokerAt(t *testing.T, o *testbroker.GatewayOptions) *invoker {
	h, _ := hubtest.NewHub(t, &testbroker.Options{Gateway: o})
	i := &invoker{h: h, headers: []string{"X-Ms-Edge-Moduleid", "dev-1/caller",
		"Content-Type", "application/json; charset=utf-8"}}
	own := hubtest.AddModule(t, h, "dev-1", "caller")
	i.mod = hubtest.AddModule(t, h, "dev-1", "mod-1")
	i.leaf = hubtest.AddDevice(t, h, "leaf")
	i.Poster = hubtest.OverHTTP(t, h, own)
	return i
}

const (
	onModule = "/twins/dev-1/modules/mod-1/methods"
	onLeaf   = "/twins/leaf/methods"
)

func (i *invoker) post(path, body string) hubtest.Reply {
	return i.Do(http.MethodPost, path, body, i.headers...)
}

// invocation is an open request.
type invocation struct {
	done  chan struct{}
	reply hubtest.Reply
	err   error
}

func (i *invoker) start(path, body string) *invocation {
	v := &invocation{done: make(chan struct{})}
	go func() {
		defer close(v.done)
		v.reply, v.err = i.Try(http.MethodPost, path, body, i.headers...)
	}()
	return v
}

// ok returns the body of the answer.
func (v *invocation) ok(t *testing.T) string {
	t.Helper()
	<-v.done
	require.NoError(t, v.err)
	require.Equal(t, 200, v.reply.StatusCode, v.reply.Text)
	require.Equal(t, "application/json; charset=utf-8", v.reply.Header.Get("Content-Type"))
	return v.reply.Text
}

// refusedBy checks that a reply is a refusal in the form of a gateway.
func refusedBy(r hubtest.Reply, t *testing.T, status int, text string) {
	t.Helper()
	require.Equal(t, status, r.StatusCode, r.Text)
	var body map[string]string
	require.NoError(t, json.Unmarshal([]byte(r.Text), &body), r.Text)
	require.Len(t, body, 1)
	require.Contains(t, body["message"], text)
}

func TestAModuleCallsMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInvoker(t)
		w := hubtest.Login(t, i.h, i.mod)
		w.Subscribe(1, hubtest.MethodTopics)
		v := i.start(onModule, `{"methodName":"reboot","payload":{"in":5},"responseTimeoutInSeconds":10}`)
		rid, payload := hubtest.Asked(w, "reboot")
		require.Equal(t, `{"in":5}`, payload)
		hubtest.AnswerCall(w, -7, rid, `[1]`)
		require.JSONEq(t, `{"status":-7,"payload":[1]}`, v.ok(t))
		require.Equal(t, 10*time.Second, i.h.MethodLog("dev-1/mod-1")[0].ResponseTimeout)
		require.Equal(t, 1, i.h.Connections("dev-1/caller"))

		l := hubtest.Login(t, i.h, i.leaf)
		l.Subscribe(1, hubtest.MethodTopics)
		v = i.start(onLeaf+"?api-version=2018-06-30", `{"methodName":"blink"}`)
		rid, payload = hubtest.Asked(l, "blink")
		require.Empty(t, payload)
		hubtest.AnswerCall(l, 200, rid, "")
		require.JSONEq(t, `{"status":200,"payload":null}`, v.ok(t))
		require.Equal(t, 30*time.Second, i.h.MethodLog("leaf")[0].ResponseTimeout)
	})
}

func TestMethodCallsThatAGatewayRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInvoker(t)
		_, err := i.h.AddDevice("dev-2")
		require.NoError(t, err)
		other, err := i.h.AddModule("dev-2", "mod-1")
		require.NoError(t, err)
		own, call := i.Token, `{"methodName":"a"}`
		for name, row := range map[string]struct {
			path, body, caller, token string
			status                    int
			text                      string
		}{
			"no header":        {caller: "-", status: 400, text: "Invalid header value for x-ms-edge-moduleId"},
			"device as header": {caller: "dev-1", status: 400, text: "Invalid header"},
			"no id in header":  {caller: "dev-1/", status: 400, text: "Invalid header"},
			"header too long":  {caller: "dev-1/a/b", status: 400, text: "Invalid header"},
			"other edge device": {path: "/twins/dev-2/modules/mod-1/methods", status: 401,
				text: "Only modules on the same device"},
			"other caller":     {caller: "dev-1/mod-1", status: 401, text: "does not cover"},
			"unknown caller":   {caller: "dev-1/none", status: 401, text: "no such identity"},
			"token of another": {token: hubtest.Token(other), status: 401, text: "does not cover"},
			"wrong key": {token: hubtest.Sign("hub.example.test%2Fdevices%2Fdev-1%2Fmodules%2Fcaller", other.PrimaryKey,
				time.Now().Add(time.Hour).Unix()), status: 401, text: "another key"},
			"no token": {token: "-", status: 401, text: "no token"},
			"expired": {token: hubtest.Sign("hub.example.test%2Fdevices%2Fdev-1%2Fmodules%2Fcaller", other.PrimaryKey,
				1), status: 401,
				text: "expired"},
			"no JSON":          {body: "{", status: 400, text: "body"},
			"no object":        {body: "[]", status: 400, text: "body"},
			"no name":          {body: "{}", status: 400, text: "methodName is missing"},
			"blank name":       {body: `{"methodName":"  "}`, status: 400, text: "methodName is missing"},
			"long name":        {body: `{"methodName":"` + strings.Repeat("a", 101) + `"}`, status: 400, text: "101 characters"},
			"wrong name":       {body: `{"methodName":"a b"}`, status: 400, text: `"a b"`},
			"short response":   {body: `{"methodName":"a","responseTimeoutInSeconds":4}`, status: 400, text: "5 to 300"},
			"no response":      {body: `{"methodName":"a","responseTimeoutInSeconds":0}`, status: 400, text: "5 to 300"},
			"long response":    {body: `{"methodName":"a","responseTimeoutInSeconds":301}`, status: 400, text: "5 to 300"},
			"long connect":     {body: `{"methodName":"a","connectTimeoutInSeconds":301}`, status: 400, text: "0 to 300"},
			"negative connect": {body: `{"methodName":"a","connectTimeoutInSeconds":-1}`, status: 400, text: "0 to 300"},
			"large payload": {body: `{"methodName":"a","payload":"` + strings.Repeat("x", 128<<10) + `"}`, status: 400,
				text: "131072"},
			"large body":     {body: `{"methodName":"` + strings.Repeat("x", 1<<20) + `"}`, status: 413, text: "1048576"},
			"unknown module": {path: "/twins/dev-1/modules/none/methods", status: 404, text: "none"},
			"unknown device": {path: "/twins/none/methods", status: 404, text: "none"},
			"not connected":  {status: 404, text: "not connected"},
		} {
			body, path := call, onModule
			if row.body != "" {
				body = row.body
			}
			if row.path != "" {
				path = row.path
			}
			headers := i.headers
			switch row.caller {
			case "":
			case "-":
				headers = nil
			default:
				headers = []string{"X-Ms-Edge-Moduleid", row.caller}
			}
			switch i.Token = own; row.token {
			case "":
			case "-":
				i.Token = ""
			default:
				i.Token = row.token
			}
			t.Log(name)
			refusedBy(i.Do(http.MethodPost, path, body, headers...), t, row.status, row.text)
		}
	})
}

// A gateway with a device takes calls from its modules only, also calls to devices of the field.
func TestOnlyModulesOfTheEdgeDeviceCallMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for device, status := range map[string]int{"": 404, "dev-1": 404, "dev-2": 401} {
			i := newInvokerAt(t, &testbroker.GatewayOptions{Name: "gateway.test", DeviceID: device})
			text := map[int]string{404: "not connected", 401: "Only modules on the same device"}[status]
			refusedBy(i.post(onLeaf, `{"methodName":"a"}`), t, status, text)
		}
	})
}

// Calls work while the gateway is off-line, by the gateway's name as well.
func TestModulesCallMethodsOffLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInvoker(t)
		require.NoError(t, i.h.SetOffline(true))
		w := hubtest.Login(t, i.h, i.mod)
		w.Subscribe(1, hubtest.MethodTopics)
		i.headers = append(i.headers, "Host", "gateway.test")
		v := i.start(onModule, `{"methodName":"a"}`)
		rid, _ := hubtest.Asked(w, "a")
		hubtest.AnswerCall(w, 200, rid, "")
		require.JSONEq(t, `{"status":200,"payload":null}`, v.ok(t))
	})
}

func TestTheTimeoutsOfACallAtAGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInvoker(t)
		began := time.Now()
		refusedBy(i.post(onModule, `{"methodName":"a","connectTimeoutInSeconds":300}`), t, 404, "not connected")
		require.Equal(t, 300*time.Second, time.Since(began))

		// The callee connects after four minutes and does not answer within five: more than the time
		// limit of a request.
		began = time.Now()
		v := i.start(onModule, `{"methodName":"a","connectTimeoutInSeconds":300,"responseTimeoutInSeconds":300}`)
		time.Sleep(4 * time.Minute)
		w := hubtest.Login(t, i.h, i.mod)
		w.Subscribe(1, hubtest.MethodTopics)
		hubtest.Asked(w, "a")
		<-v.done
		require.NoError(t, v.err)
		refusedBy(v.reply, t, 504, "no answer")
		require.Equal(t, 9*time.Minute, time.Since(began))
	})
}

// The same holds for back ends.
func TestACallOfABackEndMayTakeLong(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		p := hubtest.BackEnd(t, h, hubdata.RightServiceConnect)
		began := time.Now()
		p.Post("/twins/dev-1/methods"+hubtest.Version, `{"methodName":"a","connectTimeoutInSeconds":300}`).Refused(t, 404103)
		require.Equal(t, 300*time.Second, time.Since(began))
	})
}

// A caller that disconnects does not end its call.
func TestACallGoesOnWithoutItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInvoker(t)
		v := i.start(onModule, `{"methodName":"a","connectTimeoutInSeconds":300}`)
		synctest.Wait()
		require.Equal(t, 1, i.h.Drop("dev-1/caller"))
		<-v.done
		require.Error(t, v.err)
		synctest.Wait()
		require.Zero(t, i.h.Connections("dev-1/caller"))

		w := hubtest.Login(t, i.h, i.mod)
		w.Subscribe(1, hubtest.MethodTopics)
		rid, _ := hubtest.Asked(w, "a")
		hubtest.AnswerCall(w, 200, rid, "")
		synctest.Wait()
		require.Equal(t, []string{"taken"}, hubtest.Fates(i.h))
	})
}

// Close ends calls that wait.
func TestCloseEndsCallsAtAGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInvoker(t)
		v := i.start(onModule, `{"methodName":"a","connectTimeoutInSeconds":300}`)
		synctest.Wait()
		began := time.Now()
		require.NoError(t, i.h.Close())
		<-v.done
		require.Equal(t, began, time.Now())
	})
}

func TestFaultsOfCallsAtAGateway(t *testing.T) {
	for _, row := range []struct {
		fault    fault.Fault
		executed bool
		status   int // 0: no answer
		after    time.Duration
	}{
		{fault: fault.Fault{Kind: fault.ResetBeforeRequest}},
		{fault: fault.Fault{Kind: fault.ResetAfterRequest}, executed: true},
		{fault: fault.Fault{Kind: fault.AnswerStatus, Statuses: []int{503}}, status: 503},
		{fault: fault.Fault{Kind: fault.AnswerStatusAfter, Statuses: []int{502}}, executed: true, status: 502},
		{fault: fault.Fault{Kind: fault.SlowAnswer, Delay: time.Minute}, executed: true, status: 200, after: time.Minute},
		{fault: fault.Fault{Kind: fault.DropDuringAnswer}, executed: true},
		{fault: fault.Fault{Kind: fault.GarbageAnswer}, executed: true},
	} {
		hubtest.RunBubble(t, row.fault.Kind.String(), func(t *testing.T) {
			i := newInvoker(t)
			w := hubtest.Login(t, i.h, i.mod)
			w.Subscribe(1, hubtest.MethodTopics)
			other := row.fault
			other.Device, other.Route = "dev-1/mod-1", fault.RouteInvoke // the callee
			i.h.Inject(other)
			row.fault.Device, row.fault.Route = "dev-1/caller", fault.RouteInvoke
			in := i.h.Inject(row.fault)
			began := time.Now()
			v := i.start(onModule, `{"methodName":"a"}`)
			if row.executed {
				rid, _ := hubtest.Asked(w, "a")
				hubtest.AnswerCall(w, 200, rid, "1")
			}
			<-v.done
			require.Equal(t, 1, in.Fired())
			require.Equal(t, row.after, time.Since(began))
			if row.status == 0 {
				require.Error(t, v.err)
			} else {
				require.NoError(t, v.err)
				require.Equal(t, row.status, v.reply.StatusCode)
			}
			if row.status > 299 {
				refusedBy(v.reply, t, row.status, "fault "+row.fault.Kind.String())
			}
			synctest.Wait()
			require.Equal(t, row.executed, len(i.h.MethodLog("")) == 1)

			v = i.start(onModule, `{"methodName":"b"}`)
			rid, _ := hubtest.Asked(w, "b")
			hubtest.AnswerCall(w, 200, rid, "2")
			require.JSONEq(t, `{"status":200,"payload":2}`, v.ok(t))
		})
	}
}

// The code with which the callee's connection refuses a method is the status of the answer.
func TestFaultsOfTheCalleeReachTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInvoker(t)
		w := hubtest.Login(t, i.h, i.mod)
		w.Subscribe(1, hubtest.MethodTopics)
		i.h.Inject(fault.Fault{Kind: fault.RefuseMethod, Status: 429, Device: "dev-1/mod-1"})
		refusedBy(i.post(onModule, `{"methodName":"a"}`), t, 429, "RefuseMethod")
		i.h.Inject(fault.Fault{Kind: fault.Absent, Device: "dev-1/caller", For: time.Second})
		_, err := i.Try(http.MethodPost, onModule, `{"methodName":"a"}`, i.headers...)
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
}

// The paths are also those of back ends, which have a policy. Without a gateway they are theirs
// alone.
func TestBackEndsCallMethodsPastAGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInvoker(t)
		owner, err := i.h.AddPolicy("owner", hubdata.RightAll)
		require.NoError(t, err)
		w := hubtest.Login(t, i.h, i.mod)
		w.Subscribe(1, hubtest.MethodTopics)
		module, headers := i.Token, i.headers
		i.headers = nil // back ends state no module
		i.Token = hubtest.Sign("hub.example.test", owner.PrimaryKey, time.Now().Add(time.Hour).Unix()) + "&skn=owner"
		v := i.start(onModule+hubtest.Version, `{"methodName":"a"}`)
		rid, _ := hubtest.Asked(w, "a")
		hubtest.AnswerCall(w, 200, rid, "")
		require.JSONEq(t, `{"status":200,"payload":null}`, v.ok(t))

		h, _ := hubtest.NewHub(t, nil)
		p := hubtest.NewPoster(t, h.Dial(testbroker.PortHTTP), nil, module)
		p.Do(http.MethodPost, onModule+hubtest.Version, `{"methodName":"a"}`, headers...).Refused(t, 401003)
	})
}
