package servicefront_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// results returns the results of a configuration's own metrics and of the hub's.
func results(p *hubtest.Poster, id string) (own, system map[string]any) {
	p.T.Helper()
	doc := p.Do("GET", "/configurations/"+id+hubtest.Version, "").Object(p.T)
	results := func(name string) map[string]any { return doc[name].(map[string]any)["results"].(map[string]any) }
	return results("metrics"), results("systemMetrics")
}

func TestConfigurationsWriteTheTwinsOfTheirTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := fleet(t)
		hubtest.PatchDesired(t, h, "dev-1", `{"old":{"a":1,"b":2},"kept":true}`)
		made := hubtest.Configure(p, "ulm",
			`{"id":"ulm","labels":{"by":"me"},"priority":10,"targetCondition":"tags.site = 'Ulm'",
			"content":{"deviceContent":{"properties.desired.old":{"a":1,"c":null},"properties.desired.x.y":7}},
			"metrics":{"queries":{"fast":"SELECT deviceId FROM devices WHERE properties.desired.x.y = 7"}}}`)
		require.Equal(t, "1.0", made["schemaVersion"])
		require.NotEmpty(t, made["createdTimeUtc"])
		hubtest.Applied()
		require.JSONEq(t, `{"old":{"a":1},"kept":true,"x":{"y":7}}`, hubtest.Desired(t, h, "dev-1"))
		require.JSONEq(t, `{"old":{"a":1},"rate":{"a-b":7},"x":{"y":7}}`, hubtest.Desired(t, h, "dev-2"))
		require.JSONEq(t, `{}`, hubtest.Desired(t, h, "dev-3"))
		before := hubtest.Twin(t, h, "dev-1")

		// A device that comes under the condition later is configured then; the others stay unchanged.
		require.NoError(t, h.PatchTags("dev-3", `{"site":"Ulm"}`))
		hubtest.AddDevice(t, h, "dev-6")
		hubtest.Applied()
		require.JSONEq(t, `{"old":{"a":1},"x":{"y":7}}`, hubtest.Desired(t, h, "dev-3"))
		require.JSONEq(t, `{}`, hubtest.Desired(t, h, "dev-6"))
		after := hubtest.Twin(t, h, "dev-1")
		require.Equal(t, before, after)

		own, system := results(p, "ulm")
		require.Equal(t, map[string]any{"fast": 3.0}, own)
		require.Equal(t, map[string]any{"targetedCount": 3.0, "appliedCount": 3.0}, system)
		ids, _ := twins(p, "SELECT * FROM devices WHERE configurations.[[ulm]].status = 'Applied'")
		require.Equal(t, []string{"dev-1", "dev-2", "dev-3"}, ids)
		states := p.Do("GET", "/twins/dev-3"+hubtest.Version, "").Object(t)["configurations"]
		require.Equal(t, map[string]any{"ulm": map[string]any{"status": "Applied"}}, states)

		// What a removed configuration has written stays.
		require.Equal(t, 204, p.Do("DELETE", "/configurations/ulm"+hubtest.Version, "").StatusCode)
		hubtest.Applied()
		require.JSONEq(t, `{"old":{"a":1},"x":{"y":7}}`, hubtest.Desired(t, h, "dev-3"))
		require.NotContains(t, p.Do("GET", "/twins/dev-3"+hubtest.Version, "").Object(t), "configurations")
	})
}

func TestTheConfigurationWithTheHighestPriorityWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := fleet(t)
		put := func(id string, priority int, content string) {
			hubtest.Configure(p, id, fmt.Sprintf(`{"priority":%d,"targetCondition":"deviceId = 'dev-1'",
				"content":{"deviceContent":%s}}`, priority, content))
			time.Sleep(time.Millisecond)
		}
		put("high", 9, `{"properties.desired.a":1,"properties.desired.b":{"x":1}}`)
		put("low", 1, `{"properties.desired.a":2,"properties.desired.c":2}`)
		put("loser", 2, `{"properties.desired.b.x":2}`)
		put("layer", 10, `{"properties.desired.b.y":3}`)
		hubtest.Applied()
		require.JSONEq(t, `{"a":1,"b":{"x":1,"y":3},"c":2}`, hubtest.Desired(t, h, "dev-1"))
		for id, want := range map[string]float64{"high": 1, "low": 1, "loser": 0, "layer": 1} {
			_, system := results(p, id)
			require.Equal(t, map[string]any{"targetedCount": 1.0, "appliedCount": want}, system, id)
		}
		// Of two with the same priority the newer one wins; without the highest, the next one does.
		put("newer", 9, `{"properties.desired":{"all":1}}`)
		require.Equal(t, 204, p.Do("DELETE", "/configurations/layer"+hubtest.Version, "").StatusCode)
		hubtest.Applied()
		require.JSONEq(t, `{"all":1}`, hubtest.Desired(t, h, "dev-1"))
		require.Equal(t, 204, p.Do("DELETE", "/configurations/newer"+hubtest.Version, "").StatusCode)
		hubtest.Applied()
		require.JSONEq(t, `{"all":1,"a":1,"b":{"x":1},"c":2}`, hubtest.Desired(t, h, "dev-1"))
	})
}

