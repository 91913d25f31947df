package fleet

import "time"

// counter is what a run counts over time.
type counter uint8

const (
	cAttempt counter = iota
	cAccepted
	cRejected
	cRefused
	cTimedOut
	cRegistration // answered, which is also accepted or rejected
	cUp
	cDown
	cGenerated
	cAcknowledged
	cOverflow

	counters // number of counters
)

// counterOf is the counter of each end of an attempt.
var counterOf = [outcomes]counter{
	accepted: cAccepted, registered: cAccepted, refused: cRefused, silent: cTimedOut, unavailable: cRejected,
	dropped: cTimedOut, late: cTimedOut, connectRefused: cRejected, registerRefused: cRejected,
}

// tally is the counts of one worker. Sums do not depend on the order, so neither does the result.
type tally struct {
	bin     int64 // nanoseconds
	series  [counters][]int64
	seconds []int64 // attempts in each second, whatever the bins

	events     int64
	bytes      int64
	radioOn    int64 // microseconds
	promotions int64
}

func newTally(bin, duration int64) *tally {
	t := &tally{bin: bin, seconds: make([]int64, (duration+second-1)/second)}
	for i := range t.series {
		t.series[i] = make([]int64, (duration+bin-1)/bin)
	}
	return t
}

const second = int64(time.Second)

// attempted counts an attempt that begins at time at, which is before the end.
func (t *tally) attempted(at int64) {
	t.count(cAttempt, at, 1)
	t.seconds[at/second]++
}

// count counts n at time at. What happens after the end is not counted.
func (t *tally) count(c counter, at int64, n int64) {
	if i := at / t.bin; i < int64(len(t.series[c])) {
		t.series[c][i] += n
	}
}

// add adds the counts of another worker.
func (t *tally) add(o *tally) {
	for c := range t.series {
		for i, n := range o.series[c] {
			t.series[c][i] += n
		}
	}
	for i, n := range o.seconds {
		t.seconds[i] += n
	}
	t.events += o.events
	t.bytes += o.bytes
	t.radioOn += o.radioOn
	t.promotions += o.promotions
}

// sum returns the total of a counter.
func (t *tally) sum(c counter) int64 { return sum(t.series[c]) }

func sum(list []int64) (n int64) {
	for _, v := range list {
		n += v
	}
	return n
}
