package servicefront_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
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

// Back ends see the device registry of Azure at a hub with the MQTT v5 connection profile.
func TestRegistryOfAHubWithTheMQTTv5Profile(t *testing.T) {
	o := &testbroker.Options{MQTTv5: &testbroker.MQTTv5Options{}}
	hubtest.InBubble(t, o, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.BackEnd(t, h, hubdata.RightAll)
		doc := p.Do("GET", "/devices/dev-1"+hubtest.Version, "").Object(t)
		adr := doc["adrDeviceProperties"].(map[string]any)
		require.Regexp(t, `^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`, adr["uuid"])
		require.Equal(t, []any{"dev-1", doc["etag"], map[string]any{}}, []any{adr["name"], adr["etag"], adr["systemData"]})
		doc = p.Do("PUT", "/devices/dev-1"+hubtest.Version,
			`{"deviceId":"dev-1","adrDeviceProperties":{"uuid":"x"}}`, "If-Match", "*").Object(t)
		require.Equal(t, adr["uuid"], doc["adrDeviceProperties"].(map[string]any)["uuid"])

		p.Do("PUT", "/devices/dev-1/modules/m"+hubtest.Version,
			`{"deviceId":"dev-1","moduleId":"m"}`).RefusedOldForm(t, 400003)
		hubtest.OverHTTP(t, h, d).Post("/devices/dev-1/messages/events"+hubtest.Version, "x").Refused(t, 401003)
	})
}

func TestRegistryOverHTTP(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		p := hubtest.BackEnd(t, h, hubdata.RightAll)
		key := strings.Repeat("QUFB", 8)
		made := p.Do("PUT", "/devices/dev-2"+hubtest.Version,
			`{"deviceId":"dev-2","status":"enabled","authentication":{"type":"sas","symmetricKey":{"primaryKey":"`+key+
				`","secondaryKey":"`+key+`"}}}`).Object(t)
		require.Equal(t, "dev-2", made["deviceId"])
		require.Equal(t, "sas", made["authentication"].(map[string]any)["type"])
		d := hubtest.Registered(t, h, "dev-2")
		require.Equal(t, key, d.PrimaryKey)
		p.Do("PUT", "/devices/dev-2"+hubtest.Version, `{"deviceId":"dev-2"}`).RefusedOldForm(t, 409001)

		w := hubtest.Login(t, h, d)
		got := p.Do("GET", "/devices/dev-2"+hubtest.Version, "")
		doc := got.Object(t)
		require.Equal(t, "Connected", doc["connectionState"])
		require.Equal(t, `"`+doc["etag"].(string)+`"`, got.Header.Get("ETag"))

		disable := `{"deviceId":"dev-2","status":"disabled","statusReason":"stolen"}`
		p.Do("PUT", "/devices/dev-2"+hubtest.Version, disable, "If-Match", `"MTIz"`).RefusedOldForm(t, 412001)
		changed := p.Do("PUT", "/devices/dev-2"+hubtest.Version, disable, "If-Match", got.Header.Get("ETag")).Object(t)
		require.NotEqual(t, doc["etag"], changed["etag"])
		require.Equal(t, doc["generationId"], changed["generationId"])
		require.Equal(t, "stolen", changed["statusReason"])
		require.Equal(t, "2000-01-01T00:00:00.0000000Z", changed["statusUpdatedTime"])
		require.Equal(t, doc["authentication"], changed["authentication"], "keys that are not named stay")
		require.Error(t, w.End(), "a disabled device is disconnected")
		synctest.Wait() // the hub ends its connection

		p.Do("PUT", "/devices/dev-2/modules/m"+hubtest.Version, `{"deviceId":"dev-2","moduleId":"m"}`).Object(t)
		p.Do("PUT", "/devices/dev-2/modules/m"+hubtest.Version,
			`{"deviceId":"dev-2","moduleId":"m"}`).RefusedOldForm(t, 409301)
		p.Do("PUT", "/devices/dev-9/modules/m"+hubtest.Version,
			`{"deviceId":"dev-9","moduleId":"m"}`).RefusedOldForm(t, 404001)
		p.Do("GET", "/devices/dev-2/modules/x"+hubtest.Version, "").RefusedOldForm(t, 404010)
		var list []map[string]any
		require.NoError(t, json.Unmarshal([]byte(p.Do("GET", "/devices/dev-2/modules"+hubtest.Version, "").Text), &list))
		require.Len(t, list, 1)
		require.NoError(t, json.Unmarshal([]byte(p.Do("GET", "/devices"+hubtest.Version+"&top=5", "").Text), &list))
		require.Equal(t, []any{"dev-1", "dev-2"}, []any{list[0]["deviceId"], list[1]["deviceId"]})
		require.JSONEq(t, `{"totalDeviceCount":2,"enabledDeviceCount":1,"disabledDeviceCount":1}`, p.Do("GET",
			"/statistics/devices"+hubtest.Version, "").Text)
		require.JSONEq(t, `{"connectedDeviceCount":0}`, p.Do("GET", "/statistics/service"+hubtest.Version, "").Text)

		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("x")}))
		require.EqualValues(t, 1, p.Do("GET", "/devices/dev-1"+hubtest.Version, "").Object(t)["cloudToDeviceMessageCount"])
		require.EqualValues(t, 1, p.Do("DELETE", "/devices/dev-1/commands"+hubtest.Version,
			"").Object(t)["totalMessagesPurged"])
		require.Equal(t, hubdata.C2DPurged, h.C2DLog("dev-1")[0].State)

		p.Do("DELETE", "/devices/dev-2"+hubtest.Version, "", "If-Match", "nonsense").RefusedOldForm(t, 412001)
		require.Equal(t, 204, p.Do("DELETE", "/devices/dev-2"+hubtest.Version, "", "If-Match", "*").StatusCode)
		p.Do("GET", "/devices/dev-2"+hubtest.Version, "").RefusedOldForm(t, 404001)
		p.Do("DELETE", "/devices/dev-2"+hubtest.Version, "").RefusedOldForm(t, 404001)
		again := p.Do("PUT", "/devices/dev-2"+hubtest.Version, `{"deviceId":"dev-2"}`).Object(t)
		require.NotEqual(t, doc["generationId"], again["generationId"])
		p.Do("PUT", "/devices/dev-2"+hubtest.Version, disable, "If-Match", got.Header.Get("ETag")).RefusedOldForm(t, 412001)
	})
}

