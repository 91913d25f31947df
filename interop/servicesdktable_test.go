package interop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// A sdkMethod is a public method of the SDK, and a check of it: the result is empty, or says why it
// fails.
type sdkMethod struct {
	name  string
	check func(b *backEnd) string
}

// ok returns a check that a call succeeds.
func ok(name, method string, args ...any) func(*backEnd) string {
	return func(b *backEnd) string {
		_, text := b.try(name, method, args...)
		return text
	}
}

// has returns a check that a call succeeds, with a value at a path of its answer.
func has(want any, path []string, name, method string, args ...any) func(*backEnd) string {
	return func(b *backEnd) string {
		o, text := b.try(name, method, args...)
		if got := o.at(path...); text == "" && !jsonEqual(want, got) {
			return fmt.Sprintf("%s is %v, want %v", strings.Join(path, "."), got, want)
		}
		return text
	}
}

func jsonEqual(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// sequence returns a check that all of some checks pass.
func sequence(all ...func(*backEnd) string) func(*backEnd) string {
	return func(b *backEnd) string {
		for _, check := range all {
			if text := check(b); text != "" {
				return text
			}
		}
		return ""
	}
}

// signed returns a check that an object made from a shared access signature can call a method.
func signed(class, method string, args ...any) func(*backEnd) string {
	return func(b *backEnd) string {
		b.tell(map[string]any{"do": "sign", "name": "signed " + class, "type": class})
		b.next("done", "")
		_, text := b.try("signed "+class, method, args...)
		return text
	}
}

// take returns a check that keeps the result of a call as an object.
func take(name, from, method string, args ...any) func(*backEnd) string {
	return func(b *backEnd) string {
		b.tell(map[string]any{"do": "take", "name": name, "from": from, "method": method, "args": args})
		return b.next("answer", name).Text
	}
}

// rows returns a check that a query of an object, from jobs or the registry, has results.
func rows(from, query, method, want string, args ...any) func(*backEnd) string {
	return func(b *backEnd) string {
		b.tell(map[string]any{"do": "make", "from": from, "name": query, "method": "createQuery", "args": args})
		b.next("done", "")
		o, text := b.try(query, method)
		if got, _ := json.Marshal(o["all"]); text == "" && !strings.Contains(string(got), want) {
			return fmt.Sprintf("%s has no %s", got, want)
		}
		return text
	}
}

// ended returns a check that a job ends with a status.
func ended(job, status string, succeeded int) func(*backEnd) string {
	return func(b *backEnd) string {
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			o, text := b.try("jobs", "getJob", job)
			switch now := o.at("status"); {
			case text != "":
				return text
			case now == status:
				if got := o.at("deviceJobStatistics", "succeededCount"); !jsonEqual(succeeded, got) {
					return fmt.Sprintf("job %s: %v succeeded, want %d", job, got, succeeded)
				}
				return ""
			}
		}
		return "job " + job + " did not end"
	}
}

// sdkMethods are the checks of all public methods that use HTTPS, in the order in which they run.
var sdkMethods = slices.Concat(sdkRegistry, sdkConfigurations, sdkJobs, sdkTwins)

