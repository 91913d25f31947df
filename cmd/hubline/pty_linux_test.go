package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal with a program at it.
type terminal struct {
	t       *testing.T
	keys    *os.File // what a person types and sees
	screen  strings.Builder
	program *exec.Cmd
}

// atTerminal starts a program whose input, output and log are a terminal.
func atTerminal(t *testing.T, program *exec.Cmd) *terminal {
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine has no pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { _ = keys.Close() })
	fd := int(keys.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	far, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	program.Stdin, program.Stdout, program.Stderr = far, far, far
	program.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, program.Start())
	require.NoError(t, far.Close())
	return &terminal{t: t, keys: keys, program: program}
}

func (x *terminal) typed(text string) {
	_, err := io.WriteString(x.keys, text)
	require.NoError(x.t, err)
}

// until reads the screen until it shows text.
func (x *terminal) until(text string) {
	buffer := make([]byte, 4096)
	for !strings.Contains(x.screen.String(), text) {
		n, err := x.keys.Read(buffer)
		x.screen.Write(buffer[:n])
		require.NoError(x.t, err, x.screen.String())
	}
}

// end reads the rest of the screen and waits for the program. The system reports the end of the
// other side as an error.
func (x *terminal) end() (status int) {
	buffer := make([]byte, 4096)
	for {
		n, err := x.keys.Read(buffer)
		x.screen.Write(buffer[:n])
		if err != nil {
			break
		}
	}
	_ = x.program.Wait() // its status says it
	return x.program.ProcessState.ExitCode()
}

func (x *terminal) echoes() bool {
	state, err := unix.IoctlGetTermios(int(x.keys.Fd()), unix.TCGETS)
	require.NoError(x.t, err)
	return state.Lflag&unix.ECHO != 0
}

// The prompt shows nothing of what is typed, and one Ctrl-C ends it with the echo on again.
func TestThePromptAtATerminal(t *testing.T) {
	b := build(t)
	x := atTerminal(t, b.command(soon(t), "send", "-body", "one")) // -connect-file
	require.Equal(t, exitOK, x.end(), x.screen.String())

	b.args = b.args[2:]
	x = atTerminal(t, b.command(soon(t), "send", "-body", "two"))
	x.until("connection string or broker URL: ")
	secret := b.hub.ConnectionString("pump-1")
	x.typed(secret + "\n")
	require.Equal(t, exitOK, x.end(), x.screen.String())
	require.NotContains(t, x.screen.String(), "SharedAccessKey")
	require.Contains(t, x.screen.String(), "1 acknowledged")

	x = atTerminal(t, b.command(soon(t), "send", "-body", "three"))
	hold, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", x.program.Process.Pid), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer hold.Close() // keeps the terminal, whose state is read after the program's end
	x.until("connection string or broker URL: ")
	for x.echoes() { // until the program reads
		require.NoError(t, t.Context().Err())
	}
	x.typed("Host\x03")
	_ = x.program.Wait() // its status says it
	require.Equal(t, exitFailed, x.program.ProcessState.ExitCode())
	require.True(t, x.echoes())
	x.until("interrupted; nothing was tried")
}
