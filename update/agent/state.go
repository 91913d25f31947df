package agent

// state is what survives a reset.
type state struct {
	memo Memo
	// installed is the update that the agent has installed latest.
	installed UpdateID
	// ended are the workflows that ended latest, the newest one last.
	ended []string
	// latest is the result of the newest one of ended.
	latest Result
	// reports are final and not acknowledged, the oldest one first.
	reports []Report
	work    *workflow // nil: none
}

const (
	maxEnded   = 4
	maxReports = 4
)

// workflow is an update in progress. Its Phase is what is to be done next, or again after a reset.
type workflow struct {
	offer  Offer
	before UpdateID // was installed when it began
	phase  Phase
	step   int
	// restart: the program shall restart before phase.
	restart bool
	// starts is the number of starts of the program in a row that began the phase, did not end it and
	// brought it no further. have is how far the download was there when one of them began: see
	// Work.before.
	starts int
	have   int64
	// results has one result for each step. A step with OutcomeSkipped has not changed the
	// device.
	results []Result
	// final is the result of the update after PhaseRollback.
	final Result

	// The rest is not stored.

	manifest  *Manifest // nil in PhaseVerify
	restarted bool      // the program has restarted because of restart
	resumed   bool      // the program has restarted in phase, without being asked to
}

// seen reports whether the agent has ended the workflow, or works on it.
func (s *state) seen(id string) bool {
	for _, e := range s.ended {
		if e == id {
			return true
		}
	}
	return s.work != nil && s.work.offer.WorkflowID == id
}

// end makes the current workflow an ended one, with a report to send.
func (s *state) end(r Report) {
	s.reports = append(s.reports, r)
	s.ended = append(s.ended, r.WorkflowID)
	s.ended = s.ended[max(0, len(s.ended)-maxEnded):]
	s.latest, s.work = r.Result, nil
}