var sdkRegistry = []sdkMethod{
	{"Registry.create", has("a", []string{"deviceId"}, "registry", "create", object{"deviceId": "a"})},
	{"Registry.get", has("sas", []string{"authentication", "type"}, "registry", "get", "a")},
	{"Registry.update", has("disabled", []string{"status"}, "registry", "update",
		object{"deviceId": "a", "status": "disabled"})},
	{"Registry.list", ok("registry", "list")},
	{"Registry.addDevices", has(true, []string{"isSuccessful"}, "registry", "addDevices", []object{{"deviceId": "b"},
		{"deviceId": "c"}})},
	{"Registry.updateDevices", has(true, []string{"isSuccessful"}, "registry", "updateDevices",
		[]object{{"deviceId": "b", "status": "disabled"}}, true)},
	{"Registry.removeDevices", has(true, []string{"isSuccessful"}, "registry", "removeDevices",
		[]object{{"deviceId": "c"}}, true)},
	{"Registry.getRegistryStatistics", has(3, []string{"totalDeviceCount"}, "registry", "getRegistryStatistics")},
	{"Registry.addModule", has("m", []string{"moduleId"}, "registry", "addModule",
		object{"deviceId": "a", "moduleId": "m"})},
	{"Registry.getModule", has("m", []string{"moduleId"}, "registry", "getModule", "a", "m")},
	{"Registry.getModulesOnDevice", ok("registry", "getModulesOnDevice", "a")},
	{"Registry.updateModule", ok("registry", "updateModule", object{"deviceId": "a", "moduleId": "m"}, true)},
	{"Registry.getTwin", has("a", []string{"deviceId"}, "registry", "getTwin", "a")},
	{"Registry.updateTwin", has(1, []string{"tags", "x"}, "registry", "updateTwin", "a", object{"tags": object{"x": 1}},
		"*")},
	{"Registry.getModuleTwin", has("m", []string{"moduleId"}, "registry", "getModuleTwin", "a", "m")},
	{"Registry.updateModuleTwin", has(1, []string{"tags", "x"}, "registry", "updateModuleTwin", "a", "m",
		object{"tags": object{"x": 1}}, "*")},
	{"Registry.createQuery", rows("registry", "some", "next", `"deviceId":"a"`, "SELECT * FROM devices", 10)},
	{"Registry.fromConnectionString", ok("registry", "list")}, // the registry of all checks was made by it
	{"Registry.fromSharedAccessSignature", signed("Registry", "list")},
	{"Query.next", rows("registry", "raw", "next", `{"n":3}`, "SELECT COUNT() AS n FROM devices", 10)},
	{"Query.nextAsTwin", rows("registry", "twin rows", "nextAsTwin", `"deviceId":"b"`,
		"SELECT * FROM devices WHERE deviceId = 'b'", 10)},
	{"Twin.get", sequence(take("twin", "registry", "getTwin", "a"), has(1, []string{"tags", "x"}, "twin", "get"))},
	{"Twin.update", has(2, []string{"tags", "y"}, "twin", "update", object{"tags": object{"y": 2}})},
	{"Twin.toJSON", has("a", []string{"deviceId"}, "twin", "toJSON")},
	{"Registry.removeModule", ok("registry", "removeModule", "a", "m")},
	{"Registry.delete", ok("registry", "delete", "b")},
}

var sdkConfigurations = []sdkMethod{
	{"Registry.addConfiguration", has("1.0", []string{"schemaVersion"}, "registry", "addConfiguration",
		object{"id": "c1", "priority": 1, "targetCondition": "tags.x = 1", "content": object{
			"deviceContent": object{"properties.desired.rate": 7}}})},
	{"Registry.getConfiguration", sequence(written("a", `{"rate":7}`),
		has(1, []string{"systemMetrics", "results", "appliedCount"}, "registry", "getConfiguration", "c1"))},
	{"Registry.getConfigurations", ok("registry", "getConfigurations")},
	{"Registry.updateConfiguration", has(5, []string{"priority"}, "registry", "updateConfiguration",
		object{"id": "c1", "priority": 5, "targetCondition": "*"}, true)},
	{"Registry.applyConfigurationContentOnDevice", sequence(ok("registry", "applyConfigurationContentOnDevice", "a",
		object{"deviceContent": object{"properties.desired.extra": 1}}), written("a", `{"rate":7,"extra":1}`))},
	{"Registry.removeConfiguration", ok("registry", "removeConfiguration", "c1")},
}

// written returns a check that a device gets desired properties, and that the hub has noted them.
func written(device, want string) func(*backEnd) string {
	return func(b *backEnd) string {
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			twin, err := b.hub.Twin(device)
			if err != nil {
				return err.Error()
			}
			o, _ := b.try("registry", "getTwin", device)
			var got, wanted any
			_ = json.Unmarshal(twin.Desired, &got)
			_ = json.Unmarshal([]byte(want), &wanted)
			if jsonEqual(got, wanted) && o.at("configurations") != nil {
				return ""
			}
		}
		return device + " did not get " + want
	}
}

