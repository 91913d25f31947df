package interop

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// pagePanels are the tabs of the page.
var pagePanels = []string{"Messages", "Connect", "Plug and Play", "Twin", "Methods", "Cloud-to-device", "Uploads",
	"Enrollments", "Updates", "Faults", "Log"}

// The rules of axe-core find no serious violation in any panel, in both schemes, and no panel is
// wider than a small window.
func TestPageIsAccessible(t *testing.T) {
	t.Parallel()
	axe, err := os.ReadFile(filepath.Join(nodeDir(t), "node_modules", "axe-core", "axe.min.js"))
	require.NoError(t, err)
	h := startTesthub(t, "-device", "dev-1", "-device", "dev-2", "-enroll", "sensor-1",
		"-updates", t.TempDir())
	d := startPageDevice(t, h, 0)
	d.work(h)
	h.ask(t, "POST", "/faults", `{"kind":"SlowPuback","delay":"1ms","times":-1}`)
	h.ask(t, "POST", "/devices/dev-2/disable", "")
	u := newUpdater(t, h)
	h.ask(t, "POST", "/updates", toaster)
	h.ask(t, "POST", "/updates/deployments", `{"update":{"provider":"Contoso","name":"Toaster","version":"1.0"}}`)
	u.fail(u.check(), "the image is damaged")
	passed := 0
	// A scheme has colours only.
	rules := map[string]map[string]any{"light": {}, "dark": {"runOnly": []string{"color-contrast"}}}
	for _, scheme := range []string{"light", "dark"} {
		b := startBrowser(t, scheme)
		// axe-core makes functions of texts, which the policy of the page forbids.
		_, err := chromedp.Call(b.ctx, page.SetBypassCSP, page.SetBypassCSPParams{Enabled: true})
		require.NoError(t, err)
		b.goTo(h)
		require.Equal(t, scheme == "dark", valueOf[bool](b, "matchMedia('(prefers-color-scheme: dark)').matches"))
		valueOf[bool](b, "(() => {"+string(axe)+"; return true})()")
		for _, panel := range pagePanels {
			b.tab(panel)
			switch panel {
			case "Messages":
				b.choose("Chart of", "temperature")
			case "Plug and Play":
				b.drop(pageModel)
				b.shows("Temperature")
			}
			b.until("!document.querySelector('[role=tabpanel]:not([hidden]) table') || " +
				"document.querySelector('[role=tabpanel]:not([hidden]) tbody tr')")
			valueOf[bool](b, "(document.querySelectorAll('[role=tabpanel] details').forEach((d) => d.open = true), true)")
			got := valueOf[json.RawMessage](b, `axe.run(args[0]).then((r) => ({passes: r.passes.length, violations: r.violations
				.filter((v) => ["serious", "critical"].includes(v.impact))
				.map((v) => [v.id, v.help, v.nodes.map((n) => n.html)])}))`, rules[scheme])
			var result struct {
				Passes     int
				Violations []any
			}
			require.NoError(t, json.Unmarshal(got, &result))
			require.Empty(t, result.Violations, "%s in %s", panel, scheme)
			passed += result.Passes
			if scheme == "light" {
				require.Greater(t, result.Passes, 20)
				b.fits(panel)
			}
		}
	}
	seen(t, "axe-core: no serious violation in %d panels, light and dark; %d rules passed", len(pagePanels), passed)
}

// fits checks that the page is no wider than a window, from a small one on.
func (b *browser) fits(panel string) {
	b.t.Helper()
	for _, width := range []int64{320, 768, 1280} {
		b.do(chromedp.EmulateViewport(width, 860))
		b.until("innerWidth === args[0]", width)
		require.LessOrEqual(b.t, valueOf[int64](b, "document.documentElement.scrollWidth"), width, panel)
	}
}

// work does what fills each panel.
func (d *pageDevice) work(h *testhub) {
	d.t.Helper()
	h.ask(d.t, "POST", "/devices/dev-1/c2d", `{"messageId":"c-1","ack":"full","body":"{\"fan\":\"off\"}"}`)
	h.ask(d.t, "POST", "/devices/dev-1/methods", `{"name":"reboot","payload":{"in":5}}`)
	h.ask(d.t, "PATCH", "/devices/dev-1/twin/desired", `{"interval":60,"fan":{"speed":3}}`)
	h.ask(d.t, "PATCH", "/devices/dev-1/twin/tags", `{"site":"roof"}`)
	d.send("m-1", `{"temperature":21.5,"humidity":40}`, transport.Property{Name: "unit", Value: "C"})
	d.report(`{"fan":{"on":true,"speed":3},"firmware":"2.4.1"}`)
	d.upload("logs/today.txt", "sunny")
}

