//go:build tinygo && !(atsamd51 || atsame5x || nrf52833 || nrf52840 || rp2040 || rp2350 || stm32)

package main

// feed does nothing: TinyGo has no watchdog for this chip, such as the SAMD21 and the ESP32-C3.
// Write to its registers here, or attach one to a pin.
func feed() {}
