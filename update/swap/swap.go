// Package swap replaces a file of a Linux service, such as its program, for package update/agent.
// It restarts the service and puts the old file back if the service does not come up:
//
//	file := &swap.File{
//		Path:    "/opt/gate/gated",
//		Restart: swap.Command("systemctl", "restart", "gated"),
//		Healthy: swap.HTTP("http://127.0.0.1:8080/ready"),
//	}
//	a, err := agent.New(&agent.Options{Handlers: map[string]agent.Handler{"contoso/file:1": file}, ...})
//	err = a.Run(ctx)
//
// A program that replaces itself leaves out Restart, calls Start first when it runs as the service,
// and ends when Run returns agent.ErrRestart: systemd then starts the new file (Restart=always).
// Healthy says whether the program itself works, such as that its client is connected.
//
// # What is on the disk
//
// A step has one file, which is downloaded to PATH.new. PATH.old is the file before the latest
// update, as a hard link: the folder must be writable, on a file system that has them. While
// PATH.starts exists, the new file is on trial; the file's size is the number of starts that Start
// has counted. A symbolic link at one of these names is replaced, and not followed; keep the folder
// closed to other users all the same. The new file gets mode and owner of the old one. File
// capabilities are not copied: use AmbientCapabilities of the unit.
//
// Each change is a rename, a link or a removal that is flushed to the disk. A kill or a power cut
// between any two of them leaves a complete file at PATH, and the agent goes on from there.
package swap

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/update/agent"
)

// File is an agent.Handler that replaces a file. Path and Healthy are required. Its fields must not
// change after the first call.
type File struct {
	// Path is the file. It must exist.
	Path string
	// Restart restarts the service that uses the file. Nil: the file is the program that calls this.
	Restart func(ctx context.Context) error
	// Healthy returns nil if the service works: Command, HTTP, Dial, or your own function. It is
	// called every 200 ms until it has succeeded for the time Stable, or until Deadline: let it send
	// nothing that costs.
	Healthy func(ctx context.Context) error
	// Stable is how long the service must stay healthy, for services that come up and then crash.
	// Default: 10 s.
	Stable time.Duration
	// Deadline limits the time from the restart until the service is healthy and stable. Default: a
	// minute. A program that replaces itself needs more if its network does.
	Deadline time.Duration
	// Check examines the new file before it is used, such as by running it with -version. Default:
	// none.
	Check func(ctx context.Context, path string) error

	swapped bool // the file is not the one that this process was started from
}

var (
	_ agent.Handler   = (*File)(nil)
	_ agent.Exclusive = (*File)(nil)
)

// Target implements agent.Exclusive: only one old file is kept.
func (h *File) Target() string { return filepath.Clean(h.Path) }

var (
	errBack  = errors.New("swap: the new file did not work; the old one is back")
	errSame  = errors.New("swap: the program was not restarted; restart it when Run returns agent.ErrRestart")
	errOther = errors.New("swap: another process has replaced the file on trial; call Start only where the service runs")
)

// Installed implements agent.Handler. A program that replaces itself is examined here, after its
// restart.
func (h *File) Installed(ctx context.Context, w *agent.Work) (bool, error) {
	d, err := h.look(w)
	switch {
	case err != nil:
		return false, err
	case d.back() && w.Restarted:
		return false, errBack
	case !d.wanted:
		return false, nil
	case !d.trial:
		return true, nil
	case h.Restart != nil:
		return false, nil // Apply does it again
	}
	return true, h.examine(ctx, w, true)
}

// Download implements agent.Handler. It continues an earlier download.
func (h *File) Download(ctx context.Context, w *agent.Work) error {
	d, err := h.look(w)
	if err != nil || d.wanted {
		return err
	}
	return d.change("download", func() error { return d.download(ctx, w) })
}