// hostile are texts that would be code if the page took one of them for HTML, for a script, for an
// address or for a part of a stream.
var hostile = []string{
	`<img src=x onerror="document.title='taken'">`,
	`<script>document.title='taken'</script>`,
	`"><svg onload="document.title='taken'">`,
	`javascript:document.title='taken'`,
	`'; document.title='taken'; //`,
	"</textarea></pre><iframe src=\"javascript:parent.document.title='taken'\">",
	"line\n\nevent: totals\ndata: {\"messages\":1e9}\n\n",
	"\u202egnp.exe\u2066\u0000\u001b[31m",
	`${document.title='taken'}{{constructor.constructor("document.title='taken'")()}}`,
}

// hostileRows select what a panel has of each hostile text.
var hostileRows = map[string]string{
	"Methods": "#methods tbody tr", "Cloud-to-device": "#c2d tbody tr", "Log": ".lines li",
}

// Texts of devices stay texts in each panel: no element, no script, no request comes from them.
func TestPageShowsHostileTextsAsTexts(t *testing.T) {
	t.Parallel()
	const id = `a'(x,y)=@$!*:_.-%3Cb%3E`
	h := startTesthub(t, "-device", id, "-enroll", "sensor-1", "-updates", t.TempDir())
	d := startPageDevice(t, h, 0)
	b := openPage(t, h, "light")
	before := valueOf[int](b, "document.scripts.length")
	for i, text := range hostile {
		raw, err := json.Marshal(text)
		require.NoError(t, err)
		// an id and a name have no control characters: the client refuses them
		legal := strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return ' '
			}
			return r
		}, text)
		d.send(legal[:min(len(legal), 100)], text, transport.Property{Name: "p" + legal, Value: text})
		d.report(`{"text` + string(rune('a'+i)) + `":` + string(raw) + `}`)
		d.upload("logs/"+string(rune('a'+i))+"<b onclick=alert(1)>.txt", text)
		h.ask(t, "POST", "/devices/"+url.PathEscape(id)+"/c2d", `{"messageId":"c","body":`+string(raw)+`}`)
		h.ask(t, "POST", "/devices/"+url.PathEscape(id)+"/methods", `{"name":"reboot","payload":`+string(raw)+`}`)
	}
	b.until("document.querySelectorAll('#messages tbody tr').length === args[0]", len(hostile))
	valueOf[bool](b, "(document.querySelectorAll('#messages details').forEach((d) => d.open = true), true)")
	b.until("document.querySelectorAll('#messages dl').length === args[0]", len(hostile))
	for _, panel := range pagePanels {
		b.tab(panel)
		if panel == "Plug and Play" {
			b.drop(hostileModel(t))
			b.shows("onerror")
		}
		if panel == "Uploads" {
			b.press("Show " + id + "/logs/a<b onclick=alert(1)>.txt")
			b.until("document.querySelector('#uploads pre').innerText.includes('onerror')")
		}
		if rows, ok := hostileRows[panel]; ok {
			b.until("document.querySelectorAll(args[0]).length >= args[1]", rows, len(hostile))
		}
	}
	require.Equal(t, "testhub localhost", valueOf[string](b, "document.title"))
	require.Equal(t, before, valueOf[int](b, "document.scripts.length"))
	made := "document.querySelectorAll('main img, main svg, main iframe, main b, main [onclick]').length"
	require.Zero(t, valueOf[int](b, made))
	b.tab("Messages")
	d.send("n", `{"<img src=x onerror=alert(1)>":1}`)
	b.choose("Chart of", "<img src=x onerror=alert(1)>")
	b.until("document.querySelector('.field-chart svg')")
	require.Zero(t, valueOf[int](b, "document.querySelectorAll('main img').length"))
	require.Contains(t, valueOf[string](b, "document.querySelector('#messages').textContent"), `\u202egnp.exe\u2066\u0000`)
	rates := valueOf[string](b, "document.querySelector('.chart.messages svg').getAttribute('aria-label')")
	require.NotContains(t, rates, "1000000000")
	seen(t, "%d hostile texts as ids, bodies, properties, reports, files, methods: texts in all panels", len(hostile))
}

