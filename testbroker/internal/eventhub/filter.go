package eventhub

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

// By is what a start position refers to.
type By uint8

// The kinds of start positions.
const (
	Earliest By = iota // the oldest kept event
	Latest             // events from now on
	Offset
	Sequence
	Time // milliseconds since 1970
)

// A Start is the position at which a reader starts. The zero value is the oldest kept event.
type Start struct {
	By        By
	Value     int64
	Inclusive bool // at the value; otherwise after it
}

// after returns 1 if the event at the value is not wanted.
func (s Start) after() int64 {
	if s.Inclusive {
		return 0
	}
	return 1
}

// FilterName is the key of the selector filter in the source of a link.
const FilterName = "apache.org:selector-filter:string"

// maxFilter is the length limit of a filter in bytes.
const maxFilter = 256

// selector is the form of a filter. Most clients quote the value.
var selector = regexp.MustCompile(`^\s*amqp\.annotation\.([a-z-]+)\s*(>=?)\s*('[^']*'|[^'\s]+)\s*$`)

// annotations maps the annotations that a filter may name to what they mean.
var annotations = map[string]By{
	"x-opt-offset":          Offset,
	"x-opt-sequence-number": Sequence,
	"x-opt-enqueued-time":   Time,
	"x-opt-enqueuedtimeutc": Time, // older clients
}

// words are the values of an offset that are no numbers of events.
var words = map[string]By{"-1": Earliest, "@latest": Latest}

// ParseFilter parses a selector filter such as amqp.annotation.x-opt-offset > '-1'.
func ParseFilter(text string) (Start, *Error) {
	if len(text) > maxFilter {
		return Start{}, errorf(BadArgument, "filter of %d bytes, at most %d are allowed", len(text), maxFilter)
	}
	part := selector.FindStringSubmatch(text)
	by := Earliest
	if part != nil {
		by = annotations[part[1]]
	}
	if by == Earliest {
		return Start{}, errorf(BadArgument, "filter %q: want amqp.annotation. with x-opt-offset, x-opt-sequence-number or "+
			"x-opt-enqueued-time, then > or >= and a value", text)
	}
	value := strings.Trim(part[3], "'")
	if word, ok := words[value]; ok && by != Time {
		return Start{By: word}, nil
	}
	if by == Offset && strings.Contains(value, ":") {
		return Start{}, errorf(GeoOffset, "filter %q: the hub is not replicated and has no offsets of that form", text)
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/2 {
		return Start{}, errorf(BadArgument, "filter %q: the value must be a whole number from 0 on", text)
	}
	return Start{By: by, Value: n, Inclusive: part[2] == ">="}, nil
}
