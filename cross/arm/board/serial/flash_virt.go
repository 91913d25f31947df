//go:build tinygo && virt && tinygo.riscv32 && (update || bootloader)

package main

import (
	"encoding/binary"
	"runtime/volatile"
	"unsafe"

	"github.com/hubline-iot/hubline/update"
)

// norFlash is the second bank of the machine's flash: two NOR chips of 16 bits side by side, with
// the commands of Intel's chips (CFI).
type norFlash struct{}

const (
	norBase  = 0x2200_0000
	norBlock = 256 << 10

	norReadArray = 0x00ff_00ff // each command goes to both chips
	norProgram   = 0x0040_0040
	norErase     = 0x0020_0020
	norConfirm   = 0x00d0_00d0
	norReady     = 0x0080_0080
)

// layout has the state in the first two blocks, and two slots of 768 KB.
var layout = update.Layout{Flash: norFlash{}, Slots: [2]update.Slot{{First: 2, Blocks: 3}, {First: 5, Blocks: 3}}}

// agentArea has the state of the agent, keysArea the root keys of the service.
var (
	agentArea = update.Slot{First: 8, Blocks: 2}
	keysArea  = update.Slot{First: 10, Blocks: 2}
)

func (norFlash) Size() int64           { return 12 * norBlock }
func (norFlash) WriteBlockSize() int64 { return 4 }
func (norFlash) EraseBlockSize() int64 { return norBlock }

func norAt(off int64) unsafe.Pointer { return unsafe.Pointer(uintptr(norBase + off)) }

func (norFlash) ReadAt(p []byte, off int64) (int, error) {
	for i := range p {
		p[i] = (*volatile.Register8)(norAt(off + int64(i))).Get()
	}
	return len(p), nil
}

func (norFlash) WriteAt(p []byte, off int64) (int, error) {
	for i := 0; i < len(p); i += 4 {
		norCommand(off+int64(i), norProgram, binary.LittleEndian.Uint32(p[i:]))
	}
	return len(p), nil
}

func (norFlash) EraseBlocks(start, count int64) error {
	for block := range count {
		norCommand((start+block)*norBlock, norErase, norConfirm)
	}
	return nil
}

// norCommand writes a command and its second word, and waits until the chips are ready.
func norCommand(off int64, command, second uint32) {
	word := (*volatile.Register32)(norAt(off))
	word.Set(command)
	word.Set(second)
	for word.Get()&norReady != norReady {
	}
	word.Set(norReadArray)
}
