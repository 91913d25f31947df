package update

import (
	"context"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/flashsim"
	"github.com/hubline-iot/hubline/retrypolicy"
)

// Sizes of the simulated flash: small, so that every write can be tried.
const (
	writeBlock = 8
	eraseBlock = 256
	slotBlocks = 4
)

// rig is a board: flash with an old image in slot 0, and a new image at a source.
type rig struct {
	t        *testing.T
	flash    *flashsim.Flash
	layout   Layout
	old, new []byte
	source   *source
}

func newRig(t *testing.T) *rig {
	t.Helper()
	f := flashsim.New((2+2*slotBlocks)*eraseBlock, writeBlock, eraseBlock)
	r := &rig{t: t, old: content(1, 600), new: content(2, 3*eraseBlock-3)}
	r.on(f)
	require.NoError(t, Format(&r.layout, imageOf(1, r.old)))
	padded := append(append([]byte(nil), r.old...), make([]byte, 8-len(r.old)%8)...)
	_, err := f.WriteAt(padded[:len(padded)/8*8], r.layout.offset(0))
	require.NoError(t, err)
	r.source = &source{image: r.new}
	return r
}

// on moves the rig to another flash.
func (r *rig) on(f *flashsim.Flash) {
	r.flash = f
	r.layout = Layout{Flash: f, State: 0, Slots: [2]Slot{{2, slotBlocks}, {2 + slotBlocks, slotBlocks}}}
}

func content(seed uint64, n int) []byte {
	random := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

func imageOf(version uint32, content []byte) Image {
	return Image{Version: version, Size: int64(len(content)), SHA256: sha256.Sum256(content)}
}

// manifest returns a manifest with the signature "signed".
func manifest(t *testing.T, model string, m Image) []byte {
	t.Helper()
	text, err := AppendManifest(nil, &Manifest{Model: model, Image: m})
	require.NoError(t, err)
	return AppendSignature(text, []byte("signed"))
}

func (r *rig) options() *Options {
	return &Options{
		Layout: r.layout, Model: "board", Buffer: 64, Tries: 2, Policy: retrypolicy.NoRetry{},
		Verify: func(_, signature []byte) bool { return string(signature) == "signed" },
	}
}

func (r *rig) open() *Updater {
	r.t.Helper()
	u, err := Open(r.options())
	require.NoError(r.t, err)
	return u
}

func (r *rig) download(u *Updater) error {
	r.t.Helper()
	return u.Download(r.t.Context(), manifest(r.t, "board", imageOf(2, r.new)), r.source)
}

// boot returns the content of the slot that Boot chooses.
func (r *rig) boot() []byte {
	r.t.Helper()
	slot, err := Boot(&r.layout, make([]byte, 100))
	require.NoError(r.t, err)
	size := len(r.old)
	if slot == 1 {
		size = len(r.new)
	}
	b := make([]byte, size)
	_, err = r.flash.ReadAt(b, r.layout.offset(uint8(slot)))
	require.NoError(r.t, err)
	return b
}

// source is an image in memory.
type source struct {
	image []byte
	reads []int64
	fail  func(read int) error // nil: never
}

var errOutage = errors.New("no network")

func (s *source) ReadAt(ctx context.Context, p []byte, off int64) error {
	s.reads = append(s.reads, off)
	if s.fail != nil {
		if err := s.fail(len(s.reads)); err != nil {
			return err
		}
	}
	if off < 0 || off+int64(len(p)) > int64(len(s.image)) {
		return errors.New("read outside of the image")
	}
	copy(p, s.image[off:])
	return ctx.Err()
}

// reseal sets the check of a record.
func reseal(p []byte) {
	sum := sha256.Sum256(p[:atCheck])
	copy(p[atCheck:stateBytes], sum[:])
}
