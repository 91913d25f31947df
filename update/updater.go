package update

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Source reads an image.
type Source interface {
	// ReadAt fills p with the bytes of the image from off on, which p does not exceed. If the content
	// is not what it was at an earlier call, it returns ErrChanged. Package retrypolicy decides by
	// other errors whether Download tries again. One with the cause transport.ErrMaybeDamaged, such as
	// an answer with another part, is tried again errfilter.MaxDamage times in a row.
	ReadAt(ctx context.Context, p []byte, off int64) error
}

// ErrChanged reports that the image was replaced at its source during the download. The manifest
// then does not fit it any more.
var ErrChanged = fault(transport.Conflict, "the image at the source has changed; get its manifest again")

// Options are the settings of an Updater. Layout is required, and for Download also Model and
// Verify.
type Options struct {
	Layout Layout
	// Model is what the manifest of Download must name. Default: none, and only Stage downloads.
	Model string
	// Version is that of the image which calls this, built into it. Confirm then refuses if the boot
	// loader has started another image than the one on trial, as it does after a failed write.
	// Default 0: not known, and Confirm takes the image on trial for the running one.
	Version uint32
	// Verify reports whether signature is a signature over signed by a key that the device trusts:
	// edsign.Verifier, or a secure element.
	Verify func(signed, signature []byte) bool
	// Buffer is the number of bytes that are requested, kept in RAM and written at a time: whole write
	// blocks, and a divisor of the erase block. Default: 1024, or the erase block if that is smaller.
	Buffer int
	// Tries is how many starts the new image has to confirm itself. Default 3.
	Tries uint8
	// Policy decides about a failed read of the source. Each part of the image begins a new series.
	// Default: ExponentialBackoffWithJitter from 1 s to a minute, for ever.
	Policy retrypolicy.Policy
	// OnStatus is called by the methods that write the flash, after each change and before each
	// retry. Default: none.
	OnStatus func(Status)
}

// Updater replaces the firmware. Its methods are safe for concurrent use. One of those that write
// the flash runs at a time; another one returns an error of Kind Conflict meanwhile.
type Updater struct {
	opt    Options
	buffer []byte
	busy   chan struct{} // holds a value while a method writes the flash; capacity 1
	j      *journal      // of the holder of busy

	mu     sync.Mutex
	status Status
}

var (
	errBusy      = fault(transport.Conflict, "another Download, Stage, Activate, Confirm or Reject is still running")
	errUntrusted = fault(transport.Untrusted, "the signature of the manifest is not by a trusted key")
	errModel     = fault(transport.Invalid, "the manifest is for another model")
	errOld       = fault(transport.Conflict, "the version is not above the running one")
	errFailed    = fault(transport.Conflict, "the image was tried or given up before; publish it with another version")
	errDecayed   = fault(transport.Conflict, "the confirmed image is damaged, and the one before it is in the other "+
		"slot; reset the board, and the boot loader goes back to that")
	errTooLarge = fault(transport.TooLarge, "the image does not fit into the slot")
	errOther    = fault(transport.Conflict, "the image on trial does not have Options.Version: the boot loader has "+
		"started another one; call Reject, or reset the board")
	errTrying     = fault(transport.Conflict, "the running image is not confirmed; call Confirm or Reject first")
	errCorrupt    = fault(transport.Protocol, "the image does not have the hash of its manifest; it was discarded")
	errIncomplete = fault(transport.Conflict, "there is no complete image; call Stage first")
	errNothingNew = fault(transport.Conflict, "there is no update to reject")
)

// Open reads the state in the flash. The error names a wrong option, or is of Kind NotFound for a
// flash without a state.
func Open(o *Options) (*Updater, error) {
	if o == nil {
		o = new(Options)
	}
	u := &Updater{opt: *o, busy: make(chan struct{}, 1)}
	if err := u.opt.complete(); err != nil {
		return nil, err
	}
	u.j = newJournal(&u.opt.Layout)
	if err := u.j.mount(); err != nil {
		return nil, err
	}
	u.buffer = make([]byte, u.opt.Buffer)
	u.status = u.j.now.status(nil)
	return u, nil
}

// complete validates the options and sets the defaults.
func (o *Options) complete() error {
	if err := o.Layout.validate(); err != nil {
		return err
	}
	erase, write := o.Layout.Flash.EraseBlockSize(), o.Layout.Flash.WriteBlockSize()
	if o.Buffer == 0 {
		o.Buffer = int(min(erase, max(1024, write)))
	}
	if o.Tries == 0 {
		o.Tries = 3
	}
	if o.Policy == nil {
		o.Policy = retrypolicy.ExponentialBackoffWithJitter{C: time.Second, Cmin: time.Second, Cmax: time.Minute}
	}
	switch {
	case (o.Model != "" || o.Verify != nil) && !validModel(o.Model):
		return invalid("Options.Model: give 1 to 64 ASCII characters without spaces")
	case o.Model != "" && o.Verify == nil:
		return invalid("Options.Verify is nil; give edsign.Verifier(key)")
	case o.Buffer < 0 || erase%int64(o.Buffer) != 0 || int64(o.Buffer)%write != 0:
		return invalid("Options.Buffer must be whole write blocks, and divide the erase block")
	}
	return retrypolicy.Validate(o.Policy)
}

