//go:build tinygo

package main

import (
	cryptotls "crypto/tls"
	"machine"
	"time"

	"github.com/hubline-iot/hubline/transport/mqtt/lean"
)

// join brings the board into its network. The drivers are a module of their own
// (tinygo.org/x/drivers), so this is left to the firmware that is made from this one:
//
//	link, _ := probe.Probe() // tinygo.org/x/drivers/netlink/probe
//	return link.NetConnect(&netlink.ConnectParams{Ssid: ssid, Passphrase: passphrase})
//
// Without it net.Dial says that there is no netdev.
func join() error { return nil }

// offset is what network time was ahead of the board's own clock. Ask an NTP server after join, and
// set it; before, no token can be signed.
var offset time.Duration

func now() time.Time { return time.Now().Add(offset) }

// seed takes the chip's random numbers where it has a generator, else its clock.
func seed() uint64 {
	if r, err := machine.GetRNG(); err == nil {
		return uint64(r)<<32 ^ uint64(time.Now().UnixNano())
	}
	return uint64(time.Now().UnixNano())
}

// feed feeds the watchdog; the first call starts it. Its time must be longer than closing a
// connection may take, 5 s.
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

// dialTLS lets the network chip make TLS, with the certificates that it has in its own flash.
func dialTLS(addr string) (lean.Conn, error) {
	c, err := cryptotls.Dial("tcp", addr, nil)
	if err != nil {
		return nil, err
	}
	return c, nil
}
