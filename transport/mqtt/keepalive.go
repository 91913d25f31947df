package mqtt

import "time"

// heartbeat decides when to ping: one keep-alive after the last write or the last read, whichever
// is earlier. It replaces the library's keep-alive, which costs each client a goroutine, a ticker,
// and two allocations for each packet. Methods are called with conn.mu held.
//
// Any packet from the peer answers a ping. pingTimeout starts when the ping and all other pending
// bytes are written. Until then a write's deadline ends a connection that makes no progress.
type heartbeat struct {
	keepAlive   time.Duration // how long the connection may be quiet
	pingTimeout time.Duration // how long the answer to a ping may take
	lastWrite   time.Time     // the last write
	lastRead    time.Time     // the last read
	pinged      bool          // a ping is pending or sent, and nothing was read since
	flushedAt   time.Time     // when all pending bytes were first written after pinged was set; zero: not yet
}

// newHeartbeat returns a heartbeat for a connection that was written to and read from at now.
func newHeartbeat(now time.Time, keepAlive, pingTimeout time.Duration) heartbeat {
	return heartbeat{keepAlive: keepAlive, pingTimeout: pingTimeout, lastWrite: now, lastRead: now}
}

// received notes a read.
func (h *heartbeat) received(now time.Time) {
	h.lastRead, h.pinged, h.flushedAt = now, false, time.Time{}
}

// flushed notes that no bytes are pending.
func (h *heartbeat) flushed(now time.Time) {
	if h.pinged && h.flushedAt.IsZero() {
		h.flushedAt = now
	}
}

// progressed restarts pingTimeout at the time of progress at: the kernel was still sending bytes
// that precede the answer to a ping.
func (h *heartbeat) progressed(at time.Time) {
	if !h.flushedAt.IsZero() && at.After(h.flushedAt) {
		h.flushedAt = at
	}
}

// check returns the action that is due: ping, or silent when a ping was not answered, or else how
// long to wait before the next check. The wait never exceeds the time to the next possible ping.
func (h *heartbeat) check(now time.Time) (wait time.Duration, ping, silent bool) {
	if h.pinged {
		wait = h.pingTimeout
		if !h.flushedAt.IsZero() {
			wait = h.flushedAt.Add(h.pingTimeout).Sub(now)
		}
		return min(wait, h.keepAlive), false, wait <= 0
	}
	quiet := h.lastWrite
	if h.lastRead.Before(quiet) {
		quiet = h.lastRead
	}
	if wait = quiet.Add(h.keepAlive).Sub(now); wait > 0 {
		return wait, false, false
	}
	h.pinged = true
	return min(h.pingTimeout, h.keepAlive), true, false
}

// setKeepAlive puts the keep-alive into a CONNECT of MQTT 3.1.1, which the library left at 0. The
// field follows the fixed header, the protocol name and level, and the flags (section 3.1.2).
func setKeepAlive(connect []byte, keepAlive time.Duration) {
	at := 1
	for connect[at]&0x80 != 0 { // skips the remaining length, 1 to 4 bytes
		at++
	}
	at += 1 + 6 + 1 + 1
	seconds := keepAlive / time.Second
	connect[at], connect[at+1] = byte(seconds>>8), byte(seconds)
}
