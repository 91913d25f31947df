package servicefront_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestADigitalTwinShowsPropertiesAndComponents(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.BackEnd(t, h, hubdata.RightServiceConnect)
		w := hubtest.Dial(t, h)
		c := hubtest.ConnectOf(d)
		c.User += "&model-id=dtmi:com:example:Thermostat%3B1"
		w.Connect(c)
		w.Subscribe(1, "$iothub/twin/res/#")
		hubtest.PatchDesired(t, h, "dev-1", `{"target":20.5,"plain":true,"inner":{"__t":"c","level":3}}`)
		hubtest.Request(w, "$iothub/twin/PATCH/properties/reported/?$rid=1", `{"serial":"x","object":{"value":1},
			"target":{"value":20.5,"ac":200,"av":2,"ad":"done"},
			"inner":{"__t":"c","level":{"value":3,"ac":203,"av":0},"max":9}}`)
		r := p.Do("GET", "/digitaltwins/dev-1"+hubtest.Version, "")
		doc := r.Object(t)
		require.NotEmpty(t, r.Header.Get("ETag"))
		at := "2000-01-01T00:00:00.0000000Z"
		want := `{"$dtId":"dev-1","serial":"x","object":{"value":1},"target":20.5,
			"inner":{"level":3,"max":9,"$metadata":{
				"level":{"desiredValue":3,"desiredVersion":2,"ackCode":203,"ackVersion":0,"lastUpdateTime":"AT"},
				"max":{"lastUpdateTime":"AT"}}},
			"$metadata":{"$model":"dtmi:com:example:Thermostat;1","serial":{"lastUpdateTime":"AT"},
				"object":{"lastUpdateTime":"AT"},"plain":{"desiredValue":true,"desiredVersion":2,"lastUpdateTime":"AT"},
				"target":{"desiredValue":20.5,"desiredVersion":2,"ackCode":200,"ackVersion":2,"ackDescription":"done",
					"lastUpdateTime":"AT"}}}`
		got, err := json.Marshal(doc)
		require.NoError(t, err)
		require.JSONEq(t, strings.ReplaceAll(want, "AT", at), string(got))
		p.Do("GET", "/digitaltwins/no"+hubtest.Version, "").RefusedOldForm(t, 404001)
	})
}

func TestAJSONPatchChangesDesiredProperties(t *testing.T) {
	h, _ := hubtest.NewHub(t, nil)
	p := hubtest.BackEnd(t, h, hubdata.RightServiceConnect)
	hubtest.PatchDesired(t, h, "dev-1", `{"a":{"x":1,"y":2},"c":{"__t":"c","level":1},"gone":1}`)
	patch := func(body string, header ...string) hubtest.Reply {
		return p.Do("PATCH", "/digitaltwins/dev-1"+hubtest.Version, body, header...)
	}
	r := patch(`[{"op":"replace","path":"/a","value":{"x":3}},{"op":"remove","path":"/gone"},
		{"op":"add","path":"/new/level","value":5},{"op":"replace","path":"/c/level","value":2},
		{"op":"add","path":"/whole","value":{"$metadata":{},"q":1}},{"op":"add","path":"/s~1l~0t","value":"x"}]`)
	require.Equal(t, 202, r.StatusCode, r.Text)
	require.JSONEq(t, `{"a":{"x":3},"c":{"__t":"c","level":2},"new":{"__t":"c","level":5},"whole":{"__t":"c","q":1},
		"s/l~t":"x"}`, hubtest.Desired(t, h, "dev-1"))
	twin := hubtest.Twin(t, h, "dev-1")
	require.Equal(t, `"`+twin.ETag+`"`, r.Header.Get("ETag"))
	require.Contains(t, r.Header.Get("Location"), "/digitaltwins/dev-1")
	patch(`[{"op":"add","path":"/b","value":1}]`, "If-Match", `"AAAA"`).RefusedOldForm(t, 412001)
	r = patch(`[{"op":"add","path":"/b","value":1}]`, "If-Match", `"`+twin.ETag+`"`)
	require.Equal(t, 202, r.StatusCode, r.Text)

	before := hubtest.Desired(t, h, "dev-1")
	for body, code := range map[string]int{
		`[]`:                                    400505,
		`{}`:                                    400004,
		`[1]`:                                   400004,
		`[{"op":"test","path":"/a","value":1}]`: 400505,
		`[{"op":"add","path":"/a"}]`:            400505,
		`[{"op":"add","path":"/a","value":null}]`:         400505,
		`[{"op":"add","path":"a","value":1}]`:             400508,
		`[{"op":"add","path":"/","value":1}]`:             400508,
		`[{"op":"add","path":"/a/b/c","value":1}]`:        400508,
		`[{"op":"add","path":"/$metadata","value":1}]`:    400508,
		`[{"op":"add","path":"/c/__t","value":"x"}]`:      400508,
		`[{"op":"remove","path":"/nothing"}]`:             400508,
		`[{"op":"remove","path":"/a/nothing"}]`:           400508,
		`[{"op":"add","path":"/a b","value":1}]`:          400004,
		`[{"op":"add","path":"/b","value":2},{"op":"x"}]`: 400508,
	} {
		patch(body).RefusedOldForm(t, code)
	}
	require.Equal(t, before, hubtest.Desired(t, h, "dev-1"))
	p.Do("PATCH", "/digitaltwins/no"+hubtest.Version, `[]`).RefusedOldForm(t, 404001)
}

func TestCommandsAreMethods(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.BackEnd(t, h, hubdata.RightServiceConnect)
		w := hubtest.Login(t, h, d)
		w.Subscribe(1, "$iothub/methods/POST/#")
		for _, c := range []struct{ path, method, payload string }{
			{"/commands/reboot", "reboot", `{"delay":3}`},
			{"/components/inner/commands/report", "inner*report", `"since"`},
			{"/commands/plain", "plain", ""},
		} {
			answer := make(chan hubtest.Reply, 1)
			go func() {
				answer <- p.Post("/digitaltwins/dev-1"+c.path+hubtest.Version+"&responseTimeoutInSeconds=20", c.payload)
			}()
			rid, payload := hubtest.Asked(w, c.method)
			require.Equal(t, c.payload, payload)
			hubtest.AnswerCall(w, 207, rid, `{"ok":true}`)
			r := <-answer
			require.Equal(t, 200, r.StatusCode, r.Text)
			require.JSONEq(t, `{"ok":true}`, r.Text)
			require.Equal(t, "207", r.Header.Get("x-ms-command-statuscode"))
		}
		for more, code := range map[string]int{
			"&responseTimeoutInSeconds=1": 400004, "&connectTimeoutInSeconds=x": 400004, "&connectTimeoutInSeconds=301": 400004,
		} {
			p.Post("/digitaltwins/dev-1/commands/reboot"+hubtest.Version+more, "").Refused(t, code)
		}
		p.Post("/digitaltwins/dev-1/commands/reboot"+hubtest.Version, "no JSON").Refused(t, 400004)
		p.Post("/digitaltwins/no/commands/reboot"+hubtest.Version, "").Refused(t, 404001)
		p.Post("/digitaltwins/dev-1/commands/reboot"+hubtest.Version, strings.Repeat("1", hubdata.MaxMethodPayload+1)).
			Refused(t, 413001)
		hubtest.AddDevice(t, h, "dev-2")
		p.Post("/digitaltwins/dev-2/commands/reboot"+hubtest.Version, "").Refused(t, 404103)
	})
}
