package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/transport"
)

// A block is a piece of code in README.md.
type block struct {
	language, text string
	line           int
}

func blocks(t *testing.T) (all []block) {
	raw, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var in *block
	for i, l := range strings.Split(string(raw), "\n") {
		switch {
		case in == nil && strings.HasPrefix(l, "```"):
			in = &block{language: strings.TrimPrefix(l, "```"), line: i + 1}
		case in != nil && l == "```":
			all = append(all, *in)
			in = nil
		case in != nil:
			in.text += l + "\n"
		}
	}
	require.Nil(t, in)
	return all
}

// words takes a line of a shell apart: quotes of both kinds, and the variable.
func words(t *testing.T, l, hub string) (all []string) {
	var word strings.Builder
	var quote rune
	in := false
	for _, r := range l {
		switch {
		case quote == r:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, in = r, true
		case quote == 0 && r == ' ':
			if in {
				all = append(all, word.String())
			}
			word.Reset()
			in = false
		default:
			word.WriteRune(r)
			in = true
		}
	}
	require.Zero(t, quote, l)
	if in {
		all = append(all, word.String())
	}
	for i, w := range all {
		if strings.HasPrefix(w, "$HUB") {
			all[i] = hub + strings.TrimPrefix(w, "$HUB")
		}
	}
	return all
}

// curl does what curl does with the options that README.md has, for machines without it.
func curl(t *testing.T, l, hub string) []byte {
	method, body, url := "", "", ""
	args := words(t, l, hub)
	require.Equal(t, "curl", args[0])
	for i := 1; i < len(args); i++ {
		switch args[i] {
		case "-s":
		case "-X":
			i++
			method = args[i]
		case "-d":
			i++
			body = args[i]
			if method == "" {
				method = "POST"
			}
		default:
			require.Empty(t, url, "an option that this test does not know: %s", l)
			url = args[i]
		}
	}
	if method == "" {
		method = "GET"
	}
	r, err := http.NewRequestWithContext(soon(t), method, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return raw
}

// realCurl has a shell run the line.
func realCurl(t *testing.T, l, hub string) []byte {
	c := exec.CommandContext(soon(t), "sh", "-c", l)
	c.Env = append(os.Environ(), "HUB="+hub, "no_proxy=*")
	out, err := c.Output()
	require.NoError(t, err, l)
	return out
}

// fits compares an answer with that of README.md, where "..." is anything.
func fits(t *testing.T, want, got any, path string) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		require.True(t, ok, "%s: %v", path, got)
		for name, v := range want {
			one, ok := object[name]
			require.True(t, ok, "%s has no %s: %v", path, name, got)
			fits(t, v, one, path+"."+name)
		}
		require.Len(t, object, len(want), "%s: %v", path, got)
	case []any:
		list, ok := got.([]any)
		require.True(t, ok && len(list) == len(want), "%s: %v", path, got)
		for i := range want {
			fits(t, want[i], list[i], path+"[]")
		}
	default:
		if want != "..." {
			require.Equal(t, want, got, path)
		}
	}
}

// Every example of README.md is run, in its order, and its last answer is the one that is shown; by a stand-in for curl, and by curl itself where it is there.
// The API has no request without an example.
func TestREADME(t *testing.T) {
	for name, run := range map[string]func(*testing.T, string, string) []byte{"stand-in": curl, "curl": realCurl} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath("curl"); err != nil && name == "curl" {
				t.Skip("curl is not there")
			}
			p := start(t, "-device", "dev-1", "-device", "dev-2")
			exampleDevice(p)
			asked := make(map[string]bool)
			examples := 0
			var last []byte
			for _, b := range blocks(t) {
				switch {
				case b.language == "sh":
					for l := range strings.Lines(b.text) {
						l = strings.TrimSpace(l)
						last = run(t, l, p.ready.Control)
						require.True(t, json.Valid(last), "line %d: %s: %s", b.line, l, last)
						asked[pattern(t, l)] = true
						examples++
					}
				case b.language == "json" && last != nil:
					var want, got any
					require.NoError(t, json.Unmarshal([]byte(b.text), &want), "line %d", b.line)
					require.NoError(t, json.Unmarshal(last, &got))
					fits(t, want, got, "")
					last = nil
				case b.language == "json":
					require.True(t, json.Valid([]byte(b.text)), "line %d", b.line)
				}
				if b.language == "sh" && !bytes.Contains(last, []byte("404103")) && !bytes.Contains(last, []byte("within 50ms")) {
					require.NotContains(t, string(last), `"error"`, "line %d", b.line)
				}
			}
			require.Greater(t, examples, 30)
			for _, r := range routes() {
				if r.path != "/" {
					require.True(t, asked[r.method+" "+r.path], "no example of %s %s", r.method, r.path)
				}
			}
		})
	}
}

// pattern is the route that a line asks for.
func pattern(t *testing.T, l string) string {
	mux := http.NewServeMux()
	for _, r := range routes() {
		if r.path != "/" {
			mux.HandleFunc(r.method+" "+r.path, func(http.ResponseWriter, *http.Request) {})
		}
	}
	method := "GET"
	args := words(t, l, "http://hub")
	url := ""
	for i, a := range args {
		switch {
		case a == "-X":
			method = args[i+1]
		case a == "-d" && method == "GET":
			method = "POST"
		case strings.HasPrefix(a, "http://hub"):
			url = a
		}
	}
	r, err := http.NewRequest(method, url, nil)
	require.NoError(t, err)
	_, found := mux.Handler(r)
	return found
}

// exampleDevice is the device that the examples are about.
func exampleDevice(p *program) {
	ctx := soon(p.t)
	c := p.client("dev-1", "mqtt", &device.Options{OnMessage: func(context.Context, *transport.Message) error { return nil }})
	require.NoError(p.t, c.HandleMethod("reboot", func(_ context.Context, m *device.MethodCall) (int, []byte) { return 200, m.Body }))
	require.NoError(p.t, c.Open(ctx))
	require.NoError(p.t, c.Send(ctx, &transport.Message{ID: "1", Body: []byte(`{"temperature":21.5}`), Properties: []transport.Property{{Name: "unit", Value: "C"}}}))
	_, err := c.PatchReported(ctx, []byte(`{"fan":{"on":true,"speed":3}}`))
	require.NoError(p.t, err)
	u, err := fileupload.New(p.creds("dev-1"), &fileupload.Options{Addr: p.ready.Addresses["https"], TLS: p.tls()})
	require.NoError(p.t, err)
	_, err = u.Upload(ctx, "logs/today.txt", strings.NewReader("sunny"), -1)
	require.NoError(p.t, err)
	require.NoError(p.t, u.Close())
	require.Eventually(p.t, func() bool { // the hub has learnt of that
		first := p.good("GET", "/devices", "")["devices"].([]any)[0].(map[string]any)
		return first["connections"] == 1.0
	}, patience, time.Millisecond)
}

// The flags of README.md are those of the program.
func TestREADMEHasAllFlags(t *testing.T) {
	raw, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(raw), "## Flags")
	table, _, _ = strings.Cut(table, "\n###")
	var help bytes.Buffer
	_, err = parse([]string{"-h"}, &help)
	require.Error(t, err)
	for l := range strings.Lines(help.String()) {
		if name, ok := strings.CutPrefix(l, "  -"); ok {
			name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
			name, _, _ = strings.Cut(name, "\t")
			require.Contains(t, table, "`-"+name+"`")
		}
	}
}