func TestKindsOfAuthenticationInTheRegistry(t *testing.T) {
	h, _ := hubtest.NewHub(t, nil)
	p := hubtest.BackEnd(t, h, hubdata.RightRegistryWrite)
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
		r := p.Do("PUT", "/devices/"+id+hubtest.Version, `{"deviceId":"`+id+`","authentication":`+c.authentication+`}`)
		if c.kind == "" {
			r.RefusedOldForm(t, 400004)
			continue
		}
		authentication := r.Object(t)["authentication"].(map[string]any)
		require.Equal(t, c.kind, authentication["type"])
		require.Equal(t, c.kind == "sas", authentication["symmetricKey"].(map[string]any)["primaryKey"] != nil)
		require.Equal(t, c.kind == "selfSigned",
			authentication["x509Thumbprint"].(map[string]any)["primaryThumbprint"] == print)
	}
	for _, body := range []string{"", "[]", `{"deviceId":"other"}`, `{"deviceId":"x","status":"asleep"}`} {
		p.Do("PUT", "/devices/x"+hubtest.Version, body).RefusedOldForm(t, 400004)
	}
	p.Do("PUT", "/devices/a%20b"+hubtest.Version, `{"deviceId":"a b"}`).RefusedOldForm(t, 400004)
}

func TestTwinsOverHTTP(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.BackEnd(t, h, hubdata.RightServiceConnect)
		w := hubtest.Login(t, h, d)
		w.Subscribe(0, hubtest.DesiredTopics, hubtest.TwinResults)
		hubtest.Request(w, hubtest.TwinPatch+"1", `{"fw":"1"}`)
		got := p.Do("GET", "/twins/dev-1"+hubtest.Version, "")
		require.JSONEq(t, `{
			"deviceId":"dev-1","etag":"AAAAAAAAAAE=","deviceEtag":"NjM3MDAwMDAwMDAwMDAwMDAxLjE=","version":3,"modelId":"",
			"status":"enabled","statusUpdateTime":"0001-01-01T00:00:00Z",
			"connectionState":"Connected","lastActivityTime":"0001-01-01T00:00:00Z","cloudToDeviceMessageCount":0,
			"authenticationType":"sas",
			"x509Thumbprint":{"primaryThumbprint":null,"secondaryThumbprint":null},"capabilities":{"iotEdge":false},"tags":{},
			"properties":{
				"desired":{"$version":1,"$metadata":{"$lastUpdated":"2000-01-01T00:00:00.0000000Z","$lastUpdatedVersion":1}},
				"reported":{"fw":"1","$version":2,"$metadata":{"$lastUpdated":"2000-01-01T00:00:00.0000000Z",
					"fw":{"$lastUpdated":"2000-01-01T00:00:00.0000000Z"}}}}}`,
			got.Text)
		require.Equal(t, `"AAAAAAAAAAE="`, got.Header.Get("ETag"))

		patched := p.Do("PATCH", "/twins/dev-1"+hubtest.Version,
			`{"tags":{"site":"x"},"properties":{"desired":{"a":{"b":1},"$version":7,"$metadata":{}}}}`,
			"If-Match", `"AAAAAAAAAAE="`).Object(t)
		require.Equal(t, map[string]any{"site": "x"}, patched["tags"])
		_, body := hubtest.Received(w)
		require.Equal(t, `{"$version":2,"a":{"b":1}}`, body)
		p.Do("PATCH", "/twins/dev-1"+hubtest.Version, `{"tags":{}}`, "If-Match", `"AAAAAAAAAAE="`).RefusedOldForm(t, 412001)
		p.Do("PATCH", "/twins/dev-1"+hubtest.Version, `{"tags":{"site":null}}`, "If-Match", `*`).Object(t)
		hubtest.Quiet(w) // tags are not sent to devices
		p.Do("PUT", "/twins/dev-1"+hubtest.Version, `{"properties":{"desired":{"c":1}}}`).Object(t)
		_, body = hubtest.Received(w)
		require.Equal(t, `{"$version":3,"c":1}`, body)
		p.Do("PATCH", "/twins/dev-1"+hubtest.Version, `{"properties":{"desired":{"a b":1}}}`).RefusedOldForm(t, 400004)
		p.Do("PATCH", "/twins/dev-1"+hubtest.Version, `{"properties":{"desired":1}}`).RefusedOldForm(t, 400004)
		p.Do("GET", "/twins/dev-2"+hubtest.Version, "").RefusedOldForm(t, 404001)
		p.Do("GET", "/twins/dev-1/modules/m"+hubtest.Version, "").RefusedOldForm(t, 404010)
		hubtest.AddModule(t, h, "dev-1", "m")
		require.Equal(t, "m", p.Do("PATCH", "/twins/dev-1/modules/m"+hubtest.Version,
			`{"properties":{"desired":{"x":1}}}`).Object(
			t)["moduleId"])
		twin := hubtest.Twin(t, h, "dev-1/m")
		require.JSONEq(t, `{"x":1}`, string(twin.Desired))
	})
}

