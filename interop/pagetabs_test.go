package interop

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// see tells the page whether a person sees its tab. Chromium without a window hides no tab.
func (b *browser) see(visible bool) {
	b.t.Helper()
	valueOf[bool](b, `(Object.defineProperty(document, "hidden", {value: !args[0], configurable: true}),
		document.dispatchEvent(new Event("visibilitychange")))`, visible)
}

// A browser has six connections to one address. Each of more tabs works while a person looks at it,
// and then shows what has happened in the meantime.
func TestPageInManyTabs(t *testing.T) {
	t.Parallel()
	h := startTesthub(t, "-device", "dev-1")
	first := openPage(t, h, "light")
	last := first
	for range 8 {
		last.see(false)
		ctx, end := chromedp.NewContext(first.ctx)
		t.Cleanup(end)
		last = &browser{t: t, ctx: ctx}
		last.do()
		last.goTo(h)
		last.shows("dev-1")
	}
	h.ask(t, "POST", "/devices/dev-1/disable", "")
	last.see(false)
	first.see(true)
	first.shows("disabled, by key")
	seen(t, "nine tabs, each live while a person looks at it")
}
