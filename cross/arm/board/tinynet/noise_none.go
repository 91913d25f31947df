//go:build tinygo && !(atsamd51 || atsame5x || esp32c3 || nrf || rp2040 || rp2350 || (stm32 && !stm32f103 && !stm32l0x1))

package main

// noise returns 0: TinyGo has no random number generator for this chip, such as the SAMD21. Devices
// differ by their ids; an analog pin that is not connected gives noise, too.
func noise() uint32 { return 0 }