func TestConfigurationsOfModulesAndGateways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := fleet(t)
		p.Do("PUT", "/devices/gw"+hubtest.Version, `{"deviceId":"gw","capabilities":{"iotEdge":true}}`).Object(t)
		hubtest.Configure(p, "modules", `{"id":"modules","targetCondition":"FROM devices.modules WHERE moduleId = 'm'",
			"content":{"moduleContent":{"properties.desired.rate":1}}}`)
		hubtest.Configure(p, "edge", `{"id":"edge","targetCondition":"*","content":{"modulesContent":{
			"$edgeAgent":{"properties.desired":{"modules":{"a":{}}}},"filter":{"properties.desired.level":5}}}}`)
		hubtest.Configure(p, "devices",
			`{"targetCondition":"*","content":{"deviceContent":{"properties.desired.of":"devices"}}}`)
		hubtest.Applied()
		require.JSONEq(t, `{"of":"devices"}`, hubtest.Desired(t, h, "dev-3"))
		require.JSONEq(t, `{"rate":1}`, hubtest.Desired(t, h, "dev-3/m"))
		require.JSONEq(t, `{"modules":{"a":{}}}`, hubtest.Desired(t, h, "gw/$edgeAgent"))
		require.JSONEq(t, `{"level":5}`, hubtest.Desired(t, h, "gw/filter"))
		_, system := results(p, "modules")
		require.Equal(t, map[string]any{"targetedCount": 1.0, "appliedCount": 1.0}, system)
		_, system = results(p, "edge")
		require.Equal(t, map[string]any{"targetedCount": 1.0, "appliedCount": 1.0, "reportedSuccessfulCount": 0.0,
			"reportedFailedCount": 0.0}, system)

		p.Post("/devices/gw/applyConfigurationContent"+hubtest.Version,
			`{"modulesContent":{"other":{"properties.desired.z":1}}}`)
		require.JSONEq(t, `{"z":1}`, hubtest.Desired(t, h, "gw/other"))
		r := p.Post("/devices/dev-1/applyConfigurationContent"+hubtest.Version,
			`{"deviceContent":{"properties.desired.z":2}}`)
		require.Equal(t, 204, r.StatusCode, r.Text)
		require.JSONEq(t, `{"z":2,"of":"devices"}`, hubtest.Desired(t, h, "dev-1"))
		for body, code := range map[string]int{
			`{"modulesContent":{}}`: 400402, `{}`: 400402, `{"deviceContent":1}`: 400402, `[]`: 400004,
			`{"moduleContent":{}}`: 400402, `{"deviceContent":{"tags.x":1}}`: 400402,
		} {
			p.Post("/devices/dev-1/applyConfigurationContent"+hubtest.Version, body).RefusedOldForm(t, code)
		}
		p.Post("/devices/no/applyConfigurationContent"+hubtest.Version, `{"deviceContent":{}}`).RefusedOldForm(t, 404001)
	})
}

