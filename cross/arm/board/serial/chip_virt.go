//go:build tinygo && virt && tinygo.riscv32

package main

import (
	"runtime/volatile"
	"time"
	"unsafe"
)

// Addresses of QEMU's machine virt.
const (
	finisher  = 0x0010_0000 // ends or resets the machine
	clockLow  = 0x0200_bff8 // low word of the machine's clock, 10 MHz
	ports     = 0x0300_0000 // I/O ports of PCI
	configure = 0x3000_8000 // configuration of device 1 on the PCI bus
)

func register(address uintptr) *volatile.Register32 {
	return (*volatile.Register32)(unsafe.Pointer(address))
}

// uart is a serial port (16550).
type uart struct{ base uintptr }

// line is a serial card on the PCI bus; the machine's own port is the console.
var line = uart{ports + linePort}

const (
	linePort = 0x1000 // where start puts the card

	uartData  = 0
	uartFIFO  = 2
	uartLine  = 3
	uartState = 5

	received = 1 << 0
	sendable = 1 << 5 // the FIFO is empty
	fifoSize = 16
)

func (u *uart) register(offset uintptr) *volatile.Register8 {
	return (*volatile.Register8)(unsafe.Pointer(u.base + offset))
}

// start gives the card its ports, and sets 8 data bits with the FIFOs on.
func (u *uart) start() {
	register(configure + 0x10).Set(linePort)
	register(configure + 0x04).Set(1)
	u.register(uartLine).Set(3)
	u.register(uartFIFO).Set(7)
}

// Read reads the FIFO. The emulator's line waits for the reader. On a real board an interrupt must
// fill a ring (see board.Port).
func (u *uart) Read(p []byte) int {
	n := 0
	for n < len(p) && u.register(uartState).Get()&received != 0 {
		p[n] = u.register(uartData).Get()
		n++
	}
	return n
}

// Write fills the FIFO when it is empty.
func (u *uart) Write(p []byte) int {
	if u.register(uartState).Get()&sendable == 0 {
		return 0
	}
	n := min(len(p), fifoSize)
	for _, b := range p[:n] {
		u.register(uartData).Set(b)
	}
	return n
}

// Pause waits a millisecond. TinyGo's clock for this machine advances only by sleeps, which do not
// wait. So Pause waits with the machine's clock, too. On real chips time.Sleep is enough.
func (u *uart) Pause() {
	const ticksPerMillisecond = 10_000
	for began := register(clockLow).Get(); register(clockLow).Get()-began < ticksPerMillisecond; {
	}
	time.Sleep(time.Millisecond)
}

// deepSleep waits for d and resets the machine, like that of chip_lm3s.go.
func deepSleep(d time.Duration) {
	for ; d > 0; d -= time.Millisecond {
		line.Pause()
	}
	register(finisher).Set(0x7777)
	for {
	}
}

// watchdog does nothing: the machine has none.
type watchdog struct{}

var dog watchdog

func (watchdog) start() {}
func (watchdog) feed()  {}
