package servicefront_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// queryFor sends a query.
func queryFor(p *hubtest.Poster, text string, header ...string) hubtest.Reply {
	body, err := json.Marshal(map[string]string{"query": text})
	require.NoError(p.T, err)
	return p.Post("/devices/query"+hubtest.Version, string(body), header...)
}

// twins sends a query for whole twins, and returns the names on a page and the continuation token.
func twins(p *hubtest.Poster, text string, header ...string) (ids []string, next string) {
	r := queryFor(p, text, header...)
	require.Equal(p.T, 200, r.StatusCode, r.Text)
	require.Equal(p.T, "Twin", r.Header.Get("x-ms-item-type"))
	var page []struct{ DeviceID, ModuleID string }
	require.NoError(p.T, json.Unmarshal([]byte(r.Text), &page))
	for _, d := range page {
		ids = append(ids, strings.TrimSuffix(d.DeviceID+"/"+d.ModuleID, "/"))
	}
	return ids, r.Header.Get("x-ms-continuation")
}

// fleet returns a hub with the devices dev-1 to dev-5, and a module of dev-3.
func fleet(t testing.TB) (*testbroker.Hub, *hubtest.Poster) {
	h, _ := hubtest.NewHub(t, nil)
	for i := 2; i <= 5; i++ {
		hubtest.AddDevice(t, h, fmt.Sprint("dev-", i))
	}
	hubtest.AddModule(t, h, "dev-3", "m")
	require.NoError(t, h.SetEnabled("dev-4", false))
	require.NoError(t, h.PatchTags("dev-1", `{"site":"Ulm","floor":1}`))
	require.NoError(t, h.PatchTags("dev-2", `{"site":"Ulm","floor":2}`))
	hubtest.PatchDesired(t, h, "dev-2", `{"rate":{"a-b":7}}`)
	return h, hubtest.BackEnd(t, h, hubdata.RightAll)
}

func TestQueriesFindTwins(t *testing.T) {
	_, p := fleet(t)
	for _, c := range []struct{ text, want string }{
		{"SELECT * FROM devices", "dev-1 dev-2 dev-3 dev-4 dev-5"},
		{"select top 2 * from devices;", "dev-1 dev-2"},
		{"select * from devices.modules where deviceId = 'dev-3'", "dev-3/m"},
		{"select * from devices.modules where devices.modules.moduleId = 'm'", "dev-3/m"},
		{"SELECT * FROM devices WHERE status = 'disabled'", "dev-4"},
		{"SELECT * FROM devices WHERE STARTSWITH(devices.deviceId, 'dev-') AND NOT is_defined(tags.site)",
			"dev-3 dev-4 dev-5"},
		{"SELECT * FROM devices WHERE properties.desired.rate.[[a-b]] = 7", "dev-2"},
		{"SELECT * FROM devices WHERE properties.desired.$version > 1", "dev-2"},
		{"SELECT * FROM devices WHERE capabilities.iotEdge = false AND version > 3", "dev-2"},
		{"SELECT * FROM devices WHERE x509Thumbprint.primaryThumbprint = null AND tags.floor = 1", "dev-1"},
		{"SELECT * FROM devices WHERE cloudToDeviceMessageCount = 0 AND tags.floor IN [2, 3]", "dev-2"},
		{"SELECT * FROM devices WHERE authenticationType = 'sas' AND modelId = '' AND tags.floor < 2", "dev-1"},
		{"SELECT * FROM devices WHERE deviceId = 'dev-9'", ""},
	} {
		ids, next := twins(p, c.text)
		require.Equal(t, c.want, strings.Join(ids, " "), c.text)
		require.Empty(t, next)
	}
}

func TestQueriesMakeRows(t *testing.T) {
	_, p := fleet(t)
	for _, c := range []struct{ text, want string }{
		{"SELECT deviceId, tags.floor AS f FROM devices WHERE tags.site = 'Ulm'",
			`[{"deviceId":"dev-1","f":1},{"deviceId":"dev-2","f":2}]`},
		{"SELECT status, COUNT() AS n FROM devices GROUP BY status",
			`[{"status":"enabled","n":4},{"status":"disabled","n":1}]`},
		{"SELECT count() AS n, avg(tags.floor) AS f FROM devices", `[{"n":5,"f":1.5}]`},
		{"SELECT moduleId FROM devices.modules", `[{"moduleId":"m"}]`},
		{"SELECT deviceId FROM devices WHERE false", `[]`},
	} {
		r := queryFor(p, c.text)
		require.Equal(t, 200, r.StatusCode, r.Text)
		require.Equal(t, "Raw", r.Header.Get("x-ms-item-type"))
		require.JSONEq(t, c.want, r.Text, c.text)
	}
}