func TestConfigurationsHaveETags(t *testing.T) {
	h, p := fleet(t)
	body := `{"id":"c","priority":1,"targetCondition":"*","content":{"deviceContent":{"properties.desired.a":1}}}`
	made := hubtest.Configure(p, "c", body)
	p.Do("PUT", "/configurations/c"+hubtest.Version, body).RefusedOldForm(t, 409401)
	p.Do("PUT", "/configurations/c"+hubtest.Version, body, "If-Match", `"x"`).RefusedOldForm(t, 412001)
	p.Do("PUT", "/configurations/d"+hubtest.Version, `{"id":"d"}`, "If-Match", `"x"`).RefusedOldForm(t, 404301)
	changed := hubtest.Configure(p, "c", strings.Replace(body, `"priority":1`, `"priority":2`, 1), "If-Match",
		fmt.Sprintf("%q", made["etag"]))
	require.EqualValues(t, 2, changed["priority"])
	require.NotEqual(t, made["etag"], changed["etag"])
	require.Equal(t, made["createdTimeUtc"], changed["createdTimeUtc"])
	again, err := json.Marshal(changed)
	require.NoError(t, err)
	hubtest.Configure(p, "c", string(again), "If-Match", "*")
	p.Do("PUT", "/configurations/c"+hubtest.Version, strings.Replace(body, `.a":1`, `.a":2`, 1), "If-Match", "*").
		RefusedOldForm(t, 400403)
	p.Do("DELETE", "/configurations/c"+hubtest.Version, "", "If-Match", `"x"`).RefusedOldForm(t, 412001)
	reader := hubtest.BackEnd(t, h, hubdata.RightRegistryRead)
	require.Equal(t, 200, reader.Do("GET", "/configurations/c"+hubtest.Version, "").StatusCode)
	reader.Do("DELETE", "/configurations/c"+hubtest.Version, "").RefusedOldForm(t, 401003)
	require.Equal(t, 204, p.Do("DELETE", "/configurations/c"+hubtest.Version, "").StatusCode)
	p.Do("DELETE", "/configurations/c"+hubtest.Version, "").RefusedOldForm(t, 404301)
	p.Do("GET", "/configurations/c"+hubtest.Version, "").RefusedOldForm(t, 404301)
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	_, p := fleet(t)
	for _, c := range []struct {
		body string
		code int
	}{
		{`{"id":"x"}`, 400004},
		{`{"id":"c","priority":-1}`, 400004},
		{`{"id":"c","priority":1.5}`, 400004},
		{`{"id":"c","content":{"deviceContent":[]}}`, 400402},
		{`{"id":"c","content":{"deviceContent":{"properties.reported.x":1}}}`, 400402},
		{`{"id":"c","content":{"deviceContent":{"properties.desired":1}}}`, 400402},
		{`{"id":"c","content":{"deviceContent":{"properties.desired..x":1}}}`, 400402},
		{`{"id":"c","content":{"deviceContent":{"properties.desired.a b":1}}}`, 400402},
		{`{"id":"c","content":{"deviceContent":{},"modulesContent":{}}}`, 400402},
		{`{"id":"c","content":{"modulesContent":{"a/b":{}}}}`, 400402},
		{`{"id":"c","content":{"modulesContent":{"a":1}}}`, 400402},
		{`{"id":"c","content":{"moduleContent":{}},"targetCondition":"*"}`, 400401},
		{`{"id":"c","content":{"deviceContent":{}},"targetCondition":"FROM devices.modules"}`, 400401},
		{`{"id":"c","targetCondition":"tags.group = 1"}`, 400401},
		{`{"id":"c","targetCondition":"FROM devices.jobs"}`, 400401},
		{`{"id":"c","metrics":{"queries":{"m":"SELECT"}}}`, 400404},
		{`{"id":"c","metrics":{"queries":{"1":"","2":"","3":"","4":"","5":"","6":""}}}`, 400404},
	} {
		p.Do("PUT", "/configurations/c"+hubtest.Version, c.body).RefusedOldForm(t, c.code)
	}
	p.Do("PUT", "/configurations/a%20b"+hubtest.Version, `{"id":"a b"}`).RefusedOldForm(t, 400004)

	for i := range 100 {
		hubtest.Configure(p, fmt.Sprint("c", i), "{}")
	}
	p.Do("PUT", "/configurations/one-more"+hubtest.Version, "{}").RefusedOldForm(t, 413101)
	var all []map[string]any
	require.NoError(t, json.Unmarshal([]byte(p.Do("GET", "/configurations"+hubtest.Version, "").Text), &all))
	require.Len(t, all, 100)
	require.NoError(t, json.Unmarshal([]byte(p.Do("GET", "/configurations"+hubtest.Version+"&top=7", "").Text), &all))
	require.Len(t, all, 7)

	errors := p.Post("/configurations/testQueries"+hubtest.Version, `{"targetCondition":"tags.group = 1",
		"customMetricQueries":{"good":"SELECT * FROM devices","bad":"SELECT"}}`).Object(t)
	require.Contains(t, errors["targetConditionError"], "position 6")
	require.Contains(t, errors["customMetricQueryErrors"], "bad")
	require.NotContains(t, errors["customMetricQueryErrors"], "good")
}

// A twin that has no room for a configuration is targeted, and stays as it is.
func TestAConfigurationThatDoesNotFitIsNotApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := fleet(t)
		for i := range 7 {
			hubtest.PatchDesired(t, h, "dev-1", fmt.Sprintf(`{"full%d":%q}`, i, strings.Repeat("x", 4000)))
		}
		before := hubtest.Desired(t, h, "dev-1")
		hubtest.Configure(p, "c", fmt.Sprintf(`{"targetCondition":"*","content":{"deviceContent":{"properties.desired.a":%q,
			"properties.desired.b":%q}}}`, strings.Repeat("y", 4000), strings.Repeat("z", 4000)))
		hubtest.Applied()
		require.Equal(t, before, hubtest.Desired(t, h, "dev-1"))
		_, system := results(p, "c")
		require.Equal(t, map[string]any{"targetedCount": 5.0, "appliedCount": 4.0}, system)
		h.Reset()
		p.Do("GET", "/configurations/c"+hubtest.Version, "").RefusedOldForm(t, 404301)
		require.JSONEq(t, `{}`, hubtest.Desired(t, h, "dev-2"))
	})
}
