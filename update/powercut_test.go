package update

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/flashsim"
)

// life runs a board until the update has ended: start, download, start of the new image, and so on.
// A power cut is a reset. It returns how often the new image was started.
func (r *rig) life(confirms bool, afterCut func()) (started int) {
	r.t.Helper()
	cut := func(err error) bool {
		if r.flash.Off() {
			r.flash.Restore()
			afterCut()
			return true
		}
		require.NoError(r.t, err)
		return false
	}
	for range 40 {
		slot, err := Boot(&r.layout, make([]byte, 100))
		if cut(err) {
			continue
		}
		running, want := make([]byte, len(r.old)), r.old
		if slot == 1 {
			running, want = make([]byte, len(r.new)), r.new
			started++
		}
		_, err = r.flash.ReadAt(running, r.layout.offset(uint8(slot)))
		require.NoError(r.t, err)
		require.True(r.t, bytes.Equal(want, running), "slot %d is started with a damaged image", slot)
		u, err := Open(r.options())
		require.NoError(r.t, err)
		status := u.Status()
		switch {
		case slot == 0 && status.Outcome == OutcomeRolledBack, slot == 1 && status.Outcome == OutcomeUpdated:
			return started
		case slot == 0:
			cut(r.download(u))
		case confirms:
			cut(u.Confirm())
		}
	}
	require.Fail(r.t, "the update does not end")
	return 0
}

// Every write and every erase of an update is cut in every way, and a board still starts the old or
// the new image, and ends with the right one.
func TestAPowerCutAtAnyWriteLeavesAnImage(t *testing.T) {
	for _, confirms := range []bool{true, false} {
		t.Run(fmt.Sprintf("confirms %v", confirms), func(t *testing.T) {
			first := newRig(t)
			made := first.flash.Clone()
			before := first.flash.Operations()
			first.life(confirms, func() {})
			operations := first.flash.Operations() - before
			t.Logf("%d writes and erases, each cut in %d ways", operations, len(flashsim.Tears)+2)
			require.Greater(t, operations, 150)
			for n := 1; n <= operations; n++ {
				for _, tear := range append([]flashsim.Tear{flashsim.Prefix, flashsim.Bits}, flashsim.Tears...) {
					r := *first
					r.on(made.Clone())
					r.source = &source{image: r.new}
					cuts := 0
					seed := uint64(n) + uint64(tear)<<32 + uint64(len(r.source.reads))
					r.flash.CutAt(n, tear, seed)
					started := r.life(confirms, func() { cuts++ })
					r.ended(confirms, started)
					require.Equal(t, 1, cuts, "operation %d, %v", n, tear)
				}
			}
		})
	}
}

// ended checks the end of a life.
func (r *rig) ended(confirms bool, started int) {
	r.t.Helper()
	want, phase := r.old, "rolledBack"
	if confirms {
		want, phase = r.new, "updated"
	} else {
		require.LessOrEqual(r.t, started, 2, "Options.Tries")
	}
	require.True(r.t, bytes.Equal(want, r.boot()))
	require.Equal(r.t, phase, r.open().Status().Outcome.String())
}

// The boot loader goes back to the image before a decayed one, and a program gives its update up:
// each write and erase of that is cut in every way.
func TestAPowerCutWhileGoingBackLeavesAnImage(t *testing.T) {
	decayed := newRig(t)
	require.NoError(t, decayed.download(decayed.open()))
	require.Equal(t, decayed.new, decayed.boot())
	require.NoError(t, decayed.open().Confirm())
	decayed.flash.Damage(decayed.layout.offset(1)+100, 4)
	trying := newRig(t)
	require.NoError(t, trying.download(trying.open()))
	require.Equal(t, trying.new, trying.boot())
	for name, c := range map[string]struct {
		rig *rig
		act func(r *rig)
	}{
		"decayed":  {decayed, func(r *rig) { _, _ = Boot(&r.layout, make([]byte, 100)) }},
		"rejected": {trying, func(r *rig) { _ = r.open().Reject() }},
	} {
		t.Run(name, func(t *testing.T) {
			made := c.rig.flash
			dry := *c.rig
			dry.t = t
			dry.on(made.Clone())
			before := dry.flash.Operations()
			c.act(&dry)
			operations := dry.flash.Operations() - before
			require.Greater(t, operations, 10, "an erase, and a record in blocks of 8 bytes")
			for n := 1; n <= operations; n++ {
				for _, tear := range flashsim.Tears {
					r := *c.rig
					r.t = t
					r.on(made.Clone())
					r.flash.CutAt(n, tear, uint64(n))
					c.act(&r)
					require.True(t, r.flash.Off())
					r.flash.Restore()
					running := r.boot()
					if name == "decayed" || r.open().Status().Phase == PhaseIdle {
						require.Equal(t, r.old, running, "operation %d, %v", n, tear)
						require.Zero(t, r.open().Status().Slot)
					} else {
						require.Equal(t, r.new, running, "operation %d, %v", n, tear)
					}
					_ = r.open().Reject()
					third := manifest(t, "board", imageOf(3, r.new))
					require.NoError(t, r.open().Download(t.Context(), third, r.source))
					require.Equal(t, r.new, r.boot())
				}
			}
		})
	}
}

// A block of a download that was cut is erased again, and only it.
func TestACutDownloadContinues(t *testing.T) {
	r := newRig(t)
	u := r.open()
	r.source.fail = func(read int) error {
		if read == 7 {
			r.flash.CutAt(1, flashsim.Bits, 1)
		}
		return nil
	}
	require.ErrorContains(t, r.download(u), "the power is off")
	r.flash.Restore()
	r.source.fail = nil
	require.Equal(t, r.old, r.boot())
	u = r.open()
	want := Status{Phase: PhaseDownloading, Running: 1, Next: 2, Done: eraseBlock, Size: int64(len(r.new))}
	require.Equal(t, want, u.Status())
	r.source.reads = nil
	require.NoError(t, r.download(u))
	require.Equal(t, int64(eraseBlock), r.source.reads[0])
	require.Len(t, r.source.reads, 8)
	require.Equal(t, r.new, r.boot())
}