// Status returns where the update stands.
func (u *Updater) Status() Status {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.status
}

// Version returns Options.Version.
func (u *Updater) Version() uint32 { return u.opt.Version }

// report publishes the state, with the latest failure.
func (u *Updater) report(err error) {
	s := u.j.now.status(err)
	u.mu.Lock()
	u.status = s
	u.mu.Unlock()
	if u.opt.OnStatus != nil {
		_ = callback.Run("Options.OnStatus of package update", func() { u.opt.OnStatus(s) })
	}
}

// exclusive runs f as the only method that writes the flash, and reports its result.
func (u *Updater) exclusive(f func() error) error {
	select {
	case u.busy <- struct{}{}:
	default:
		return errBusy
	}
	defer func() { <-u.busy }()
	err := f()
	u.report(err)
	return err
}

// Confirm makes the running image the confirmed one. The new firmware calls it when it works, such
// as after its first acknowledged message. Without an update it does nothing.
func (u *Updater) Confirm() error {
	switch s := u.Status(); {
	case s.Phase != PhaseTrying:
		return nil
	case u.opt.Version != 0 && u.opt.Version != s.Running:
		return errOther
	}
	return u.exclusive(func() error {
		s := u.j.now
		if s.phase != PhaseTrying {
			return nil // another Confirm or Reject was first, and the other slot is not the running one
		}
		s.next().Confirmed = true
		s.active, s.phase, s.outcome, s.tries, s.done = s.other(), PhaseIdle, OutcomeUpdated, 0, 0
		return u.j.write(s)
	})
}

// Reject gives the update up, in any phase. If the new image runs, reset the board afterwards: the
// confirmed image starts.
func (u *Updater) Reject() error {
	return u.exclusive(func() error {
		s := u.j.now
		if s.phase == PhaseIdle {
			return errNothingNew
		}
		s.phase, s.outcome, s.tries = PhaseIdle, OutcomeRejected, 0
		return u.j.write(s)
	})
}

// Download brings the image of the manifest into the slot that does not run, and returns nil when
// it is complete and verified, in phase Ready. It continues an earlier Download of the same image,
// also after a reset. If ctx ends or the policy stops, the complete parts stay.
//
// The error is ctx's, a *retrypolicy.Error about the source, or a *transport.Error: Invalid for a
// malformed manifest or another model, Untrusted for its signature, Conflict for a version that is
// not above the running one, was the latest to be given up, or has changed at the source, and for a
// confirmed image that is damaged, TooLarge, and Protocol for an image with another hash.
func (u *Updater) Download(ctx context.Context, manifest []byte, from Source) error {
	if from == nil {
		return invalid("Download: the source is nil")
	}
	if u.opt.Verify == nil {
		return invalid("Download: Options.Model and Options.Verify are not set; set them, or call Stage")
	}
	m, signed, signature, err := ParseManifest(manifest)
	if err != nil {
		return err
	}
	trusted := false
	failed := callback.Run("Options.Verify of package update", func() { trusted = u.opt.Verify(signed, signature) })
	switch {
	case failed != nil:
		return failed
	case !trusted:
		return errUntrusted
	case m.Model != u.opt.Model:
		return errModel
	}
	return u.exclusive(func() error {
		if err := u.stage(ctx, &m.Image, from); err != nil {
			return err
		}
		return u.activate()
	})
}

// Stage is Download for an image whose description the caller has verified, such as by the signed
// manifest of an update service. It returns nil when the image is complete and has its hash, and
// leaves it for Activate: a reset before that starts the running image. The errors are those of
// Download about the image, and those of open.
func (u *Updater) Stage(ctx context.Context, m *Image, open Opener) error {
	switch {
	case open == nil:
		return invalid("Stage: open is nil")
	case m.Version == 0 || m.Size <= 0 || m.Size > MaxSize:
		return invalid("Stage: Image: give a Version from 1 on and a Size from 1 to 2^30")
	}
	return u.exclusive(func() error {
		from := &stream{open: func(have io.Reader) (io.ReadCloser, error) { return open(ctx, have) }, slot: u.otherSlot}
		defer from.close()
		return u.stage(ctx, m, from)
	})
}

// otherSlot returns the first n bytes of the slot that does not run. Only the holder of busy calls
// it.
func (u *Updater) otherSlot(n int64) io.Reader {
	return io.NewSectionReader(u.opt.Layout.Flash, u.opt.Layout.offset(u.j.now.other()), n)
}

