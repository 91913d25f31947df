package update

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/flashsim"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

func TestAnUpdate(t *testing.T) {
	r := newRig(t)
	var seen []string
	o := r.options()
	o.OnStatus = func(s Status) { seen = append(seen, string(s.AppendJSON(nil))) }
	u, err := Open(o)
	require.NoError(t, err)
	require.Equal(t, Status{Running: 1}, u.Status())
	require.NoError(t, u.Confirm(), "nothing to confirm")
	require.Equal(t, r.old, r.boot())

	require.NoError(t, r.download(u))
	require.Equal(t, Status{Phase: PhaseReady, Running: 1, Next: 2, Done: 765, Size: 765, Tries: 2}, u.Status())
	require.NoError(t, r.download(u), "it is there")
	require.Len(t, r.source.reads, 12)
	require.Equal(t, []string{
		`{"phase":"downloading","outcome":"none","running":1,"next":2,"slot":0,"percent":33,"error":null}`,
		`{"phase":"downloading","outcome":"none","running":1,"next":2,"slot":0,"percent":66,"error":null}`,
		`{"phase":"downloading","outcome":"none","running":1,"next":2,"slot":0,"percent":100,"error":null}`,
		`{"phase":"ready","outcome":"none","running":1,"next":2,"slot":0,"percent":100,"error":null}`,
		`{"phase":"ready","outcome":"none","running":1,"next":2,"slot":0,"percent":100,"error":null}`,
	}, seen)

	require.Equal(t, r.new, r.boot())
	u = r.open()
	require.Equal(t, Status{Phase: PhaseTrying, Running: 2, Next: 2, Done: 765, Size: 765, Tries: 1}, u.Status())
	require.ErrorIs(t, r.download(u), errTrying)
	require.NoError(t, u.Confirm())
	require.Equal(t, Status{Outcome: OutcomeUpdated, Running: 2, Next: 1, Slot: 1, Size: 600}, u.Status())
	for range 5 {
		require.Equal(t, r.new, r.boot())
	}
	require.ErrorIs(t, r.download(r.open()), errOld)
	old := manifest(t, "board", imageOf(1, r.old)) // its signature is right, as in an attack
	require.ErrorIs(t, r.open().Download(t.Context(), old, r.source), errOld)
	require.Equal(t, Status{Outcome: OutcomeUpdated, Running: 2, Next: 1, Slot: 1, Size: 600}, r.open().Status())
}

// An image of another authority's manifest is not started before Activate, however often the board
// is reset. Its download continues behind what the slot has.
func TestAStagedImageWaitsForActivate(t *testing.T) {
	r := newRig(t)
	o := r.options()
	o.Model, o.Verify = "", nil
	u, err := Open(o)
	require.NoError(t, err)
	require.Equal(t, transport.Invalid, transport.KindOf(r.download(u)), "without a key")
	require.ErrorIs(t, u.Activate(), errIncomplete)
	m := imageOf(2, r.new)
	m.Confirmed = true // has no effect
	fails := iotest.ErrReader(errOutage)
	open := func(have io.Reader, part []byte, end io.Reader) func(context.Context, io.Reader) (io.ReadCloser, error) {
		return func(_ context.Context, had io.Reader) (io.ReadCloser, error) {
			want, _ := io.ReadAll(have)
			got, err := io.ReadAll(had)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got), "the slot has %d bytes of it, want %d", len(got), len(want))
			return io.NopCloser(io.MultiReader(bytes.NewReader(part), end)), nil
		}
	}
	first := open(bytes.NewReader(nil), r.new[:300], fails)
	require.ErrorIs(t, u.Stage(t.Context(), &m, first), errOutage)
	require.ErrorIs(t, r.open().Activate(), errIncomplete)
	short := open(bytes.NewReader(r.new[:eraseBlock]), r.new[eraseBlock:700], bytes.NewReader(nil))
	require.ErrorIs(t, r.open().Stage(t.Context(), &m, short), errShort)
	rest := open(bytes.NewReader(r.new[:2*eraseBlock]), r.new[2*eraseBlock:], bytes.NewReader(nil))
	for range 2 {
		require.NoError(t, r.open().Stage(t.Context(), &m, rest))
		require.Equal(t, r.old, r.boot())
		require.Equal(t, Status{Phase: PhaseDownloading, Running: 1, Next: 2, Done: 765, Size: 765}, r.open().Status())
	}
	for range 2 {
		require.NoError(t, r.open().Activate())
		require.NoError(t, r.open().Stage(t.Context(), &m, rest), "it is there")
		require.Equal(t, PhaseReady, r.open().Status().Phase)
	}
	for range 2 {
		require.NoError(t, r.open().Deactivate())
		require.Equal(t, r.old, r.boot())
	}
	require.NoError(t, r.open().Activate())
	require.Equal(t, r.new, r.boot())
	require.ErrorIs(t, r.open().Activate(), errIncomplete)
	for range 2 {
		r.boot()
	}
	require.Equal(t, OutcomeRolledBack, r.open().Status().Outcome)
	require.ErrorIs(t, r.open().Stage(t.Context(), &m, rest), errFailed)
	for _, wrong := range []Image{{Size: 1}, {Version: 3}, {Version: 3, Size: MaxSize + 1}} {
		require.Equal(t, transport.Invalid, transport.KindOf(r.open().Stage(t.Context(), &wrong, rest)))
	}
	require.Equal(t, transport.Invalid, transport.KindOf(r.open().Stage(t.Context(), &m, nil)))
}

