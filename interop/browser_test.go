package interop

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// browser is a headless Chromium with one page.
type browser struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	troubles []string // exceptions, and refusals by the policy of the page
}

// startBrowser starts Chromium with an empty profile, in a light or dark scheme, until the test
// ends. The test fails if a script of the page fails.
func startBrowser(t testing.TB, scheme string) *browser {
	program, err := exec.LookPath("chromium")
	if err != nil {
		missing(t, "chromium")
	}
	profile, err := os.MkdirTemp("", "hubline-chromium-")
	require.NoError(t, err)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program),
		chromedp.UserDataDir(profile), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 860),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("lang", "en-GB"))
	allocator, endAll := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(allocator)
	b := &browser{t: t, ctx: ctx}
	b.do() // starts it
	console := chromedp.Console(ctx)
	listened := make(chan struct{})
	go func() { // ends with ctx
		defer close(listened)
		for m, err := range console {
			if err == nil && (m.IsException() || strings.Contains(m.String(), "Content Security Policy")) {
				b.mu.Lock()
				b.troubles = append(b.troubles, m.String())
				b.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for the end of the process
		end()
		endAll()
		<-listened
		_ = os.RemoveAll(profile)
		require.Empty(t, b.troubles)
	})
	_, err = chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	require.NoError(t, err)
	return b
}

// do runs actions.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if len(actions) == 0 {
		require.NoError(b.t, chromedp.Do(b.ctx)) // the context of the first call is that of the browser
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, waitLimit)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, actions...))
}

// valueOf evaluates an expression in the page. The arguments are in the array "args" there.
func valueOf[T any](b *browser, expression string, args ...any) T {
	b.t.Helper()
	v, err := tryValue[T](b, expression, args...)
	require.NoError(b.t, err, expression)
	return v
}

func tryValue[T any](b *browser, expression string, args ...any) (T, error) {
	b.t.Helper()
	raw, err := json.Marshal(args)
	require.NoError(b.t, err)
	ctx, cancel := context.WithTimeout(b.ctx, waitLimit)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T]("((args) => "+expression+")("+string(raw)+")",
		chromedp.EvalAwaitPromise))
}

// until waits until an expression is true in the page. It has no value while a page is loaded.
func (b *browser) until(expression string, args ...any) {
	b.t.Helper()
	eventually(b.t, expression, func() bool {
		ok, err := tryValue[bool](b, "!!("+expression+")", args...)
		return ok && err == nil
	})
}

// shows waits until the visible text of the page contains a text.
func (b *browser) shows(text string) {
	b.t.Helper()
	b.until("document.body.innerText.includes(args[0])", text)
}

// visible finds elements that a person sees.
const visible = "[...document.querySelectorAll(args[0])].filter((e) => e.checkVisibility())"

// press puts the focus on the visible button of a name and presses Enter, as a person without a
// mouse does.
func (b *browser) press(name string) {
	b.t.Helper()
	b.focus("button", "(e.getAttribute('aria-label') ?? e.innerText) === args[1]", name)
	b.do(chromedp.KeyEvent("\r"))
}

// fill types a text into the visible control of a label, in place of what is there. What follows a
// comma in the label does not count.
func (b *browser) fill(label, text string) {
	b.t.Helper()
	b.focus("input,textarea,select", "e.labels?.[0]?.innerText.split(',')[0] === args[1]", label)
	valueOf[bool](b, "(document.activeElement.select?.(), true)")
	if text == "" {
		b.do(chromedp.KeyEvent("\b"))
		return
	}
	b.do(chromedp.KeyEvent(text))
}

// choose selects an option of the visible list of a label.
func (b *browser) choose(label, option string) {
	b.t.Helper()
	b.focus("select", "(e.labels?.[0]?.innerText ?? e.getAttribute('aria-label')) === args[1]", label)
	b.until(`(() => { const s = document.activeElement; const o = [...s.options].find((o) => o.text === args[0]);
		if (!o) return false; s.value = o.value; s.dispatchEvent(new Event("change")); return true })()`, option)
}

func (b *browser) focus(selector, condition, name string) {
	b.t.Helper()
	b.until("((e) => { e?.focus(); return e && e === document.activeElement })("+visible+".find((e) => "+condition+"))",
		selector, name)
}

// tab opens a panel.
func (b *browser) tab(name string) {
	b.t.Helper()
	b.press(name)
	b.until("document.activeElement.getAttribute('aria-selected') === 'true'")
}
