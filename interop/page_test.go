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
	h := startTesthub(t, "-device", "dev-1", "-device", "dev-2", "-enroll", "sensor-1", "-link", hubB)
	b := openPage(t, h, "light")
	for _, panel := range []struct {
		name string
		use  func(t *testing.T, h *testhub, b *browser, d *pageDevice)
	}{
		{"devices", useDevices}, {"messages", useMessages}, {"twin", useTwin}, {"twin conflict", useTwinConflict},
		{"methods", useMethods}, {"cloud-to-device", useC2D}, {"uploads", useUploads}, {"enrollments", useEnrollments},
		{"faults", useFaults}, {"log", useLog}, {"rates", useRates}, {"reset", useReset},
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
	secret := valueOf[string](b, "document.querySelector('#connection-string').value")
	_, err := device.ParseConnectionString(secret)
	require.NoError(t, err)
	b.fill("Add a device", "dev-3")
	b.press("Add")
	b.until("document.querySelector('#device-result').innerText.includes('dev-3') && " +
		"!document.querySelector('#device-result').innerText.includes('is registered.')")
	b.press("dev-3\nnot connected")
	b.press("Remove")
	b.until("document.querySelector('#ask').open")
	b.do(chromedp.KeyEvent("\t"), chromedp.KeyEvent("\r")) // past Cancel
	b.until("![...document.querySelectorAll('.device')].some((e) => e.innerText.startsWith('dev-3'))")
	require.Len(t, h.ask(t, "GET", "/devices", "")["devices"], 2)
}

func useMessages(_ *testing.T, _ *testhub, b *browser, d *pageDevice) {
	b.tab("Messages")
	d.send("m-1", `{"temperature":21.5}`, transport.Property{Name: "unit", Value: "C"})
	d.send("m-2", `{"pressure":1013}`)
	b.shows(`{"pressure":1013}`)
	b.fill("Filter", "unit")
	b.until("document.querySelectorAll('#messages tbody tr').length === 1")
	b.shows("1 of the newest 2")
	b.focus("summary", "e.innerText.includes(args[1])", "temperature")
	b.do(chromedp.KeyEvent("\r"))
	b.shows("property unit")
	b.fill("Filter", "")
	b.shows("the newest 2")
	b.choose("From", "the chosen device")
	b.press("Pause")
	d.send("m-3", "later")
	b.press("Continue")
	b.shows("m-3")
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
