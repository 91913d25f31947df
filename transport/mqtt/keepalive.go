package mqtt

import "time"

// heartbeat tells when to ping: when a keep-alive has passed since something was sent, or since something was heard. It stands in for the library's keep-alive,
// which costs each client a goroutine, a ticker, and two allocations for each packet. It has no lock of its own.
type heartbeat struct {
	every    time.Duration // how long the line may be quiet
	patience time.Duration // how long the answer to a ping may take
	sent     time.Time     // when something was sent last
	heard    time.Time     // when something came last
	pinged   time.Time     // when the ping was sent whose answer is awaited; zero: there is none
}

// newHeartbeat begins with a line on which something was sent and heard now.
func newHeartbeat(now time.Time, every, patience time.Duration) heartbeat {
	return heartbeat{every: every, patience: patience, sent: now, heard: now}
}

// look returns what is to be done: ping, or give up because a ping was not answered, and else after how long to look again.
func (h *heartbeat) look(now time.Time) (wait time.Duration, ping, silent bool) {
	if !h.pinged.IsZero() {
		wait = h.pinged.Add(h.patience).Sub(now)
		return wait, false, wait <= 0
	}
	quiet := h.sent
	if h.heard.Before(quiet) {
		quiet = h.heard
	}
	if wait = quiet.Add(h.every).Sub(now); wait > 0 {
		return wait, false, false
	}
	h.pinged = now
	return h.patience, true, false
}

// setKeepAlive puts the keep-alive into a CONNECT of MQTT 3.1.1, which the library left at 0: it stands behind the header, the protocol's name and level,
// and the flags (section 3.1.2).
func setKeepAlive(connect []byte, every time.Duration) {
	at := 1
	for connect[at]&0x80 != 0 { // the length, 1 to 4 bytes
		at++
	}
	at += 1 + 6 + 1 + 1
	seconds := every / time.Second
	connect[at], connect[at+1] = byte(seconds>>8), byte(seconds)
}
