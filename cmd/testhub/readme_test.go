package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
)

// documents are the pages of testhub, in the order in which their examples run.
var documents = []string{"README.md", "CLIENTS.md", "API.md"}

// A block is a code block in one of the documents.
type block struct {
	language, text string
	line           int
}

func blocks(t *testing.T) (all []block) {
	for _, name := range documents {
		raw, err := os.ReadFile(name)
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
		require.Nil(t, in, name)
	}
	return all
}

// words splits a shell line: both kinds of quotes, and the variable.
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
		for _, name := range []string{"$HUB", "$EDGE"} {
			if rest, ok := strings.CutPrefix(w, name); ok {
				all[i] = hub + rest
			}
		}
	}
	return all
}

// curl is a stand-in for curl with the options in README.md, for machines without curl.
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

// realCurl runs the line in a shell.
func realCurl(t *testing.T, l, hub string) []byte {
	c := exec.CommandContext(soon(t), "sh", "-c", l)
	c.Env = append(os.Environ(), "HUB="+hub, "EDGE="+hub, "no_proxy=*")
	out, err := c.Output()
	require.NoError(t, err, l)
	return out
}

// fits compares an answer with the one in README.md, where "..." matches anything.
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

// Every example in README.md runs, in order, and its last answer matches the one shown: with curl,
// or with a stand-in where there is none. Every route of the API has an example.
func TestREADME(t *testing.T) {
	run := realCurl
	if _, err := exec.LookPath("curl"); err != nil {
		run = curl
	}
	asked := make(map[string]bool)
	t.Run("gateway", func(t *testing.T) {
		p := start(t, words(t, testhubLine(t, "-gateway"), "")[3:]...)
		require.Greater(t, runExamples(t, p, "$EDGE", run, asked), 15)
	})
	env := filepath.Join(t.TempDir(), "testhub.env")
	p := start(t, append([]string{"-device", "dev-1", "-device", "dev-2", "-env", env, "-updates", "testdata/updates"},
		desk...)...)
	p.register("sensor-1")
	p.update("sensor-1")
	defer fan(p, env).interrupt()
	require.Greater(t, runExamples(t, p, "$HUB", run, asked), 30)
	for _, r := range routes() {
		if r.path != "/" && r.handle != nil {
			require.True(t, asked[r.method+" "+r.path], "no example of %s %s", r.method, r.path)
		}
	}
}

// A runner runs a line with curl at a control API.
type runner func(t *testing.T, line, hub string) []byte

// runExamples runs the lines of README.md that have a variable, whose value is the control API of
// p. It returns their number, and notes the routes.
func runExamples(t *testing.T, p *program, variable string, run runner, asked map[string]bool) (examples int) {
	var last []byte
	for _, b := range blocks(t) {
		switch {
		case b.language == "sh" && strings.Contains(b.text, variable):
			for l := range strings.Lines(b.text) {
				l = strings.TrimSpace(l)
				last = run(t, l, p.ready.Control)
				require.True(t, json.Valid(last), "line %d: %s: %s", b.line, l, last)
				asked[pattern(t, l)] = true
				examples++
			}
			if !bytes.Contains(last, []byte("404103")) && !bytes.Contains(last, []byte("within 50ms")) {
				require.NotContains(t, string(last), `"error"`, "line %d", b.line)
			}
		case b.language == "sh":
			last = nil
		case b.language == "json" && last != nil:
			var want, got any
			require.NoError(t, json.Unmarshal([]byte(b.text), &want), "line %d", b.line)
			require.NoError(t, json.Unmarshal(last, &got))
			fits(t, want, got, "")
			last = nil
		case b.language == "json":
			require.True(t, json.Valid([]byte(b.text)), "line %d", b.line)
		}
	}
	return examples
}

// pattern returns the route of a line.
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

// An example is a running program of ../../examples.
type example struct {
	t    *testing.T
	cmd  *exec.Cmd
	said *bufio.Scanner
}

// shell runs a line of README.md that begins with "go run ./examples/", after reading the file of
// -env, as README.md says. The program is built first, so that signals reach it.
func shell(t *testing.T, env, line string) *example {
	args := words(t, line, "")
	require.Equal(t, []string{"go", "run"}, args[:2])
	bin := filepath.Join(t.TempDir(), "example")
	out, err := exec.CommandContext(soon(t), "go", "build", "-ldflags=-w", "-o", bin, "../../"+args[2]).CombinedOutput()
	require.NoError(t, err, string(out))
	e := &example{t: t, cmd: exec.Command("sh", "-c", ". "+env+" && exec "+strings.Replace(line, "go run "+args[2], bin,
		1))}
	e.cmd.Stderr = os.Stderr
	stdout, err := e.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, e.cmd.Start())
	t.Cleanup(func() { e.cmd.Process.Kill() }) // no effect if it has ended
	e.said = bufio.NewScanner(stdout)
	return e
}

// until reads the output up to a line that contains text.
func (e *example) until(text string) {
	e.t.Helper()
	for e.said.Scan() {
		if strings.Contains(e.said.Text(), text) {
			return
		}
	}
	require.Fail(e.t, "it has ended without saying: "+text)
}

// end waits for the program's end, which must succeed.
func (e *example) end() {
	e.t.Helper()
	for e.said.Scan() {
	}
	require.NoError(e.t, e.cmd.Wait())
}

