package interop

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// pageDevice is a device whose hub a person watches.
type pageDevice struct {
	*device.Client
	t     testing.TB
	creds *transport.Credentials
	web   netopt.Options
}

// startPageDevice connects the device of that place in the hub's list. It answers the method
// "reboot" with its payload, and completes cloud-to-device messages.
func startPageDevice(t testing.TB, h *testhub, place int) *pageDevice {
	creds, err := device.ParseConnectionString(h.Devices[place].ConnectionString)
	require.NoError(t, err)
	pem, err := os.ReadFile(h.CA)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(pem))
	network := func(port string) netopt.Options {
		return netopt.Options{Addr: loopback(h.Ports[port]), TLS: &tls.Config{RootCAs: roots}}
	}
	client, err := device.New(creds, mqtt.New(&mqtt.Options{Network: network("mqtt")}), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	client.HandleMessages(func(context.Context, *transport.Message) error { return nil })
	require.NoError(t, client.HandleMethod("reboot", func(_ context.Context, m *device.MethodCall) (int, []byte) {
		return 200, m.Body
	}))
	require.NoError(t, client.Open(soon(t)))
	return &pageDevice{client, t, creds, network("https")}
}

func (d *pageDevice) send(id, body string, properties ...transport.Property) {
	d.t.Helper()
	require.NoError(d.t, d.Send(soon(d.t), &transport.Message{ID: id, Body: []byte(body), Properties: properties}))
}

func (d *pageDevice) report(patch string) {
	d.t.Helper()
	_, err := d.PatchReported(soon(d.t), []byte(patch))
	require.NoError(d.t, err)
}

func (d *pageDevice) upload(name, content string) {
	d.t.Helper()
	u, err := fileupload.New(d.creds, &fileupload.Options{Network: d.web})
	require.NoError(d.t, err)
	_, err = u.Upload(soon(d.t), name, strings.NewReader(content), -1)
	require.NoError(d.t, err)
	require.NoError(d.t, u.Close())
}

// openPage opens the page of a hub.
func openPage(t testing.TB, h *testhub, scheme string) *browser {
	b := startBrowser(t, scheme)
	b.goTo(h)
	return b
}

// goTo opens the page of a hub, and waits for its events.
func (b *browser) goTo(h *testhub) {
	b.t.Helper()
	b.do(chromedp.Navigate(h.Control + "/"))
	b.until("document.querySelector('#live')?.dataset.state === 'on'")
}

// A person without a mouse uses each panel, while a device is connected.
func TestPage(t *testing.T) {
	t.Parallel()
	h := startTesthub(t, "-device", "dev-1", "-device", "dev-2", "-device", "dev-2/camera", "-enroll", "sensor-1",
		"-link", hubB, "-updates", t.TempDir())
	b := openPage(t, h, "light")
	for _, panel := range []struct {
		name string
		use  func(t *testing.T, h *testhub, b *browser, d *pageDevice)
	}{
		{"devices", useDevices}, {"messages", useMessages}, {"files", useFiles}, {"connect", useConnect},
		{"plug and play", usePlugAndPlay}, {"twin", useTwin}, {"twin conflict", useTwinConflict},
		{"methods", useMethods}, {"cloud-to-device", useC2D}, {"uploads", useUploads}, {"enrollments", useEnrollments},
		{"updates", useUpdates}, {"faults", useFaults}, {"log", useLog}, {"rates", useRates}, {"reset", useReset},
	} {
		require.True(t, t.Run(panel.name, func(t *testing.T) {
			h.ask(t, "POST", "/reset", "")
			inner := &browser{t: t, ctx: b.ctx}
			inner.until("!document.querySelector('dialog[open]')")
			panel.use(t, h, inner, startPageDevice(t, h, 0))
		}))
	}
	seen(t, "each panel used by keyboard in Chromium, with a device connected")
}

