package servicefront_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// bulk sends a bulk operation, and returns what failed as "device code", and the warnings' devices.
func bulk(p *hubtest.Poster, items ...string) (failed, warned string) {
	r := p.Post("/devices"+hubtest.Version, "["+strings.Join(items, ",")+"]")
	var result struct {
		IsSuccessful bool
		Errors       []struct {
			DeviceID, ModuleID string
			ErrorCode          int
			ErrorStatus        string
		}
		Warnings []struct{ DeviceID, WarningCode, WarningStatus string }
	}
	require.NoError(p.T, json.Unmarshal([]byte(r.Text), &result), r.Text)
	require.Equal(p.T, "application/json; charset=utf-8", r.Header.Get("Content-Type"))
	status := map[bool]int{true: 200, false: 400}
	require.Equal(p.T, status[len(result.Errors) == 0], r.StatusCode, r.Text)
	require.Equal(p.T, len(result.Errors) == 0, result.IsSuccessful)
	for _, e := range result.Errors {
		require.NotEmpty(p.T, e.ErrorStatus)
		failed += fmt.Sprintf("%s%s %d;", e.DeviceID, strings.TrimSuffix("/"+e.ModuleID, "/"), e.ErrorCode)
	}
	for _, w := range result.Warnings {
		require.Equal(p.T, "DeviceRegisteredWithoutTwin", w.WarningCode)
		require.NotEmpty(p.T, w.WarningStatus)
		warned += w.DeviceID + ";"
	}
	return failed, warned
}

func TestBulkOperationsChangeTheRegistry(t *testing.T) {
	h, _ := hubtest.NewHub(t, nil)
	p := hubtest.BackEnd(t, h, hubdata.RightAll)
	read := func(id string) map[string]any { return p.Do("GET", "/devices/"+id+hubtest.Version, "").Object(t) }
	etag := func(id string) string { return read(id)["etag"].(string) }
	for _, c := range []struct{ item, failed string }{
		{`{"id":"a","importMode":"create"}`, ""},
		{`{"id":"a","importMode":"Create"}`, "a 409001;"},
		{`{"id":"a","moduleId":"m","importMode":"create"}`, ""},
		{`{"id":"a","moduleId":"m","importMode":"create"}`, "a/m 409301;"},
		{`{"id":"a","importMode":"UPDATE","status":"disabled","statusReason":"x"}`, ""},
		{`{"id":"b","importMode":"update"}`, "b 404001;"},
		{`{"id":"b","importMode":"createOrUpdate"}`, ""},
		{`{"id":"b","importMode":"createOrUpdate","status":"disabled"}`, ""},
		{`{"id":"b"}`, ""},
		{`{"id":"b","importMode":"updateIfMatchETag","eTag":"x"}`, "b 412001;"},
		{`{"id":"b","importMode":"updateIfMatchETag"}`, "b 412001;"},
		{`{"id":"b","importMode":"updateIfMatchETag","etag":"B-ETAG","status":"disabled"}`, ""},
		{`{"id":"b","importMode":"createOrUpdateIfMatchETag","etag":"x"}`, "b 412001;"},
		{`{"id":"b","importMode":"deleteIfMatchETag","eTag":"x"}`, "b 412001;"},
		{`{"id":"b","importMode":"deleteIfMatchETag","eTag":"\"B-ETAG\""}`, ""},
		{`{"id":"b","importMode":"delete"}`, "b 404001;"},
		{`{"id":"a","moduleId":"x","importMode":"delete"}`, "a/x 404010;"},
		{`{"id":"a b","importMode":"create"}`, "a b 400004;"},
		{`{"id":"","importMode":"delete"}`, " 404001;"},
		{`{"id":"a/m","importMode":"delete"}`, "a/m 404001;"},
		{`{"id":"c","importMode":"create","status":"asleep"}`, "c 400004;"},
		{`{"id":"c","importMode":"steal"}`, "c 400004;"},
		{`null`, " 400004;"},
	} {
		item := c.item
		if strings.Contains(item, "B-ETAG") {
			item = strings.ReplaceAll(item, "B-ETAG", etag("b"))
		}
		failed, warned := bulk(p, item)
		require.Equal(t, c.failed, failed, item)
		require.Empty(t, warned)
	}
	require.Equal(t, "disabled", read("a")["status"])
	require.Equal(t, "x", read("a")["statusReason"])
	hubtest.Registered(t, h, "a/m")
	_, err := h.Device("b")
	require.ErrorIs(t, err, testbroker.ErrNotFound)
}