// hostileModel is a model with a hostile text in each place.
func hostileModel(t *testing.T) string {
	var contents []any
	for i, text := range hostile {
		place := func(kind string) map[string]any {
			return map[string]any{"@type": kind, "name": text, "displayName": text, "description": text, "unit": text,
				"writable": true, "schema": map[string]any{"@type": "Enum", "enumValues": []any{map[string]any{
					"name": text, "displayName": text, "enumValue": i}}},
				"request": map[string]any{"name": text, "schema": text}}
		}
		contents = append(contents, place("Telemetry"), place("Property"), place("Command"))
	}
	raw, err := json.Marshal(map[string]any{"@id": hostile[0], "@type": "Interface", "contents": contents})
	require.NoError(t, err)
	return string(raw)
}

// Browsers take the name ".." for a step up in a path: a button for such a device would reset the
// hub.
func TestPageSendsNothingForADeviceOfDots(t *testing.T) {
	h := startTesthub(t, "-device", "..", "-device", "dev-1")
	h.ask(t, "PATCH", "/devices/dev-1/twin/tags", `{"site":"roof"}`)
	b := openPage(t, h, "light")
	b.until("document.title === 'testhub localhost'")
	require.NotContains(t, valueOf[string](b, "document.querySelector('#tabs').innerText"), "Enrollments")
	require.NotContains(t, valueOf[string](b, "document.querySelector('#tabs').innerText"), "Updates")
	b.press("..\nnot connected")
	b.press("Disable")
	b.shows("a browser cannot name .. in a path")
	require.Equal(t, map[string]any{"site": "roof"}, h.ask(t, "GET", "/devices/dev-1/twin", "")["tags"], "no reset")
}

// A page of another site can neither read the hub nor change it.
func TestPageOfAnotherSiteIsRefused(t *testing.T) {
	t.Parallel()
	h := startTesthub(t, "-device", "dev-1")
	other := startTesthub(t, "-device", "dev-1") // another origin: another port
	b := openPage(t, other, "light")
	_, err := chromedp.Call(b.ctx, page.SetBypassCSP, page.SetBypassCSPParams{Enabled: true}) // as a hostile site has none
	require.NoError(t, err)
	b.goTo(other)
	for _, request := range []string{`{}`, `{mode: "no-cors"}`, `{method: "POST", mode: "no-cors", body: "{}"}`,
		`{method: "DELETE"}`} {
		got := valueOf[string](b, `fetch(args[0], `+request+`).then((r) => r.type + r.status, (e) => "failed")`,
			h.Control+"/devices/dev-1/disable")
		require.Contains(t, []string{"failed", "opaque0"}, got, request)
	}
	device := object(h.ask(t, "GET", "/devices", "")["devices"].([]any)[0].(map[string]any))
	require.Equal(t, true, device["enabled"])
	seen(t, "four kinds of requests from a page of another port: no answer is readable, nothing changes")
}

// With a token the page asks for it, or takes it from the address, and keeps it out of the address.
func TestPageWithAToken(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	h := startTesthub(t, "-device", "dev-1", "-control-token", token)
	b := startBrowser(t, "light")
	b.do(chromedp.Navigate(h.Control + "/"))
	b.until("document.querySelector('#token').open")
	b.fill("Token", token)
	b.press("Use the token")
	b.until("document.querySelector('#live').dataset.state === 'on'")
	b.until("document.querySelector('.device')?.innerText.startsWith('dev-1')")

	b = startBrowser(t, "light")
	b.do(chromedp.Navigate(h.Control + "/#token=" + token))
	b.until("document.querySelector('#live').dataset.state === 'on'")
	require.NotContains(t, valueOf[string](b, "location.href"), token)
	require.Empty(t, valueOf[string](b, "document.cookie"))
	b.do(chromedp.Reload())
	b.until("document.querySelector('.device')?.innerText.startsWith('dev-1')")
}