func TestAnImageThatDoesNotConfirmGoesBack(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.download(r.open()))
	require.Equal(t, r.new, r.boot())
	require.Equal(t, r.new, r.boot())
	for range 3 {
		require.Equal(t, r.old, r.boot(), "two starts were given")
	}
	u := r.open()
	require.Equal(t, OutcomeRolledBack, u.Status().Outcome)
	require.Equal(t, uint32(1), u.Status().Running)
	require.ErrorIs(t, r.download(u), errFailed, "it would fail again")
	require.NoError(t, u.Download(t.Context(), manifest(t, "board", imageOf(3, r.new)), r.source))
	require.Equal(t, r.new, r.boot())
}

func TestAnImageThatRejectsItselfGoesBack(t *testing.T) {
	r := newRig(t)
	require.ErrorIs(t, r.open().Reject(), errNothingNew)
	require.NoError(t, r.download(r.open()))
	require.Equal(t, r.new, r.boot())
	require.NoError(t, r.open().Reject())
	require.Equal(t, r.old, r.boot())
	require.Equal(t, OutcomeRejected, r.open().Status().Outcome)
	require.ErrorIs(t, r.download(r.open()), errFailed)
}

func TestWhatIsNotTrustedIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	for name, c := range map[string]struct {
		manifest func(r *rig) []byte
		kind     transport.Kind
	}{
		"the signature": {func(r *rig) []byte {
			text, _ := AppendManifest(nil, &Manifest{Model: "board", Image: imageOf(2, r.new)})
			return AppendSignature(text, []byte("forged"))
		}, transport.Untrusted},
		"the model":        {func(r *rig) []byte { return manifest(r.t, "other", imageOf(2, r.new)) }, transport.Invalid},
		"the same version": {func(r *rig) []byte { return manifest(r.t, "board", imageOf(1, r.new)) }, transport.Conflict},
		"too large": {func(r *rig) []byte {
			return manifest(r.t, "board", imageOf(2, make([]byte, slotBlocks*eraseBlock+1)))
		}, transport.TooLarge},
		"no manifest": {func(*rig) []byte { return nil }, transport.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			before := r.flash.Operations()
			u := r.open()
			err := u.Download(t.Context(), c.manifest(r), r.source)
			require.Equal(t, c.kind, transport.KindOf(err), "%v", err)
			require.Equal(t, before, r.flash.Operations())
			require.Empty(t, r.source.reads)
		})
	}
}

func TestAnImageWithAnotherHashIsNeverStarted(t *testing.T) {
	r := newRig(t)
	r.source.image = content(3, len(r.new))
	require.ErrorIs(t, r.download(r.open()), errCorrupt)
	require.Equal(t, r.old, r.boot())
	require.Equal(t, Status{Outcome: OutcomeCorrupt, Running: 1}, r.open().Status())
	r.source.image = r.new
	require.NoError(t, r.download(r.open()), "the source was repaired")
	require.Equal(t, r.new, r.boot())
}