// longAgo is a start time that makes a job start at once.
var longAgo = object{"date": "2020-01-01T00:00:00Z"}

var sdkJobs = []sdkMethod{
	{"JobClient.scheduleTwinUpdate", sequence(has("scheduleUpdateTwin", []string{"type"}, "jobs", "scheduleTwinUpdate",
		"j1", "deviceId = 'a'", object{"etag": "*", "tags": object{"job": true}}, longAgo, 60), ended("j1", "completed", 1))},
	{"JobClient.getJob", has(true, []string{"updateTwin", "tags", "job"}, "jobs", "getJob", "j1")},
	{"JobClient.scheduleDeviceMethod", sequence(ok("jobs", "scheduleDeviceMethod", "j2",
		"deviceId IN ['a', '"+deviceID+"']",
		object{"methodName": "reboot", "payload": object{"in": 1}, "responseTimeoutInSeconds": 20}, longAgo, 60),
		ended("j2", "completed", 1))},
	{"JobClient.cancelJob", sequence(has("scheduled", []string{"status"}, "jobs", "scheduleTwinUpdate", "j3", "*",
		object{"tags": object{"never": true}}, object{"date": "2100-01-01T00:00:00Z"}, 60),
		has("cancelled", []string{"status"}, "jobs", "cancelJob", "j3"))},
	{"JobClient.createQuery", sequence(
		rows("jobs", "jobs 1", "next", `"jobId":"j2"`, "scheduleDeviceMethod", "completed", 10),
		rows("jobs", "jobs 2", "next", `"jobId":"j3"`, nil, "cancelled", 10),
		rows("registry", "jobs 3", "next", `"error":{"code":"DeviceNotOnline"`,
			"SELECT * FROM devices.jobs WHERE devices.jobs.jobId = 'j2' AND devices.jobs.status = 'failed'", 10))},
	{"JobClient.fromConnectionString", ok("jobs", "getJob", "j1")}, // the client of all checks was made by it
	{"JobClient.fromSharedAccessSignature", signed("JobClient", "getJob", "j1")},
	{"Registry.exportDevicesToBlob", transfers("export", func(container, _ string) []any {
		return []any{"exportDevicesToBlob", container, false}
	})},
	{"Registry.exportDevicesToBlobByIdentity", transfers("export", func(_, own string) []any {
		return []any{"exportDevicesToBlobByIdentity", own, true}
	})},
	{"Registry.importDevicesFromBlob", transfers("import", func(container, _ string) []any {
		return []any{"importDevicesFromBlob", container, container}
	})},
	{"Registry.importDevicesFromBlobByIdentity", transfers("import", func(_, own string) []any {
		return []any{"importDevicesFromBlobByIdentity", own, own}
	})},
	{"Registry.listJobs", func(b *backEnd) string { return transferred(b, func(string) string { return "" }) }},
	{"Registry.getJob", func(b *backEnd) string {
		return transferred(b, func(id string) string { return has(id, []string{"jobId"}, "registry", "getJob", id)(b) })
	}},
	{"Registry.cancelJob", func(b *backEnd) string {
		return transferred(b, func(id string) string { return ok("registry", "cancelJob", id)(b) })
	}},
}

// transfers returns a check that an import or export completes. The call gets the URL of a
// container with a signature, and the one that the hub accesses by its identity.
func transfers(kind string, call func(container, own string) []any) func(*backEnd) string {
	return func(b *backEnd) string {
		container, err := b.hub.ContainerURL("localhost", "transfers", time.Hour)
		if err != nil {
			return err.Error()
		}
		args := call(container, "https://localhost/store/transfers")
		made, text := b.try("registry", args[0].(string), args[1:]...)
		if text != "" || made["type"] != kind {
			return fmt.Sprintf("%v %s", made, text)
		}
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			now, text := b.try("registry", "getJob", made["jobId"])
			switch {
			case text != "" || now["status"] == "failed":
				return fmt.Sprintf("%v %s", now, text)
			case now["status"] == "completed":
				return ""
			}
		}
		return "the job did not end"
	}
}

