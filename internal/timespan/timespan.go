// Package timespan bounds the durations that callers set.
package timespan

import "time"

// Most is the longest duration that an option can have: 100 years. The sum of two of them is still
// a time.Duration, so deadlines do not wrap around to the past.
const Most = 100 * 365 * 24 * time.Hour

// Cap returns d, or Most for what is longer, such as 1<<63 - 1, which callers give for no limit.
func Cap(d time.Duration) time.Duration { return min(d, Most) }
