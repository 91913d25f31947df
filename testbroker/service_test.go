package testbroker_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// serviceToken returns a policy's token that is valid for an hour.
func serviceToken(p hubdata.Policy) string {
	return sign(url.QueryEscape(p.HostName), p.PrimaryKey, time.Now().Add(time.Hour).Unix()) + "&skn=" + p.Name
}

// backEnd returns a client of a new policy with the rights.
func backEnd(t testing.TB, h *testbroker.Hub, rights ...hubdata.Right) *poster {
	p, err := h.AddPolicy(fmt.Sprint("policy", rights), rights...)
	require.NoError(t, err)
	return newPoster(t, h.Dial(testbroker.PortHTTP), nil, serviceToken(p))
}

// object decodes a body.
func (r reply) object(t testing.TB) map[string]any {
	t.Helper()
	require.Equal(t, 200, r.StatusCode, r.body)
	require.Equal(t, "application/json; charset=utf-8", r.Header.Get("Content-Type"))
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.body), &v), r.body)
	return v
}

// refusedOldForm checks that a reply is a refusal with a code in the older form, which registry and
// twin requests use.
func (r reply) refusedOldForm(t testing.TB, code int) {
	t.Helper()
	require.Equal(t, code/1000, r.StatusCode, r.body)
	name := testbroker.ErrorName(code)
	require.Equal(t, name, r.Header.Get("iothub-errorcode"))
	var body struct{ Message, ExceptionMessage string }
	require.NoError(t, json.Unmarshal([]byte(r.body), &body), r.body)
	require.True(t, strings.HasPrefix(body.Message, "ErrorCode:"+name+";"), body.Message)
	require.Equal(t, "Tracking ID:"+r.Header.Get("x-ms-request-id"), body.ExceptionMessage)
}

func TestRegistryOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHub(t, nil)
		p := backEnd(t, h, hubdata.AllRights)
		key := strings.Repeat("QUFB", 8)
		made := p.do("PUT", "/devices/dev-2"+version,
			`{"deviceId":"dev-2","status":"enabled","authentication":{"type":"sas","symmetricKey":{"primaryKey":"`+key+
				`","secondaryKey":"`+key+`"}}}`).object(t)
		require.Equal(t, "dev-2", made["deviceId"])
		require.Equal(t, "sas", made["authentication"].(map[string]any)["type"])
		d, err := h.Device("dev-2")
		require.NoError(t, err)
		require.Equal(t, key, d.PrimaryKey)
		p.do("PUT", "/devices/dev-2"+version, `{"deviceId":"dev-2"}`).refusedOldForm(t, 409001)

		w := login(t, h, d)
		got := p.do("GET", "/devices/dev-2"+version, "")
		doc := got.object(t)
		require.Equal(t, "Connected", doc["connectionState"])
		require.Equal(t, `"`+doc["etag"].(string)+`"`, got.Header.Get("ETag"))

		disable := `{"deviceId":"dev-2","status":"disabled","statusReason":"stolen"}`
		p.do("PUT", "/devices/dev-2"+version, disable, "If-Match", `"MTIz"`).refusedOldForm(t, 412001)
		changed := p.do("PUT", "/devices/dev-2"+version, disable, "If-Match", got.Header.Get("ETag")).object(t)
		require.NotEqual(t, doc["etag"], changed["etag"])
		require.Equal(t, doc["generationId"], changed["generationId"])
		require.Equal(t, "stolen", changed["statusReason"])
		require.Equal(t, "2000-01-01T00:00:00.0000000Z", changed["statusUpdatedTime"])
		require.Equal(t, doc["authentication"], changed["authentication"], "keys that are not named stay")
		require.Error(t, w.end(), "a disabled device is disconnected")
		synctest.Wait() // the hub ends its connection

		p.do("PUT", "/devices/dev-2/modules/m"+version, `{"deviceId":"dev-2","moduleId":"m"}`).object(t)
		p.do("PUT", "/devices/dev-2/modules/m"+version, `{"deviceId":"dev-2","moduleId":"m"}`).refusedOldForm(t, 409301)
		p.do("PUT", "/devices/dev-9/modules/m"+version, `{"deviceId":"dev-9","moduleId":"m"}`).refusedOldForm(t, 404001)
		p.do("GET", "/devices/dev-2/modules/x"+version, "").refusedOldForm(t, 404010)
		var list []map[string]any
		require.NoError(t, json.Unmarshal([]byte(p.do("GET", "/devices/dev-2/modules"+version, "").body), &list))
		require.Len(t, list, 1)
		require.NoError(t, json.Unmarshal([]byte(p.do("GET", "/devices"+version+"&top=5", "").body), &list))
		require.Equal(t, []any{"dev-1", "dev-2"}, []any{list[0]["deviceId"], list[1]["deviceId"]})
		require.JSONEq(t, `{"totalDeviceCount":2,"enabledDeviceCount":1,"disabledDeviceCount":1}`, p.do("GET",
			"/statistics/devices"+version, "").body)
		require.JSONEq(t, `{"connectedDeviceCount":0}`, p.do("GET", "/statistics/service"+version, "").body)

		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("x")}))
		require.EqualValues(t, 1, p.do("GET", "/devices/dev-1"+version, "").object(t)["cloudToDeviceMessageCount"])
		require.EqualValues(t, 1, p.do("DELETE", "/devices/dev-1/commands"+version, "").object(t)["totalMessagesPurged"])
		require.Equal(t, hubdata.Purged, h.C2DLog("dev-1")[0].State)

		p.do("DELETE", "/devices/dev-2"+version, "", "If-Match", "nonsense").refusedOldForm(t, 412001)
		require.Equal(t, 204, p.do("DELETE", "/devices/dev-2"+version, "", "If-Match", "*").StatusCode)
		p.do("GET", "/devices/dev-2"+version, "").refusedOldForm(t, 404001)
		p.do("DELETE", "/devices/dev-2"+version, "").refusedOldForm(t, 404001)
		again := p.do("PUT", "/devices/dev-2"+version, `{"deviceId":"dev-2"}`).object(t)
		require.NotEqual(t, doc["generationId"], again["generationId"])
	})
}

