package updates

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"

	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// notApplicable is the origin of everything but a failure.
const notApplicable = "NOT_APPLICABLE"

var (
	outcomes = []updatedata.Outcome{updatedata.OutcomeInProgress, updatedata.OutcomeSucceeded, updatedata.OutcomeFailed,
		updatedata.OutcomeCanceled, updatedata.OutcomeSkipped}
	origins = []string{notApplicable, "ADU_CLOUD_SERVICE", "ADU_MANAGED_RESOURCE", "AGENT_CORE", "AGENT_EXTENSION",
		"AGENT_DEPENDENCY", "DEVICE", "OTHER"}
	extendedPattern = regexp.MustCompile(`^(0[xX])?[0-9a-fA-F]{1,8}(,(0[xX])?[0-9a-fA-F]{1,8})*$`)
)

const (
	maxExtended   = 1024
	maxDetails    = 1024
	maxStepResult = 100 // no update has so many steps
	maxReports    = 100 // of a workflow, the newest
)

// readReport parses the body of a report.
func readReport(body []byte) (r updatedata.Report, bad *Error) {
	o, bad := parse(body)
	if bad != nil {
		return r, bad
	}
	r.WorkflowID = o.text("workflowId", 1, maxWorkflowID)
	r.Installed = o.updateID("installedUpdateId")
	result := o.object("installResult", false)
	r.Result = result.result()
	if _, ok := result.tree["stepResults"]; ok {
		r.Steps = result.object("stepResults", false).steps()
	}
	if *o.bad == nil && r.Result.Outcome == updatedata.OutcomeInProgress && r.Steps != nil {
		result.fail("stepResults", "is there, but the update is in progress; leave it out")
	}
	return r, *o.bad
}

// result reads an object as a result.
func (o object) result() updatedata.Result {
	r := updatedata.Result{
		Outcome: updatedata.Outcome(o.text("outcome", 1, 64)), Origin: o.text("failureOrigin", 1, 64),
		Code: o.integer("resultCode"), Extended: o.text("extendedResultCodes", 1, maxExtended),
		Details: o.text("resultDetails", 0, maxDetails),
	}
	switch {
	case *o.bad != nil:
	case !slices.Contains(outcomes, r.Outcome):
		o.fail("outcome", "is %q; give one of: %v", r.Outcome, outcomes)
	case !slices.Contains(origins, r.Origin):
		o.fail("failureOrigin", "is %q; give one of: %v", r.Origin, origins)
	case (r.Outcome == updatedata.OutcomeFailed) == (r.Origin == notApplicable):
		o.fail("failureOrigin", "is %s although the outcome is %s", r.Origin, r.Outcome)
	case !extendedPattern.MatchString(r.Extended):
		o.fail("extendedResultCodes", "is %q; give hexadecimal numbers of 32 bits with commas between", r.Extended)
	}
	return r
}

// steps reads an object as the results of steps, which are named step_0 and so on. Each must be
// complete: its problems have the number of an incomplete report.
func (o object) steps() []updatedata.Result {
	all := []updatedata.Result{}
	if *o.bad != nil {
		return all
	}
	for i := range min(len(o.tree), maxStepResult) {
		one := o.object(fmt.Sprintf("step_%d", i), false).result()
		if *o.bad == nil && !one.Outcome.Terminal() {
			o.fail(fmt.Sprintf("step_%d.outcome", i), "is %s in a final report", one.Outcome)
		}
		all = append(all, one)
	}
	if *o.bad == nil && len(o.tree) > maxStepResult {
		o.fail("", "has %d members", len(o.tree))
	}
	if *o.bad != nil {
		(*o.bad).Number = numberIncomplete
	}
	return all
}

// Report records a report of a device. It returns the body of the answer.
func (s *Service) Report(id string, body []byte) ([]byte, updatedata.Report, *Error) {
	r, bad := readReport(body)
	if bad == nil {
		bad = s.Record(id, r)
	}
	return []byte("{}"), r, bad
}

// Record records a report of a device.
func (s *Service) Record(id string, r updatedata.Report) *Error {
	bad := s.record(id, r)
	s.changed()
	return bad
}

func (s *Service) record(id string, r updatedata.Report) *Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deviceLocked(id)
	w := d.workflow(r.WorkflowID)
	if w == nil {
		return refusef(updatedata.CodeUnknownWorkflow, "workflowId", "workflow %q was not offered to this device",
			r.WorkflowID)
	}
	if bad := s.checkStepsLocked(w, &r); bad != nil {
		return bad
	}
	if n := len(w.Reports); n > 0 {
		last := w.Reports[n-1]
		r.Received = last.Received
		switch {
		case reflect.DeepEqual(last, r):
			w.Repeated++
			return nil
		case !last.Result.Outcome.Terminal():
		case w.Outcome() == updatedata.OutcomeSucceeded && r.Result.Outcome == updatedata.OutcomeSkipped:
		default:
			return refusef(updatedata.CodeReportConflict, "installResult.outcome",
				"workflow %q is reported as %s already", r.WorkflowID, last.Result.Outcome)
		}
	}
	s.addReportLocked(w, r)
	if r.Installed != (updatedata.UpdateID{}) {
		d.data.Installed = r.Installed
	}
	return nil
}

// addReportLocked adds a report to a workflow, which keeps the newest.
func (s *Service) addReportLocked(w *updatedata.Workflow, r updatedata.Report) {
	r.Received = s.o.Now()
	if n := len(w.Reports); n >= maxReports {
		w.Reports = w.Reports[n-maxReports+1:]
	}
	w.Reports = append(slices.Clip(w.Reports), r)
}

// checkStepsLocked checks that the results of steps, if there are any, are those of all steps. A
// device that could not read the manifest has none.
func (s *Service) checkStepsLocked(w *updatedata.Workflow, r *updatedata.Report) *Error {
	release := s.releases[w.Update]
	if release == nil || r.Steps == nil || len(r.Steps) == len(release.update.Steps) {
		return nil
	}
	return refusef(updatedata.CodeInvalidRequest, "installResult.stepResults",
		"installResult.stepResults has %d members, the update has %d steps", len(r.Steps),
		len(release.update.Steps)).numbered(numberIncomplete)
}
