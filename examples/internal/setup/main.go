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

// Main is the body of main in every example. It parses the flags, runs the example until Ctrl-C or
// SIGTERM, and exits with 0, 1 for an error, or 2 for an invalid command line. At most that many
// arguments may follow the flags. to must be registered with the flags; it is complete when run is
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

// usageError is an error in the command line.
type usageError string

// Error says what is wrong, and what to do.
func (e usageError) Error() string { return string(e) }

// Usage returns the error of an invalid command line.
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