func TestKindsOfAuthenticationInTheRegistry(t *testing.T) {
	h, _ := newHub(t, nil)
	p := backEnd(t, h, hubdata.RegistryWrite)
	print := strings.Repeat("AB", 20)
	for i, c := range []struct {
		authentication string
		kind           string // empty = refused
	}{
		{`{"type":"sas"}`, "sas"},
		{`{"symmetricKey":{"primaryKey":null,"secondaryKey":null}}`, "sas"},
		{`{"symmetricKey":{"primaryKey":"QUFBQUFBQUFBQUFBQUFBQQ=="}}`, ""},
		{`{"symmetricKey":{"primaryKey":"eA==","secondaryKey":"eA=="}}`, ""},
		{`{"type":"selfSigned","x509Thumbprint":{"primaryThumbprint":"` + print + `"}}`, "selfSigned"},
		{`{"x509Thumbprint":{"primaryThumbprint":"` + print + `","secondaryThumbprint":"` + print + `"}}`, "selfSigned"},
		{`{"type":"selfSigned"}`, ""},
		{`{"x509Thumbprint":{"primaryThumbprint":"x"}}`, ""},
		{`{"type":"certificateAuthority"}`, "certificateAuthority"},
		{`{"type":"faith"}`, ""},
	} {
		id := fmt.Sprint("d", i)
		r := p.do("PUT", "/devices/"+id+version, `{"deviceId":"`+id+`","authentication":`+c.authentication+`}`)
		if c.kind == "" {
			r.refusedOldForm(t, 400004)
			continue
		}
		authentication := r.object(t)["authentication"].(map[string]any)
		require.Equal(t, c.kind, authentication["type"])
		require.Equal(t, c.kind == "sas", authentication["symmetricKey"].(map[string]any)["primaryKey"] != nil)
		require.Equal(t, c.kind == "selfSigned",
			authentication["x509Thumbprint"].(map[string]any)["primaryThumbprint"] == print)
	}
	for _, body := range []string{"", "[]", `{"deviceId":"other"}`, `{"deviceId":"x","status":"asleep"}`} {
		p.do("PUT", "/devices/x"+version, body).refusedOldForm(t, 400004)
	}
	p.do("PUT", "/devices/a%20b"+version, `{"deviceId":"a b"}`).refusedOldForm(t, 400004)
}

func TestTwinsOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		p := backEnd(t, h, hubdata.ServiceConnect)
		w := login(t, h, d)
		w.subscribe(0, desiredTopics, twinResults)
		w.request(twinPatch+"1", `{"fw":"1"}`)
		got := p.do("GET", "/twins/dev-1"+version, "")
		require.JSONEq(t, `{
			"deviceId":"dev-1","etag":"AAAAAAAAAAE=","deviceEtag":"MQ==","version":3,"modelId":"",
			"status":"enabled","statusUpdateTime":"0001-01-01T00:00:00Z",
			"connectionState":"Connected","lastActivityTime":"0001-01-01T00:00:00Z","cloudToDeviceMessageCount":0,
			"authenticationType":"sas",
			"x509Thumbprint":{"primaryThumbprint":null,"secondaryThumbprint":null},"capabilities":{"iotEdge":false},"tags":{},
			"properties":{
				"desired":{"$version":1,"$metadata":{"$lastUpdated":"2000-01-01T00:00:00.0000000Z","$lastUpdatedVersion":1}},
				"reported":{"fw":"1","$version":2,"$metadata":{"$lastUpdated":"2000-01-01T00:00:00.0000000Z",
					"fw":{"$lastUpdated":"2000-01-01T00:00:00.0000000Z"}}}}}`,
			got.body)
		require.Equal(t, `"AAAAAAAAAAE="`, got.Header.Get("ETag"))

		patched := p.do("PATCH", "/twins/dev-1"+version,
			`{"tags":{"site":"x"},"properties":{"desired":{"a":{"b":1},"$version":7,"$metadata":{}}}}`,
			"If-Match", `"AAAAAAAAAAE="`).object(t)
		require.Equal(t, map[string]any{"site": "x"}, patched["tags"])
		_, body := w.received()
		require.Equal(t, `{"$version":2,"a":{"b":1}}`, body)
		p.do("PATCH", "/twins/dev-1"+version, `{"tags":{}}`, "If-Match", `"AAAAAAAAAAE="`).refusedOldForm(t, 412001)
		p.do("PATCH", "/twins/dev-1"+version, `{"tags":{"site":null}}`, "If-Match", `*`).object(t)
		w.silentNow() // tags are not sent to devices
		p.do("PUT", "/twins/dev-1"+version, `{"properties":{"desired":{"c":1}}}`).object(t)
		_, body = w.received()
		require.Equal(t, `{"$version":3,"c":1}`, body)
		p.do("PATCH", "/twins/dev-1"+version, `{"properties":{"desired":{"a b":1}}}`).refusedOldForm(t, 400004)
		p.do("PATCH", "/twins/dev-1"+version, `{"properties":{"desired":1}}`).refusedOldForm(t, 400004)
		p.do("GET", "/twins/dev-2"+version, "").refusedOldForm(t, 404001)
		p.do("GET", "/twins/dev-1/modules/m"+version, "").refusedOldForm(t, 404010)
		_, err := h.AddModule("dev-1", "m")
		require.NoError(t, err)
		require.Equal(t, "m", p.do("PATCH", "/twins/dev-1/modules/m"+version, `{"properties":{"desired":{"x":1}}}`).object(
			t)["moduleId"])
		twin, err := h.Twin("dev-1/m")
		require.NoError(t, err)
		require.JSONEq(t, `{"x":1}`, string(twin.Desired))
	})
}

func TestMethodsOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		p := backEnd(t, h, hubdata.ServiceConnect)
		p.post("/twins/dev-1/methods"+version, `{"methodName":"a"}`).refused(t, 404103)
		w := login(t, h, d)
		w.subscribe(0, methodTopics)
		post := func(body string) chan reply {
			done := make(chan reply)
			go func() { done <- p.post("/twins/dev-1/methods"+version, body) }()
			return done
		}
		done := post(`{"methodName":"a","payload":{"x":[1, 2.50]},"responseTimeoutInSeconds":20,"connectTimeoutInSeconds":0}`)
		rid, payload := w.asked("a")
		require.Equal(t, `{"x":[1, 2.50]}`, payload)
		w.answer(201, rid, `{"y":"<"}`)
		require.Equal(t, `{"status":201,"payload":{"y":"<"}}`, (<-done).body)
		done = post(`{"methodName":"b","responseTimeoutInSeconds":5}`)
		rid, payload = w.asked("b")
		require.Empty(t, payload)
		w.answer(200, rid, "")
		require.JSONEq(t, `{"status":200,"payload":null}`, (<-done).body)
		began := time.Now()
		done = post(`{"methodName":"c","payload":null,"responseTimeoutInSeconds":5}`)
		_, payload = w.asked("c")
		require.Equal(t, "null", payload)
		(<-done).refused(t, 504101)
		require.Equal(t, 5*time.Second, time.Since(began))
		for _, bad := range []string{
			`{"methodName":"a","responseTimeoutInSeconds":4}`, `{"methodName":"a","responseTimeoutInSeconds":301}`,
			`{"methodName":"a","connectTimeoutInSeconds":-1}`,
			`{"methodName":"a","connectTimeoutInSeconds":301}`, `{}`, `{"methodName":"a b"}`, `{"methodName":"a","payload":}`,
		} {
			p.post("/twins/dev-1/methods"+version, bad).refused(t, 400004)
		}
		p.post("/twins/dev-1/modules/m/methods"+version, `{"methodName":"a"}`).refused(t, 404010)
		p.post("/twins/dev-1/methods"+version, `{"methodName":"a","payload":"`+strings.Repeat("x",
			hubdata.MaxMethodPayload)+`"}`).refused(t, 413001)
	})
}

