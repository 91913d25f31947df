//go:build tinygo

// Command tinynet is the firmware for boards whose network TinyGo's package net supports: pico-w,
// wioterminal, nano-rp2040, metro-m4-airlift and others with a netdev driver.
//
//	tinygo flash -target wioterminal -panic=trap -stack-size=8kb \
//	    -ldflags "-X main.host=HUB -X main.deviceID=ID -X main.key=BASE64 -X main.addr=HUB:8883 -X main.tls=1" \
//	    ./cross/arm/board/tinynet
//
// Three parts are specific to the board and are in board.go: joining the network, the time, and the
// watchdog.
package main

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/board"
	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// Set by the linker. TinyGo sets only what has no value here.
var (
	host, deviceID, key string
	addr                string // host:port to connect to
	tls                 string // "1": TLS, by the network chip; empty: none, for a gateway on the board's own network
	mode                string // "sleep": wake, connect, flush, sleep; empty: stay connected
)

func main() {
	secret := board.Key(key)
	if secret == nil {
		println("FATAL the key is not base64")
		return
	}
	for {
		if err := join(); err == nil {
			break
		} else {
			println("no network:", err.Error())
		}
		time.Sleep(5 * time.Second)
	}
	firmware, err := board.New(board.Config{
		Host: host, DeviceID: deviceID, Sign: board.Signer(secret),
		Dial: dial, Now: now, Seed: seed(),
		Read:   readSensor,
		Status: func(s device.Status) { println(s.State.String(), s.Reason.String()) },
		Feed:   feed, RebootAfter: time.Hour,
	})
	if err != nil {
		println("FATAL", err.Error())
		return
	}
	for mode == "sleep" {
		println("all sent:", firmware.Cycle(20*time.Second) == nil)
		// replace this by the chip's own sleep: set the wake-up timer, switch the radio off, stop the
		// clocks
		firmware.Sleep(10 * time.Minute)
	}
	println(firmware.Run(context.Background()).Error())
}

// dial connects with TinyGo's net, which cannot be cancelled: the chip's own time-out ends it.
func dial(context.Context, *transport.Credentials) (engine.Conn, error) {
	if tls == "1" {
		return dialTLS(addr)
	}
	return net.Dial("tcp", addr)
}

// readSensor replaces a sensor: the seconds since the start.
func readSensor(b []byte) []byte {
	return strconv.AppendInt(append(b, `"uptime":`...), int64(time.Since(started).Seconds()), 10)
}

var started = time.Now()
