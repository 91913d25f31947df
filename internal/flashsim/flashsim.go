// Package flashsim simulates the flash memory of a microcontroller in tests: it must be erased
// before it is written, and its power fails in the middle of a write or an erase.
//
// A Flash has the methods of the block device of TinyGo (machine.Flash). It is stricter than most
// chips: each write block is written once per erase, because flash with error correction refuses
// more. Its methods are safe for concurrent use, as those of a driver with a lock.
package flashsim

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
)

// Flash is a simulated chip. Make it with New.
type Flash struct {
	write, erase int64
	blank        []byte // an erased block

	mu         sync.Mutex // guards what follows
	mem        []byte
	written    []bool // by write block: written since its last erase
	wear       []int  // by erase block: number of erases
	operations int
	cut        int // number of the operation that the power cut ends; 0: none
	tear       Tear
	random     *rand.Rand
	off        bool
}

// Tear says what a write or an erase leaves behind when the power fails during it.
type Tear uint8

// Tears.
const (
	Nothing Tear = iota // the operation has not begun
	Prefix              // a random part at the beginning is done
	Bits                // a random choice of the bits has changed
	Whole               // the operation is complete, but nobody learns that
)

// Tears are all values of Tear.
var Tears = []Tear{Nothing, Prefix, Bits, Whole}

// String names the tear.
func (t Tear) String() string { return [...]string{"nothing", "prefix", "bits", "whole"}[t] }

// Errors of a Flash.
var (
	ErrPower  = errors.New("flashsim: the power is off")
	ErrMisuse = errors.New("flashsim: misuse")
)

// New returns an erased Flash. write and erase are the sizes of its blocks in bytes.
func New(size, write, erase int64) *Flash {
	if write <= 0 || erase <= 0 || erase%write != 0 || size <= 0 || size%erase != 0 {
		panic("flashsim: size must be a multiple of erase, and erase one of write")
	}
	return &Flash{
		mem: bytes.Repeat([]byte{0xff}, int(size)), blank: bytes.Repeat([]byte{0xff}, int(erase)), write: write, erase: erase,
		written: make([]bool, size/write), wear: make([]int, size/erase),
		random: rand.New(rand.NewPCG(1, uint64(size))),
	}
}

// Clone returns a copy with the same content, without a planned cut.
func (f *Flash) Clone() *Flash {
	c := New(f.Size(), f.write, f.erase)
	f.mu.Lock()
	defer f.mu.Unlock()
	c.mem, c.written, c.wear = slices.Clone(f.mem), slices.Clone(f.written), slices.Clone(f.wear)
	c.operations = f.operations
	return c
}

// CutAt plans a power cut during operation n from this call on: 1 is the next one. A write of one
// write block is an operation, an erase of one erase block too. seed selects the random part of the
// tear.
func (f *Flash) CutAt(n int, tear Tear, seed uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut, f.tear = f.operations+n, tear
	f.random = rand.New(rand.NewPCG(seed, uint64(n)))
}

// Restore turns the power on again, and removes a planned cut.
func (f *Flash) Restore() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off, f.cut = false, 0
}

// Off reports whether the power is off.
func (f *Flash) Off() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.off
}

// Operations returns the number of operations so far.
func (f *Flash) Operations() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.operations
}

// Wear returns the numbers of erases of the erase blocks that were erased least and most often.
func (f *Flash) Wear() (least, most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Min(f.wear), slices.Max(f.wear)
}

// Damage inverts the bits of mask in the byte at off, as decay does.
func (f *Flash) Damage(off int64, mask byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mem[off] ^= mask
}

// Size returns the number of bytes.
func (f *Flash) Size() int64 { return int64(len(f.mem)) }

// WriteBlockSize returns the size of the smallest write.
func (f *Flash) WriteBlockSize() int64 { return f.write }

// EraseBlockSize returns the size of the smallest erase.
func (f *Flash) EraseBlockSize() int64 { return f.erase }

// ReadAt fills p from off on.
func (f *Flash) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.off {
		return 0, ErrPower
	}
	if off < 0 || off > f.Size()-int64(len(p)) {
		return 0, fmt.Errorf("%w: read of %d bytes at %d of %d", ErrMisuse, len(p), off, f.Size())
	}
	return copy(p, f.mem[off:]), nil
}

// WriteAt writes whole write blocks, each of which must be erased.
func (f *Flash) WriteAt(p []byte, off int64) (int, error) {
	n := int64(len(p))
	f.mu.Lock()
	defer f.mu.Unlock()
	if off < 0 || off > f.Size()-n || off%f.write != 0 || n%f.write != 0 {
		return 0, fmt.Errorf("%w: write of %d bytes at %d of %d, in blocks of %d", ErrMisuse, n, off, f.Size(), f.write)
	}
	for done := int64(0); done < n; done += f.write {
		at := off + done
		if f.written[at/f.write] && !f.off {
			return int(done), fmt.Errorf("%w: second write at %d without an erase", ErrMisuse, at)
		}
		if err := f.changeLocked(at, p[done:done+f.write], true); err != nil {
			return int(done), err
		}
	}
	return len(p), nil
}

// EraseBlocks erases count erase blocks from the block with number start on.
func (f *Flash) EraseBlocks(start, count int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if start < 0 || count < 0 || start > f.Size()/f.erase-count {
		return fmt.Errorf("%w: erase of %d blocks from %d on, of %d", ErrMisuse, count, start, f.Size()/f.erase)
	}
	for i := start; i < start+count; i++ {
		if err := f.changeLocked(i*f.erase, f.blank, false); err != nil {
			return err
		}
	}
	return nil
}

// changeLocked makes one operation, a write or an erase: it gives the bytes at off the values of p,
// or tears.
func (f *Flash) changeLocked(off int64, p []byte, isWrite bool) error {
	if f.off {
		return ErrPower
	}
	f.operations++
	cut := f.operations == f.cut
	if cut && f.tear == Nothing {
		f.off = true
		return ErrPower
	}
	now := f.mem[off : off+int64(len(p))]
	var old []byte
	if cut {
		old = slices.Clone(now)
	}
	for i := range p { // a write clears bits, an erase sets them
		if isWrite {
			now[i] &= p[i]
		} else {
			now[i] = p[i]
		}
	}
	for i := off / f.write; i < (off+int64(len(p)))/f.write; i++ {
		f.written[i] = isWrite || cut && f.tear != Whole // a torn erase must be repeated
	}
	if !isWrite {
		f.wear[off/f.erase]++
	}
	if !cut {
		return nil
	}
	f.off = true
	f.tornInto(now, old)
	return ErrPower
}

// tornInto turns the complete operation in now back in part: old are the bytes from before it.
func (f *Flash) tornInto(now, old []byte) {
	switch f.tear {
	case Nothing, Whole:
	case Prefix:
		from := f.random.IntN(len(now))
		copy(now[from:], old[from:])
	case Bits:
		for i := range now {
			mask := byte(f.random.Uint32())
			now[i] = now[i]&mask | old[i]&^mask
		}
	}
}