// Install implements agent.Handler. It keeps the old file, and prepares the new one.
func (h *File) Install(ctx context.Context, w *agent.Work) (agent.Next, error) {
	d, err := h.look(w)
	if err != nil || d.wanted {
		return agent.NextContinue, err
	}
	if err := d.prepare(w.Files[0].SHA256); err != nil {
		return agent.NextContinue, err
	}
	if h.Check != nil {
		if err := callback.Call("File.Check", func() error { return h.Check(ctx, d.fresh) }); err != nil {
			return agent.NextContinue, errors.Join(ctx.Err(), fmt.Errorf("swap: check of %s: %w", d.fresh, err))
		}
	}
	return agent.NextContinue, d.keepOld()
}

// Apply implements agent.Handler. It exchanges the files and restarts the service.
func (h *File) Apply(ctx context.Context, w *agent.Work) (agent.Next, error) {
	d, err := h.look(w)
	switch {
	case err != nil:
		return agent.NextContinue, err
	case !d.wanted && d.back():
		return agent.NextContinue, errBack
	case !d.wanted:
		if err := d.exchange(); err != nil {
			return agent.NextContinue, err
		}
		h.swapped = true
	}
	switch {
	case h.Restart == nil && h.swapped:
		return agent.NextRestart, nil
	case d.wanted && !d.trial:
		return agent.NextContinue, nil
	}
	return agent.NextContinue, h.examine(ctx, w, true)
}

// Cancel implements agent.Handler. It puts the old file back if there was an exchange.
func (h *File) Cancel(ctx context.Context, w *agent.Work) (agent.Next, error) {
	d, err := h.look(w)
	switch {
	case err != nil:
		return agent.NextContinue, err
	case !d.wanted && !d.back():
		return agent.NextContinue, d.discard()
	case d.wanted:
		if err := d.restore(); err != nil {
			return agent.NextContinue, err
		}
		h.swapped = !h.swapped
	}
	if h.Restart != nil {
		return agent.NextContinue, h.examine(ctx, w, false)
	}
	next := agent.NextContinue
	if h.swapped {
		next = agent.NextRestart // the new program runs
	}
	return next, d.settle()
}

// examine restarts the service, waits until it works, and ends the trial if the file is still the
// one that was examined: wanted says whether that has the content of the step.
func (h *File) examine(ctx context.Context, w *agent.Work, wanted bool) error {
	if h.Restart == nil && h.swapped {
		return errSame
	}
	limited, cancel := context.WithTimeout(ctx, orDefault(h.Deadline, time.Minute))
	defer cancel()
	failure := h.comeUp(limited)
	d, err := h.look(w)
	switch {
	case ctx.Err() != nil:
		return ctx.Err() // the program ends: no verdict
	case err != nil:
		return err
	case d.wanted != wanted: // as Start does in another process
		h.swapped = true
		return errors.Join(errOther, failure)
	case failure != nil:
		return fmt.Errorf("swap: the service does not work with %s: %w", d.path, failure)
	}
	return d.settle()
}

// pause is the time between two calls of Healthy.
const pause = 200 * time.Millisecond

// comeUp restarts the service and returns nil when it has been healthy for the time Stable.
func (h *File) comeUp(ctx context.Context) error {
	if h.Restart != nil {
		if err := callback.Call("File.Restart", func() error { return h.Restart(ctx) }); err != nil {
			return fmt.Errorf("restart: %w", err)
		}
	}
	failure := errors.New("it was not healthy for the time File.Stable before File.Deadline")
	var since time.Time // zero: it is not healthy
	for {
		err := callback.Call("File.Healthy", func() error { return h.Healthy(ctx) })
		switch {
		case err != nil && ctx.Err() == nil:
			failure, since = err, time.Time{}
		case err == nil && since.IsZero():
			since = time.Now()
		case err == nil && time.Since(since) >= orDefault(h.Stable, 10*time.Second):
			return nil
		}
		select {
		case <-ctx.Done():
			return failure
		case <-time.After(pause):
		}
	}
}

func orDefault(d, standard time.Duration) time.Duration {
	if d == 0 {
		return standard
	}
	return d
}
