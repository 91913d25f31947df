package agent

import (
	"context"
	"io"
	"strconv"
)

// Handler does steps of one kind. The agent calls one method at a time and ends ctx when the update
// is cancelled or replaced, and when that of Run does. A method must then return soon: a
// cancellation, the next update and the end of Run wait for it without a limit. Power may fail at
// any point, so each method must be safe to call again after a part of it was done.
//
// A method that has ended the program in 3 starts in a row is not called again, and the update
// fails: it may have crashed, used up the memory, or hung until a watchdog. Power cuts count alike.
// A start does not count if Run returned without ErrRestart, if the program waited for the
// network, or if Work.Open got more of the files than in the starts before. The starts after an
// Apply with a restart are not counted: what was installed is on trial, and the boot loader or
// swap.Start counts them.
//
// The order is Installed, Download, Install, Apply, and after an Apply with a restart Installed
// again. An error fails the step and the whole update: package errfilter decides whether Download
// is tried again before. Wrap the error in a *StepError to give it a code.
type Handler interface {
	// Installed reports whether the step is done already. After true with an error, what is installed
	// is on trial and does not work: it is undone. An error with false undoes nothing of a step that
	// has not begun.
	Installed(ctx context.Context, w *Work) (bool, error)
	// Download brings the step's files to where Install finds them. It reads them with Work.Open.
	// When it returns nil they must be on the disk, by File.Sync: a power cut may come before Install.
	Download(ctx context.Context, w *Work) error
	// Install installs the files, so that Cancel can undo it.
	Install(ctx context.Context, w *Work) (Next, error)
	// Apply makes the installed files those that run. With NextRestart, Installed is asked after the
	// restart whether that succeeded.
	Apply(ctx context.Context, w *Work) (Next, error)
	// Cancel undoes what the other methods did, in any phase: after a failure of this step or a later
	// one, and when the update is cancelled or replaced. The device then is as it was before. With
	// NextRestart, the program restarts once when all steps are undone.
	Cancel(ctx context.Context, w *Work) (Next, error)
}

// Exclusive is a Handler that could not undo two steps of an update, because both change the same
// thing. The agent refuses an offer in which two steps have the same Target.
type Exclusive interface {
	// Target names what the steps of the handler change, such as a file.
	Target() string
}

// Next says what follows on a successful method of a Handler.
type Next uint8

// What follows.
const (
	NextContinue Next = iota
	NextRestart       // Run returns ErrRestart; the agent goes on after the program has restarted
)

// Work is a step that a Handler shall do. The handler must not change it.
type Work struct {
	WorkflowID string
	// ID names the update.
	ID UpdateID
	// Index is the number of the step, from 0 on.
	Index int
	Step  Step
	// Files are those of the step, with URLs, in the order of Step.Files. For a step of type reference
	// the first one is its manifest.
	Files []File
	// URLs has the addresses of all files of the offer by their ids, also of those in the manifest of
	// a step of type reference. They are not signed.
	URLs map[string]string
	// Restarted: the program has restarted since the method before, which had asked for that.
	Restarted bool

	agent *Agent
	have  int64 // of the workflow
}

// Fetcher reads files of an update. Package update/host has one for standard Go, package
// update/httprange one for boards.
type Fetcher interface {
	// Fetch returns the content of url from byte offset on. Reads end when ctx does, and when the
	// server is silent for too long. Errors are a *transport.Error, without the URL. They wrap a
	// *transport.StatusError if the server has refused: after 403 and 410 the agent asks the Service
	// for the offer again, because the URL may have expired. A server that cannot serve parts of files
	// is an error of Kind Unsupported if offset is above 0. One that sends another part is an error of
	// Kind Protocol with the cause transport.ErrMaybeDamaged: the agent tries again
	// errfilter.MaxDamage times in a row.
	Fetch(ctx context.Context, url string, offset int64) (io.ReadCloser, error)
}

// Store keeps the agent's state. Package update/host has one in a file, package update one on
// flash.
type Store interface {
	// Load returns what Save wrote latest, nil if there is nothing.
	Load() ([]byte, error)
	// Save replaces the state as a whole, or returns an error and keeps the old or the new one.
	Save(state []byte) error
}

// StepError is an error of a Handler with a code.
type StepError struct {
	// Code is the handler's own; its lowest 28 bits are reported.
	Code uint32
	// Err is the cause. Nil: the code says all.
	Err error
}

// Error returns the text of Err, or one with the code.
func (e *StepError) Error() string {
	switch {
	case e == nil:
		return "step failed"
	case e.Err == nil:
		return "step failed with code " + strconv.FormatUint(uint64(e.Code), 10)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *StepError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}
