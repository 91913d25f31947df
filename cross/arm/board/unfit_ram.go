//go:build nrf51 || stm32f103 || stm32l0

package board

var _ struct{} = "this chip has 20 KB of RAM at most, and the firmware takes 36: take one with 64 KB"
