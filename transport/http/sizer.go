package http

import (
	"cmp"
	"sync"
	"time"
)

// sizer measures the link with the requests of telemetry, and decides by it how messages share
// requests. It belongs to the Transport, so the next session uses what a lost session measured. The
// zero value is for an unknown link. It is safe for concurrent use.
//
// It finds the largest batch body that the link carries fast enough. A client gives up a connection
// on which the oldest message waits too long (Options.Timeout, device.Options.AckTimeout), and each
// message of a batch waits for the whole batch. Without it, a slow link would cut off large batches
// and the session would send them again endlessly.
//
// It also finds from which size on a message goes faster in a request of its own, as bytes: in a
// batch it takes a third more, in base64, and a request costs a round trip. A request of n bytes is
// taken to last fixed + n/rate, by the latest two whose sizes differ enough.
type sizer struct {
	mu     sync.Mutex
	bytes  int // largest body of a batch; 0: initialBatch
	latest struct {
		size int
		took time.Duration
	}
	fixed float64 // seconds
	rate  float64 // bytes a second; 0: not known
	alike int     // requests since two of them measured it
}

const (
	// initialBatch is the initial size. The size doubles when a batch takes less than quickBatch, and
	// is halved when one takes more than slowBatch.
	initialBatch = 32 << 10
	quickBatch   = 3 * time.Second
	slowBatch    = 12 * time.Second
	// ownHeaders is about what the headers of a request take more than those of a batch entry.
	ownHeaders = 400
	// measureAgain is after how many requests of one size the rate is measured again. They cannot
	// contradict it: a request that was slow by chance would decide for as long as all are alone.
	measureAgain = 64
)

// batch returns the largest body of a batch.
func (z *sizer) batch() int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return cmp.Or(z.bytes, initialBatch)
}

// alone reports whether a body of size bytes goes faster in a request of its own.
func (z *sizer) alone(size int) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.rate > 0 && float64(size)/3 > z.fixed*z.rate+ownHeaders
}

// observe learns from a request with a body of size bytes that took this long. accepted is false if
// the request failed, which ends the session.
func (z *sizer) observe(size int, took time.Duration, accepted bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	now := cmp.Or(z.bytes, initialBatch)
	switch {
	case took > slowBatch || !accepted && took > quickBatch:
		if size > minBatch { // smaller bodies are not slow because of their size
			z.bytes = max(min(now, size)/2, minBatch)
		}
	case accepted && took < quickBatch && size > now/4: // small bodies do not measure the link for large ones
		z.bytes = min(2*now, batchBytes)
	}
	if accepted {
		z.measure(size, took)
	}
}

// measure learns fixed and rate. What a request contradicts is forgotten: the link has changed.
func (z *sizer) measure(size int, took time.Duration) {
	seconds, before := took.Seconds(), z.latest
	z.latest.size, z.latest.took = size, took
	if expected := z.fixed + float64(size)/z.rate; z.rate > 0 && max(seconds-expected, expected-seconds) > expected/2 {
		z.rate = 0
	}
	if before.size == 0 || max(size, before.size) < 2*min(size, before.size) {
		if z.alike++; z.alike > measureAgain {
			z.rate = 0
		}
		return
	}
	z.alike = 0
	if rate := float64(size-before.size) / (took - before.took).Seconds(); rate > 0 { // false for NaN
		z.rate, z.fixed = rate, max(seconds-float64(size)/rate, 0)
	}
}
