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
	began   time.Time     // the present packet
	n, left int           // its bytes that are there, and that are missing
	pause   time.Duration // between the latest progress and the present packet; 0 once it was counted
	beside  int           // bytes from the peer since the latest progress, of other packets
	pace    time.Duration // how long a KiB took at the latest progress

	mu   sync.Mutex
	at   time.Time     // the latest progress
	made bool          // there was progress since Expect
	idle time.Duration // how long nothing came between that progress and the latest one
}

// leastLarge is how many bytes of a packet are progress. With less, small packets would do.
const leastLarge = 16 << 10

// leastSlow is how long a packet takes that comes slowly. An answer behind a faster one is late for
// another reason.
const leastSlow = time.Second

// Begin begins a packet of size bytes, of which n are there and more are missing. It may be called
// again with the same packet.
func (r *Receiving) Begin(size, n int) {
	if r.left != 0 || size < leastLarge {
		return
	}
	r.began, r.n, r.left = time.Now(), n, size-n
	r.beside = max(0, r.beside-n)
	r.pause = max(0, r.began.Sub(r.at)-time.Duration(r.beside>>10)*r.pace)
}

// Add counts n further bytes from the peer, as far as they are of that packet. A peer that sends
// less than times.Transfer expects makes no progress.
func (r *Receiving) Add(n int) {
	own := min(n, r.left)
	r.beside = min(r.beside+n-own, 1<<30)
	if own == 0 {
		return
	}
	r.n += own
	r.left -= own
	if now := time.Now(); r.n >= leastLarge && now.Sub(r.began) >= leastSlow {
		at := times.Earlier(now, r.began.Add(times.Transfer(r.n)))
		r.mu.Lock()
		if r.made {
			r.idle += r.pause
		}
		r.at, r.made = times.Later(r.at, at), true
		r.mu.Unlock()
		r.pause, r.beside, r.pace = 0, n-own, at.Sub(r.began)/time.Duration(r.n>>10)
	}
}

// Expect begins to wait for an answer, after another one or with none missing. Until then the time
// between packets adds up: a peer that sends a large one now and then owes its answers, too.
func (r *Receiving) Expect() {
	r.mu.Lock()
	r.made, r.idle = false, 0
	r.mu.Unlock()
}

// Progress returns the later of at and the time of the latest progress, less the time since Expect
// in which nothing came between the packets.
func (r *Receiving) Progress(at time.Time) time.Time {
	r.mu.Lock()
	at = times.Later(at, r.at.Add(-r.idle))
	r.mu.Unlock()
	return at
}

// Latest returns the later of at and the time of the latest progress.
func (r *Receiving) Latest(at time.Time) time.Time {
	r.mu.Lock()
	at = times.Later(at, r.at)
	r.mu.Unlock()
	return at
}

// Report calls progress, unless it is nil, if there was progress in the latest second.
func (r *Receiving) Report(progress func()) {
	if progress != nil && time.Since(r.Latest(time.Time{})) < time.Second {
		progress()
	}
}
