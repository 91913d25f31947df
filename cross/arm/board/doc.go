// Package board is the common firmware of all microcontrollers:
//
//   - It takes readings at an interval, and keeps them in a ring in RAM while the hub is
//     unreachable.
//   - It feeds a watchdog only while there is progress.
//   - It has a mode for batteries: wake, connect, flush, sleep.
//
// The differences between boards are values: the connection, the clock, the key or the chip that
// signs, the seed, the watchdog, the flash. The main packages in the folders below set them for one
// kind of board each. The package follows the rules of the core, so it also runs on standard Go,
// where its tests run.
package board
