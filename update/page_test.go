package update

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/flashsim"
)

// pageLoader is a boot loader written from the page docs/updates.md alone, as a translation of Boot
// into another language would be.
type pageLoader struct {
	f      *flashsim.Flash
	slots  [2]int64 // first blocks
	newest []byte   // the record
	block  int64    // that has it
}

func (p *pageLoader) read(off int64, n uint32) []byte {
	b := make([]byte, n)
	_, _ = p.f.ReadAt(b, off)
	return b
}

func (p *pageLoader) image(slot byte) []byte { return p.newest[20+44*int(slot):][:44] }

func (p *pageLoader) intact(slot byte) bool {
	m := p.image(slot)
	content := p.read(p.slots[slot]*p.f.EraseBlockSize(), binary.BigEndian.Uint32(m[4:]))
	return sha256.Sum256(content) == [32]byte(m[8:40])
}

func (p *pageLoader) boot() (slot byte) {
	for block := range int64(2) {
		for at := int64(0); at+120 <= p.f.EraseBlockSize(); at += 120 {
			r := p.read(block*p.f.EraseBlockSize()+at, 120)
			sum := sha256.Sum256(r[:108])
			if string(r[:8]) != "HUBUPD01" || string(r[108:]) != string(sum[:12]) {
				continue
			}
			number := binary.BigEndian.Uint32(r[8:])
			if p.newest == nil || int32(number-binary.BigEndian.Uint32(p.newest[8:])) > 0 {
				p.newest, p.block = r, block
			}
		}
	}
	active := p.newest[13]
	if phase := p.newest[12]; phase == 2 || phase == 3 {
		if p.newest[14] > 0 && p.intact(1-active) {
			p.newest[12] = 3
			p.newest[14]--
			p.write()
			return 1 - active
		}
		p.newest[12], p.newest[15] = 0, 2
		p.write()
	}
	if p.intact(active) || p.image(1 - active)[40] != 1 || !p.intact(1-active) {
		return active
	}
	clear(p.image(active))
	p.newest[12], p.newest[13], p.newest[15] = 0, 1-active, 2
	clear(p.newest[16:20])
	p.write()
	return 1 - active
}

func (p *pageLoader) write() {
	binary.BigEndian.PutUint32(p.newest[8:], binary.BigEndian.Uint32(p.newest[8:])+1)
	sum := sha256.Sum256(p.newest[:108])
	copy(p.newest[108:], sum[:12])
	p.block = 1 - p.block
	_ = p.f.EraseBlocks(p.block, 1)
	_, _ = p.f.WriteAt(p.newest, p.block*p.f.EraseBlockSize())
}

// Boards with random histories: the page's boot loader starts the same slot as Boot, and leaves the
// same state.
func TestThePageDescribesBoot(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 3))
		r := newRig(t)
		for version := uint32(2); version < 7; version++ {
			decay := func() {
				if random.IntN(6) == 0 {
					r.flash.Damage(r.layout.offset(uint8(random.IntN(2)))+int64(random.IntN(200)), 4)
				}
			}
			decay()
			r.source.fail = func(read int) error {
				if read%40 == 39 {
					return errOutage
				}
				return nil
			}
			u := r.open()
			_ = u.Download(t.Context(), manifest(t, "board", imageOf(version, r.new)), r.source)
			if random.IntN(4) == 0 {
				_ = u.Reject()
			}
			decay()
			for range 1 + random.IntN(3) {
				before := r.open().Status()
				by := &pageLoader{f: r.flash.Clone(), slots: [2]int64{2, 2 + slotBlocks}}
				slot, err := Boot(&r.layout, make([]byte, 100))
				require.Equal(t, slot, int(by.boot()), "seed %d", seed)
				theirs, ours := r.layout, r.open().j.now
				theirs.Flash = by.f
				j := newJournal(&theirs)
				require.NoError(t, j.mount())
				ours.number = j.now.number
				require.Equal(t, ours, j.now, "seed %d", seed)
				seen[fmt.Sprint(before.Phase, before.Slot, slot, r.open().Status().Outcome, err == nil)]++
			}
			if random.IntN(3) > 0 {
				_ = r.open().Confirm()
			}
		}
	}
	for _, want := range []string{"downloading 0 0 none true", "ready 0 1 none true", "trying 0 1 none true",
		"trying 0 0 rolledBack true", "trying 1 1 rolledBack true", "idle 0 0 rejected true", "idle 1 0 rolledBack true",
		"idle 0 0 rejected false"} {
		require.Positive(t, seen[want], "%s of %v", want, seen)
	}
}
