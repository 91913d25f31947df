package interop

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// shotModel is the model of a thermometer.
const shotModel = `[{"@id": "dtmi:example:Thermometer;1", "@type": "Interface", "displayName": "Thermometer",
	"contents": [
	{"@type": ["Telemetry", "Temperature"], "name": "temperature", "unit": "degreeCelsius", "schema": "double"},
	{"@type": ["Telemetry", "RelativeHumidity"], "name": "humidity", "unit": "percent", "schema": "integer"},
	{"@type": "Property", "name": "firmware", "schema": "string"},
	{"@type": ["Property", "Temperature"], "name": "target", "displayName": "Target temperature", "writable": true,
		"unit": "degreeCelsius", "schema": "double"},
	{"@type": "Command", "name": "reboot", "request": {"name": "delay", "schema": "integer"}}]}]`

var screenshots = flag.String("screenshots", "", "folder to write screenshots of the page of testhub to")

// The pictures of the documents are made by
// go test -run TestScreenshotsOfPage . -screenshots ../docs
func TestScreenshotsOfPage(t *testing.T) {
	if *screenshots == "" {
		t.Skip("no -screenshots")
	}
	ca := filepath.Join(os.TempDir(), "testhub-ca.pem") // a picture shows the name
	t.Cleanup(func() { os.Remove(ca) })
	h := startTesthub(t, "-device", "thermometer-1", "-device", "thermometer-2", "-device", "thermometer-2/camera",
		"-ca", ca)
	d := startPageDevice(t, h, 0)
	light, dark := openPage(t, h, "light"), openPage(t, h, "dark")
	for second := range 20 {
		for i := range 3 + second*7%5 {
			body := fmt.Sprintf(`{"temperature":%d.%d,"humidity":%d}`, 21+second%3, i, 40+second)
			d.send(fmt.Sprintf("reading-%d-%d", second, i), body, transport.Property{Name: "unit", Value: "C"})
		}
		light.until("document.querySelector('.messages polyline').getAttribute('points').split(' ').length > args[0]",
			second+1)
	}
	d.report(`{"fan":{"on":true,"speed":3},"firmware":"2.4.1"}`)
	h.ask(t, "PATCH", "/devices/thermometer-1/twin/desired", `{"interval":60,"fan":{"speed":3},"target":22}`)
	h.ask(t, "PATCH", "/devices/thermometer-1/twin/tags", `{"site":"roof"}`)
	d.report(`{"target":{"value":22,"ac":200,"av":2,"ad":"set"},"cam":{"__t":"c","zoom":{"value":1,"ac":200,"av":2}}}`)
	h.ask(t, "POST", "/faults", `{"kind":"DropAfterPublish","device":"thermometer-1","after":2,"times":2}`)
	h.ask(t, "POST", "/faults", `{"kind":"AnswerStatus","statuses":[503,429],"retryAfter":"2s"}`)

	light.tab("Messages")
	light.shows("reading-19-")
	light.choose("Chart of", "temperature")
	light.shot("testhub-page-messages.png", 760)

	light.tab("Connect")
	light.shows("mosquitto_pub -h")
	light.shot("testhub-page-connect.png", 760)

	light.tab("Plug and Play")
	light.drop(shotModel)
	light.shows("22 °C")
	light.shot("testhub-page-pnp.png", 760)

	light.tab("Twin")
	light.until("document.querySelector('#twin label').innerText === 'Desired, version 2'")
	light.fill("Desired", `{"interval": 30}`)
	h.ask(t, "PATCH", "/devices/thermometer-1/twin/desired", `{"interval":90}`)
	light.press("Save desired")
	light.until("document.querySelector('#twin .conflict:not([hidden])')")
	light.shot("testhub-page-twin.png", 760)

	dark.tab("Faults")
	dark.fill("Find", "PUBACK")
	dark.choose("Kind", "SlowPuback")
	dark.fill("delay", "1.5s")
	dark.until("document.querySelectorAll('#faults tbody tr').length === 2")
	dark.shot("testhub-page-faults.png", 760)

	updates := startTesthub(t, "-device", "dev-1", "-enroll", "toaster-1", "-updates", t.TempDir())
	toast := newUpdater(t, updates)
	updates.ask(t, "POST", "/updates", toaster)
	updates.ask(t, "POST", "/updates/deployments", `{"update":{"provider":"Contoso","name":"Toaster","version":"1.0"}}`)
	toast.fail(toast.check(), "the image does not boot")
	light.goTo(updates)
	light.tab("Updates")
	light.focus("summary", "e.innerText.includes(args[1])", "does not boot")
	light.do(chromedp.KeyEvent("\r"))
	light.shot("testhub-page-updates.png", 900)
}

// shot writes a picture of the window, which has a height.
func (b *browser) shot(name string, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(1180, height))
	valueOf[bool](b, "(document.activeElement.blur(), scrollTo(0, 0), true)")
	valueOf[bool](b, "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(*screenshots, name), png, 0o644))
}
