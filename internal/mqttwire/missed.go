package mqttwire

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/times"
)

// A PUBLISH that is too large to be kept is skipped, because a broker sends it again on each
// connection that ends for it. MQTT 3.1.1 cannot tell a broker what is too large.

// MaxHead is the most bytes of a PUBLISH of MQTT 3.1.1 before its payload.
const MaxHead = MaxHeader + 2 + MaxText + 2

// missedFlag marks a PUBLISH in a Backlog that was skipped.
const missedFlag = 1 << 7

// Missed is Incoming for a PUBLISH of MQTT 3.1.1 with size bytes that is skipped. body is the
// beginning of its body. If even the packet id is missing, nothing is known about it.
func (b *Backlog) Missed(flags byte, body []byte, size int) error {
	in, err := ReadPublish(flags, body)
	switch {
	case err == ErrShort: //nolint:errorlint // not wrapped
		return nil
	case err != nil:
		return Violation{Err: err}
	}
	head := append([]byte(nil), body[:len(body)-len(in.Body)]...)
	return b.Incoming(flags|missedFlag, binary.BigEndian.AppendUint32(head, uint32(size)))
}

// MissedSize returns the size of a PUBLISH that was skipped, 0 for any other, from the arguments of
// Backlog.Pass.
func MissedSize(flags byte, body []byte) int {
	if flags&missedFlag == 0 {
		return 0
	}
	return int(binary.BigEndian.Uint32(body[len(body)-4:]))
}

// Skipping is the progress of a connection with a packet that is skipped. Answers of the peer wait
// behind that packet.
type Skipping struct {
	mu          sync.Mutex
	began, last time.Time
	n           int
}

// leastSkipped is how many bytes of a packet are progress. With less, small packets would do.
const leastSkipped = 16 << 10

// Begin begins a packet.
func (s *Skipping) Begin() {
	s.mu.Lock()
	s.began, s.n = time.Now(), 0
	s.mu.Unlock()
}

// Add counts n bytes that were skipped.
func (s *Skipping) Add(n int) {
	s.mu.Lock()
	s.last = time.Now()
	s.n += n
	s.mu.Unlock()
}

// Progress returns the later of at and the time of the latest progress. A peer that sends less than
// times.Transfer expects makes none.
func (s *Skipping) Progress(at time.Time) time.Time {
	s.mu.Lock()
	if s.n >= leastSkipped {
		p := s.began.Add(times.Transfer(s.n))
		if p.After(s.last) {
			p = s.last
		}
		at = times.Later(at, p)
	}
	s.mu.Unlock()
	return at
}

// Report calls progress, unless it is nil, if there was progress in the latest second.
func (s *Skipping) Report(progress func()) {
	if progress != nil && time.Since(s.Progress(time.Time{})) < time.Second {
		progress()
	}
}
