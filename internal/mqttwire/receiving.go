package mqttwire

import (
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/times"
)

// Receiving is the progress of a connection with large packets that come slowly from the peer, kept
// or skipped. Answers of the peer wait behind them. Begin and Add are called by the goroutine that
// reads.
type Receiving struct {
	began   time.Time // the present packet
	n, left int       // its bytes that are there, and that are missing

	mu sync.Mutex
	at time.Time // the latest progress
}

// leastLarge is how many bytes of a packet are progress. With less, small packets would do.
const leastLarge = 16 << 10

// leastSlow is how long a packet takes that comes slowly. An answer behind a faster one is late for
// another reason.
const leastSlow = time.Second

// Begin begins a packet of size bytes, of which n are there and more are missing. It may be called
// again with the same packet.
func (r *Receiving) Begin(size, n int) {
	if r.left == 0 && size >= leastLarge {
		r.began, r.n, r.left = time.Now(), n, size-n
	}
}

// Add counts n further bytes from the peer, as far as they are of that packet. A peer that sends
// less than times.Transfer expects makes no progress.
func (r *Receiving) Add(n int) {
	if r.left == 0 {
		return
	}
	n = min(n, r.left)
	r.n += n
	r.left -= n
	if now := time.Now(); r.n >= leastLarge && now.Sub(r.began) >= leastSlow {
		at := times.Earlier(now, r.began.Add(times.Transfer(r.n)))
		r.mu.Lock()
		r.at = times.Later(r.at, at)
		r.mu.Unlock()
	}
}

// Progress returns the later of at and the time of the latest progress.
func (r *Receiving) Progress(at time.Time) time.Time {
	r.mu.Lock()
	at = times.Later(at, r.at)
	r.mu.Unlock()
	return at
}

// Report calls progress, unless it is nil, if there was progress in the latest second.
func (r *Receiving) Report(progress func()) {
	if progress != nil && time.Since(r.Progress(time.Time{})) < time.Second {
		progress()
	}
}
