//go:build tinygo

package main

import (
	cryptotls "crypto/tls"
	"time"

	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// join connects the board to its network. The drivers are in a separate module
// (tinygo.org/x/drivers), so a firmware based on this one must implement it:
//
//	link, _ := probe.Probe() // tinygo.org/x/drivers/netlink/probe
//	return link.NetConnect(&netlink.ConnectParams{Ssid: ssid, Passphrase: passphrase})
//
// Without it net.Dial reports that there is no netdev.
func join() error { return nil }

// offset is network time minus the board's own clock. Set it from an NTP server after join; before
// that, no token can be signed.
var offset time.Duration

func now() time.Time { return time.Now().Add(offset) }

// seed returns the chip's random numbers if TinyGo can read them, otherwise its clock.
func seed() uint64 { return uint64(noise())<<32 ^ uint64(time.Now().UnixNano()) }

// dialTLS uses the TLS of the network chip, with the certificates in the chip's own flash.
func dialTLS(addr string) (engine.Conn, error) {
	c, err := cryptotls.Dial("tcp", addr, nil)
	if err != nil {
		return nil, err
	}
	return c, nil
}
