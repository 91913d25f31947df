package update

import (
	"strconv"

	"github.com/hubline-iot/hubline/transport"
)

// Phase is where an update stands.
type Phase uint8

// Phases.
const (
	PhaseIdle        Phase = iota // no update
	PhaseDownloading              // part of the image is in the other slot
	PhaseReady                    // the image is complete and verified; the next start tries it
	PhaseTrying                   // the new image runs, and is not confirmed
)

var phases = [...]string{"idle", "downloading", "ready", "trying"}

// String returns the name, such as "downloading".
func (p Phase) String() string { return nameIn(phases[:], int(p)) }

// Outcome is how the latest update ended.
type Outcome uint8

// Outcomes.
const (
	OutcomeNone       Outcome = iota // there was none, or one has begun
	OutcomeUpdated                   // the new image was confirmed
	OutcomeRolledBack                // the new image did not confirm itself in its starts, or decayed after that
	OutcomeRejected                  // the program gave the image up
	OutcomeCorrupt                   // the image does not have the hash of its manifest
)

var outcomes = [...]string{"none", "updated", "rolledBack", "rejected", "corrupt"}

// String returns the name, such as "rolledBack".
func (o Outcome) String() string { return nameIn(outcomes[:], int(o)) }

func nameIn(names []string, i int) string {
	if i >= len(names) {
		return "unknown"
	}
	return names[i]
}

// Status is the state of an update for people and back ends.
type Status struct {
	Phase   Phase
	Outcome Outcome
	// Running is the version of the image that runs, Next that of the image in the other slot.
	Running, Next uint32
	// Slot is that of the confirmed image. The next download goes to the other one.
	Slot int
	// Done of Size bytes are in the other slot.
	Done, Size int64
	// Tries is the number of starts that the new image has left.
	Tries int
	// Err is the latest failure of Download, also while it retries.
	Err error
}

func (s *state) status(err error) Status {
	st := Status{Phase: s.phase, Outcome: s.outcome, Running: s.proven().Version, Next: s.next().Version,
		Slot: int(s.active), Done: s.done, Size: s.next().Size, Tries: int(s.tries), Err: err}
	if s.phase == PhaseTrying {
		st.Running = s.next().Version
	}
	return st
}

// AppendJSON appends the status as a JSON object, for a reported property. It has the kind of Err
// and not its text.
func (s *Status) AppendJSON(b []byte) []byte {
	b = append(b, `{"phase":"`+s.Phase.String()+`","outcome":"`+s.Outcome.String()+`","running":`...)
	b = strconv.AppendUint(b, uint64(s.Running), 10)
	b = append(b, `,"next":`...)
	b = strconv.AppendUint(b, uint64(s.Next), 10)
	b = append(b, `,"slot":`...)
	b = strconv.AppendInt(b, int64(s.Slot), 10)
	percent := int64(0)
	if s.Size > 0 {
		percent = s.Done * 100 / s.Size
	}
	b = append(b, `,"percent":`...)
	b = strconv.AppendInt(b, percent, 10)
	b = append(b, `,"error":`...)
	if s.Err == nil {
		return append(b, `null}`...)
	}
	return append(b, `"`+transport.KindOf(s.Err).String()+`"}`...)
}
