package nexthub

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// class is what a reason code of this service means, where that differs from other brokers.
type class uint8

const (
	asElsewhere class = iota
	later             // temporary
	spread            // temporary, and many devices are told at once
	identity          // the hub refuses the identity
	rival             // another connection has the identity
	forbidden         // final
	ours              // final: this side broke a limit that the hub had announced
	elsewhere         // final at this endpoint: another one serves the device
)

// reasons are the codes with another meaning than in the table of package mqttwire, in that packet.
//
// Decision: a DISCONNECT about a packet of ours stays a violation (0x81, 0x82, 0x90, 0x95, 0x99,
// 0x9A, 0x9B): package device finds the message that ends connections and sets it aside, and a
// device that nobody can reach is not given up for one message. So is a packet id in use (0x91)
// retried: it says nothing about the message.
var reasons = [...]struct {
	packet string
	code   byte
	class  class
}{
	{mqttwire.PacketConnack, 0x85, identity},
	{mqttwire.PacketConnack, 0x86, identity},
	{mqttwire.PacketConnack, 0x87, identity},
	{mqttwire.PacketConnack, 0x8c, identity},
	{mqttwire.PacketConnack, 0x9c, elsewhere},
	{mqttwire.PacketConnack, 0x9d, elsewhere},
	{mqttwire.PacketConnack, 0x9f, spread},
	{mqttwire.PacketDisconnect, 0x87, identity},
	{mqttwire.PacketDisconnect, 0x8c, identity},
	{mqttwire.PacketDisconnect, 0x8e, rival},
	{mqttwire.PacketDisconnect, 0x93, ours},
	{mqttwire.PacketDisconnect, 0x94, ours},
	{mqttwire.PacketDisconnect, 0x96, spread},
	{mqttwire.PacketDisconnect, 0x98, forbidden},
	{mqttwire.PacketDisconnect, 0x9c, elsewhere},
	{mqttwire.PacketDisconnect, 0x9d, elsewhere},
	{mqttwire.PacketDisconnect, 0x9f, spread},
}

// classOf returns the class of a code. Codes that a packet must not have are temporary, as future
// ones are, except those that say that CONNECT is malformed.
func classOf(e *dialect.ReasonError) class {
	for _, r := range reasons {
		if r.packet == e.Packet && r.code == e.Code {
			return r.class
		}
	}
	malformed := e.Packet == mqttwire.PacketConnack && (e.Code == 0x81 || e.Code == 0x82)
	if e.Kind() == transport.Protocol && e.Packet != mqttwire.PacketDisconnect && !malformed {
		return later
	}
	return asElsewhere
}

// Judge gives reason codes the meaning that they have here.
func (s *session) Judge(e *dialect.ReasonError) {
	switch classOf(e) {
	case asElsewhere:
	case later:
		e.Mean(transport.Unavailable, 0, nil)
	case spread:
		e.Mean(transport.Throttled, 10*time.Second+s.hub.upTo(20*time.Second), nil)
	case identity:
		s.identityRefused(time.Now())
		e.Mean(transport.Unauthorized, s.hub.identityDelay(s.refusals), transport.ErrMayBeLifted)
	case rival:
		e.Mean(transport.Conflict, 0, transport.ErrTakenOver)
	case forbidden:
		e.Mean(transport.Forbidden, 0, nil)
	case ours:
		e.Mean(transport.Invalid, 0, nil)
	case elsewhere:
		kind := transport.NotFound
		if s.follow(e.Server) {
			kind = transport.Unavailable
		}
		e.Mean(kind, 0, nil)
	}
}

// Delays after refusals of the identity: they double, and vary by a quarter up and down.
const (
	firstIdentityDelay = 5 * time.Minute
	mostIdentityDelay  = time.Hour
)

// identityRefused counts a refusal. Those within a short time are of one attempt, in which the
// device has tried each of its certificates.
func (s *state) identityRefused(now time.Time) {
	if s.refusals == 0 || now.Sub(s.refusedAt) > firstIdentityDelay/2 {
		s.refusals++
	}
	s.refusedAt = now
}

// identityDelay is the delay after so many refusals in a row.
func (h *Hub) identityDelay(refusals int) time.Duration {
	delay := mostIdentityDelay
	if n := refusals - 1; n < 4 {
		delay = min(delay, firstIdentityDelay<<n)
	}
	return delay*3/4 + h.upTo(delay/2)
}

// upTo returns a random duration.
func (h *Hub) upTo(most time.Duration) time.Duration {
	var b [8]byte
	_ = h.random(b[:])
	return time.Duration(binary.LittleEndian.Uint64(b[:]) % uint64(most+1))
}

// maxFollowed is how often in a row the hub may send the device on before a connection counts as
// connected.
const maxFollowed = 3

// follow makes the next connection one to the first host of a server reference. Its certificate
// must be valid for that name. ok is false when there is none, or when the device was sent on too
// often.
//
// Decision: a reference with a port other than 8883 is not followed.
func (s *state) follow(reference string) (ok bool) {
	host, _, _ := strings.Cut(reference, " ")
	host = strings.TrimSuffix(host, ":8883")
	if !hostName(host) || s.sent >= maxFollowed {
		s.server, s.sent = "", 0
		return false
	}
	s.server, s.tried = host, false
	s.sent++
	return true
}

// hostName reports whether s is a name that a certificate can have: labels, and no address.
func hostName(s string) bool {
	letter := false
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c|0x20 && c|0x20 <= 'z':
			letter = true
		case c == '.' && (i == 0 || s[i-1] == '.'):
			return false
		case c != '-' && c != '.' && (c < '0' || c > '9'):
			return false
		}
	}
	return letter && len(s) <= 253 && strings.IndexByte(s, '.') > 0
}

// nextHost returns the host for the next connection, empty for that of the credentials. A server to
// which the latest connection failed is forgotten.
func (s *state) nextHost() string {
	if s.tried {
		s.server, s.sent = "", 0 // a failed connection is no move
	}
	s.tried = s.server != ""
	return s.server
}

// connected records that a connection counts as connected.
func (s *state) connected() { s.refusals, s.tried, s.sent = 0, false, 0 }
