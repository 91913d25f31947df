package agent

import (
	"context"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/transport"
)

// hasReport reports whether there is something to send.
func (a *Agent) hasReport() bool { return len(a.s.reports) > 0 || a.news && a.s.work != nil }

// send sends the oldest final report, or else how the current workflow stands.
func (a *Agent) send(ctx context.Context) error {
	var r Report
	if len(a.s.reports) > 0 {
		r = a.s.reports[0]
	} else {
		r = Report{WorkflowID: a.s.work.offer.WorkflowID, Installed: a.s.work.before,
			Result: Result{Outcome: OutcomeInProgress, Code: CodeInProgress}}
	}
	over, err := a.try(ctx, &a.report, func(ctx context.Context) error { return a.opt.Service.Report(ctx, &r) })
	if over && (err == nil || isVerdict(err)) {
		a.report.at = time.Now()
		if !r.Final() {
			a.news = false
		} else {
			a.s.reports = a.s.reports[1:]
			if saveErr := a.save(ctx); saveErr != nil {
				return saveErr
			}
			if r.Result.Outcome == OutcomeSucceeded {
				a.check.soon(time.Now()) // updates may be chained
			}
		}
	}
	a.publish(err)
	return ctx.Err()
}

// isVerdict reports whether a refusal is about the report itself. Other failures, such as of the
// connection, or of a device that is disabled for a time, leave it to be sent later.
func isVerdict(err error) bool {
	e := transport.Find(err)
	if e == nil || e.Scope != transport.ScopeOperation {
		return false
	}
	switch e.Kind {
	case transport.Conflict, transport.Invalid, transport.NotFound, transport.TooLarge, transport.Unsupported:
		return true
	default:
		return false
	}
}

// failure returns the result for err, which concerns area.
func failure(origin Origin, area Area, err error) Result {
	own := uint32(0)
	if step, ok := errchain.First(err, isStepError).(*StepError); ok && step != nil {
		own = step.Code
	}
	return Result{Outcome: OutcomeFailed, Origin: origin, Code: CodeFailure, Extended: []uint32{area.Code(own)},
		Details: details(err)}
}

func isStepError(err error) bool {
	_, ok := err.(*StepError)
	return ok
}

// details returns the text of err for a report.
func details(err error) string {
	text := peerText(err.Error())
	return text[:min(len(text), MaxDetails)]
}

// failureOf returns the result of a phase that failed with err.
func failureOf(phase Phase, err error) Result {
	switch {
	case phase == PhaseVerify:
		return failure(OriginCloudService, AreaManifest, err)
	case errors.Is(err, ErrHash) || errors.Is(err, errShort) || errors.Is(err, errLong):
		return failure(OriginManagedResource, AreaHash, err)
	case phase == PhaseDownload && transport.Find(err) != nil:
		return failure(OriginManagedResource, AreaDownload, err)
	}
	return failure(OriginAgentExtension, areas[phase], err)
}

// areas says what fails in a phase.
var areas = [...]Area{
	PhaseIdle: AreaInternal, PhaseVerify: AreaManifest, PhaseInstalled: AreaInstall, PhaseDownload: AreaDownload,
	PhaseInstall: AreaInstall, PhaseApply: AreaApply, PhaseConfirm: AreaApply, PhaseRollback: AreaRestore,
}
