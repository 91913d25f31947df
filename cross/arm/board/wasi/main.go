//go:build tinygo

// Command wasi is the firmware as a WebAssembly module, for gateways that run their devices'
// programs in a sandbox. WASI's first version has no sockets, so the host acts as a modem over
// standard input and standard error; standard output is the console.
//
//	tinygo build -target wasip1 \
//	    -ldflags "-X main.host=HUB -X main.deviceID=ID -X main.key=BASE64" -o device.wasm ./cross/arm/board/wasi
//
// Standard input must not block: without data it must return EAGAIN.
package main

import (
	"context"
	"os"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/board"
	"github.com/hubline-iot/hubline/device"
)

// Set by the linker. TinyGo sets only what has no value here.
var (
	host, deviceID, key string
	readings            string // number of readings, in decimal, after which the program ends; empty: for ever
)

func main() {
	secret := board.Key(key)
	if secret == nil {
		println("FATAL the key is not base64")
		return
	}
	modem := board.NewModem(pipes{})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	most := 0
	for _, digit := range []byte(readings) {
		most = most*10 + int(digit-'0')
	}
	n := 0
	firmware, err := board.New(board.Config{
		Host: host, DeviceID: deviceID, Sign: board.Signer(secret), Dial: modem.Dial, Now: time.Now,
		Seed: uint64(time.Now().UnixNano()),
		Read: func(b []byte) []byte {
			if n++; n == most {
				stop()
			}
			return strconv.AppendInt(append(b, `"celsius":`...), int64(20+n%5), 10)
		},
		Interval: 20 * time.Millisecond, FeedEvery: 100 * time.Millisecond,
		Status: func(s device.Status) { println("status", s.State.String(), s.Reason.String()) },
	})
	if err != nil {
		println("FATAL", err.Error())
		return
	}
	if err := firmware.Run(ctx); err != nil {
		println("ended", err.Error())
	}
	c := firmware.Counts()
	println("counts taken", c.Taken, "acknowledged", c.Acknowledged, "lost", c.Lost)
}

// pipes is the serial line to the host.
type pipes struct{}

func (pipes) Read(p []byte) int {
	n, _ := os.Stdin.Read(p) // an error means that no data has arrived yet
	return max(n, 0)
}

func (pipes) Write(p []byte) int {
	n, _ := os.Stderr.Write(p)
	return max(n, 0)
}

func (pipes) Pause() { time.Sleep(time.Millisecond) }
