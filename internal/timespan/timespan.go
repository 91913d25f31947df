// Package timespan bounds the durations that callers set, and takes parts of them.
package timespan

import "time"

// Most is the longest duration of an option: 100 years. The sum of two of them is still a valid
// time.Duration, so deadlines do not wrap around to the past.
const Most = 100 * 365 * 24 * time.Hour

// Cap returns d, or Most if d is longer, such as 1<<63 - 1, which callers pass for no limit.
func Cap(d time.Duration) time.Duration { return min(d, Most) }
