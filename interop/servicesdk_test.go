package interop

import (
	"encoding/json"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// backEnd is the official SDK for back ends, connected to a hub.
type backEnd struct {
	*script
	hub *testbroker.Hub
}

// startBackEnd starts a backEnd with a policy of the given rights.
func startBackEnd(t testing.TB, hub *testbroker.Hub, rights hubdata.Right) *backEnd {
	policy, err := hub.AddPolicy(fmt.Sprint("back end ", rights), rights)
	require.NoError(t, err)
	b := &backEnd{startScript(t, "service.js", trusting(t, hub)), hub}
	web, err := hub.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
	require.NoError(t, err)
	links, err := hub.Listen(testbroker.PortAMQPS, "127.0.0.1:0")
	require.NoError(t, err)
	b.tell(map[string]any{
		"do": "open", "connectionString": policy.ConnectionString(), "forward": [][]int{{443, web.(*net.TCPAddr).Port},
			{5671, links.(*net.TCPAddr).Port}},
	})
	b.next("done", "")
	return b
}

// object is an answer; the elements of an array are under "all".
type object map[string]any

// at returns the value at path.
func (o object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, name := range path {
		inner, _ := v.(map[string]any)
		v = inner[name]
	}
	return v
}

// ids returns the names of devices and modules in an answer that is an array.
func (o object) ids() []string {
	var ids []string
	all, _ := o["all"].([]any)
	for _, v := range all {
		inner, _ := v.(map[string]any)
		id := fmt.Sprint(inner["deviceId"])
		if m, ok := inner["moduleId"].(string); ok && m != "" {
			id += "/" + m
		}
		ids = append(ids, id)
	}
	return ids
}

// try calls a method of "registry", "client" or a query, and returns the answer, or the error as
// text.
func (b *backEnd) try(name, method string, args ...any) (object, string) {
	b.t.Helper()
	if args == nil {
		args = []any{}
	}
	b.tell(map[string]any{"do": "call", "name": name, "method": method, "args": args})
	e := b.next("answer", name)
	if e.Text != "" || e.Payload == "" {
		return nil, e.Text
	}
	var o object
	if err := json.Unmarshal([]byte(e.Payload), &o); err != nil {
		var all any
		require.NoError(b.t, json.Unmarshal([]byte(e.Payload), &all), e.Payload)
		o = object{"all": all}
	}
	return o, ""
}

// call expects success.
func (b *backEnd) call(name, method string, args ...any) object {
	b.t.Helper()
	o, text := b.try(name, method, args...)
	require.Empty(b.t, text, method)
	return o
}

// refused expects an error of the class.
func (b *backEnd) refused(class, name, method string, args ...any) {
	b.t.Helper()
	_, text := b.try(name, method, args...)
	require.Contains(b.t, text, class, method)
}

func TestServiceSDKRegistry(t *testing.T) {
	t.Parallel()
	b := startBackEnd(t, hubfixture.Open(t, nil), hubdata.RightAll)
	made := b.call("registry", "create", object{"deviceId": "dev-1"})
	require.Equal(t, "sas", made.at("authentication", "type"))
	dev, err := b.hub.Device("dev-1")
	require.NoError(t, err)
	require.Equal(t, dev.PrimaryKey, made.at("authentication", "symmetricKey", "primaryKey"))
	b.refused("DeviceAlreadyExistsError", "registry", "create", object{"deviceId": "dev-1"})
	b.refused("ArgumentError", "registry", "create", object{"deviceId": "a b"})
	b.refused("DeviceNotFoundError", "registry", "get", "dev-9")
	print := testbroker.Thumbprint(newAuthority(t).cert)
	x509 := object{"type": "selfSigned", "x509Thumbprint": object{"primaryThumbprint": print,
		"secondaryThumbprint": print}}
	b.call("registry", "create", object{"deviceId": "dev-2", "authentication": x509})
	require.Equal(t, "selfSigned", b.call("registry", "get", "dev-2").at("authentication", "type"))
	made["status"], made["statusReason"] = "disabled", "stolen"
	b.call("registry", "update", made)
	require.Equal(t, "disabled", b.call("registry", "get", "dev-1").at("status"))
	require.Equal(t, []string{"dev-1", "dev-2"}, b.call("registry", "list").ids())
	require.Equal(t, object{"totalDeviceCount": 2.0, "enabledDeviceCount": 1.0, "disabledDeviceCount": 1.0},
		b.call("registry",
			"getRegistryStatistics"))
	seen(t, "devices: made with keys and with a certificate, read, changed, listed, counted; refusals have the right "+
		"classes")

	mod := b.call("registry", "addModule", object{"deviceId": "dev-1", "moduleId": "mod-1"})
	require.Equal(t, mod, b.call("registry", "getModule", "dev-1", "mod-1"))
	require.Equal(t, []string{"dev-1/mod-1"}, b.call("registry", "getModulesOnDevice", "dev-1").ids())
	changed := b.call("registry", "updateModule", mod)
	require.NotEqual(t, mod["etag"], changed["etag"])
	b.refused("InvalidEtagError", "registry", "updateModule", mod)
	b.call("registry", "removeModule", "dev-1", "mod-1")
	b.refused("Not found", "registry", "getModule", "dev-1", "mod-1")
	seen(t, "modules: made, read, listed, changed once with an etag, removed")

	for i := 3; i <= 5; i++ {
		b.call("registry", "create", object{"deviceId": fmt.Sprint("dev-", i)})
	}
	b.tell(map[string]any{"do": "query", "name": "pages", "query": "SELECT * FROM devices", "page": 3})
	b.next("done", "")
	require.Equal(t, []string{"dev-1", "dev-2", "dev-3"}, b.call("pages", "next").ids())
	require.Equal(t, []string{"dev-4", "dev-5"}, b.call("pages", "nextAsTwin").ids())
	seen(t, "a query: 5 twins in 2 pages")

	b.call("registry", "delete", "dev-1")
	b.refused("DeviceNotFoundError", "registry", "delete", "dev-1")
	_, err = b.hub.Device("dev-1")
	require.ErrorIs(t, err, testbroker.ErrNotFound)
	reader := startBackEnd(t, b.hub, hubdata.RightRegistryRead)
	reader.call("registry", "get", "dev-2")
	reader.refused("UnauthorizedError", "registry", "delete", "dev-2")
	reader.refused("UnauthorizedError", "registry", "getTwin", "dev-2")
	seen(t, "a policy that may only read: the rest is refused")
}

func TestServiceSDKBulk(t *testing.T) {
	t.Parallel()
	b := startBackEnd(t, hubfixture.Open(t, nil), hubdata.RightAll)
	made := b.call("registry", "addDevices", []object{{"deviceId": "dev-1"}, {"deviceId": "dev-2", "status": "disabled"}})
	require.Equal(t, true, made["isSuccessful"])
	b.refused("ArgumentError", "registry", "addDevices", []object{{"deviceId": "dev-1"}, {"deviceId": "dev-3"}})
	require.Equal(t, []string{"dev-1", "dev-2", "dev-3"}, b.call("registry", "list").ids())
	got := b.call("registry", "get", "dev-2")
	require.Equal(t, "disabled", got["status"])
	got["status"] = "enabled"
	b.call("registry", "updateDevices", []object{got}, false)
	b.refused("ArgumentError", "registry", "updateDevices", []object{got}, false)
	b.call("registry", "updateDevices", []object{got}, true)
	require.Equal(t, "enabled", b.call("registry", "get", "dev-2").at("status"))
	b.refused("ArgumentError", "registry", "removeDevices", []object{got}, false)
	b.call("registry", "removeDevices", []object{got, {"deviceId": "dev-3"}}, true)
	require.Equal(t, []string{"dev-1"}, b.call("registry", "list").ids())
	edge := b.call("registry", "create", object{"deviceId": "edge", "capabilities": object{"iotEdge": true}})
	require.Equal(t, true, edge.at("capabilities", "iotEdge"))
	require.Equal(t, []string{"edge/$edgeAgent", "edge/$edgeHub"}, b.call("registry", "getModulesOnDevice", "edge").ids())
	seen(t, "devices added, changed with and without etag, and removed in bulk; a device with an edge gateway")
}

func TestServiceSDKQueries(t *testing.T) {
	t.Parallel()
	b := startBackEnd(t, hubfixture.Open(t, nil), hubdata.RightAll)
	for i := 1; i <= 3; i++ {
		id := fmt.Sprint("dev-", i)
		_, err := b.hub.AddDevice(id)
		require.NoError(t, err)
		require.NoError(t, b.hub.PatchTags(id, fmt.Sprintf(`{"site":"%c","floor":%d}`, "UUK"[i-1], i)))
	}
	_, err := b.hub.AddModule("dev-1", "mod")
	require.NoError(t, err)
	_, err = b.hub.PatchDesired("dev-3", `{"rate":60,"group":{"a-b":1}}`)
	require.NoError(t, err)
	for i, c := range []struct{ query, want string }{
		{"SELECT * FROM devices WHERE tags.site = 'U'", `["dev-1","dev-2"]`},
		{"SELECT * FROM devices WHERE tags.site = 'U' AND NOT tags.floor >= 2", `["dev-1"]`},
		{"SELECT * FROM devices WHERE (tags.floor = 1 OR tags.floor > 2) AND status = 'enabled'", `["dev-1","dev-3"]`},
		{"SELECT * FROM devices WHERE tags.site IN ['K', 'X']", `["dev-3"]`},
		{"SELECT * FROM devices WHERE tags.site NIN ['K', 'X']", `["dev-1","dev-2"]`},
		{"SELECT * FROM devices WHERE is_defined(properties.desired.rate)", `["dev-3"]`},
		{"SELECT * FROM devices WHERE properties.desired.[[group]].[[a-b]] = 1", `["dev-3"]`},
		{"SELECT * FROM devices WHERE STARTSWITH(devices.deviceId, 'dev-') AND tags.floor <> 3", `["dev-1","dev-2"]`},
		{"SELECT TOP 2 * FROM devices", `["dev-1","dev-2"]`},
		{"SELECT * FROM devices.modules WHERE devices.deviceId = 'dev-1'", `["dev-1"]`},
		{"SELECT deviceId, tags.floor AS f FROM devices WHERE tags.site = 'K'", `[{"deviceId":"dev-3","f":3}]`},
		{"SELECT tags.site AS s, COUNT() AS n FROM devices GROUP BY tags.site", `[{"s":"U","n":2},{"s":"K","n":1}]`},
		{"SELECT AVG(tags.floor) AS a, MIN(tags.floor) AS b, MAX(tags.floor) AS c, SUM(tags.floor) AS d FROM devices",
			`[{"a":2,"b":1,"c":3,"d":6}]`},
		{"SELECT COUNT() AS n FROM devices WHERE connectionState = 'Disconnected'", `[{"n":3}]`},
	} {
		name, method := fmt.Sprint("query", i), "next"
		if c.query[:8] == "SELECT *" || c.query[:10] == "SELECT TOP" {
			method = "nextAsTwin"
		}
		b.tell(map[string]any{"do": "query", "name": name, "query": c.query, "page": 10})
		b.next("done", "")
		rows := b.call(name, method)["all"]
		if method == "nextAsTwin" {
			var ids []any
			for _, twin := range rows.([]any) {
				ids = append(ids, twin.(map[string]any)["deviceId"])
			}
			rows = ids
		}
		got, err := json.Marshal(rows)
		require.NoError(t, err)
		require.JSONEq(t, c.want, string(got), c.query)
	}
	b.tell(map[string]any{"do": "query", "name": "bad", "query": "SELECT * FROM devices WHERE tags.group = 1", "page": 10})
	b.next("done", "")
	_, text := b.try("bad", "next")
	require.Contains(t, text, "ArgumentError")
	seen(t, "14 queries: conditions, projections, aggregates; a bad one: %s", text)
}

// The device uses the official device SDK.
func TestServiceSDKTwinAndMethods(t *testing.T) {
	t.Parallel()
	b := startBackEnd(t, hubfixture.Open(t, nil), hubdata.RightAll)
	dev, err := b.hub.AddDevice(deviceID)
	require.NoError(t, err)
	mod, err := b.hub.AddModule(deviceID, "mod-1")
	require.NoError(t, err)

	b.refused("DeviceNotFoundError", "registry", "getTwin", "dev-9")
	b.refused("(DeviceNotFound)", "client", "invokeDeviceMethod", "dev-9", object{"methodName": "reboot"})
	_, absent := b.try("client", "invokeDeviceMethod", deviceID, object{"methodName": "reboot"})
	require.Contains(t, absent, "(DeviceNotOnline)")
	seen(t, "a method of a device that is not there: %s", absent)

	s := startSDK(t, wayOf("mqtt"), b.hub)
	s.open("device", dev, nil)
	s.open("module", mod, nil)
	for _, m := range []*member{{sdk: s, name: "device", id: deviceID}, {sdk: s, name: "module",
		id: deviceID + "/mod-1"}} {
		whose, kind := []any{deviceID}, ""
		if m.name == "module" {
			whose, kind = append(whose, "mod-1"), "Module"
		}
		with := func(args ...any) []any { return append(append([]any{}, whose...), args...) }
		m.begin()
		twin := b.call("registry", "get"+kind+"Twin", whose...)
		require.Equal(t, deviceID, twin["deviceId"])
		patch := object{"tags": object{"site": "Köln"}, "properties": object{"desired": object{"a": object{"b": 1, "c": 2},
			"text": "größe"}}}
		changed := b.call("registry", "update"+kind+"Twin", with(patch, twin["etag"])...)
		require.Equal(t, "Köln", changed.at("tags", "site"))
		m.hears(`{"a":{"b":1,"c":2},"text":"größe","$version":2}`)
		b.refused("InvalidEtagError", "registry", "update"+kind+"Twin", with(patch, twin["etag"])...)
		b.call("registry", "update"+kind+"Twin", with(object{"properties": object{"desired": object{"a": object{"b": nil}}}},
			"*")...)
		m.hears(`{"a":{"b":null},"$version":3}`)
		require.Empty(t, m.reports(`{"fw":"1"}`))
		twin = b.call("registry", "get"+kind+"Twin", whose...)
		require.Equal(t, "1", twin.at("properties", "reported", "fw"))
		require.Equal(t, map[string]any{"c": 2.0}, twin.at("properties", "desired", "a"))
		_, text := b.try("registry", "update"+kind+"Twin", with(object{"properties": object{"desired": object{"a b": 1}}},
			"*")...)
		require.Contains(t, text, "ArgumentError")
		seen(t, "%s: twin read, changed with and without etag, removed by null; the device SDK hears it, and what that "+
			"reports is read; a bad patch: %s", m.id, text)

		call := object{"methodName": "reboot", "payload": object{"in": "größe"}, "responseTimeoutInSeconds": 20,
			"connectTimeoutInSeconds": 20}
		require.Equal(t, object{"status": 201.0, "payload": map[string]any{"given": map[string]any{"in": "größe"}}},
			b.call("client",
				"invokeDeviceMethod", with(call)...))
		call = object{"methodName": "empty", "responseTimeoutInSeconds": 20}
		require.Equal(t, object{"status": 404.0, "payload": nil}, b.call("client", "invokeDeviceMethod", with(call)...))
		seen(t, "%s: methods with and without payload, answered by the device SDK", m.id)
	}

	cut := b.hub.Inject(fault.Fault{Kind: fault.ResetBeforeRequest, Route: fault.RouteTwin})
	_, text := b.try("registry", "getTwin", deviceID)
	require.Equal(t, 1, cut.Fired())
	require.Contains(t, text, "ECONNRESET")
	b.call("registry", "getTwin", deviceID)
	seen(t, "a reset: %s; the next request is answered", text)
}
