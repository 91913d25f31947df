package update

import (
	"errors"

	"github.com/hubline-iot/hubline/transport"
)

// Flash is flash memory. TinyGo's machine.Flash satisfies it. An agent saves its state while a
// Handler writes an image: where both are in one chip, its methods are safe for concurrent use, or,
// as with a scheduler for one core, they never yield.
type Flash interface {
	ReadAt(p []byte, off int64) (int, error)
	// WriteAt writes whole write blocks, which are erased.
	WriteAt(p []byte, off int64) (int, error)
	Size() int64
	WriteBlockSize() int64
	EraseBlockSize() int64
	// EraseBlocks erases count erase blocks from number start on.
	EraseBlocks(start, count int64) error
}

// Layout says where things are in the flash, in erase blocks.
type Layout struct {
	Flash Flash
	// State is the first of two blocks for the state.
	State int64
	// Slots are for the images.
	Slots [2]Slot
}

// Slot is a place for an image.
type Slot struct {
	// First is the first block, Blocks the number of blocks.
	First, Blocks int64
}

// validate returns what is wrong, or nil.
func (l *Layout) validate() error {
	if l.Flash == nil {
		return invalid("Layout.Flash is nil; give the flash memory")
	}
	erase, write := l.Flash.EraseBlockSize(), l.Flash.WriteBlockSize()
	if write <= 0 || erase < 2*recordBytes(write) || erase%write != 0 || erase > 1<<30 {
		return invalid("Layout.Flash: an erase block must hold two records of the state, in whole write blocks")
	}
	blocks := l.Flash.Size() / erase
	areas := [3]Slot{{l.State, stateBlocks}, l.Slots[0], l.Slots[1]}
	names := [3]string{"State", "Slots[0]", "Slots[1]"}
	for i, a := range areas {
		if a.First < 0 || a.Blocks <= 0 || a.Blocks > blocks || a.First > blocks-a.Blocks || a.Blocks > maxImage/erase {
			return invalid("Layout." + names[i] + " is empty or outside of the flash")
		}
		for j, b := range areas[:i] {
			if a.First < b.First+b.Blocks && b.First < a.First+a.Blocks {
				return invalid("Layout." + names[i] + " overlaps Layout." + names[j])
			}
		}
	}
	return nil
}

const (
	stateBlocks = 2
	maxImage    = 1 << 30
)

// capacity returns the bytes of a slot.
func (l *Layout) capacity(slot uint8) int64 { return l.Slots[slot].Blocks * l.Flash.EraseBlockSize() }

// offset returns where a slot begins, in bytes.
func (l *Layout) offset(slot uint8) int64 { return l.Slots[slot].First * l.Flash.EraseBlockSize() }

const proto = "update"

func fault(k transport.Kind, text string) error {
	return &transport.Error{Kind: k, Proto: proto, Err: errors.New(text)}
}

func invalid(text string) error { return fault(transport.Invalid, text) }

// flashError wraps an error of the flash. It is not worth a retry.
func flashError(err error) error {
	return &transport.Error{Kind: transport.Unknown, Proto: proto, Err: errors.New("flash: " + err.Error())}
}