// interrupt sends an interrupt, like Ctrl-C, and waits for the end.
func (e *example) interrupt() {
	e.t.Helper()
	require.NoError(e.t, e.cmd.Process.Signal(os.Interrupt))
	e.end()
}

// fan runs the device of the examples with the line in README.md.
func fan(p *program, env string) *example {
	e := shell(p.t.(*testing.T), env, exampleLine(p.t.(*testing.T), "fan"))
	e.until("ready")
	require.Eventually(p.t, func() bool { // the hub knows that the upload's connection has ended
		return p.good("GET", "/devices", "")["devices"].([]any)[0].(map[string]any)["connections"] == 1.0
	}, waitLimit, time.Millisecond)
	return e
}

// testhubLine returns the line of README.md that runs testhub with a flag.
func testhubLine(t *testing.T, flag string) string {
	for _, b := range blocks(t) {
		for l := range strings.Lines(b.text) {
			if strings.HasPrefix(l, "go run ./cmd/testhub ") && strings.Contains(l, " "+flag+" ") {
				return strings.TrimSpace(l)
			}
		}
	}
	require.Fail(t, "README.md does not run testhub with "+flag)
	return ""
}

// exampleLine returns the line of README.md that runs an example, without its comment.
func exampleLine(t *testing.T, name string) string {
	for _, b := range blocks(t) {
		for l := range strings.Lines(b.text) {
			if l, _, _ = strings.Cut(strings.TrimSpace(l), " #"); strings.HasPrefix(l, "go run ./examples/"+name+" ") {
				return strings.TrimSpace(l)
			}
		}
	}
	require.Fail(t, "README.md does not run "+name)
	return ""
}

// Every example works with testhub by the line in README.md.
func TestREADMERunsTheExamples(t *testing.T) {
	if !testkit.Long() {
		t.Skip("SKIPPED: builds five programs; HUBLINE_LONG=1 does that")
	}
	dirs, err := filepath.Glob("../../examples/*/main.go")
	require.NoError(t, err)
	acts := map[string]func(p *program, e *example){
		"telemetry": func(p *program, e *example) {
			e.end()
			require.Len(t, p.good("GET", "/messages", "")["messages"], 100)
		},
		"fileupload": func(p *program, e *example) {
			e.end()
			require.Contains(t, p.good("GET", "/files/dev-1/README.md", "")["body"], "# testhub")
		},
		"config": func(p *program, e *example) {
			e.until("change")
			p.good("PATCH", "/devices/dev-1/twin/desired", `{"interval":5,"level":"loud"}`)
			p.good("POST", "/devices/dev-1/twin/wait", `{"reported":{"interval":{"value":5},"level":{"ac":400,"value":"info"}}}`)
			e.interrupt()
		},
		"methods": func(p *program, e *example) {
			e.until("call")
			require.Equal(t, map[string]any{"blinked": 3.0}, p.good("POST", "/devices/dev-1/methods",
				`{"name":"blink","payload":3}`)["payload"])
			e.interrupt()
		},
		"fan": func(_ *program, e *example) {
			e.until("ready")
			e.interrupt()
		},
	}
	require.Len(t, acts, len(dirs)-7,
		"all but hello, provisioning, broker, module, update and partition, with hubs of their own, and fleet")
	for name, act := range acts {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits most of the time
			env := filepath.Join(t.TempDir(), "testhub.env")
			p := start(t, "-env", env)
			act(p, shell(t, env, exampleLine(t, name)))
		})
	}
}

// The file of -env is readable only by its owner, and any device name works in it.
func TestEnvironmentFile(t *testing.T) {
	env := filepath.Join(t.TempDir(), "a b.env")
	p := start(t, "-env", env, "-device", "it's$HOME")
	info, err := os.Stat(env)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	out, err := exec.Command("sh", "-c", `. "$0" && printf '%s\n' "$HUB" "$HUBLINE_CONNECTION_STRING"`, env).Output()
	require.NoError(t, err)
	require.Equal(t, p.ready.Control+"\n"+p.ready.Devices[0].ConnectionString+"\n", string(out))
}

// A file that a link names is replaced, and the link stays. What is no file is written to.
func TestWrittenFilesKeepWhatTheyStandOn(t *testing.T) {
	folder := t.TempDir()
	file, link, fifo := filepath.Join(folder, "file"), filepath.Join(folder, "link"), filepath.Join(folder, "fifo")
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
	require.NoError(t, os.Symlink(file, link))
	_, err := writeFile("env", link, []byte("new"), 0o600)
	require.NoError(t, err)
	to, err := os.Readlink(link)
	require.NoError(t, err)
	require.Equal(t, file, to)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "new", string(text))

	require.NoError(t, exec.Command("mkfifo", fifo).Run())
	reader, err := os.OpenFile(fifo, os.O_RDWR, 0) // the other end, so that the write does not wait
	require.NoError(t, err)
	defer reader.Close()
	_, err = writeFile("ca", fifo, []byte("pipe"), 0o644)
	require.NoError(t, err)
	info, err := os.Lstat(fifo)
	require.NoError(t, err)
	require.Equal(t, os.ModeNamedPipe, info.Mode().Type())
	got := make([]byte, 4)
	_, err = reader.Read(got)
	require.NoError(t, err)
	require.Equal(t, "pipe", string(got))
}

// README.md lists exactly the flags of the program.
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
