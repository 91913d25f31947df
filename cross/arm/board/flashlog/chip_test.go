package flashlog_test

import "github.com/hubline-iot/hubline/internal/flashsim"

// chip is a simulated chip with worn blocks.
type chip struct {
	*flashsim.Flash
	writes int            // calls of WriteAt
	worn   map[int64]bool // blocks that keep nothing
}

func newChip(blocks, block, write int64) *chip {
	return &chip{Flash: flashsim.New(blocks*block, write, block), worn: map[int64]bool{}}
}

func (c *chip) WriteAt(p []byte, off int64) (int, error) {
	c.writes++
	if c.worn[off/c.EraseBlockSize()] {
		return len(p), nil
	}
	return c.Flash.WriteAt(p, off)
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
