// Package handler installs images on a board with two slots, for package update/agent. It joins the
// agent to package update:
//
//	u, err := update.Open(&update.Options{Layout: layout, Version: 7}) // the number of this image
//	slots := &handler.Slots{Updater: u, Healthy: func(ctx context.Context) error {
//		return client.Send(ctx, &transport.Message{Body: []byte("started")}) // waits for a connection
//	}}
//	a, err := agent.New(&agent.Options{Handlers: map[string]agent.Handler{"contoso/slots:1": slots}, ...})
//	err = a.Run(ctx)
//	if errors.Is(err, agent.ErrRestart) { reset() }
//
// A step for it has one file, the image. Its installedCriteria is the number of the image in
// decimal, such as "7": update.Image.Version. Numbers must rise from one update to the next one: an
// image with the running number counts as installed, whatever it contains. So images that are
// linked for one slot each may share a number.
package handler

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update"
	"github.com/hubline-iot/hubline/update/agent"
)

// Slots is an agent.Handler for images in two slots. Updater and Healthy are required.
type Slots struct {
	// Updater has Options.Version. Without it no image is confirmed: after a failed write the boot
	// loader may have started the old one.
	Updater *update.Updater
	// Healthy returns nil when the new firmware works, such as after its first acknowledged message.
	// The image is confirmed then. After an error it is given up, and the board restarts.
	Healthy func(ctx context.Context) error
	// Deadline limits Healthy. A board that hangs needs a watchdog besides. Default: 5 minutes.
	Deadline time.Duration
}

var _ agent.Handler = (*Slots)(nil)

var (
	errBack      = fault(transport.Conflict, "the new image did not confirm itself; the board went back to the one before")
	errNoVersion = invalid("the Updater cannot tell which image runs: Options.Version is 0; give the number that is " +
		"built into the image")
	errOnly = fault(transport.Unsupported, "the image is confirmed and cannot be undone; make its step the last one")
)

// Installed implements agent.Handler. It confirms the new image when that runs and is healthy.
func (h *Slots) Installed(ctx context.Context, w *agent.Work) (bool, error) {
	m, s, err := h.look(w)
	switch {
	case err != nil:
		return false, err
	case s.Running == m.Version:
		return true, h.confirm(ctx, &s)
	case w.Restarted && gaveUp(m, &s):
		return false, errBack
	}
	return false, nil
}

// Download implements agent.Handler. It continues an earlier download, also after a reset.
func (h *Slots) Download(ctx context.Context, w *agent.Work) error {
	m, s, err := h.look(w)
	if err != nil || s.Running == m.Version {
		return err
	}
	err = h.Updater.Stage(ctx, m, func(ctx context.Context, have io.Reader) (io.ReadCloser, error) {
		return w.Open(ctx, &w.Files[0], have)
	})
	if transport.KindOf(err) == transport.Protocol && h.Updater.Status().Outcome == update.OutcomeCorrupt {
		return agent.ErrHash // the Updater does not read as far as the end, where Work.Open would say that
	}
	return err
}

// Install implements agent.Handler. The next reset starts the image.
func (h *Slots) Install(_ context.Context, w *agent.Work) (agent.Next, error) {
	m, s, err := h.look(w)
	switch {
	case err != nil || s.Running == m.Version:
		return agent.NextContinue, err
	case gaveUp(m, &s):
		return agent.NextContinue, errBack
	}
	return agent.NextContinue, h.Updater.Activate()
}

// Apply implements agent.Handler.
func (h *Slots) Apply(ctx context.Context, w *agent.Work) (agent.Next, error) {
	m, s, err := h.look(w)
	switch {
	case err != nil:
		return agent.NextContinue, err
	case s.Running == m.Version: // after a reset that nobody asked for
		return agent.NextContinue, h.confirm(ctx, &s)
	case gaveUp(m, &s):
		return agent.NextContinue, errBack
	}
	return agent.NextRestart, nil
}

// Cancel implements agent.Handler. Of a download it keeps what it has: another offer may have the
// same image.
func (h *Slots) Cancel(_ context.Context, w *agent.Work) (agent.Next, error) {
	m, s, err := h.look(w)
	switch {
	case err != nil:
		return agent.NextContinue, err
	case s.Phase == update.PhaseTrying:
		return agent.NextRestart, h.Updater.Reject()
	case s.Running == m.Version:
		return agent.NextContinue, errOnly
	}
	return agent.NextContinue, h.Updater.Deactivate()
}

// look returns the image of a step, and how the board stands.
func (h *Slots) look(w *agent.Work) (*update.Image, update.Status, error) {
	number, err := strconv.ParseUint(w.Step.InstalledCriteria, 10, 32)
	switch {
	case h.Updater == nil || h.Healthy == nil:
		return nil, update.Status{}, invalid("Slots.Updater or Slots.Healthy is nil; set both")
	case err != nil || number == 0:
		return nil, update.Status{}, invalid("installedCriteria is no number of an image; give one from 1 on")
	case len(w.Files) != 1:
		return nil, update.Status{}, invalid("the step does not have one file; give it the image alone")
	}
	m := &update.Image{Version: uint32(number), Size: w.Files[0].Size, SHA256: w.Files[0].SHA256}
	return m, h.Updater.Status(), nil
}

// gaveUp reports whether m was started or ready, and the board went back from it.
func gaveUp(m *update.Image, s *update.Status) bool {
	return s.Next == m.Version && s.Phase == update.PhaseIdle &&
		(s.Outcome == update.OutcomeRolledBack || s.Outcome == update.OutcomeRejected)
}

// confirm confirms the running image, if it is on trial and healthy.
func (h *Slots) confirm(ctx context.Context, s *update.Status) error {
	switch {
	case s.Phase != update.PhaseTrying:
		return nil
	case h.Updater.Version() == 0:
		return errNoVersion
	}
	deadline := h.Deadline
	if deadline == 0 {
		deadline = 5 * time.Minute
	}
	limited, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	err := callback.Call("Slots.Healthy", func() error { return h.Healthy(limited) })
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return &transport.Error{Kind: transport.Conflict, Proto: proto,
			Err: errors.New("the new image does not work: " + err.Error())}
	}
	return h.Updater.Confirm()
}

const proto = "update"

func fault(k transport.Kind, text string) error {
	return &transport.Error{Kind: k, Proto: proto, Err: errors.New(text)}
}

func invalid(text string) error { return fault(transport.Invalid, text) }
