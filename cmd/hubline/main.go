// Command hubline is a device in a shell: it sends and receives messages, serves twin and direct
// methods, uploads files, registers with the provisioning service, and finds out why a device does
// not get through (hubline doctor). The page docs/hubline.md shows each command.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
)

func main() {
	signals, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	context.AfterFunc(signals, func() {
		stop() // a second Ctrl-C ends the program at once, as soon as ctx tells of the first
		cancel()
	})
	t := &tool{
		in: os.Stdin, out: os.Stdout, log: os.Stderr,
		inTerminal:  term.IsTerminal(int(os.Stdin.Fd())),
		outTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		logTerminal: term.IsTerminal(int(os.Stderr.Fd())),
	}
	var read func() ([]byte, error)
	if t.inTerminal && t.logTerminal {
		read = func() ([]byte, error) { return readSecret(ctx, int(os.Stdin.Fd())) }
	}
	t.world = target.Terminal(os.Stderr, read)
	os.Exit(t.main(ctx, os.Args[1:]))
}

// tool is the program, with its surroundings.
type tool struct {
	in       io.Reader
	out, log io.Writer
	world    *target.World
	// Which of them are terminals: a person types the input, and reads the output and the log.
	inTerminal, outTerminal, logTerminal bool
	// screen is what log writes to, with the bar of a progress.
	screen *screen
	// adapt changes the target before its use. Tests put networks in memory there. Nil: nothing.
	adapt func(*target.Target)
	// lookup replaces the resolver where adapt is set.
	lookup func(ctx context.Context, host string) ([]string, error)
}

// main runs a command line and returns the exit status.
func (t *tool) main(ctx context.Context, args []string) int {
	t.screen = &screen{w: t.log}
	t.log = t.screen
	root := t.root()
	if completesOneDash(args) {
		root.SetOut(oneDash{t.out})
	}
	root.SetArgs(doubleDashes(root, args))
	var err error
	if !hasFlag(args, "insecure-command-line") {
		err = target.Refuse(args)
	}
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	if err != nil && !errors.Is(err, errSilent) {
		fmt.Fprintln(t.log, "hubline:", describe(err))
	}
	return statusOf(err)
}
