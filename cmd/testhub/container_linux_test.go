package main

import (
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

// nobody is the user of the image.
const nobody = 65532

// instructions returns the instructions of the Dockerfile, one a line.
func instructions(t *testing.T) []string {
	raw, err := os.ReadFile("container/Dockerfile")
	require.NoError(t, err)
	joined := strings.ReplaceAll(string(raw), "\\\n", " ")
	var all []string
	for _, l := range strings.Split(joined, "\n") {
		if l = strings.Join(strings.Fields(l), " "); l != "" && !strings.HasPrefix(l, "#") {
			all = append(all, l)
		}
	}
	return all
}

// imageBinary builds testhub by the command of the Dockerfile.
func imageBinary(t *testing.T, to string) {
	command := ""
	for _, l := range instructions(t) {
		if run, ok := strings.CutPrefix(l, "RUN "); ok && strings.Contains(run, "go build") {
			command = strings.ReplaceAll(run, "/out/testhub", to)
		}
	}
	require.Contains(t, command, to)
	c := exec.CommandContext(t.Context(), "sh", "-c", command) // without a cache it takes minutes
	c.Dir = filepath.Join("..", "..")
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
}

// The image is what its documents promise: the last stage begins with nothing, its user is not
// root, and the health check needs no shell.
func TestTheImage(t *testing.T) {
	all := instructions(t)
	last := strings.Join(all, "\n")
	last = last[strings.LastIndex(last, "FROM "):]
	require.True(t, strings.HasPrefix(last, "FROM scratch\n"))
	require.NotContains(t, last, "\nRUN ")
	require.Contains(t, last, "\nUSER 65532:65532\n")
	require.Regexp(t, regexp.MustCompile(`HEALTHCHECK .* CMD \["/testhub", "-health", "http://127\.0\.0\.1:8080"\]`), last)
	require.Contains(t, last, `ENTRYPOINT ["/testhub", "-config", "/testhub.json"]`)
	raw, err := os.ReadFile("container/testhub.json")
	require.NoError(t, err)
	var flags map[string]string
	require.NoError(t, json.Unmarshal(raw, &flags))
	for _, name := range []string{"mqtt", "amqp", "https", "events", "control"} {
		_, port, _ := strings.Cut(flags[name], ":")
		require.Regexp(t, "EXPOSE .*\\b"+port+"\\b", last, "the port of %s", name)
	}
	raw, err = os.ReadFile("container/compose.yaml")
	require.NoError(t, err)
	member := func(name string) string {
		m := regexp.MustCompile(`(?m)^ +` + name + `: (.*)$`).FindSubmatch(raw)
		require.NotNil(t, m, name)
		return string(m[1])
	}
	require.FileExists(t, filepath.Join("container", member("context"), member("dockerfile")))
	var command []string
	require.NoError(t, json.Unmarshal([]byte(member("command")), &command))
	_, err = parse(command, os.Stderr)
	require.NoError(t, err)
}

// The binary of the image serves where there is no other file, as a user who is not root, and keeps
// its state there.
func TestTheImageNeedsNoOtherFile(t *testing.T) {
	if !testkit.Long() {
		t.Skip("SKIPPED: builds testhub by the Dockerfile's command; HUBLINE_LONG=1 does that")
	}
	if os.Getuid() != 0 {
		t.Skip("only root may change the root directory of a process")
	}
	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755))
	imageBinary(t, filepath.Join(root, "testhub"))
	file, err := elf.Open(filepath.Join(root, "testhub"))
	require.NoError(t, err)
	for _, p := range file.Progs {
		require.NotEqual(t, elf.PT_INTERP, p.Type, "it is static")
	}
	require.NoError(t, file.Close())
	raw, err := os.ReadFile("container/testhub.json")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(root, "testhub.json"), raw, 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(root, "state"), 0o700))
	require.NoError(t, os.Chown(filepath.Join(root, "state"), nobody, nobody))
	inside := func(args ...string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), "/testhub", append([]string{"-config", "/testhub.json"}, args...)...)
		c.Path, c.Err = "/testhub", nil
		c.Dir = "/"
		c.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return c
	}
	p := spawn(t, inside("-json", "-mqtt", "127.0.0.1:0", "-amqp", "127.0.0.1:0", "-https", "127.0.0.1:0", "-events",
		"127.0.0.1:0", "-control", "127.0.0.1:0"))
	p.ready.CA = filepath.Join(root, p.ready.CA)
	c := p.client("dev-1", "mqtt", nil)
	require.NoError(t, c.Open(soon(t)))
	require.NoError(t, c.Send(soon(t), &transport.Message{ID: "1"}))
	require.FileExists(t, filepath.Join(root, "state", "testhub.db"))
	out, err := inside("-health", p.ready.Control).CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = inside("-health", "http://127.0.0.1:1").CombinedOutput()
	require.Error(t, err, string(out))
}
