// Package times bounds the durations that callers set, takes parts of them, writes and parses times
// as hubs do, and parses the delays that services ask for. Boards link it without the layouts and
// zones of package time, which cost 15 KB of flash.
package times

import "time"

// Longest is the longest duration of an option: 100 years. The sum of two of them is still a valid
// time.Duration, so deadlines do not wrap around to the past.
const Longest = 100 * 365 * 24 * time.Hour

// Cap returns d, or Longest if d is longer, such as 1<<63 - 1, which callers pass for no limit.
func Cap(d time.Duration) time.Duration { return min(d, Longest) }

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Transfer returns how long a slow link may plausibly need for so many bytes: a second for each
// KiB.
func Transfer(bytes int) time.Duration { return time.Duration(bytes>>10) * time.Second }

// A server of files that sends less than MinProgress bytes within ProgressTime of waiting is given
// up, and is asked again as the policy says: it could hold a download for years otherwise.
const (
	MinProgress  = 1024
	ProgressTime = 2 * time.Minute
)
