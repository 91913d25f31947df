package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// asProgram makes the test binary run testhub, for tests that need a process of its own.
const asProgram = "TESTHUB_TEST_RUNS_THE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// process returns the command that runs testhub in a process of its own, on free ports.
func process(t testing.TB, args ...string) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(t, err)
	args = append([]string{"-free", "-json", "-ca", filepath.Join(t.TempDir(), "ca.pem")}, args...)
	return exec.CommandContext(t.Context(), self, args...)
}

// spawn starts testhub in a process of its own, as start does in this one. The process is killed at
// the end of the test, or by Process.Kill before.
func spawn(t testing.TB, c *exec.Cmd) *program {
	c.Env = append(os.Environ(), asProgram+"=1")
	if c.Stderr == nil {
		c.Stderr = os.Stderr
	}
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	p := &program{t: t, change: make(chan struct{})}
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan(), "no line")
	require.NoError(t, json.Unmarshal(lines.Bytes(), &p.ready), lines.Text())
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.follow(lines)
	}()
	t.Cleanup(func() {
		c.Process.Kill() // it may be gone
		<-read
	})
	return p
}