func TestMethodsOverHTTP(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.BackEnd(t, h, hubdata.RightServiceConnect)
		p.Post("/twins/dev-1/methods"+hubtest.Version, `{"methodName":"a"}`).Refused(t, 404103)
		w := hubtest.Login(t, h, d)
		w.Subscribe(0, hubtest.MethodTopics)
		post := func(body string) chan hubtest.Reply {
			done := make(chan hubtest.Reply)
			go func() { done <- p.Post("/twins/dev-1/methods"+hubtest.Version, body) }()
			return done
		}
		done := post(`{"methodName":"a","payload":{"x":[1, 2.50]},"responseTimeoutInSeconds":20,"connectTimeoutInSeconds":0}`)
		rid, payload := hubtest.Asked(w, "a")
		require.Equal(t, `{"x":[1, 2.50]}`, payload)
		hubtest.AnswerCall(w, 201, rid, `{"y":"<"}`)
		require.Equal(t, `{"status":201,"payload":{"y":"<"}}`, (<-done).Text)
		done = post(`{"methodName":"b","responseTimeoutInSeconds":5}`)
		rid, payload = hubtest.Asked(w, "b")
		require.Empty(t, payload)
		hubtest.AnswerCall(w, 200, rid, "")
		require.JSONEq(t, `{"status":200,"payload":null}`, (<-done).Text)
		began := time.Now()
		done = post(`{"methodName":"c","payload":null,"responseTimeoutInSeconds":5}`)
		_, payload = hubtest.Asked(w, "c")
		require.Equal(t, "null", payload)
		(<-done).Refused(t, 504101)
		require.Equal(t, 5*time.Second, time.Since(began))
		for _, bad := range []string{
			`{"methodName":"a","responseTimeoutInSeconds":4}`, `{"methodName":"a","responseTimeoutInSeconds":301}`,
			`{"methodName":"a","connectTimeoutInSeconds":-1}`,
			`{"methodName":"a","connectTimeoutInSeconds":301}`, `{}`, `{"methodName":"a b"}`, `{"methodName":"a","payload":}`,
		} {
			p.Post("/twins/dev-1/methods"+hubtest.Version, bad).Refused(t, 400004)
		}
		p.Post("/twins/dev-1/modules/m/methods"+hubtest.Version, `{"methodName":"a"}`).Refused(t, 404010)
		p.Post("/twins/dev-1/methods"+hubtest.Version, `{"methodName":"a","payload":"`+strings.Repeat("x",
			hubdata.MaxMethodPayload)+`"}`).Refused(t, 413001)
	})
}

