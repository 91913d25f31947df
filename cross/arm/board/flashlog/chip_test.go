package flashlog_test

import (
	"errors"
	"math/rand/v2"
)

// chip is flash memory in RAM that tears: the power fails at a chosen word, which is half written
// then, or at a chosen erase, which leaves a part of the block.
type chip struct {
	memory       []byte
	write, block int
	written      []bool       // by word: programmed, perhaps without effect, since its erase
	erases       []int        // by block
	writes       int          // calls of WriteAt
	words        int          // words and blocks touched so far
	failAt       int          // the number of the word or block at which the power fails; 0: never
	off          bool         // without power
	worn         map[int]bool // blocks that keep nothing
	random       *rand.Rand
	overwritten  int // words written twice
}

var errOff = errors.New("no power")

func newChip(blocks, block, write int, seed uint64) *chip {
	c := &chip{memory: make([]byte, blocks*block), write: write, block: block, written: make([]bool, blocks*block/write),
		erases: make([]int, blocks), worn: map[int]bool{}, random: rand.New(rand.NewPCG(seed, 1))}
	for i := range c.memory {
		c.memory[i] = 0xff
	}
	return c
}

// touch counts a word or a block, and reports whether the power fails at it.
func (c *chip) touch() bool {
	c.words++
	c.off = c.off || c.words == c.failAt
	return c.off
}

// on switches the power on again.
func (c *chip) on() { c.off, c.failAt = false, 0 }

func (c *chip) ReadAt(p []byte, off int64) (int, error) {
	if c.off {
		return 0, errOff
	}
	return copy(p, c.memory[off:int(off)+len(p)]), nil
}

func (c *chip) WriteAt(p []byte, off int64) (int, error) {
	if c.off {
		return 0, errOff
	}
	if len(p)%c.write != 0 || int(off)%c.write != 0 {
		return 0, errors.New("not aligned")
	}
	c.writes++
	for at := 0; at < len(p); at += c.write {
		word := c.memory[int(off)+at : int(off)+at+c.write]
		n := (int(off) + at) / c.write
		again := c.written[n]
		c.written[n] = true
		torn := c.touch()
		for i := range word {
			next := p[at+i]
			if torn || again {
				next |= byte(c.random.Uint32()) // some bits are not programmed
			}
			if !c.worn[(int(off)+at)/c.block] {
				word[i] &= next
			}
		}
		if again {
			c.overwritten++
		}
		if torn {
			return at, errOff
		}
	}
	return len(p), nil
}

func (c *chip) EraseBlocks(start, length int64) error {
	for b := int(start); b < int(start+length); b++ {
		if c.off {
			return errOff
		}
		torn := c.touch()
		c.erases[b]++
		block := c.memory[b*c.block : (b+1)*c.block]
		switch {
		case !torn:
			for i := range block {
				block[i] = 0xff
			}
			clear(c.written[b*c.block/c.write : (b+1)*c.block/c.write])
		case c.random.IntN(2) == 0: // bits rise here and there
			for i := range block {
				block[i] |= byte(c.random.Uint32())
			}
		default: // from one end
			n := c.random.IntN(len(block))
			for i := range block[:n] {
				block[i] = 0xff
			}
		}
		if torn {
			return errOff
		}
	}
	return nil
}

func (c *chip) WriteBlockSize() int64 { return int64(c.write) }
func (c *chip) EraseBlockSize() int64 { return int64(c.block) }
func (c *chip) Size() int64           { return int64(len(c.memory)) }
