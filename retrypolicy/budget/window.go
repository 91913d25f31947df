package budget

import (
	"math"
	"time"
)

// windowParts is the number of parts of a window. Events leave the window one part at a time.
const windowParts = 20

// window counts events in a sliding time window: all events, and marked ones among them. The caller
// must synchronize. The latest part is not full yet, so the counts cover 19/20 to 20/20 of the
// window.
type window struct {
	part  time.Duration // length of one part
	parts [windowParts]tally
	sum   tally
	head  int       // the latest part
	since time.Time // start of the latest part
}

type tally struct{ all, marked int64 }

func (t *tally) add(n tally, times int64) {
	t.all += times * n.all
	t.marked += times * n.marked
}

// shortestWindow makes a part longer than the resolution of coarse clocks.
const shortestWindow = windowParts * time.Millisecond

func newWindow(length time.Duration) window { return window{part: length / windowParts} }

// advance drops events that are too old at now.
func (w *window) advance(now time.Time) {
	passed := now.Sub(w.since)
	switch {
	case passed <= -windowParts*w.part:
		// the clock was set back; without this, nothing ages until it catches up
		w.since = now
	case passed >= windowParts*w.part:
		w.clear()
		w.since = now
	default:
		for ; passed >= w.part; passed -= w.part {
			w.head = (w.head + 1) % windowParts
			old := &w.parts[w.head]
			w.sum.add(*old, -1)
			*old = tally{}
			w.since = w.since.Add(w.part)
		}
	}
}

// holds reports whether an event of that time is still counted.
func (w *window) holds(at time.Time) bool { return w.since.Sub(at) <= (windowParts-1)*w.part }

// add counts t at the time of the latest advance.
func (w *window) add(t tally) {
	w.parts[w.head].add(t, 1)
	w.sum.add(t, 1)
}

// takeBack uncounts t: the newest events like it, unless they have left the window.
func (w *window) takeBack(t tally) {
	for i := range windowParts {
		p := &w.parts[(w.head-i+windowParts)%windowParts]
		if p.all >= t.all && p.marked >= t.marked {
			p.add(t, -1)
			w.sum.add(t, -1)
			return
		}
	}
}

func (w *window) clear() {
	w.parts = [windowParts]tally{}
	w.sum = tally{}
}

// share is a fraction in millionths, so that comparisons use whole numbers.
type share int64

func shareOf(f float64) share { return share(f*1e6 + 0.5) }

// above reports whether part exceeds s of all. A float64 holds the products exactly up to several
// thousand million, and does not overflow beyond.
func (s share) above(part, all int64) bool { return float64(part)*1e6 > float64(all)*float64(s) }

func (s share) below(part, all int64) bool { return float64(part)*1e6 < float64(all)*float64(s) }

// whole converts n to an int, capped where an int has 32 bits.
func whole(n int64) int { return int(min(n, math.MaxInt)) }