// transferred checks the newest import or export.
func transferred(b *backEnd, check func(id string) string) string {
	o, text := b.try("registry", "listJobs")
	all, _ := o["all"].([]any)
	if text != "" || len(all) != 4 {
		return fmt.Sprintf("%d jobs, want 4 %s", len(all), text)
	}
	id, _ := all[3].(map[string]any)["jobId"].(string)
	return check(id)
}

var sdkTwins = []sdkMethod{
	{"DigitalTwinClient.getDigitalTwin", has(deviceID, []string{"$dtId"}, "twins", "getDigitalTwin", deviceID)},
	{"DigitalTwinClient.updateDigitalTwin", sequence(ok("twins", "updateDigitalTwin", deviceID, []object{
		{"op": "add", "path": "/target", "value": 20}, {"op": "add", "path": "/inner/level", "value": 3}}),
		has(20, []string{"$metadata", "target", "desiredValue"}, "twins", "getDigitalTwin", deviceID),
		has(3, []string{"inner", "$metadata", "level", "desiredValue"}, "twins", "getDigitalTwin", deviceID))},
	{"DigitalTwinClient.invokeCommand", has(object{"in": 2}, []string{"body", "given"}, "twins", "invokeCommand", deviceID,
		"reboot", object{"in": 2})},
	{"DigitalTwinClient.invokeComponentCommand", has(object{"in": 3}, []string{"body", "given"}, "twins",
		"invokeComponentCommand", deviceID, "inner", "reboot", object{"in": 3})},
	{"Client.invokeDeviceMethod", has(201, []string{"status"}, "client", "invokeDeviceMethod", deviceID,
		object{"methodName": "reboot", "payload": object{"in": 4}, "responseTimeoutInSeconds": 20})},
}

// sdkFails are the methods that fail, each with the reason.
var sdkFails = map[string]string{
	"Registry.fromTokenCredential":  "the hub takes no tokens of Entra ID",
	"JobClient.fromTokenCredential": "the hub takes no tokens of Entra ID",
}

// The table names every public method of the classes that use HTTPS.
func TestServiceSDKMethods(t *testing.T) {
	t.Parallel()
	b := startBackEnd(t, hubfixture.Open(t, nil), hubdata.RightAll)
	dev, err := b.hub.AddDevice(deviceID)
	require.NoError(t, err)
	device := startSDK(t, wayOf("mqtt"), b.hub)
	device.open("device", dev, nil)
	(&member{sdk: device, name: "device", id: deviceID}).begin()
	device.tell(map[string]any{"do": "method", "name": "device", "method": "inner*reboot", "status": 203})

	checked, table := map[string]bool{}, []string{}
	for _, m := range sdkMethods {
		checked[m.name] = true
		why := m.check(b)
		if sdkFails[m.name] != "" {
			require.NotEmpty(t, why, "%s passes: remove it from the failures", m.name)
			why = sdkFails[m.name] + ": " + why
		} else {
			require.Empty(t, why, m.name)
			why = "passes"
		}
		table = append(table, fmt.Sprintf("%-45s %s", m.name, why))
	}
	for _, class := range []string{"Registry", "JobClient", "DigitalTwinClient", "Query", "Twin"} {
		b.tell(map[string]any{"do": "methods", "name": class})
		var all []string
		require.NoError(t, json.Unmarshal([]byte(b.next("answer", class).Payload), &all))
		for _, name := range all {
			if name = class + "." + name; !checked[name] {
				require.Contains(t, sdkFails, name, "a method without a check")
				table = append(table, fmt.Sprintf("%-45s %s", name, sdkFails[name]))
			}
		}
	}
	passes := 0
	for _, line := range table {
		if strings.HasSuffix(line, " passes") {
			passes++
		}
		fmt.Println("  " + line)
	}
	seen(t, "npm azure-iothub over HTTPS: %d of %d public methods pass", passes, len(table))
}
