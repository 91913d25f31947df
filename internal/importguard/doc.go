// Package importguard contains only tests: they read the import graph of the module and fail when a
// package has a forbidden import.
//
// The core (the contract, the filter, the policies, the client, the board's MQTT session) must run
// on boards with 32 KB to 520 KB RAM. So it imports only a short list of the standard library, and
// uses the language and library of Go 1.23, which the oldest supported compiler for boards
// implements. The hub emulator shares no code with the client that it tests. When a test here
// fails, move the code that needs the import out of the core; extend the list only with a
// measurement and a reason.
package importguard
