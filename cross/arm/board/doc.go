// Package board is the firmware that all microcontrollers share: readings at an interval, a ring of
// them in RAM while the hub is out of reach, a watchdog that is fed only as long as things move,
// and a way to live on a battery (wake, connect, flush, sleep).
//
// What differs from board to board comes in as values: the connection, the clock, the key or the
// chip that signs, the seed, the watchdog, the flash. The mains in the folders below fill them in
// for one sort of board each. The package obeys the rules for the core, so it runs on standard Go
// too, where its tests are.
package board
