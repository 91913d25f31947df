package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/doctor"
	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

// Exit statuses.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitNetwork = 3
	exitTrust   = 4
	exitRefused = 5
	exitLater   = 6
)

// statuses are the exit statuses, with the kinds of failure that have them.
var statuses = []struct {
	status int
	means  string
	kinds  []transport.Kind
}{
	{exitOK, "done; after Ctrl-C: everything that was accepted is also acknowledged", nil},
	{exitFailed, "failed in another way", nil},
	{exitUsage, "the command line, a file or a variable is wrong", []transport.Kind{transport.Invalid}},
	{exitNetwork, "the service was not reached, or did not answer",
		[]transport.Kind{transport.Network, transport.Timeout}},
	{exitTrust, "the service's certificate or the clock cannot be trusted",
		[]transport.Kind{transport.Untrusted, transport.ClockUnset}},
	{exitRefused, "the service refused the identity",
		[]transport.Kind{transport.Unauthorized, transport.Forbidden, transport.NotFound}},
	{exitLater, "the service is overloaded, or a quota is used up; or messages were not acknowledged within " +
		"-flush-timeout",
		[]transport.Kind{transport.Unavailable, transport.Throttled, transport.Quota}},
}

// errSilent ends a command that has said already what failed.
var errSilent = errors.New("reported")

// exitError is an error with its exit status.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &target.UsageError{Text: fmt.Sprintf(format, args...)}
}

// kindOf returns the Kind of the failure that caused err, behind the end of retries or of a wait.
func kindOf(err error) transport.Kind { return transport.KindOf(causeOf(err)) }

// causeOf returns the failure below the end of a series of attempts, or err.
func causeOf(err error) error {
	e := transport.Find(err)
	for e != nil && (e.Kind == transport.RetryExpired || e.Kind == transport.Cancelled || e.Kind == transport.Closed) {
		inner := transport.Find(e.Err)
		if inner == nil {
			break
		}
		e = inner
	}
	if e == nil {
		return err
	}
	return e
}

func statusOf(err error) int {
	var coded *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &coded):
		return coded.status
	case target.IsUsage(err):
		return exitUsage
	case ofProxy(err):
		return exitNetwork
	}
	return statusOfKind(kindOf(err))
}

func statusOfKind(kind transport.Kind) int {
	for _, row := range statuses {
		for _, k := range row.kinds {
			if k == kind {
				return row.status
			}
		}
	}
	return exitFailed
}

// askDoctor follows an error that does not say where the connection ends.
const askDoctor = "\n  hubline doctor finds out how far a connection gets"

// describe returns an error with the sentence that the filter has about it, which is about the
// service: not about a file.
func describe(err error) string {
	text := err.Error()
	_, aFiles := errors.AsType[*fs.PathError](err)
	if transport.Find(err) == nil || errors.Is(err, context.Canceled) || aFiles {
		return text
	}
	if advice, ok := doctor.Advice(err); ok {
		return text + "\n  " + advice
	}
	if kindOf(err) == transport.Protocol || passing(err) {
		return text + askDoctor
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return text + "\n  -ca FILE trusts an authority of your own, such as a testhub's; hubline doctor shows who " +
			"answers"
	}
	return text + "\n  " + errfilter.Of(causeOf(err)).Hint()
}

// ofProxy reports whether err is an answer of a proxy: the service was not reached.
func ofProxy(err error) bool {
	_, ok := doctor.OfProxy(err)
	return ok
}

// passing reports whether err is about the network. Its reason in the filter is why the client
// tries again, which helps nobody who reads it as the end.
func passing(err error) bool { return statusOfKind(kindOf(err)) == exitNetwork }

func statusText() string {
	var b strings.Builder
	for _, row := range statuses {
		fmt.Fprintf(&b, "  %d  %s", row.status, row.means)
		for i, k := range row.kinds {
			b.WriteString([...]string{": ", ", "}[min(i, 1)] + k.String())
		}
		b.WriteByte('\n')
	}
	return b.String()
}
