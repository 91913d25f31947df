package budget

import (
	"math"
	"time"
)

// windowParts is how many parts a window has. What falls out of it falls out in such parts.
const windowParts = 20

// window counts what happened within a time that slides along: all events, and those among them
// that are marked. It has no lock of its own. The latest part is not full yet, so that between
// 19/20 of the window and the whole of it are counted.
type window struct {
	part  time.Duration // the length of one
	parts [windowParts]tally
	sum   tally
	head  int       // the latest
	since time.Time // when it began
	begun bool
}

type tally struct{ all, marked int64 }

// shortestWindow leaves a part that is longer than clocks are coarse.
const shortestWindow = windowParts * time.Millisecond

func newWindow(length time.Duration) window { return window{part: length / windowParts} }

// advance drops what is too old at now.
func (w *window) advance(now time.Time) {
	passed := now.Sub(w.since)
	switch {
	case !w.begun:
		w.begun, w.since = true, now
	case passed <= -windowParts*w.part:
		// the clock was set back; otherwise nothing would grow old until it is where it was
		w.since = now
	case passed >= windowParts*w.part:
		w.clear()
		w.since = now
	default:
		for ; passed >= w.part; passed -= w.part {
			w.head = (w.head + 1) % windowParts
			old := &w.parts[w.head]
			w.sum.all -= old.all
			w.sum.marked -= old.marked
			*old = tally{}
			w.since = w.since.Add(w.part)
		}
	}
}

// add counts t at the time of the latest advance.
func (w *window) add(t tally) {
	p := &w.parts[w.head]
	p.all += t.all
	p.marked += t.marked
	w.sum.all += t.all
	w.sum.marked += t.marked
}

// takeBack uncounts one event that was added at this very time, as far as it is still there.
func (w *window) takeBack() {
	if w.parts[w.head].all > 0 {
		w.add(tally{all: -1})
	}
}

// unmark takes back the newest marked event that was added without being among all.
func (w *window) unmark() {
	for i := range windowParts {
		if p := &w.parts[(w.head-i+windowParts)%windowParts]; p.marked > 0 {
			p.marked--
			w.sum.marked--
			return
		}
	}
}

func (w *window) clear() {
	w.parts = [windowParts]tally{}
	w.sum = tally{}
}

// share is a fraction in millionths, so that what is compared with it are whole numbers.
type share int64

func shareOf(f float64) share { return share(f*1e6 + 0.5) }

// above reports whether part is more than s of all. A float64 holds the products exactly up to some
// thousand millions, and does not overflow beyond.
func (s share) above(part, all int64) bool { return float64(part)*1e6 > float64(all)*float64(s) }

// below reports whether part is less than s of all.
func (s share) below(part, all int64) bool { return float64(part)*1e6 < float64(all)*float64(s) }

// whole is n as an int, also where that has 32 bits.
func whole(n int64) int { return int(min(n, math.MaxInt)) }
