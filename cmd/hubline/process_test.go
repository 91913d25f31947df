package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
)

// built is the program, with what it needs to reach a hub on loopback.
type built struct {
	path string
	hub  *testbroker.Hub
	args []string // which device, at which address
}

func build(t *testing.T) *built {
	folder := t.TempDir()
	b := &built{path: filepath.Join(folder, "hubline"), hub: hubfixture.Open(t, nil, "pump-1")}
	if runtime.GOOS == "windows" {
		b.path += ".exe"
	}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", b.path, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	at, err := b.hub.Listen(testbroker.PortMQTTS, "127.0.0.1:0")
	require.NoError(t, err)
	ca, secret := filepath.Join(folder, "ca.pem"), filepath.Join(folder, "connection")
	require.NoError(t, os.WriteFile(ca, b.hub.CAPEM(), 0o600))
	require.NoError(t, os.WriteFile(secret, []byte(b.hub.ConnectionString("pump-1")), 0o600))
	b.args = []string{"-connect-file", secret, "-ca", ca, "-address", "mqtt=" + at.String(), "-no-proxy"}
	return b
}

func (b *built) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, b.path, append(args, b.args...)...)
	command.Env = []string{}
	return command
}

// The first Ctrl-C waits for an acknowledgement, which does not come here; the next ends the
// program.
func TestASecondCtrlCEndsTheProgram(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot send Ctrl-C to another one here")
	}
	b := build(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := b.command(ctx, "send", "-body", "one").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "1 acknowledged")

	b.hub.Inject(fault.Fault{Kind: fault.SwallowPuback, Times: -1})
	command := b.command(ctx, "send", "-body", "two")
	log, err := command.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	require.NoError(t, b.hub.WaitMessages(ctx, 2))
	lines := bufio.NewScanner(log)
	signal := func() { require.NoError(t, command.Process.Signal(os.Interrupt)) }
	signal()
	requireLine(t, lines, "Ctrl-C again ends at once") // the program still runs
	signal()
	for lines.Scan() { // until the program ends
	}
	err = command.Wait()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "%v", err)
	require.False(t, exit.Exited(), "a signal ended it: %v", exit)
	require.NoError(t, ctx.Err())
}

// requireLine reads lines up to one with the text.
func requireLine(t *testing.T, lines *bufio.Scanner, text string) {
	t.Helper()
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	require.Fail(t, "the program ended without the line "+text)
}

func TestCompletion(t *testing.T) {
	s := newShell(t, nil)
	require.Equal(t, exitOK, s.run("__complete", "policy", "azure-"), s.log.String())
	require.Contains(t, s.out.String(), "azure-java\n")
	for _, c := range []struct{ want, word, before string }{
		{"mqtt-ws\n", "mq", "-transport"}, {"azure-java\n", "azure-", "--policy"}, {"aws-iot\n", "", "-dialect"},
		{"--transport\t", "--tran", "--quiet"}, {"-transport\t", "-tran", "-quiet"},
	} {
		s.out = buffer{}
		require.Equal(t, exitOK, s.run("__complete", "send", c.before, c.word), s.log.String())
		require.True(t, strings.HasPrefix(s.out.String(), c.want) || strings.Contains(s.out.String(), "\n"+c.want),
			"%v: %s", c, s.out.String())
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		s.out = buffer{}
		require.Equal(t, exitOK, s.run("completion", shell))
		require.Contains(t, s.out.String(), "hubline")
	}
	for _, wrong := range [][]string{{"completion"}, {"completion", "bsah"}} { // source <(...) must not run a help text
		s.out = buffer{}
		require.Equal(t, exitUsage, s.run(wrong...))
		require.Empty(t, s.out.String())
	}
	require.Equal(t, exitOK, s.run("__complete", "help", ""))
	require.NotContains(t, s.out.String(), "__complete")
}

func TestVersion(t *testing.T) {
	s := newShell(t, nil)
	require.Equal(t, exitOK, s.run("-version"))
	require.Regexp(t, `^hubline version \S+ go1\.\d+`, s.out.String())
}

// Each command and topic explains itself.
func TestHelp(t *testing.T) {
	for _, c := range (&tool{}).root().Commands() {
		s := newShell(t, nil)
		require.Equal(t, exitOK, s.run("help", c.Name()))
		require.Greater(t, len(s.out.String()), 100, c.Name())
		require.NotContains(t, s.out.String(), "%!")
	}
}