func TestRightsOfPolicies(t *testing.T) {
	h, d := hubtest.NewHub(t, nil)
	requests := []struct {
		method, path, body string
		needs              hubdata.Right
	}{
		{"GET", "/devices", "", hubdata.RightRegistryRead | hubdata.RightRegistryWrite},
		{"GET", "/devices/dev-1", "", hubdata.RightRegistryRead | hubdata.RightRegistryWrite},
		{"PUT", "/devices/new", `{"deviceId":"new"}`, hubdata.RightRegistryWrite},
		{"DELETE", "/devices/new", "", hubdata.RightRegistryWrite},
		{"GET", "/twins/dev-1", "", hubdata.RightServiceConnect},
		{"PATCH", "/twins/dev-1", "{}", hubdata.RightServiceConnect},
		{"DELETE", "/devices/dev-1/commands", "", hubdata.RightServiceConnect},
	}
	for right := hubdata.RightRegistryRead; right <= hubdata.RightDeviceConnect; right <<= 1 {
		p := hubtest.BackEnd(t, h, right)
		for _, c := range requests {
			r := p.Do(c.method, c.path+hubtest.Version, c.body)
			if c.needs&right == 0 {
				r.RefusedOldForm(t, 401003)
			} else {
				require.Less(t, r.StatusCode, 300, "%d: %s %s: %s", right, c.method, c.path, r.Text)
			}
		}
	}
	// A device's token is only for its own requests, and a policy without the right connects no
	// device.
	hubtest.OverHTTP(t, h, d).Do("GET", "/twins/dev-1"+hubtest.Version, "").RefusedOldForm(t, 401003)
	hubtest.NewPoster(t, h.Dial(testbroker.PortHTTP), nil, "").Do("GET", "/twins/dev-1"+hubtest.Version,
		"").RefusedOldForm(t, 401003)
	policy := hubtest.AddPolicy(t, h, "service", hubdata.RightServiceConnect)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", policy, policy, policy), policy.PrimaryKey)
	hubtest.NewPoster(t, h.Dial(testbroker.PortHTTP), nil, hubtest.ServiceToken(policy)).Do("GET",
		"/devices/dev-1"+hubtest.Version,
		"").RefusedOldForm(t,
		401003)
	c := hubtest.ConnectOf(d)
	c.Password = hubtest.ServiceToken(policy)
	require.Equal(t, []byte{0, 5}, hubtest.Dial(t, h).Connect(c))
	foreign := hubtest.Sign("other.example.test", policy.PrimaryKey, time.Now().Add(time.Hour).Unix()) + "&skn=service"
	hubtest.NewPoster(t, h.Dial(testbroker.PortHTTP), nil, foreign).Do("GET", "/twins/dev-1"+hubtest.Version,
		"").RefusedOldForm(t, 401003)
	old := hubtest.Sign(h.HostName(), policy.PrimaryKey, time.Now().Add(-time.Hour).Unix()) + "&skn=service"
	hubtest.NewPoster(t, h.Dial(testbroker.PortHTTP), nil, old).Do("GET", "/twins/dev-1"+hubtest.Version,
		"").RefusedOldForm(t, 401003)
	hubtest.NewPoster(t, h.Dial(testbroker.PortHTTP), nil, hubtest.ServiceToken(policy)).Do("GET", "/twins/dev-1",
		"").RefusedOldForm(t,
		400001)
}