func TestDecayIsNoticedAtTheStart(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.download(r.open()))
	r.flash.Damage(r.layout.offset(1)+100, 4)
	require.Equal(t, r.old, r.boot())
	require.Equal(t, OutcomeRolledBack, r.open().Status().Outcome)

	r = newRig(t)
	require.NoError(t, r.download(r.open()))
	require.Equal(t, r.new, r.boot())
	require.NoError(t, r.open().Confirm())
	r.flash.Damage(r.layout.offset(1)+100, 4)
	require.Equal(t, r.old, r.boot(), "the image before it worked too")
	require.Equal(t, Status{Outcome: OutcomeRolledBack, Running: 1}, r.open().Status())
	require.Equal(t, r.old, r.boot())
	require.NoError(t, r.download(r.open()), "into the slot that does not run")
	require.Equal(t, r.new, r.boot())
	require.NoError(t, r.open().Confirm())
	r.flash.Damage(r.layout.offset(1)+100, 4)
	r.flash.Damage(r.layout.offset(0)+100, 4)
	slot, err := Boot(&r.layout, make([]byte, 1))
	require.ErrorIs(t, err, errDamaged)
	require.Equal(t, 1, slot)
}

// The confirmed image decays while it runs, or the boot loader has not written that it went back:
// the other slot has the only image that starts.
func TestTheOnlyImageThatStartsIsNotErased(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.download(r.open()))
	require.Equal(t, r.new, r.boot())
	require.NoError(t, r.open().Confirm())
	r.flash.Damage(r.layout.offset(1)+100, 4)
	third := imageOf(3, r.new)
	before := r.flash.Operations()
	require.ErrorIs(t, r.open().Download(t.Context(), manifest(t, "board", third), r.source), errDecayed)
	require.Equal(t, before, r.flash.Operations())
	require.Equal(t, r.old, r.boot(), "after the reset")
	require.NoError(t, r.open().Download(t.Context(), manifest(t, "board", third), r.source))
	require.Equal(t, r.new, r.boot())
	require.NoError(t, r.open().Confirm())

	r.flash.Damage(r.layout.offset(1)+100, 4)
	r.flash.Damage(r.layout.offset(0)+100, 4)
	fourth := manifest(t, "board", imageOf(4, r.new))
	require.NoError(t, r.open().Download(t.Context(), fourth, r.source), "neither starts: this repairs the board")
	slot, err := Boot(&r.layout, make([]byte, 100))
	require.NoError(t, err)
	require.Zero(t, slot)
}

// Another image runs than the one on trial: the boot loader could not count a start.
func TestAnImageConfirmsOnlyItself(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.download(r.open()))
	require.Equal(t, r.new, r.boot())
	o := r.options()
	o.Version = 1
	u, err := Open(o)
	require.NoError(t, err)
	require.ErrorIs(t, u.Confirm(), errOther)
	require.Equal(t, PhaseTrying, u.Status().Phase)
	o.Version = 2
	u, err = Open(o)
	require.NoError(t, err)
	require.NoError(t, u.Confirm())
	require.Equal(t, OutcomeUpdated, u.Status().Outcome)
	o.Version = 7
	u, err = Open(o)
	require.NoError(t, err)
	require.NoError(t, u.Confirm(), "there is nothing to confirm")
}

// failing is a flash whose next write or erase reports a failure, done or not.
type failing struct {
	Flash
	done bool
	left int // writes until that
}

var errFlash = errors.New("verify failed")

func (f *failing) WriteAt(p []byte, off int64) (int, error) {
	if f.left--; f.left != 0 {
		return f.Flash.WriteAt(p, off)
	}
	if f.done {
		_, _ = f.Flash.WriteAt(p, off)
	}
	return 0, errFlash
}

// A start that could not be counted does not happen; one whose count is in the flash does.
func TestOnlyACountedStartHappens(t *testing.T) {
	for _, done := range []bool{false, true} {
		r := newRig(t)
		require.NoError(t, r.download(r.open()))
		l := r.layout
		l.Flash = &failing{Flash: r.flash, done: done, left: 1}
		slot, err := Boot(&l, make([]byte, 100))
		if !done {
			require.ErrorContains(t, err, "verify failed")
			require.Zero(t, slot)
			require.Equal(t, PhaseReady, r.open().Status().Phase)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, 1, slot)
		require.Equal(t, 1, r.open().Status().Tries)
	}
}