func useDevices(t *testing.T, h *testhub, b *browser, _ *pageDevice) {
	b.until("[...document.querySelectorAll('.device')].some((e) => e.innerText === 'dev-1\\nconnected')")
	b.press("dev-2\nnot connected")
	b.shows("not connected, by key")
	disabled := "[...document.querySelectorAll('#chosen button:disabled')].map((e) => e.innerText).join()"
	require.Equal(t, "Cut,Close", valueOf[string](b, disabled), "there is no connection to end")
	b.press("module camera")
	b.tab("Twin")
	b.until("document.querySelector('#twin label').innerText === 'Desired, version 1'")
	h.ask(t, "PATCH", "/devices/dev-2%2Fcamera/twin/tags", `{"lens":"wide"}`)
	b.until("document.querySelector('#twin').querySelectorAll('textarea')[1].value.includes('wide')")
	b.press("the device itself")
	b.press("Disable")
	b.shows("disabled, by key")
	b.press("Enable")
	b.shows("not connected, by key")
	b.press("dev-1\nconnected")
	b.press("Cut")
	b.shows("Cut: 1 connections ended")

	b.fill("Add a device", "dev-3")
	b.press("Add")
	b.shows("dev-3 is registered.")
	b.tab("Connect")
	b.press("Show secrets")
	b.shows("HostName=localhost;DeviceId=dev-3;SharedAccessKey=")
	b.fill("Add a device", "dev-3")
	b.press("Add")
	b.until("document.querySelector('#device-result').innerText.includes('dev-3') && " +
		"!document.querySelector('#device-result').innerText.includes('is registered.')")
	b.press("dev-3\nnot connected")
	b.press("Remove")
	b.until("document.querySelector('#ask').open")
	b.do(chromedp.KeyEvent("\t"), chromedp.KeyEvent("\r")) // past Cancel
	b.until("![...document.querySelectorAll('.device')].some((e) => e.innerText.startsWith('dev-3'))")
	require.Len(t, h.ask(t, "GET", "/devices", "")["devices"], 3)
}

// useMessages follows the chosen device, and draws a field of its telemetry.
func useMessages(_ *testing.T, _ *testhub, b *browser, d *pageDevice) {
	b.press("dev-1\nconnected")
	b.tab("Messages")
	b.shows("No message yet.")
	d.send("m-1", `{"temperature":21.5}`, transport.Property{Name: "unit", Value: "C"})
	d.send("m-2", `{"pressure":1013}`)
	b.shows(`{"pressure":1013}`)
	b.shows("unit C")
	b.fill("Filter", "unit")
	b.until("document.querySelectorAll('#messages tbody tr').length === 1")
	b.shows("1 of the newest 2")
	b.focus("summary", "e.innerText.includes(args[1])", "temperature")
	b.do(chromedp.KeyEvent("\r"))
	b.shows("property unit")
	b.fill("Filter", "")
	b.shows("the newest 2")
	b.choose("Chart of", "temperature")
	d.send("m-3", `{"temperature":23}`)
	b.until("document.querySelector('.field-chart svg')?.getAttribute('aria-label').endsWith(" +
		"'dev-1 now 23; at least 21.5, at most 23')")
	b.choose("Chart of", "nothing")
	b.press("dev-2\nnot connected")
	b.shows("No message yet.")
	b.focus("input", "e.parentElement.innerText === args[1]", "All devices")
	b.do(chromedp.KeyEvent(" "))
	b.shows("the newest 3")
	b.do(chromedp.KeyEvent(" "))
	b.press("dev-1\nconnected")
	b.press("Pause")
	d.send("m-4", "later")
	b.press("Continue")
	b.shows("m-4")
}

