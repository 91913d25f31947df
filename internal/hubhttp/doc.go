// Package hubhttp is a device's side of a hub or gateway over HTTPS: one connection, whose
// goroutines can be joined; the tokens of its requests, by the hub's clock if the device's is
// wrong; and the meaning of an unsuccessful answer, a status, one of the hub's error codes and a
// text.
package hubhttp
