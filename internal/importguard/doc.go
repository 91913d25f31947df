// Package importguard holds no code, only tests: they read the import graph of the module and fail
// when a package reaches for what it must not.
//
// The core (the contract, the filter, the policies, the client, the board's MQTT session) has to
// run on boards of 32 KB to 520 KB RAM, so it imports a short list of the standard library, uses
// the language and library of Go 1.23 (what the oldest supported compiler for boards has), and
// nothing else. The hub emulator shares no code with the client that it tests. When a test here
// fails, move the code that needs the import out of the core; the list grows only with a
// measurement and a reason.
package importguard