func TestAnImageThatWasNeverConfirmedIsNoFallback(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.download(r.open()))
	require.NoError(t, r.open().Reject())
	r.flash.Damage(r.layout.offset(0)+100, 4)
	slot, err := Boot(&r.layout, make([]byte, 100))
	require.ErrorIs(t, err, errDamaged)
	require.Zero(t, slot)
}

func TestAnOutageIsWaitedFor(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		r := newRig(t)
		o := r.options()
		o.Policy = nil
		outage := time.Now().Add(9 * time.Hour)
		r.source.fail = func(read int) error {
			if read > 5 && time.Now().Before(outage) {
				return errOutage
			}
			return nil
		}
		var failed Status
		o.OnStatus = func(s Status) {
			if s.Err != nil {
				failed = s
			}
		}
		u, err := Open(o)
		require.NoError(t, err)
		require.NoError(t, r.download(u))
		require.WithinDuration(t, outage, time.Now(), time.Minute)
		require.ErrorIs(t, failed.Err, errOutage)
		require.Equal(t, int64(eraseBlock), failed.Done)
		require.Equal(t, r.new, r.boot())
	})
}

func TestABrokenAnswerIsAskedForAgain(t *testing.T) {
	for _, c := range []struct {
		err   error
		again bool
	}{
		{errOutage, true},
		{&transport.Error{Kind: transport.Unavailable}, true},
		{&transport.Error{Kind: transport.Protocol, Err: transport.ErrViolation}, true},
		{&transport.Error{Kind: transport.Protocol}, false},
		{&transport.Error{Kind: transport.NotFound}, false},
	} {
		r := newRig(t)
		o := r.options()
		o.Policy = retrypolicy.Immediately{}
		r.source.fail = func(read int) error {
			if read == 3 {
				return c.err
			}
			return nil
		}
		u, err := Open(o)
		require.NoError(t, err)
		if err := r.download(u); c.again {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, c.err)
		}
	}
}

func TestTheContextEndsADownload(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		r := newRig(t)
		o := r.options()
		o.Policy = nil
		r.source.fail = func(int) error { return errOutage }
		u, err := Open(o)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- u.Download(ctx, manifest(t, "board", imageOf(2, r.new)), r.source) }()
		time.Sleep(time.Minute)
		require.ErrorIs(t, u.Reject(), errBusy)
		require.Equal(t, PhaseDownloading, u.Status().Phase)
		require.ErrorIs(t, <-ended, context.DeadlineExceeded)
	})
}

func TestAChangedImageEndsTheDownload(t *testing.T) {
	r := newRig(t)
	o := r.options()
	o.Policy = retrypolicy.Immediately{}
	r.source.fail = func(read int) error {
		if read > 3 {
			return ErrChanged
		}
		return nil
	}
	u, err := Open(o)
	require.NoError(t, err)
	require.ErrorIs(t, r.download(u), ErrChanged)
	require.Len(t, r.source.reads, 4, "not retried")
}

func TestCallbacksThatPanicEndTheCall(t *testing.T) {
	r := newRig(t)
	r.source.fail = func(int) error { panic("source") }
	require.ErrorContains(t, r.download(r.open()), "source")
	r.source.fail = func(int) error { return (*os.PathError)(nil) } // its methods panic
	require.ErrorContains(t, r.download(r.open()), "an error whose Error method panics")
	o := r.options()
	o.Verify = func([]byte, []byte) bool { panic("key") }
	u, err := Open(o)
	require.NoError(t, err)
	require.ErrorContains(t, r.download(u), "key")
	for _, fail := range []func(){func() { panic("policy") }, runtime.Goexit} {
		r = newRig(t)
		o = r.options()
		o.Policy = retrypolicy.Func(func(int, error) (bool, time.Duration) { fail(); return true, 0 })
		u, err = Open(o)
		require.NoError(t, err)
		r.source.fail = func(int) error { return errOutage }
		err = r.download(u)
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, "Options.Policy")
		r.source.fail = nil
		require.NoError(t, r.download(u))
	}
}