// useFiles saves what is shown, with whole bodies.
func useFiles(t *testing.T, _ *testhub, b *browser, d *pageDevice) {
	b.tab("Messages")
	long := strings.Repeat("x", 5000)
	d.send("m-1", `{"temperature":21.5}`, transport.Property{Name: "unit", Value: "C"})
	d.send("m-2", long)
	d.send("m-3", `=HYPERLINK("http://hostile.test")`)
	b.shows("the newest 3")
	valueOf[bool](b, "(URL.createObjectURL = (b) => { window.saved = b; return '#saved' }, true)")
	saved := func(button string) string {
		valueOf[bool](b, "(window.saved = null, true)")
		b.press(button)
		b.until("window.saved")
		return valueOf[string](b, "window.saved.text()")
	}
	lines := strings.Split(saved("Save as JSON lines"), "\n")
	require.Len(t, lines, 4)
	require.Contains(t, lines[1], long)
	require.Contains(t, lines[0], `"unit":"C"`)
	rows := strings.Split(saved("Save as CSV"), "\r\n")
	require.Len(t, rows, 5)
	require.Contains(t, rows[1], `"{""temperature"":21.5}"`)
	require.Contains(t, rows[3], `"'=HYPERLINK(`, "no formula for a spreadsheet")
	b.fill("Filter", "m-1")
	b.shows("1 of the newest 3")
	require.Len(t, strings.Split(saved("Save as JSON lines"), "\n"), 2)
	b.fill("Filter", "")
}

// useConnect shows keys only when a person asks, and never for the next device.
func useConnect(t *testing.T, h *testhub, b *browser, _ *pageDevice) {
	_, key, _ := strings.Cut(h.Devices[0].ConnectionString, "SharedAccessKey=")
	require.NotEmpty(t, key)
	b.tab("Connect")
	b.shows("mosquitto_pub -h localhost")
	b.shows("DeviceId=dev-1;SharedAccessKey=…")
	in := func(text string) bool {
		return valueOf[bool](b, "document.documentElement.outerHTML.includes(args[0])", text)
	}
	require.False(t, in(key))
	b.press("Show secrets")
	b.until("document.querySelector('#connect').innerText.includes(args[0])", key)
	b.press("dev-2\nnot connected")
	b.shows("DeviceId=dev-2;SharedAccessKey=…")
	require.False(t, in(key))
	b.press("dev-1\nconnected")
	valueOf[bool](b, "(navigator.clipboard.writeText = async (text) => { window.copied = text }, true)")
	b.press("Copy Connection string")
	b.shows("Copied: Connection string.")
	require.Equal(t, h.Devices[0].ConnectionString, valueOf[string](b, "window.copied"))
	require.False(t, in(key))
}

// pageModel is a model with each kind of schema.
const pageModel = `[{"@context": "dtmi:dtdl:context;3", "@id": "dtmi:test:Fan;1", "@type": "Interface", "contents": [
	{"@type": ["Telemetry", "Temperature"], "name": "celsius", "displayName": {"en": "Temperature"},
		"unit": "degreeCelsius", "schema": "double"},
	{"@type": "Property", "name": "firmware", "schema": "string"},
	{"@type": "Property", "name": "mode", "writable": true, "schema": {"@type": "Enum", "valueSchema": "integer",
		"enumValues": [{"name": "off", "enumValue": 0}, {"name": "heat", "enumValue": 1}]}},
	{"@type": "Command", "name": "reboot", "request": {"name": "how", "schema": {"@type": "Object", "fields": [
		{"name": "delay", "schema": "integer"}, {"name": "force", "schema": "boolean"}, {"name": "where", "schema": "point"},
		{"name": "levels", "schema": {"@type": "Array", "elementSchema": "double"}}]}}},
	{"@type": "Component", "name": "cam", "schema": "dtmi:test:Camera;1"}]},
	{"@id": "dtmi:test:Camera;1", "@type": "Interface", "extends": "dtmi:test:Base;1", "contents": []},
	{"@id": "dtmi:test:Base;1", "@type": "Interface", "contents": [
		{"@type": "Property", "name": "zoom", "writable": true, "schema": "integer"}]}]`

// drop drops a file with a model onto the panel Plug and Play.
func (b *browser) drop(model string) {
	b.t.Helper()
	valueOf[bool](b, `((data) => { data.items.add(new File([args[0]], "model.json"));
		return !document.querySelector("#pnp").dispatchEvent(new DragEvent("drop",
			{dataTransfer: data, bubbles: true, cancelable: true})) })(new DataTransfer())`, model)
}

// row waits for a row of a table of the panel Plug and Play.
func (b *browser) row(cells ...string) {
	b.t.Helper()
	b.until(`[...document.querySelectorAll("#pnp tr")].some((r) => args[0].every((c, i) => r.children[i]?.innerText
		.split(":")[0] === c))`, cells)
}

