package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The device in Go of docs/testhub.md sends its message to a testhub process.
func TestTheDeviceOfThePageSendsItsMessage(t *testing.T) {
	p := start(t)
	page, err := os.ReadFile("../../docs/testhub.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n## As a program\n")
	_, text, _ := strings.Cut(section, "```go\n")
	text, _, ok := strings.Cut(text, "```\n")
	require.True(t, ok)
	require.Contains(t, text, `"127.0.0.1:8883"`)
	text = strings.Replace(text, "127.0.0.1:8883", p.ready.Addresses["mqtt"], 1)

	file, bin := write(t, "main.go", text), filepath.Join(t.TempDir(), "device")
	out, err := exec.CommandContext(soon(t), "go", "build", "-o", bin, file).CombinedOutput()
	require.NoError(t, err, string(out))
	pem, err := os.ReadFile(p.ready.CA)
	require.NoError(t, err)
	c := exec.CommandContext(soon(t), bin)
	c.Dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(c.Dir, "testhub-ca.pem"), pem, 0o600))
	c.Env = append(os.Environ(), "HUBLINE_CONNECTION_STRING="+p.ready.Devices[0].ConnectionString)
	out, err = c.CombinedOutput()
	require.NoError(t, err, string(out))
	p.printed(func(l line) bool { return l.Event == "message" && l.Bytes == len(`{"temperature":21.5}`) })
}