func TestWrongOptionsAreNamed(t *testing.T) {
	r := newRig(t)
	for text, change := range map[string]func(o *Options){
		"Layout.Flash":                             func(o *Options) { o.Layout.Flash = nil },
		"two records":                              func(o *Options) { o.Layout.Flash = flashsim.New(1024, 8, 128) },
		"Layout.State is empty or outside":         func(o *Options) { o.Layout.State = 9 },
		"Layout.Slots[0] is empty":                 func(o *Options) { o.Layout.Slots[0].Blocks = 0 },
		"Layout.Slots[1] is empty":                 func(o *Options) { o.Layout.Slots[1].Blocks = 1 << 62 },
		"Layout.Slots[1] overlaps Layout.Slots[0]": func(o *Options) { o.Layout.Slots[1].First-- },
		"Layout.Slots[0] overlaps Layout.State":    func(o *Options) { o.Layout.Slots[0].First = 1 },
		"Options.Model":                            func(o *Options) { o.Model = "a b" },
		"Options.Verify":                           func(o *Options) { o.Verify = nil },
		"Options.Buffer":                           func(o *Options) { o.Buffer = 100 },
		"MaxAttempts":                              func(o *Options) { o.Policy = retrypolicy.MaxAttempts{} },
	} {
		o := r.options()
		change(o)
		_, err := Open(o)
		require.ErrorIs(t, err, transport.Invalid, text)
		require.ErrorContains(t, err, text)
	}
	_, err := Open(nil)
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorIs(t, r.open().Download(t.Context(), nil, nil), transport.Invalid)
	_, err = Boot(&r.layout, nil)
	require.ErrorIs(t, err, transport.Invalid)
}

func TestAFlashWithoutAStateIsReported(t *testing.T) {
	r := newRig(t)
	r.on(flashsim.New((2+2*slotBlocks)*eraseBlock, writeBlock, eraseBlock))
	_, err := Open(r.options())
	require.ErrorIs(t, err, errNoState)
	slot, err := Boot(&r.layout, make([]byte, 10))
	require.ErrorIs(t, err, errNoState)
	require.Zero(t, slot)
	require.ErrorIs(t, Format(&r.layout, Image{Size: slotBlocks*eraseBlock + 1}), transport.TooLarge)
	require.ErrorIs(t, Format(&Layout{}, Image{}), transport.Invalid)
}

// A flash that fails without a loss of power leaves the newest record alone.
func TestAFailedWriteKeepsTheState(t *testing.T) {
	r := newRig(t)
	j := newJournal(&r.layout)
	require.NoError(t, j.mount())
	s := j.now
	for i := range 200 {
		s.tries = uint8(i)
		r.flash.CutAt(1+i%17, flashsim.Tears[i%4], uint64(i))
		err := j.write(s)
		require.True(t, err == nil || errors.Is(err, transport.Unknown))
		r.flash.Restore()
		m := newJournal(&r.layout)
		require.NoError(t, m.mount(), "%d", i)
		if err == nil {
			require.Equal(t, uint8(i), m.now.tries)
		} else {
			require.Contains(t, []uint8{j.now.tries, uint8(i)}, m.now.tries)
		}
		require.LessOrEqual(t, m.now.number, j.now.number)
	}
}

// Two calls of Confirm may both have seen the image on trial. The second one must not confirm the
// slot that the first one left.
func TestConfirmChecksThePhaseAsTheOnlyWriter(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.download(r.open()))
	require.Equal(t, r.new, r.boot())
	u := r.open()
	seen := u.Status()
	require.NoError(t, u.Confirm())
	u.status = seen // as the second call read it
	require.NoError(t, u.Confirm())
	require.Equal(t, r.new, r.boot())

	require.Error(t, u.Reject())
	require.Equal(t, PhaseIdle, u.Status().Phase)
	u.status = seen
	require.NoError(t, u.Confirm())
	require.EqualValues(t, 2, u.Status().Running)
}

// Damage on the way passes; a source that never sends what it shall ends the download.
func TestASourceThatAlwaysViolatesItsProtocolEndsTheDownload(t *testing.T) {
	wrong := &transport.Error{Kind: transport.Protocol, Err: fmt.Errorf("another part: %w", transport.ErrMaybeDamaged)}
	for _, last := range []int{3, 1 << 30} { // the latest read that fails
		r := newRig(t)
		o := r.options()
		o.Policy = retrypolicy.Immediately{}
		u, err := Open(o)
		require.NoError(t, err)
		r.source.fail = func(read int) error {
			if read <= last {
				return wrong
			}
			return nil
		}
		err = r.download(u)
		if last == 3 {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, transport.Protocol)
		require.ErrorContains(t, err, "another part")
		require.Len(t, r.source.reads, 4)
	}
}
