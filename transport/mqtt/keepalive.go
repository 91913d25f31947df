package mqtt

import "time"

// heartbeat decides when to ping: one keep-alive after the last write or the last read, whichever
// is earlier. It replaces the library's keep-alive, which costs each client a goroutine, a ticker,
// and two allocations for each packet. Methods are called with conn.mu held.
//
// Any packet from the peer answers a ping. pingTimeout starts when the ping and all other pending
// bytes are written. Until then a write's deadline ends a connection that makes no progress.
type heartbeat struct {
	every       time.Duration // how long the connection may be quiet
	pingTimeout time.Duration // how long the answer to a ping may take
	sent        time.Time     // the last write
	heard       time.Time     // the last read
	asked       bool          // a ping is pending or sent, and nothing was read since
	written     time.Time     // when all pending bytes were first written after asked was set; zero: not yet
}

// newHeartbeat returns a heartbeat for a connection that was written to and read from at now.
func newHeartbeat(now time.Time, every, pingTimeout time.Duration) heartbeat {
	return heartbeat{every: every, pingTimeout: pingTimeout, sent: now, heard: now}
}

// hear notes a read.
func (h *heartbeat) hear(now time.Time) { h.heard, h.asked, h.written = now, false, time.Time{} }

// drained notes that no bytes are pending.
func (h *heartbeat) drained(now time.Time) {
	if h.asked && h.written.IsZero() {
		h.written = now
	}
}

// gotOn restarts pingTimeout at the time of progress at: the kernel was still sending bytes that
// precede the answer to a ping.
func (h *heartbeat) gotOn(at time.Time) {
	if !h.written.IsZero() && at.After(h.written) {
		h.written = at
	}
}

// look returns the action that is due: ping, or silent when a ping was not answered, or else how
// long to wait before the next look. The wait never exceeds the time to the next possible ping.
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

// setKeepAlive puts the keep-alive into a CONNECT of MQTT 3.1.1, which the library left at 0. The
// field follows the fixed header, the protocol name and level, and the flags (section 3.1.2).
func setKeepAlive(connect []byte, every time.Duration) {
	at := 1
	for connect[at]&0x80 != 0 { // skips the remaining length, 1 to 4 bytes
		at++
	}
	at += 1 + 6 + 1 + 1
	seconds := every / time.Second
	connect[at], connect[at+1] = byte(seconds>>8), byte(seconds)
}
