//go:build tinygo && (atsamd51 || atsame5x || esp32c3 || nrf || rp2040 || rp2350 || (stm32 && !stm32f103 && !stm32l0x1))

package main

import "machine"

// noise returns a number of the chip's random number generator.
func noise() uint32 {
	n, _ := machine.GetRNG()
	return n
}