// Faults for devices do not happen to back ends, unless they name back-end requests.
func TestFaultsAndBackEnds(t *testing.T) {
	h, _ := hubtest.NewHub(t, nil)
	p := hubtest.BackEnd(t, h, hubdata.RightServiceConnect)
	for _, kind := range []fault.Kind{fault.AnswerStatus, fault.ResetBeforeRequest,
		fault.RefuseConnect, fault.DropConnect, fault.Absent} {
		in := h.Inject(fault.Fault{Kind: kind, Device: "dev-1"})
		p.Do("GET", "/twins/dev-1"+hubtest.Version, "").Object(t)
		require.Zero(t, in.Fired())
	}
	in := h.Inject(fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteTwin, Device: "dev-1"})
	require.Equal(t, 503, p.Do("GET", "/twins/dev-1"+hubtest.Version, "").StatusCode)
	require.Equal(t, 1, in.Fired())
}

// A body that is not a single JSON object changes nothing, and the error uses terms of the
// protocol.
func TestBodiesThatAreNoObject(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		p := hubtest.BackEnd(t, h, hubdata.RightAll)
		before := hubtest.Twin(t, h, "dev-1")
		for _, path := range []string{"/twins/dev-1", "/twins/dev-1/methods", "/devices/dev-1", "/devices/query"} {
			method := map[string]string{"/twins/dev-1": "PATCH", "/devices/dev-1": "PUT"}[path]
			for _, body := range []string{"", "null", "[]", "7", `{"tags":{"a":1}} trailing`, `{"tags":{"a":1}}{}`, "{",
				"\"\xff\""} {
				r := p.Do(cmp.Or(method, "POST"), path+hubtest.Version, body)
				if strings.HasSuffix(path, "/methods") {
					r.Refused(t, 400004)
				} else {
					r.RefusedOldForm(t, 400004)
				}
				require.NotContains(t, r.Text, "Go ")
				require.NotContains(t, r.Text, "testbroker.")
			}
		}
		for body, member := range map[string]string{`{"tags":[]}`: "tags",
			`{"properties":{"desired":1}}`: "properties.desired", `{"properties":"x"}`: "properties"} {
			r := p.Do("PATCH", "/twins/dev-1"+hubtest.Version, body)
			r.RefusedOldForm(t, 400004)
			require.Contains(t, r.Text, member+" must not be")
			require.NotContains(t, r.Text, "Go ")
		}
		after := hubtest.Twin(t, h, "dev-1")
		require.Equal(t, before, after)
	})
}

// An empty patch is accepted if the ETag is right, and makes neither a version nor an ETag.
func TestAPatchOfNothing(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		p := hubtest.BackEnd(t, h, hubdata.RightServiceConnect)
		state := func() (string, int64) {
			twin := hubtest.Twin(t, h, "dev-1")
			return twin.ETag, twin.Version
		}
		etag, n := state()
		for _, body := range []string{`{}`, `{"tags":{}}`, `{"tags":null}`, `{"properties":{}}`, `{"other":1}`} {
			require.Equal(t, etag, p.Do("PATCH", "/twins/dev-1"+hubtest.Version, body).Object(t)["etag"], body)
			p.Do("PATCH", "/twins/dev-1"+hubtest.Version, body, "If-Match", `"AAAA"`).RefusedOldForm(t, 412001)
		}
		same, still := state()
		require.Equal(t, etag, same)
		require.Equal(t, n, still)
		p.Do("PUT", "/twins/dev-1"+hubtest.Version, `{}`).Object(t)
		other, more := state()
		require.NotEqual(t, etag, other)
		require.Equal(t, n+1, more)
	})
}

// The twin has the model that a device announced last over MQTT or AMQP.
func TestTheModelIsInTheTwin(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.BackEnd(t, h, hubdata.RightServiceConnect)
		is := func(want string) {
			t.Helper()
			require.Equal(t, want, p.Do("GET", "/twins/dev-1"+hubtest.Version, "").Object(t)["modelId"])
			twin := hubtest.Twin(t, h, "dev-1")
			require.Equal(t, want, twin.ModelID)
		}
		is("")
		c := hubtest.ConnectOf(d)
		c.User += "&model-id=dtmi%3Acom%3Aexample%3AFan%3B1"
		w := hubtest.Dial(t, h)
		require.Equal(t, []byte{0, 0}, w.Connect(c))
		is("dtmi:com:example:Fan;1")
		hubtest.Login(t, h, d) // announces no model
		is("dtmi:com:example:Fan;1")
		_, err := hubtest.LoginAMQP(t, h, d).Session().NewSender(t.Context(), hubtest.Resource(d)+"/messages/events",
			&amqp.SenderOptions{Properties: map[string]any{"com.microsoft:model-id": "dtmi:com:example:Fan;2"}})
		require.NoError(t, err)
		is("dtmi:com:example:Fan;2")
	})
}
