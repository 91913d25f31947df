//go:build avr

package board

var _ struct{} = "AVR chips have no goroutines under TinyGo and 2 to 16 KB of RAM: take one with 64 KB of RAM"
