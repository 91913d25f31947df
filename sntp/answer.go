package sntp

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// packetSize is the size of a request, and of an answer without extensions.
const packetSize = 48

// Offsets in a packet (RFC 4330, section 4).
const (
	atStratum    = 1
	atDelay      = 4
	atDispersion = 8
	atReference  = 12
	atOriginate  = 24
	atReceive    = 32
	atTransmit   = 40
)

const (
	// request is the first byte of a request: version 4, mode 3 (client).
	request      = 4<<3 | 3
	modeServer   = 4
	oldest       = 3 // version: servers of version 3 answer with it
	newest       = 4
	unsynched    = 3 // leap indicator
	maxStratum   = 15
	maxDistance  = 1 << 16 // half of the root delay, and the dispersion: 1 s (RFC 5905, MAXDIST)
	epoch        = -2208988800
	eraSeconds   = 1 << 32
	plausibleFor = 68 * 365 * 24 * time.Hour
)

// Errors of an answer. They are values made once, because a board must not allocate for each
// datagram.
var (
	errStray       = fault(transport.Protocol, "a datagram is no answer to the request")
	errManyStray   = fault(transport.Protocol, "the peer sent datagrams that are no answers; check the server's name")
	errNoTime      = fault(transport.Unavailable, "the server is not synchronised; give another one too")
	errDistance    = fault(transport.Unavailable, "the server's own time is off by more than 1 s; give another one too")
	errDenied      = fault(transport.Forbidden, "the server denies its service; give another one")
	errRate        = fault(transport.Throttled, "the server asked for fewer requests")
	errImplausible = fault(transport.Protocol, "the server shows an implausible time; give another one")
	errSlow        = fault(transport.Timeout, "the round trip took longer than Options.MaxRoundTrip")
)

func fault(k transport.Kind, text string) error {
	return &transport.Error{Kind: k, Scope: transport.ScopeConnection, Proto: proto, Err: errors.New(text)}
}

const proto = "sntp"

// kisses are the codes of a server that gives no time on purpose (RFC 5905, 7.4). All other codes
// say that it is not synchronised.
var kisses = [...]struct {
	code string
	err  error
}{
	{"DENY", errDenied},
	{"RSTR", errDenied},
	{"RATE", errRate},
}

// answer is the content of an accepted packet.
type answer struct {
	sent time.Time     // when the server sent it, by its clock
	held time.Duration // between its receipt of the request and that
}

// appendRequest appends a request. It shows nothing of the device, not even its time: the transmit
// time is nonce, which the answer repeats.
func appendRequest(b []byte, nonce uint64) []byte {
	b = append(b, request)
	for len(b) < atTransmit {
		b = append(b, 0)
	}
	return binary.BigEndian.AppendUint64(b, nonce)
}

// parse checks a packet. errStray means that it may be from anybody and is to be ignored.
func parse(p []byte, nonce uint64, earliest *transport.Credentials) (answer, error) {
	if len(p) < packetSize {
		return answer{}, errStray
	}
	version, mode := p[0]>>3&7, p[0]&7
	if mode != modeServer || version < oldest || version > newest || binary.BigEndian.Uint64(p[atOriginate:]) != nonce {
		return answer{}, errStray
	}
	if p[atStratum] == 0 {
		return answer{}, kiss(p[atReference : atReference+4])
	}
	if p[0]>>6 == unsynched || p[atStratum] > maxStratum {
		return answer{}, errNoTime
	}
	delay, dispersion := binary.BigEndian.Uint32(p[atDelay:]), binary.BigEndian.Uint32(p[atDispersion:])
	if uint64(delay)/2+uint64(dispersion) > maxDistance {
		return answer{}, errDistance
	}
	received, sent := binary.BigEndian.Uint64(p[atReceive:]), binary.BigEndian.Uint64(p[atTransmit:])
	held := sent - received // wraps together with the era
	if sent == 0 || held > maxHeld {
		return answer{}, errImplausible
	}
	at, ok := plausible(sent, earliest)
	if !ok {
		return answer{}, errImplausible
	}
	return answer{sent: at, held: duration(held)}, nil
}

// maxHeld is 60 s. A server answers at once; a later transmit time is wrong.
const maxHeld = 60 << 32

// kiss returns the meaning of a kiss code.
func kiss(code []byte) error {
	for i := range kisses {
		if string(code) == kisses[i].code {
			return kisses[i].err
		}
	}
	return errNoTime
}

// plausible returns the time of stamp in the era that makes it plausible, if there is one.
func plausible(stamp uint64, earliest *transport.Credentials) (time.Time, bool) {
	for era := int64(0); era < 2; era++ {
		t := time.Unix(epoch+era*eraSeconds+int64(stamp>>32), int64(duration(stamp&0xffffffff)))
		if !earliest.Implausible(t) && earliest.Implausible(t.Add(-plausibleFor)) {
			return t, true
		}
	}
	return time.Time{}, false
}

// duration converts seconds in 32.32 fixed point, at most a minute of them.
func duration(fixed uint64) time.Duration {
	return time.Duration(fixed>>32)*time.Second + time.Duration((fixed&0xffffffff)*uint64(time.Second)>>32)
}