// Each identity of a bulk operation succeeds or fails for itself.
func TestBulkOperationsAreIndependent(t *testing.T) {
	h, _ := hubtest.NewHub(t, nil)
	p := hubtest.BackEnd(t, h, hubdata.RightAll)
	failed, _ := bulk(p, `{"id":"a","importMode":"create"}`, `{"id":"dev-1","importMode":"create"}`,
		`{"id":"a","importMode":"delete"}`, `{"id":"b","importMode":"create"}`)
	require.Equal(t, "dev-1 409001;a 400011;", failed)
	for _, id := range []string{"a", "b"} {
		hubtest.Registered(t, h, id)
	}
	items := make([]string, 101)
	for i := range items {
		items[i] = fmt.Sprintf(`{"id":"many-%d","importMode":"create"}`, i)
	}
	p.Post("/devices"+hubtest.Version, "["+strings.Join(items, ",")+"]").RefusedOldForm(t, 400004)
	failed, _ = bulk(p, items[:100]...)
	require.Empty(t, failed)
	require.Len(t, h.Devices(), 103)
	for _, body := range []string{"", "[]", "{}", "null", `[{"id":1}]`, `[{"id":"x"}] []`, "[\"\xff\"]", "["} {
		p.Post("/devices"+hubtest.Version, body).RefusedOldForm(t, 400004)
	}
	reader := hubtest.BackEnd(t, h, hubdata.RightRegistryRead, hubdata.RightServiceConnect)
	reader.Post("/devices"+hubtest.Version, `[{"id":"a","importMode":"delete"}]`).RefusedOldForm(t, 401003)
}

func TestBulkOperationsWriteTwins(t *testing.T) {
	h, _ := hubtest.NewHub(t, nil)
	p := hubtest.BackEnd(t, h, hubdata.RightAll)
	twin := func() hubdata.Twin {
		twin := hubtest.Twin(t, h, "a")
		return twin
	}
	failed, warned := bulk(p, `{"id":"a","importMode":"create","tags":{"x":1},
		"properties":{"desired":{"y":2,"$version":9}}}`)
	require.Empty(t, failed+warned)
	require.JSONEq(t, `{"x":1}`, string(twin().Tags))
	require.JSONEq(t, `{"y":2}`, string(twin().Desired))
	failed, warned = bulk(p, `{"id":"b","importMode":"create","tags":{"x y":1}}`)
	require.Empty(t, failed)
	require.Equal(t, "b;", warned, "the device exists, without the tags")
	hubtest.Registered(t, h, "b")

	failed, _ = bulk(p, `{"id":"a","importMode":"update","tags":{"x":5}}`)
	require.Empty(t, failed)
	require.JSONEq(t, `{"x":1}`, string(twin().Tags), "an update of the registry leaves the twin")
	failed, _ = bulk(p, `{"id":"a","importMode":"updateTwin","tags":{"z":3}}`)
	require.Empty(t, failed)
	require.JSONEq(t, `{"x":1,"z":3}`, string(twin().Tags))
	for etag, want := range map[string]string{"": "a 412001;", "AAAA": "a 412001;", twin().ETag: ""} {
		failed, _ = bulk(p, `{"id":"a","importMode":"updateTwinIfMatchETag","twinETag":"`+etag+`","tags":{"x":null}}`)
		require.Equal(t, want, failed)
	}
	require.JSONEq(t, `{"z":3}`, string(twin().Tags))
	failed, _ = bulk(p, `{"id":"c","importMode":"updateTwin","tags":{"z":3}}`)
	require.Equal(t, "c 404001;", failed)
}

func TestDevicesWithAnEdgeGateway(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		p := hubtest.BackEnd(t, h, hubdata.RightAll)
		edge := `{"deviceId":"gw","capabilities":{"iotEdge":true}}`
		made := p.Do("PUT", "/devices/gw"+hubtest.Version, edge).Object(t)
		require.Equal(t, map[string]any{"iotEdge": true}, made["capabilities"])
		require.Equal(t, fmt.Sprint("ms-azure-iot-edge://gw-", made["generationId"]), made["deviceScope"])
		ids, _ := twins(p, "SELECT * FROM devices.modules")
		require.Equal(t, []string{"gw/$edgeAgent", "gw/$edgeHub"}, ids)
		ids, _ = twins(p, "SELECT * FROM devices WHERE capabilities.iotEdge = true")
		require.Equal(t, []string{"gw"}, ids)
		require.Equal(t, made["deviceScope"], p.Do("GET", "/twins/gw"+hubtest.Version, "").Object(t)["deviceScope"])
		agent := hubtest.Registered(t, h, "gw/$edgeAgent")
		hubtest.Login(t, h, agent)

		// A device may get the capability later. Modules that it has are kept.
		require.NotContains(t, p.Do("GET", "/devices/dev-1"+hubtest.Version, "").Object(t), "deviceScope")
		hubtest.AddModule(t, h, "dev-1", "$edgeHub")
		before := hubtest.Registered(t, h, "dev-1/$edgeHub")
		p.Do("PUT", "/devices/dev-1"+hubtest.Version, `{"deviceId":"dev-1","capabilities":{"iotEdge":true}}`, "If-Match",
			"*").Object(t)
		after := hubtest.Registered(t, h, "dev-1/$edgeHub")
		require.Equal(t, before, after)
		hubtest.Registered(t, h, "dev-1/$edgeAgent")

		p.Do("PUT", "/devices/gw/modules/m"+hubtest.Version,
			`{"deviceId":"gw","moduleId":"m","capabilities":{"iotEdge":true}}`).RefusedOldForm(t, 400004)
		require.Equal(t, 204, p.Do("DELETE", "/devices/gw"+hubtest.Version, "").StatusCode)
		_, err := h.Device("gw/$edgeHub")
		require.ErrorIs(t, err, testbroker.ErrNotFound)
	})
}