func TestRightsOfPolicies(t *testing.T) {
	h, d := newHub(t, nil)
	requests := []struct {
		method, path, body string
		needs              hubdata.Right
	}{
		{"GET", "/devices", "", hubdata.RegistryRead | hubdata.RegistryWrite},
		{"GET", "/devices/dev-1", "", hubdata.RegistryRead | hubdata.RegistryWrite},
		{"PUT", "/devices/new", `{"deviceId":"new"}`, hubdata.RegistryWrite},
		{"DELETE", "/devices/new", "", hubdata.RegistryWrite},
		{"GET", "/twins/dev-1", "", hubdata.ServiceConnect},
		{"PATCH", "/twins/dev-1", "{}", hubdata.ServiceConnect},
		{"DELETE", "/devices/dev-1/commands", "", hubdata.ServiceConnect},
	}
	for right := hubdata.RegistryRead; right <= hubdata.DeviceConnect; right <<= 1 {
		p := backEnd(t, h, right)
		for _, c := range requests {
			r := p.do(c.method, c.path+version, c.body)
			if c.needs&right == 0 {
				r.refusedOldForm(t, 401003)
			} else {
				require.Less(t, r.StatusCode, 300, "%d: %s %s: %s", right, c.method, c.path, r.body)
			}
		}
	}
	// A device's token is only for its own requests, and a policy without the right connects no
	// device.
	overHTTP(t, h, d).do("GET", "/twins/dev-1"+version, "").refusedOldForm(t, 401003)
	newPoster(t, h.Dial(testbroker.PortHTTP), nil, "").do("GET", "/twins/dev-1"+version, "").refusedOldForm(t, 401003)
	policy, err := h.AddPolicy("service", hubdata.ServiceConnect)
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", policy, policy, policy), policy.PrimaryKey)
	newPoster(t, h.Dial(testbroker.PortHTTP), nil, serviceToken(policy)).do("GET", "/devices/dev-1"+version,
		"").refusedOldForm(t,
		401003)
	c := connectOf(d)
	c.password = serviceToken(policy)
	require.Equal(t, []byte{0, 5}, dial(t, h).connect(c))
	foreign := sign("other.example.test", policy.PrimaryKey, time.Now().Add(time.Hour).Unix()) + "&skn=service"
	newPoster(t, h.Dial(testbroker.PortHTTP), nil, foreign).do("GET", "/twins/dev-1"+version, "").refusedOldForm(t, 401003)
	old := sign(h.HostName(), policy.PrimaryKey, time.Now().Add(-time.Hour).Unix()) + "&skn=service"
	newPoster(t, h.Dial(testbroker.PortHTTP), nil, old).do("GET", "/twins/dev-1"+version, "").refusedOldForm(t, 401003)
	newPoster(t, h.Dial(testbroker.PortHTTP), nil, serviceToken(policy)).do("GET", "/twins/dev-1", "").refusedOldForm(t,
		400001)
}

