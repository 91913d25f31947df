// Package memconn provides in-memory connections that behave like TCP: buffered, with deadlines,
// end of file, reset, latency, a rate, and links that go silent.
//
// They are made for tests in a testing/synctest bubble, where real sockets would stop the clock.
// Every wait is durably blocking, no mutex is held during a wait, and a connection has no goroutine
// that could be left behind. [net.Pipe] has no buffer: a protocol in which both ends write at once
// deadlocks on it.
//
//	network := memconn.NewNetwork("hub:8883")
//	defer network.Close()
//	go serve(network) // it is a net.Listener
//	conn, err := network.DialContext(ctx, "tcp", "hub:8883")
//
// [Pair] makes the two ends of one connection without a listener. All methods are safe for
// concurrent use. Errors have the form of package net's: *[net.OpError] around
// [os.ErrDeadlineExceeded], [net.ErrClosed], ECONNRESET, EPIPE or ECONNREFUSED.
package memconn
