// Package sntp sets the clock of a device from time servers: it is the client of SNTP (RFC 4330,
// the client mode of RFC 5905), for boards that start in 1970.
//
//	clock, err := sntp.New(dial, &sntp.Options{Servers: []string{"pool.ntp.org:123"}, Rand: random})
//	creds.Now = clock.Now
//	go clock.Run(ctx)
//
// A device client whose credentials use Clock.Now waits while the clock is unset
// (transport.ClockUnset) and connects as soon as it is set.
//
// The program gives a function that dials a datagram connection: net.Dialer with "udp" on systems
// with package net, a UDP socket of the modem on a board. On a board the package starts no
// goroutine. New makes the buffers of all packets.
//
// # What is accepted
//
// An answer counts if it repeats the 64 random bits of the request, comes from a server that is
// synchronised, and shows a plausible time. Other datagrams are ignored: anyone can send them. The
// fields that are checked, and the limits, are in answer.go. Seconds count from 1900 or from 2036,
// whichever gives a time in the 68 years after Options.Earliest.
//
// SNTP has no signatures. An attacker on the path, or a server that lies, can set any plausible
// time. Options.Quorum makes several servers agree first. A token that was signed with a wrong time
// is refused or expires early; the hub's certificate is checked against the same clock.
//
// # Errors
//
// Every error is a *transport.Error. Its Kind is Network for a failed dial, Timeout without an
// answer, Unavailable for a server that is not synchronised or waits for the Quorum, Throttled and
// Forbidden for servers that ask for fewer requests or none (kiss-of-death), Protocol for an
// implausible answer, and Invalid for bad options. A server that denied its service is asked again
// after a day: its name may stand for many, and an attacker may have answered in its place.
//
// # What it does not do
//
// It neither disciplines a clock's frequency nor serves time. A single answer sets the clock, with
// an error of at most half of its round trip.
package sntp