func TestQueriesComeInPages(t *testing.T) {
	h, p := fleet(t)
	page := func(text, size, token string) (string, string) {
		ids, next := twins(p, text, "x-ms-max-item-count", size, "x-ms-continuation", token)
		return strings.Join(ids, " "), next
	}
	ids, next := page("SELECT * FROM devices", "3", "")
	require.Equal(t, "dev-1 dev-2 dev-3", ids)
	// Neither a device that is added nor one that is removed moves the page.
	hubtest.AddDevice(t, h, "dev-0")
	require.NoError(t, h.RemoveDevice("dev-1"))
	require.NoError(t, h.RemoveDevice("dev-3"))
	ids, next = page("SELECT * FROM devices", "2", next)
	require.Equal(t, "dev-4 dev-5", ids)
	require.Empty(t, next, "a page that ends with the last row is the last page")

	ids, next = page("SELECT TOP 3 * FROM devices", "2", "")
	require.Equal(t, "dev-0 dev-2", ids)
	ids, next = page("SELECT TOP 3 * FROM devices", "2", next)
	require.Equal(t, "dev-4", ids)
	require.Empty(t, next)

	groups := "SELECT deviceId, COUNT() AS n FROM devices GROUP BY deviceId"
	r := queryFor(p, groups, "x-ms-max-item-count", "3")
	require.JSONEq(t, `[{"deviceId":"dev-0","n":1},{"deviceId":"dev-2","n":1},{"deviceId":"dev-4","n":1}]`, r.Text)
	r = queryFor(p, groups, "x-ms-max-item-count", "3", "x-ms-continuation", r.Header.Get("x-ms-continuation"))
	require.JSONEq(t, `[{"deviceId":"dev-5","n":1}]`, r.Text)
	require.Empty(t, r.Header.Get("x-ms-continuation"))
}

func TestBadQueriesAreRefused(t *testing.T) {
	_, p := fleet(t)
	r := queryFor(p, "SELECT * FROM devices WHERE tags.group = 'a'")
	r.RefusedOldForm(t, 400004)
	require.Contains(t, r.Text, "at position 34")
	require.Contains(t, r.Text, "[[group]]")
	all := "SELECT * FROM devices"
	for _, size := range []string{"0", "-1", "1001", "x"} {
		queryFor(p, all, "x-ms-max-item-count", size).RefusedOldForm(t, 400004)
	}
	_, next := twins(p, all, "x-ms-max-item-count", "2")
	require.NotEmpty(t, next)
	queryFor(p, all+" ", "x-ms-continuation", next).RefusedOldForm(t, 400004) // the token of another query
	raw, err := base64.RawURLEncoding.DecodeString(next)
	require.NoError(t, err)
	for i := range raw {
		raw[i] ^= 1
		queryFor(p, all, "x-ms-continuation", base64.RawURLEncoding.EncodeToString(raw)).RefusedOldForm(t, 400004)
		raw[i] ^= 1
	}
	for _, token := range []string{"-1", "3", "%", next[:8], next + "AA"} {
		queryFor(p, all, "x-ms-continuation", token).RefusedOldForm(t, 400004)
	}
}

// Some tools of back ends encode the slashes of a path.
func TestSlashesOfBackEndsMayBeEncoded(t *testing.T) {
	_, p := fleet(t)
	require.Equal(t, "dev-3", p.Do("GET", "/twins%2Fdev-3"+hubtest.Version, "").Object(t)["deviceId"])
	require.Equal(t, "m", p.Do("GET", "/devices%2fdev-3%2fmodules%2fm"+hubtest.Version, "").Object(t)["moduleId"])
	require.Equal(t, 200, p.Post("/devices%2Fquery"+hubtest.Version, `{"query":"SELECT * FROM devices"}`).StatusCode)
	require.Equal(t, 404, p.Do("GET", "/nothing%2Fhere"+hubtest.Version, "").StatusCode)
}

func TestQueriesSeeConnectionsOfAllProtocols(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := fleet(t)
		connected := func() string {
			synctest.Wait()
			ids, _ := twins(p, "SELECT * FROM devices WHERE connectionState = 'Connected'")
			return strings.Join(ids, " ")
		}
		device := func(id string) hubdata.Device {
			d := hubtest.Registered(t, h, id)
			return d
		}
		require.Empty(t, connected())
		hubtest.Login(t, h, device("dev-1"))
		shared := hubtest.LoginAMQP(t, h, device("dev-2"))
		require.Equal(t, 200, shared.CBS().Put(hubtest.Token(device("dev-3"))))
		require.Equal(t, "dev-1 dev-2 dev-3", connected())
		require.Equal(t, 1, h.Drop("dev-3"))
		require.Equal(t, "dev-1", connected())
		hubtest.Login(t, h, device("dev-3"))
		require.Equal(t, "dev-1 dev-3", connected())
	})
}