// Faults for devices do not happen to back ends, unless they name back-end requests.
func TestFaultsAndBackEnds(t *testing.T) {
	h, _ := newHub(t, nil)
	p := backEnd(t, h, hubdata.ServiceConnect)
	for _, kind := range []fault.Kind{fault.AnswerStatus, fault.ResetBeforeRequest,
		fault.RefuseConnect, fault.DropConnect, fault.Absent} {
		in := h.Inject(fault.Fault{Kind: kind, Device: "dev-1"})
		p.do("GET", "/twins/dev-1"+version, "").object(t)
		require.Zero(t, in.Fired())
	}
	in := h.Inject(fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteTwin, Device: "dev-1"})
	require.Equal(t, 503, p.do("GET", "/twins/dev-1"+version, "").StatusCode)
	require.Equal(t, 1, in.Fired())
}

// A body that is not a single JSON object changes nothing, and the error uses terms of the
// protocol.
func TestBodiesThatAreNoObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHub(t, nil)
		p := backEnd(t, h, hubdata.AllRights)
		before, err := h.Twin("dev-1")
		require.NoError(t, err)
		for _, path := range []string{"/twins/dev-1", "/twins/dev-1/methods", "/devices/dev-1", "/devices/query"} {
			method := map[string]string{"/twins/dev-1": "PATCH", "/devices/dev-1": "PUT"}[path]
			for _, body := range []string{"", "null", "[]", "7", `{"tags":{"a":1}} trailing`, `{"tags":{"a":1}}{}`, "{",
				"\"\xff\""} {
				r := p.do(cmp.Or(method, "POST"), path+version, body)
				if strings.HasSuffix(path, "/methods") {
					r.refused(t, 400004)
				} else {
					r.refusedOldForm(t, 400004)
				}
				require.NotContains(t, r.body, "Go ")
				require.NotContains(t, r.body, "testbroker.")
			}
		}
		for body, member := range map[string]string{`{"tags":[]}`: "tags",
			`{"properties":{"desired":1}}`: "properties.desired", `{"properties":"x"}`: "properties"} {
			r := p.do("PATCH", "/twins/dev-1"+version, body)
			r.refusedOldForm(t, 400004)
			require.Contains(t, r.body, member+" must not be")
			require.NotContains(t, r.body, "Go ")
		}
		after, err := h.Twin("dev-1")
		require.NoError(t, err)
		require.Equal(t, before, after)
	})
}

// An empty patch is accepted if the ETag is right, and makes neither a version nor an ETag.
func TestAPatchOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHub(t, nil)
		p := backEnd(t, h, hubdata.ServiceConnect)
		state := func() (string, int64) {
			twin, err := h.Twin("dev-1")
			require.NoError(t, err)
			return twin.ETag, twin.Version
		}
		etag, n := state()
		for _, body := range []string{`{}`, `{"tags":{}}`, `{"tags":null}`, `{"properties":{}}`, `{"other":1}`} {
			require.Equal(t, etag, p.do("PATCH", "/twins/dev-1"+version, body).object(t)["etag"], body)
			p.do("PATCH", "/twins/dev-1"+version, body, "If-Match", `"AAAA"`).refusedOldForm(t, 412001)
		}
		same, still := state()
		require.Equal(t, etag, same)
		require.Equal(t, n, still)
		p.do("PUT", "/twins/dev-1"+version, `{}`).object(t)
		other, more := state()
		require.NotEqual(t, etag, other)
		require.Equal(t, n+1, more)
	})
}

// The twin has the model that a device announced last over MQTT or AMQP.
func TestTheModelIsInTheTwin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		p := backEnd(t, h, hubdata.ServiceConnect)
		is := func(want string) {
			t.Helper()
			require.Equal(t, want, p.do("GET", "/twins/dev-1"+version, "").object(t)["modelId"])
			twin, err := h.Twin("dev-1")
			require.NoError(t, err)
			require.Equal(t, want, twin.ModelID)
		}
		is("")
		c := connectOf(d)
		c.user += "&model-id=dtmi%3Acom%3Aexample%3AFan%3B1"
		w := dial(t, h)
		require.Equal(t, []byte{0, 0}, w.connect(c))
		is("dtmi:com:example:Fan;1")
		login(t, h, d) // announces no model
		is("dtmi:com:example:Fan;1")
		_, err := loginAMQP(t, h, d).session().NewSender(t.Context(), resource(d)+"/messages/events",
			&amqp.SenderOptions{Properties: map[string]any{"com.microsoft:model-id": "dtmi:com:example:Fan;2"}})
		require.NoError(t, err)
		is("dtmi:com:example:Fan;2")
	})
}
