// Package eventhub is the core of an endpoint compatible with Event Hubs: partitions that number
// events, the positions at which readers start, and the rules by which readers of a consumer group
// exclude each other. It knows no protocol and no hub.
package eventhub

import "fmt"

// A Reason says why a reader is refused or ended.
type Reason uint8

// The reasons.
const (
	NotFound    Reason = iota + 1 // no such event hub or consumer group
	OutOfRange                    // no such partition
	BadArgument                   // a filter or position that cannot be used
	GeoOffset                     // an offset of a hub with geo-replication
	TooMany                       // too many readers of a group
	Stolen                        // a reader with an epoch excludes this one
)

// An Error refuses or ends a reader.
type Error struct {
	Reason Reason
	text   string
}

// Error returns the text for the client.
func (e *Error) Error() string { return e.text }

func errorf(r Reason, format string, args ...any) *Error {
	return &Error{r, fmt.Sprintf(format, args...)}
}