// usePlugAndPlay sees a device as its model describes it, asks it for values, and calls it.
func usePlugAndPlay(t *testing.T, h *testhub, b *browser, d *pageDevice) {
	b.tab("Plug and Play")
	b.shows("The device announces no model.")
	b.drop(`{"a": `)
	b.shows("model.json: ")
	fan, camera, ok := strings.Cut(pageModel, "\n\t{\"@id\": \"dtmi:test:Camera;1\"")
	require.True(t, ok)
	b.drop(strings.TrimSuffix(fan, ",") + "]")
	b.shows("No file has its interface dtmi:test:Camera;1")
	b.drop(`[{"@id": "dtmi:test:Camera;1"` + camera)
	d.send("m-1", `{"celsius":21.5}`)
	d.report(`{"firmware":"1.2"}`)
	b.row("Temperature celsius", "21.5 °C")
	b.row("firmware", "1.2", "", "read only")
	b.row("mode", "", "", "nothing wanted")

	b.focus("summary", "e.getAttribute('aria-label') === args[1]", "Change mode")
	b.do(chromedp.KeyEvent("\r"))
	b.press("Set mode")
	b.shows("mode: give a value")
	b.choose("New value of mode", "heat")
	b.press("Set mode")
	b.row("mode", "", "heat (1)", "no acknowledgement yet")
	d.report(`{"mode":{"value":0,"ac":202,"av":2,"ad":"soon"}}`)
	b.row("mode", "off (0)", "heat (1)", "waiting for version 2; last")
	d.report(`{"mode":{"value":1,"ac":200,"av":2,"ad":"done"}}`)
	b.row("mode", "heat (1)", "heat (1)", "accepted")
	d.report(`{"mode":{"value":0,"ac":400,"av":2,"ad":"too hot"}}`)
	b.row("mode", "off (0)", "heat (1)", "refused")

	b.focus("summary", "e.getAttribute('aria-label') === args[1]", "Change zoom")
	b.do(chromedp.KeyEvent("\r"))
	b.fill("New value of zoom", "far")
	b.press("Set zoom")
	b.shows("New value of zoom: want a whole number")
	b.fill("New value of zoom", "3")
	b.press("Set zoom")
	b.row("zoom", "", "3", "no acknowledgement yet")
	desired := h.ask(t, "GET", "/devices/dev-1/twin", "")["desired"]
	require.Equal(t, map[string]any{"mode": 1.0, "cam": map[string]any{"__t": "c", "zoom": 3.0}}, desired)

	b.focus("summary", "e.innerText === args[1]", "reboot")
	b.do(chromedp.KeyEvent("\r"))
	b.fill("delay", "5")
	b.choose("force", "true")
	b.fill("where", `{"x":1}`)
	b.press("Add an item")
	b.fill("Item", "1.5")
	b.press("Call reboot")
	b.shows("reboot: the device answers with status 200.")
	call := object(h.ask(t, "GET", "/devices/dev-1/methods", "")["calls"].([]any)[0].(map[string]any))
	require.Equal(t, map[string]any{"delay": 5.0, "force": true, "where": map[string]any{"x": 1.0},
		"levels": []any{1.5}}, call["payload"])
	b.press("Forget the model")
	b.shows("The device announces no model.")
}

// useTwin saves both parts, and sees the device's report without losing what is typed.
func useTwin(t *testing.T, h *testhub, b *browser, d *pageDevice) {
	b.tab("Twin")
	b.until("document.querySelector('#twin label').innerText === 'Desired, version 1'")
	b.fill("Desired", `{"interval":60}`)
	d.report(`{"fan":{"on":true}}`)
	b.shows("Reported, version 2")
	b.shows("Desired, version 1, changed by you")
	b.press("Save desired")
	b.shows("Saved as version 2.")
	b.fill("Tags", `{"site":`)
	b.press("Save tags")
	b.shows("This is no JSON")
	b.fill("Tags", `{"site":"roof"}`)
	b.press("Save tags")
	b.shows("Saved.")
	twin := h.ask(t, "GET", "/devices/dev-1/twin", "")
	require.Equal(t, map[string]any{"interval": 60.0}, twin["desired"])
	require.Equal(t, map[string]any{"site": "roof"}, twin["tags"])
}