// Activate lets the next reset start the image that Stage has completed.
func (u *Updater) Activate() error { return u.exclusive(u.activate) }

// Deactivate undoes Activate, unless the image was started meanwhile. It stays in its slot.
func (u *Updater) Deactivate() error {
	return u.exclusive(func() error {
		s := u.j.now
		if s.phase != PhaseReady {
			return nil
		}
		s.phase, s.tries = PhaseDownloading, 0
		return u.j.write(s)
	})
}

func (u *Updater) stage(ctx context.Context, m *Image, from Source) error {
	if err := u.begin(m); err != nil {
		return err
	}
	if u.j.now.phase == PhaseReady {
		return nil
	}
	if err := u.fill(ctx, from); err != nil {
		return err
	}
	return u.verify()
}

func (u *Updater) activate() error {
	s := u.j.now
	switch {
	case s.phase == PhaseReady:
		return nil
	case s.phase != PhaseDownloading || s.done != s.next().Size:
		return errIncomplete
	}
	s.phase, s.tries = PhaseReady, u.opt.Tries
	return u.j.write(s)
}

// begin prepares the state for the download of m, or for the rest of it.
func (u *Updater) begin(m *Image) error {
	s := u.j.now
	same := s.next().SHA256 == m.SHA256 && s.next().Version == m.Version && s.next().Size == m.Size
	switch {
	case s.phase == PhaseTrying:
		return errTrying
	case m.Version <= s.proven().Version:
		return errOld
	case m.Size > u.opt.Layout.capacity(s.other()):
		return errTooLarge
	case same && (s.phase == PhaseReady || s.phase == PhaseDownloading):
		return nil
	case same && (s.outcome == OutcomeRolledBack || s.outcome == OutcomeRejected):
		return errFailed
	case s.next().Confirmed && !intact(&u.opt.Layout, s.active, s.proven(), u.buffer) &&
		intact(&u.opt.Layout, s.other(), s.next(), u.buffer):
		return errDecayed // the other slot has the only image that starts, which perhaps runs
	}
	*s.next() = Image{Version: m.Version, Size: m.Size, SHA256: m.SHA256}
	s.phase, s.outcome, s.done, s.tries = PhaseDownloading, OutcomeNone, 0, 0
	return u.j.write(s)
}

// fill reads the missing part of the image into the slot, one erase block after the other. Each
// begins with an erase: an earlier attempt may have left anything in it.
func (u *Updater) fill(ctx context.Context, from Source) error {
	l := &u.opt.Layout
	erase := l.Flash.EraseBlockSize()
	for u.j.now.done < u.j.now.next().Size {
		s := u.j.now
		if err := l.Flash.EraseBlocks(l.Slots[s.other()].First+s.done/erase, 1); err != nil {
			return flashError(err)
		}
		end := min(s.done+erase, s.next().Size)
		for off := s.done; off < end; off += int64(len(u.buffer)) {
			n := min(int64(len(u.buffer)), end-off)
			if err := u.read(ctx, from, u.buffer[:n], off); err != nil {
				return err
			}
			whole := (n + l.Flash.WriteBlockSize() - 1) / l.Flash.WriteBlockSize() * l.Flash.WriteBlockSize()
			for i := n; i < whole; i++ {
				u.buffer[i] = 0xff
			}
			if _, err := l.Flash.WriteAt(u.buffer[:whole], l.offset(s.other())+off); err != nil {
				return flashError(err)
			}
		}
		s.done = end
		if err := u.j.write(s); err != nil {
			return err
		}
		u.report(nil)
	}
	return nil
}

// read reads one part of the image, with retries.
func (u *Updater) read(ctx context.Context, from Source, p []byte, off int64) error {
	r := retrypolicy.Retrier{Policy: u.opt.Policy, Timeout: -1,
		OnRetry: func(_ int, _ time.Duration, err error) { u.report(err) }}
	var damage errfilter.Damage
	var err error
	failed := callback.Run("Options.Policy of package update", func() {
		err = r.Do(ctx, func(ctx context.Context) error {
			return damage.Judge(callback.Call("Source.ReadAt", func() error { return from.ReadAt(ctx, p, off) }))
		})
	})
	switch {
	case failed != nil:
		return &transport.Error{Kind: transport.Invalid, Proto: proto, Err: failed}
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrChanged):
		return ErrChanged
	}
	return err
}

// verify compares what is in the slot with the manifest: what was written counts, not what was
// received.
func (u *Updater) verify() error {
	s := u.j.now
	if intact(&u.opt.Layout, s.other(), s.next(), u.buffer) {
		return nil
	}
	*s.next() = Image{}
	s.phase, s.outcome, s.done = PhaseIdle, OutcomeCorrupt, 0
	if err := u.j.write(s); err != nil {
		return err
	}
	return errCorrupt
}
