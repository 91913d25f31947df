package setup

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// Main is what main does in every example: it parses the flags, runs the example until Ctrl-C or
// SIGTERM and exits, with 0, 1 for an error, or 2 for a command line that is wrong. At most so many
// arguments may follow the flags. The target was registered with them, and is complete when run is
// called.
func Main(arguments int, to *Target, run func(ctx context.Context) error) {
	flag.Parse()
	err := to.complete()
	if flag.NArg() > arguments {
		err = Usage("argument %q: there are flags only, -h lists them", flag.Arg(arguments))
		if arguments > 0 {
			err = Usage("argument %q: one too many", flag.Arg(arguments))
		}
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
		err = run(ctx)
		stop()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
	}
	os.Exit(status(err))
}

// usageError is about the command line.
type usageError string

// Error is what is wrong, and what to do.
func (e usageError) Error() string { return string(e) }

// Usage makes the error of a command line that is wrong.
func Usage(format string, args ...any) error { return usageError(fmt.Sprintf(format, args...)) }

func status(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.As(err, new(usageError)):
		return 2
	}
	return 1
}
