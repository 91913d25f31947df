package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
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

// atTerminal starts a program whose input, output and log are a terminal. With signals, Ctrl-C
// is one; then the system discards what nobody has read when the program ends.
func atTerminal(t *testing.T, program *exec.Cmd, signals bool) *terminal {
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
	program.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: signals}
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

// asked waits for the prompt, and until what is typed does not show.
func (x *terminal) asked() {
	x.until("connection string or broker URL: ")
	for x.echoes() {
		require.NoError(x.t, x.t.Context().Err())
		runtime.Gosched()
	}
}

func (x *terminal) echoes() bool {
	state, err := unix.IoctlGetTermios(int(x.keys.Fd()), unix.TCGETS)
	require.NoError(x.t, err)
	return state.Lflag&unix.ECHO != 0
}

// The prompt shows nothing of what is typed, and one Ctrl-C ends it with the echo on again.
func TestThePromptAtATerminal(t *testing.T) {
	b := build(t)
	x := atTerminal(t, b.command(soon(t), "send", "-body", "one"), false) // -connect-file
	require.Equal(t, exitOK, x.end(), x.screen.String())

	b.args = b.args[2:]
	x = atTerminal(t, b.command(soon(t), "send", "-body", "two"), false)
	x.asked()
	secret := b.hub.ConnectionString("pump-1")
	x.typed(secret + "\n")
	require.Equal(t, exitOK, x.end(), x.screen.String())
	require.NotContains(t, x.screen.String(), "SharedAccessKey")
	require.Contains(t, x.screen.String(), "1 acknowledged")

	// The shell keeps the terminal, whose state would be set back with the end of its first program.
	own := b.command(soon(t), "send", "-body", "three")
	script := `trap : INT; "$@"; echo "status $?"; stty -a; echo the end; read -r _`
	shell := exec.CommandContext(soon(t), "/bin/sh", append([]string{"-c", script, "sh"}, own.Args...)...)
	shell.Env = []string{"PATH=" + os.Getenv("PATH")}
	x = atTerminal(t, shell, true)
	x.asked()
	x.typed("Host\x03")
	x.until("the end")
	x.typed("\n")
	require.Equal(t, exitOK, x.end(), x.screen.String())
	require.Contains(t, x.screen.String(), "interrupted; nothing was tried")
	require.Contains(t, x.screen.String(), "status 1\r\n")
	require.Regexp(t, `\secho\s`, x.screen.String())
}
