package flashlog_test

import (
	"errors"

	"github.com/hubline-iot/hubline/internal/flashsim"
)

// fault says what a chip does with writes and erases. Reads work.
type fault string

const (
	healthy      fault = ""
	refuses      fault = "writes and erases are refused"
	ignores      fault = "writes and erases do nothing"
	refusesWrite fault = "writes are refused"
)

var errBusy = errors.New("the chip is busy")

// chip is a simulated chip with worn blocks.
type chip struct {
	*flashsim.Flash
	writes int            // calls of WriteAt
	erases int            // calls of EraseBlocks
	worn   map[int64]bool // blocks that keep nothing
	locked map[int64]bool // blocks whose erase is refused
	fault  fault
}

func newChip(blocks, block, write int64) *chip {
	return &chip{Flash: flashsim.New(blocks*block, write, block), worn: map[int64]bool{}, locked: map[int64]bool{}}
}

func (c *chip) WriteAt(p []byte, off int64) (int, error) {
	c.writes++
	switch {
	case c.fault == refuses || c.fault == refusesWrite:
		return 0, errBusy
	case c.fault == ignores || c.worn[off/c.EraseBlockSize()]:
		return len(p), nil
	}
	return c.Flash.WriteAt(p, off)
}

func (c *chip) EraseBlocks(start, count int64) error {
	c.erases++
	switch {
	case c.fault == refuses || c.locked[start]:
		return errBusy
	case c.fault == ignores:
		return nil
	}
	return c.Flash.EraseBlocks(start, count)
}

// content returns a copy of all bytes.
func (c *chip) content() []byte {
	b := make([]byte, c.Size())
	_, _ = c.ReadAt(b, 0)
	return b
}

// odd is a chip that says other sizes of its blocks.
type odd struct {
	*flashsim.Flash
	write, block int64
}

func (c odd) WriteBlockSize() int64 { return c.write }
func (c odd) EraseBlockSize() int64 { return c.block }
