package fault

import (
	"slices"
	"strings"
	"time"
)

// Error says which field of a fault cannot mean what it says, and what to give instead.
type Error struct{ Field, Problem, Fix string }

// Error names the field.
func (e *Error) Error() string { return e.Field + " " + e.Problem + "; " + e.Fix }

// lasting are the kinds with a duration instead of a number of times.
var lasting = []Kind{HalfOpen, Throttle, Absent, Quota}

// Lasts reports whether a kind has a duration instead of a number of times.
func (k Kind) Lasts() bool { return slices.Contains(lasting, k) }

// Check returns an [*Error] for a fault that is unknown or cannot mean what it says; otherwise nil.
func (f *Fault) Check() error {
	name := f.Kind.String()
	const no = "leave it out"
	const most = 1<<16 - 1 // bytes of a string of MQTT
	for _, row := range []struct {
		field   string
		wrong   bool
		problem string
		fix     string
	}{
		{"Kind", f.Kind.Protocols() == 0, "is the unknown " + name, "give one of Kinds"},
		{"After", f.After < 0, "is negative", no},
		{"Probability", !(f.Probability >= 0 && f.Probability <= 1), "is no probability", "give 0 to 1"},
		{"For", f.For < 0, "is negative", no},
		{"RetryAfter", f.RetryAfter < 0, "is negative", no},
		{"Delay", f.Delay < 0, "is negative", no},
		{"Rate", !(f.Rate >= 0), "is no rate", no},
		{"Limit", f.Limit < 0 && f.Kind != Quota, "is negative", no},
		{"Statuses", slices.ContainsFunc(f.Statuses, func(s int) bool { return s != 0 && (s < 200 || s > 599) }),
			"has a status that is none", "give 200 to 599, or 0 for a request that passes"},
		{"Description", len(f.Description) > most, "has more than 65535 bytes, which no packet of MQTT holds", "shorten it"},
		{"ServerReference", len(f.ServerReference) > most, "has more than 65535 bytes, which no packet of MQTT holds",
			"shorten it"},
		{"Text", wrongs[f.Kind] != nil && !slices.Contains(wrongs[f.Kind], f.Text), "means nothing to " + name,
			"give one of: " + strings.Join(wrongs[f.Kind], ", ")},
		{"Times", f.Kind.Lasts() && f.Times > 0, "means nothing to " + name + ", which lasts",
			"give For, or remove the fault"},
		{"Probability", f.Kind.Lasts() && f.Probability > 0, "means nothing to " + name + ", which lasts", no},
		{"For", f.once() && f.For > 0, f.For.Round(time.Millisecond).String() + " ends nothing: " + name + " happens once",
			"give Times too, negative for as long as For"},
	} {
		if row.wrong {
			return &Error{row.field, row.problem, row.fix}
		}
	}
	return nil
}

// once reports whether a fault happens once because nothing else is said.
func (f *Fault) once() bool { return !f.Kind.Lasts() && f.Times == 0 && len(f.Statuses) == 0 }
