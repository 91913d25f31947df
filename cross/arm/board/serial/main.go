//go:build tinygo && !update && !bootloader

// Command serial is the firmware for boards with a modem on a serial line. It has files for two
// chips that QEMU emulates, and is a template for others: the LM3S6965, a Cortex-M3 with the modem
// on its second serial port (TinyGo target cortex-m-qemu), and the machine virt, a RISC-V with the
// modem on a serial card (target riscv-qemu).
//
// Identity and mode are set at build time:
//
//	tinygo build -target cortex-m-qemu -panic=trap -stack-size=4kb \
//	    -ldflags "-X main.host=HUB -X main.deviceID=ID -X main.key=BASE64" ./cross/arm/board/serial
//
// With the tag provisioning the board asks the provisioning service for its hub:
//
//	tinygo build -target cortex-m-qemu -panic=trap -stack-size=4kb -tags provisioning \
//	    -ldflags "-X main.host=SERVICE -X main.scope=SCOPE -X main.deviceID=ID -X main.key=BASE64" \
//	    ./cross/arm/board/serial
package main

import (
	"context"
	"runtime"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/board"
	"github.com/hubline-iot/hubline/device"
)

// Set by the linker. TinyGo sets only what has no value here.
var (
	host         string // of the hub, or of the provisioning service
	deviceID     string // or the registration id
	key          string
	milliseconds string // between readings; empty: one minute
	mode         string // "sleep": wake, connect, flush, sleep; empty: stay connected
)

func main() {
	secret := board.Key(key)
	if secret == nil {
		println("FATAL the key is not base64")
		return
	}
	var interval time.Duration
	for _, digit := range []byte(milliseconds) { // strconv.Atoi adds 4 KB of error texts
		interval = interval*10 + time.Duration(digit-'0')*time.Millisecond
	}
	if interval == 0 {
		interval = time.Minute
	}
	line.start()
	dog.start()
	modem := board.NewModem(&line)
	for !modem.SetClock(2 * time.Second) {
		println("no time from the modem")
		dog.feed()
	}

	sign := board.Signer(secret)
	home := newHome(modem, sign)
	var firmware *board.Firmware
	var err error
	firmware, err = board.New(board.Config{
		Host: host, DeviceID: deviceID, Sign: sign,
		Dial: home.dial, Wrap: home.wrap, Now: modem.Now,
		Seed:     uint64(modem.Now().UnixNano()), // the chip has no better noise; see the guide
		Read:     readTemperature,
		Interval: interval,
		Command:  func(body []byte) { println("command", string(body)) },
		Status: func(s device.Status) {
			println("status", s.State.String(), s.Reason.String())
			if s.Err != nil {
				println("because", s.Err.Error())
			}
		},
		Feed: func() {
			dog.feed()
			if firmware != nil && mode != "sleep" {
				tell(firmware)
			}
		},
		RebootAfter: time.Hour,
	})
	if err != nil {
		println("FATAL", err.Error())
		return
	}
	if mode == "sleep" {
		println("cycle", firmware.Cycle(20*time.Second) == nil)
		tell(firmware)
		deepSleep(interval)
	}
	println("ended", firmware.Run(context.Background()).Error())
}

// readTemperature replaces a sensor: a saw-tooth from 18.0 to 25.9 degrees.
func readTemperature(b []byte) []byte {
	tenths++
	t := 180 + tenths%80
	b = append(b, `"celsius":`...)
	b = strconv.AppendUint(b, uint64(t/10), 10)
	b = append(b, '.')
	return strconv.AppendUint(b, uint64(t%10), 10)
}

var tenths uint

// tell prints readings and memory on the console.
func tell(f *board.Firmware) {
	c := f.Counts()
	runtime.GC() // so that the report counts only live memory
	runtime.ReadMemStats(&memory)
	println("counts taken", c.Taken, "acknowledged", c.Acknowledged, "lost", c.Lost, "heap", memory.HeapInuse, "of",
		memory.HeapSys,
		"allocations", memory.Mallocs)
}

var memory runtime.MemStats
