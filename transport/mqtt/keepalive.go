package mqtt

import "time"

// heartbeat decides when to ping: one keep-alive after the last write or the last read, whichever
// is earlier. It replaces the library's keep-alive, which costs each client a goroutine, a ticker,
// and two allocations for each packet. Its methods are called with conn.mu held.
//
// Any packet from the peer answers a ping. pingTimeout starts when the ping and all other pending
// bytes are written. Until then the connection makes progress, or a write's deadline ends it.
type heartbeat struct {
	every       time.Duration // how long the connection may be quiet
	pingTimeout time.Duration // how long the answer to a ping may take
	sent        time.Time     // when something was sent last
	heard       time.Time     // when something came last
	asked       bool          // there is a ping, perhaps not written yet, since which nothing came
	written     time.Time     // when all was written for the first time since asked; zero: not yet
}

// newHeartbeat returns a heartbeat for a connection that was written to and read from at now.
func newHeartbeat(now time.Time, every, pingTimeout time.Duration) heartbeat {
	return heartbeat{every: every, pingTimeout: pingTimeout, sent: now, heard: now}
}

// hear notes that something came.
func (h *heartbeat) hear(now time.Time) { h.heard, h.asked, h.written = now, false, time.Time{} }

// drained notes that nothing more waits to be written.
func (h *heartbeat) drained(now time.Time) {
	if h.asked && h.written.IsZero() {
		h.written = now
	}
}

// gotOn notes that the line got on with what stands before the answer to a ping: the kernel has yet
// to send it.
func (h *heartbeat) gotOn(at time.Time) {
	if !h.written.IsZero() && at.After(h.written) {
		h.written = at
	}
}

// look returns what is to be done: ping, or give up because nothing came after a ping, and else
// after how long to look again. That is never later than the next ping may be due.
func (h *heartbeat) look(now time.Time) (wait time.Duration, ping, silent bool) {
	if h.asked {
		wait = h.pingTimeout
		if !h.written.IsZero() {
			wait = h.written.Add(h.pingTimeout).Sub(now)
		}
		return min(wait, h.every), false, wait <= 0
	}
	quiet := h.sent
	if h.heard.Before(quiet) {
		quiet = h.heard
	}
	if wait = quiet.Add(h.every).Sub(now); wait > 0 {
		return wait, false, false
	}
	h.asked = true
	return min(h.pingTimeout, h.every), true, false
}

// setKeepAlive puts the keep-alive into a CONNECT of MQTT 3.1.1, which the library left at 0: it
// stands behind the header, the protocol's name and level, and the flags (section 3.1.2).
func setKeepAlive(connect []byte, every time.Duration) {
	at := 1
	for connect[at]&0x80 != 0 { // the length, 1 to 4 bytes
		at++
	}
	at += 1 + 6 + 1 + 1
	seconds := every / time.Second
	connect[at], connect[at+1] = byte(seconds>>8), byte(seconds)
}
