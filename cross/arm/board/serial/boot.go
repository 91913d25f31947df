//go:build tinygo && bootloader

package main

import (
	"device/riscv"
	"unsafe"

	"github.com/hubline-iot/hubline/update"
)

// imageBase is where the images run: they are linked for this address.
const imageBase = 0x8020_0000

// main is the boot loader. It copies the image of the slot that update.Boot chooses into the RAM,
// and starts it.
func main() {
	var buf [256]byte
	slot, err := update.Boot(&layout, buf[:])
	if err != nil {
		println("boot", err.Error())
	}
	println("boot slot", slot)
	place := layout.Slots[slot]
	into := unsafe.Slice((*byte)(unsafe.Pointer(uintptr(imageBase))), place.Blocks*norBlock)
	_, _ = layout.Flash.ReadAt(into, place.First*norBlock)
	riscv.AsmFull("fence.i\njr {start}", map[string]interface{}{"start": uintptr(imageBase)})
}
