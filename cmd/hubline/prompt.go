package main

import (
	"context"
	"errors"

	"golang.org/x/term"
)

// errInterrupted is the end of a prompt by Ctrl-C.
var errInterrupted = errors.New("interrupted; nothing was tried")

// readSecret reads a line from a terminal without echo. When ctx ends, it restores the terminal and
// leaves the read, which nothing interrupts, to the end of the process.
func readSecret(ctx context.Context, fd int) ([]byte, error) {
	state, err := term.GetState(fd)
	if err != nil {
		return nil, err
	}
	var text []byte
	read := make(chan error, 1)
	go func() { // ends with the line, or with the process
		var err error
		text, err = term.ReadPassword(fd)
		read <- err
	}()
	select {
	case err := <-read:
		return text, err
	case <-ctx.Done():
		return nil, errors.Join(errInterrupted, term.Restore(fd, state))
	}
}