// useTwinConflict changes what a back end changes too. The page overwrites nothing unasked.
func useTwinConflict(t *testing.T, h *testhub, b *browser, _ *pageDevice) {
	b.tab("Twin")
	b.until("document.querySelector('#twin label').innerText === 'Desired, version 1'")
	b.fill("Desired", `{"interval":60}`)
	h.ask(t, "PATCH", "/devices/dev-1/twin/desired", `{"colour":"blue"}`)
	h.ask(t, "PATCH", "/devices/dev-1/twin/tags", `{"site":"roof"}`)
	b.press("Save desired")
	b.shows("Somebody else has changed the desired meanwhile, to version 2")
	b.until("document.querySelector('#twin .conflict:not([hidden]) pre').innerText.includes('blue')")
	require.Equal(t, map[string]any{"colour": "blue"}, h.ask(t, "GET", "/devices/dev-1/twin", "")["desired"])
	b.press("Keep mine, on top of theirs")
	b.shows("Look at your text again, then save it.")
	h.ask(t, "PATCH", "/devices/dev-1/twin/tags", `{"site":"cellar"}`) // the tags are another part
	b.press("Save desired")
	b.shows("Saved as version 3.")
	require.Equal(t, map[string]any{"interval": 60.0}, h.ask(t, "GET", "/devices/dev-1/twin", "")["desired"])
}

func useMethods(t *testing.T, h *testhub, b *browser, _ *pageDevice) {
	b.tab("Methods")
	b.fill("Method", "reboot")
	b.fill("Payload", `{"in":5}`)
	b.press("Call")
	b.shows("The device answers with status 200.")
	b.until(`JSON.parse(document.querySelector("#methods pre").innerText).in === 5`)
	b.until("document.querySelectorAll('#methods tbody tr').length === 1")
	b.fill("Method", "nothing")
	b.press("Call")
	b.shows("status 404")
	require.Len(t, h.ask(t, "GET", "/devices/dev-1/methods", "")["calls"], 2)
}

func useC2D(t *testing.T, h *testhub, b *browser, _ *pageDevice) {
	b.tab("Cloud-to-device")
	b.fill("Message id", "c-1")
	b.fill("Properties", "zone=3, unit=a=b")
	b.choose("Feedback", "full")
	b.fill("Body", `{"on":true}`)
	b.press("Send")
	b.until(`document.querySelector("#c2d tbody")?.innerText.includes("completed")`)
	b.shows("Success")
	one := object(h.ask(t, "GET", "/devices/dev-1/c2d", "")["c2d"].([]any)[0].(map[string]any))
	require.Equal(t, map[string]any{"zone": "3", "unit": "a=b"}, one["properties"])
	b.press("dev-2\nnot connected")
	b.press("Send")
	b.until(`document.querySelector("#c2d tbody").innerText.includes("enqueued")`)
	b.press("Throw away those that wait")
	b.shows("Thrown away: 1.")
	b.until(`document.querySelector("#c2d tbody").innerText.includes("purged")`)
	b.press("dev-1\nconnected")
}

func useUploads(_ *testing.T, _ *testhub, b *browser, d *pageDevice) {
	b.tab("Uploads")
	d.upload("logs/today <b>.txt", "sunny")
	b.press("Show dev-1/logs/today <b>.txt")
	b.shows("sunny")
}

func useEnrollments(t *testing.T, h *testhub, b *browser, _ *pageDevice) {
	b.tab("Enrollments")
	b.shows("Provisioning service localhost, ID scope 0ne00ABCDEF")
	b.choose("Hub of sensor-1", hubB)
	b.shows("sensor-1: registrations are allowed, at " + hubB)
	b.press("allowed: refuse them")
	b.press("refused: allow them")
	b.until("[...document.querySelectorAll('#enrollments button')].some((e) => e.innerText === 'allowed: refuse them')")
	one := object(h.ask(t, "GET", "/dps/enrollments", "")["enrollments"].([]any)[0].(map[string]any))
	require.Equal(t, []any{hubB}, one["hubs"])
	require.Equal(t, false, one["disabled"])
}

