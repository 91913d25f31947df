//go:build tinygo && (atsamd51 || atsame5x || nrf52833 || nrf52840 || rp2040 || rp2350 || stm32)

package main

import "machine"

// feed feeds the watchdog; the first call starts it. Its time must be longer than a connection may
// take to close, 5 s.
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
