//go:build tinygo

// Command picow is the firmware for the Raspberry Pi Pico W: Wi-Fi by the driver
// github.com/soypat/cyw43439, DHCP, DNS and TCP by github.com/soypat/seqs, the clock by package
// sntp.
//
//	GOWORK=off tinygo flash -target pico-w -panic=trap -stack-size=8kb \
//	    -ldflags "-X main.host=HUB -X main.deviceID=ID -X main.key=BASE64 -X main.addr=GATEWAY:1883 \
//	        -X main.ssid=NAME -X main.passphrase=PASSPHRASE" .
//
// The name and passphrase of the network can also be in a file secret.go, which git ignores:
//
//	//go:build tinygo
//
//	package main
//
//	func init() { ssid, passphrase = "NAME", "PASSPHRASE" }
//
// There is no TLS: seqs has none, and TinyGo's is not for connections of one's own. So addr is a
// gateway or a broker on the board's own network. seqs sends nothing twice; when a segment is lost,
// the client connects again and sends what was not acknowledged.
package main

import (
	"context"
	"machine"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/board"
	"github.com/hubline-iot/hubline/cross/arm/board/wifi"
	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/sntp"
)

// Set by the linker, or by a file that is not in the repository. TinyGo sets only what has no value
// here.
var (
	host, deviceID, key string
	addr                string // host:port of the gateway or broker
	ssid, passphrase    string // an empty passphrase: an open network
)

// startLimit is how long the board may take to its first connection before the watchdog resets it.
const startLimit = 5 * time.Minute

func main() {
	time.Sleep(time.Second) // so that the console shows the beginning
	secret := board.Key(key)
	if secret == nil {
		halt("the key is not base64")
	}
	chip := newChip(ssid, passphrase)
	station, err := wifi.New(wifi.Config{Radio: chip, Stack: chip, Addr: addr, Clock: sntp.Options{
		Servers: []string{"0.pool.ntp.org:123", "1.pool.ntp.org:123"}, Rand: random}})
	if err != nil {
		halt(err.Error())
	}
	firmware, err := board.New(board.Config{
		Host: host, DeviceID: deviceID, Sign: board.Signer(secret),
		Dial: station.Dial, Now: station.Now, Seed: random(),
		Read:   readTemperature,
		Status: func(s device.Status) { println(s.State.String(), s.Reason.String()) },
		Feed:   feed, RebootAfter: time.Hour,
	})
	if err != nil {
		halt(err.Error())
	}
	ctx := context.Background()
	if err := station.Start(ctx, feed, startLimit, func(err error) { println("no network:", err.Error()) }); err != nil {
		halt(err.Error())
	}
	println("ended:", firmware.Run(ctx).Error())
}

// halt reports an error that only another image repairs.
func halt(text string) {
	for {
		println("FATAL", text)
		time.Sleep(10 * time.Second)
	}
}

// readTemperature reads the chip's own sensor.
func readTemperature(b []byte) []byte {
	return strconv.AppendInt(append(b, `"millicelsius":`...), int64(machine.ReadTemperature()), 10)
}

func random() uint64 {
	a, _ := machine.GetRNG()
	b, _ := machine.GetRNG()
	return uint64(a)<<32 | uint64(b)
}

// feed feeds the watchdog; the first call starts it. Its time is the longest that the chip has.
func feed() {
	if !fed {
		fed = true
		if machine.Watchdog.Configure(machine.WatchdogConfig{TimeoutMillis: 8000}) == nil {
			_ = machine.Watchdog.Start()
		}
	}
	machine.Watchdog.Update()
}

var fed bool