// useFaults declares a fault with fields of several types. The menu has every kind.
func useFaults(t *testing.T, h *testhub, b *browser, d *pageDevice) {
	b.tab("Faults")
	all := h.ask(t, "GET", "/faults/kinds", "")
	kinds := len(all["kinds"].([]any)) + len(all["workload"].([]any))
	b.until("document.querySelectorAll('#faults select[size] option').length === args[0]", kinds)
	b.fill("Find", "PUBACK after Delay")
	b.until("document.querySelectorAll('#faults select[size] option').length === 1")
	b.shows("SlowPuback sends the PUBACK after Delay.")
	b.fill("delay", "soon")
	b.press("Declare")
	b.shows("delay has a value that does not fit")
	b.fill("delay", "1ms")
	b.fill("times", "2")
	b.fill("device", "dev-1")
	b.press("Declare")
	b.shows("SlowPuback, is declared.")
	d.send("m-1", "slow")
	b.until("[...document.querySelectorAll('#faults tbody tr')].some((r) => r.children[3].innerText === '1')")
	id := object(h.ask(t, "GET", "/faults", "")["faults"].([]any)[0].(map[string]any))["id"]
	b.press(fmt.Sprintf("Remove fault %v, SlowPuback", id))
	b.shows("is removed.")
	require.Empty(t, h.ask(t, "GET", "/faults", "")["faults"])

	b.fill("Find", "AnswerStatusAfter")
	b.until("document.querySelectorAll('#faults select[size] option').length === 1")
	b.fill("statuses", "[503,0,429]")
	b.choose("route", "telemetry")
	b.choose("retryAfterDate", "true")
	b.press("Declare")
	b.shows("AnswerStatusAfter, is declared.")
	fault := object(h.ask(t, "GET", "/faults", "")["faults"].([]any)[0].(map[string]any))["fault"]
	require.Equal(t, map[string]any{"kind": "AnswerStatusAfter", "statuses": []any{503.0, 0.0, 429.0},
		"route": "telemetry", "retryAfterDate": true}, fault)
	b.press("Remove all")
	b.shows("Removed: 1.")
	b.fill("Find", "")
}

func useLog(_ *testing.T, _ *testhub, b *browser, d *pageDevice) {
	b.tab("Log")
	d.send("logged-1", "one")
	b.fill("Filter", "logged-1")
	b.until("document.querySelectorAll('.lines li').length === 1")
	b.shows(`dev-1 message "logged-1", 3 bytes over MQTT`)
	b.press("dev-2\nnot connected")
	b.until("document.querySelectorAll('.lines li').length === 0")
	b.press("dev-1\nconnected")
	b.until("document.querySelectorAll('.lines li').length === 1")
	b.fill("Filter", "")
}

func useRates(_ *testing.T, _ *testhub, b *browser, d *pageDevice) {
	most := "[...document.querySelectorAll('.chart svg')].map((e) => +e.getAttribute('aria-label').split('at most ')[1])"
	for i := range 50 {
		d.send(fmt.Sprint("rate-", i), "x")
	}
	b.until("((m) => m[0] > 1 && m[1] > 0)(" + most + ")")
	b.until("document.querySelector('.chart.messages polyline').getAttribute('points').split(' ').length > 2")
}

func useReset(t *testing.T, h *testhub, b *browser, d *pageDevice) {
	b.tab("Messages")
	d.send("m-1", "before")
	b.until("document.querySelector('#messages tbody tr')?.innerText.includes('before')")
	b.press("Reset the hub")
	b.until("document.querySelector('#ask').open")
	b.do(chromedp.KeyEvent("\t"), chromedp.KeyEvent("\r"))
	b.until("document.querySelectorAll('#messages tbody tr').length === 0")
	require.Empty(t, h.ask(t, "GET", "/messages", "")["messages"])
}
