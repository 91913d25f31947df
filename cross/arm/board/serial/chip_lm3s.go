//go:build tinygo && lm3s6965

package main

import (
	"runtime/volatile"
	"time"
	"unsafe"
)

// register is a register of the chip, by its address in the data sheet of the LM3S6965.
func register(address uintptr) *volatile.Register32 {
	return (*volatile.Register32)(unsafe.Pointer(address))
}

// uart is a serial port of the chip (PL011).
type uart struct{ base uintptr }

// line is the second port; the first is the console.
var line = uart{0x4000_D000}

const (
	uartData    = 0x00
	uartFlags   = 0x18
	uartLine    = 0x2c
	uartControl = 0x30

	receiveEmpty = 1 << 4
	transmitFull = 1 << 5
)

// start sets 8 data bits with the FIFOs on, and enables both directions.
func (u *uart) start() {
	register(u.base + uartLine).Set(0x70)
	register(u.base + uartControl).Set(0x301)
}

// Read reads the FIFO. That is enough in the emulator, whose line waits for the reader. On a real
// board an interrupt must fill a ring (see board.Port).
func (u *uart) Read(p []byte) int {
	flags, data := register(u.base+uartFlags), register(u.base+uartData)
	n := 0
	for n < len(p) && flags.Get()&receiveEmpty == 0 {
		p[n] = byte(data.Get())
		n++
	}
	return n
}

// Write fills the FIFO.
func (u *uart) Write(p []byte) int {
	flags, data := register(u.base+uartFlags), register(u.base+uartData)
	n := 0
	for n < len(p) && flags.Get()&transmitFull == 0 {
		data.Set(uint32(p[n]))
		n++
	}
	return n
}

// Pause waits a millisecond. TinyGo's clock for this emulated chip does not advance by itself, and
// a sleep advances it at once. So Pause also waits with the chip's own timer. On real chips
// time.Sleep is enough.
func (u *uart) Pause() {
	control := register(0xE000_E010) // SysTick
	register(0xE000_E014).Set(ticksPerMillisecond)
	register(0xE000_E018).Set(0)
	control.Set(5) // on, with the processor's clock
	for control.Get()&(1<<16) == 0 {
	}
	control.Set(0)
	time.Sleep(time.Millisecond)
}

// ticksPerMillisecond is for the chip's initial clock of 12 MHz.
const ticksPerMillisecond = 12_000

// deepSleep stops the chip for d. Waking is a reset that clears the RAM, as on most chips. The
// emulated chip has no wake-up timer, so deepSleep waits and resets the chip.
func deepSleep(d time.Duration) {
	for ; d > 0; d -= time.Millisecond {
		dog.feed()
		line.Pause()
	}
	register(0xE000_ED0C).Set(0x05FA_0004) // AIRCR: system reset
	for {
	}
}

// watchdog resets the chip when it is not fed in time.
type watchdog struct{ base uintptr }

var dog = watchdog{0x4000_0000}

const (
	dogLoad    = 0x00
	dogControl = 0x08
	dogClear   = 0x0c

	// dogTicks is the start value of the watchdog, which counts down twice before it resets: 2 x 40 s
	// at the chip's initial 12 MHz.
	dogTicks = 480_000_000
)

func (w watchdog) start() {
	clocks := register(0x400F_E100) // RCGC0: a part without a clock does not answer
	clocks.Set(clocks.Get() | 1<<3)
	register(w.base + dogLoad).Set(dogTicks)
	register(w.base + dogControl).Set(3) // interrupt at the first time-out, reset at the second
}

func (w watchdog) feed() { register(w.base + dogClear).Set(1) }
