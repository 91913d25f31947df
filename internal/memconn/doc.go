// Package memconn gives connections that live in memory and behave like TCP: buffered, with
// deadlines, end of file, reset, latency, a rate and links that go silent.
//
// They are made for tests in a testing/synctest bubble, where real sockets would stop the clock:
// each wait here is durably blocking, no mutex is held over a wait, and a connection has no
// goroutine of its own, so none can be left behind. [net.Pipe] is no substitute, for it has no
// buffer: a protocol in which both ends write at once locks up on it.
//
//	network := memconn.NewNetwork("hub:8883")
//	defer network.Close()
//	go serve(network) // it is a net.Listener
//	conn, err := network.DialContext(ctx, "tcp", "hub:8883")
//
// [Pair] makes the two ends of one connection without a listener. All methods of all types may be
// called from any goroutine. Errors have the shape that the real network gives them: *[net.OpError]
// around [os.ErrDeadlineExceeded], [net.ErrClosed], ECONNRESET, EPIPE or ECONNREFUSED.
package memconn
