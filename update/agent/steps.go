package agent

import (
	"context"
	"errors"

	"github.com/hubline-iot/hubline/transport"
)

// advance starts the worker for what the current workflow needs next. Without work it begins the
// offer that waits.
func (a *Agent) advance(ctx context.Context) error {
	if a.busy {
		return nil
	}
	if a.s.work == nil && a.restart {
		a.restart = false
		return ErrRestart
	}
	if a.s.work == nil && a.next != nil {
		o := a.next
		a.next = nil
		if err := a.begin(ctx, o); err != nil {
			return err
		}
	}
	w := a.s.work
	if w == nil {
		return nil
	}
	a.publish(nil)
	switch {
	case w.restart:
		return ErrRestart
	case w.phase == PhaseVerify:
		offer := w.offer // another Check may renew its URLs
		if offer.RootKeysURL == "" {
			offer.RootKeysURL = a.s.memo.RootKeysURL
		}
		if a.opt.RootKeys != nil && offer.RootKeysURL == "" && !a.hasHeard() {
			a.start(ctx, func(ctx context.Context) (o outcome) { // the Store may have had no room for the memo
				a.wentOn(0)
				select {
				case <-a.heard:
				case <-ctx.Done():
				}
				return o
			})
			return nil
		}
		a.setURLs(offer.URLs)
		a.start(ctx, func(ctx context.Context) (o outcome) {
			o.manifest, o.text, o.err = a.verify(ctx, &offer, w.before)
			return o
		})
	default:
		a.startStep(ctx, w)
	}
	return nil
}

// startStep starts the method of a Handler.
func (a *Agent) startStep(ctx context.Context, w *workflow) {
	job := a.job(w)
	h := a.handler(&job.Step)
	phase, resumed, starts := w.phase, w.resumed, w.starts
	w.restarted, w.resumed = false, false
	a.setURLs(job.URLs)
	a.start(ctx, func(ctx context.Context) (o outcome) {
		switch phase {
		case PhaseInstalled, PhaseConfirm:
			o.installed, o.err = h.Installed(ctx, job)
		case PhaseDownload:
			o.err = a.retrier().Do(ctx, func(ctx context.Context) error { return h.Download(ctx, job) })
		case PhaseInstall:
			o.next, o.err = h.Install(ctx, job)
		case PhaseApply:
			if resumed { // the power may have failed when all was done
				again := *job
				again.Restarted = false
				if o.installed, o.err = h.Installed(ctx, &again); o.installed || o.err != nil {
					return o
				}
			}
			if starts > maxStarts {
				o.err = errKilled(phase)
				return o
			}
			o.next, o.err = h.Apply(ctx, job)
		case PhaseRollback:
			o.next, o.err = h.Cancel(ctx, job)
		case PhaseIdle, PhaseVerify: // not a step
		}
		return o
	})
}

// job returns the work for the current step.
func (a *Agent) job(w *workflow) *Work {
	s := &w.manifest.Steps[w.step]
	return &Work{WorkflowID: w.offer.WorkflowID, ID: w.manifest.ID, Index: w.step, Step: *s,
		Files: s.files(w.manifest, &w.offer), URLs: w.offer.URLs, Restarted: w.restarted, agent: a,
		have: w.have}
}

var errNotInstalled = errors.New("the update did not come up: it is not installed after the restart")

// finished goes on after the worker has returned.
func (a *Agent) finished(ctx context.Context, o *outcome) error {
	w := a.s.work
	switch {
	case w.phase == PhaseRollback:
		return a.undone(ctx, o)
	case a.dropped != "" && !w.done(o):
		result := Result{Outcome: OutcomeCanceled, Code: CodeFailure, Details: a.dropped}
		if w.phase == PhaseInstalled && o.installed && o.err != nil { // it is on trial
			w.results[w.step] = result
		}
		return a.undo(ctx, result)
	case w.phase == PhaseVerify && o.err != nil:
		return a.end(ctx, failureOf(w.phase, o.err))
	case w.phase == PhaseVerify && o.manifest == nil: // the worker has waited for an answer
		return nil
	case w.phase == PhaseVerify:
		w.manifest, w.offer.Manifest, w.results = o.manifest, o.text, unreached(len(o.manifest.Steps))
		w.offer.Signature, w.offer.RootKeysURL = "", "" // verified, and the Store may be small
		a.news = true
		err := a.enter(ctx, 0, PhaseInstalled)
		if transport.KindOf(err) == transport.TooLarge { // with a manifest that was in a file
			return a.end(ctx, failure(OriginAgentDependency, AreaState, err))
		}
		return err
	case o.err != nil && w.phase == PhaseInstalled && !o.installed: // the step has changed nothing
		return a.failed(ctx, o.err, w.step-1)
	case o.err != nil:
		return a.failed(ctx, o.err, w.step)
	}
	switch w.phase {
	case PhaseInstalled:
		if o.installed {
			return a.stepDone(ctx, Result{Outcome: OutcomeSkipped, Code: CodeSuccess})
		}
		w.results[w.step] = Result{Outcome: OutcomeInProgress, Code: CodeInProgress}
		return a.enter(ctx, w.step, PhaseDownload)
	case PhaseDownload:
		a.news = true
		return a.enter(ctx, w.step, PhaseInstall)
	case PhaseInstall:
		a.news, w.restart = true, o.next == NextRestart
		return a.enter(ctx, w.step, PhaseApply)
	case PhaseApply:
		if o.next == NextRestart {
			w.restart = true
			return a.enter(ctx, w.step, PhaseConfirm)
		}
	case PhaseConfirm:
		if !o.installed {
			return a.failed(ctx, errNotInstalled, w.step)
		}
	case PhaseIdle, PhaseVerify, PhaseRollback: // above
	}
	return a.stepDone(ctx, Result{Outcome: OutcomeSucceeded, Code: CodeSuccess})
}

// done reports whether o ends the last step: there is nothing left that a cancellation could stop.
func (w *workflow) done(o *outcome) bool {
	if w.phase == PhaseVerify || o.err != nil || w.step+1 < len(w.results) {
		return false
	}
	return o.installed || w.phase == PhaseApply && o.next != NextRestart
}

// unreached returns the results of n steps before the first one.
func unreached(n int) []Result {
	results := make([]Result, n)
	for i := range results {
		results[i] = Result{Outcome: OutcomeSkipped, Code: CodeSuccess}
	}
	return results
}

// enter makes phase the next one, also after a reset. Texts for people are left out of a state that
// does not fit into the Store.
func (a *Agent) enter(ctx context.Context, step int, phase Phase) error {
	w := a.s.work
	w.step, w.phase, w.starts, w.have = step, phase, 1, 0
	if w.restart {
		w.starts = 0 // the next start begins it
	}
	err := a.save(ctx)
	if transport.KindOf(err) != transport.TooLarge {
		return err
	}
	w.final.Details = ""
	withoutTexts(w.results)
	return a.save(ctx)
}

func withoutTexts(results []Result) {
	for i := range results {
		results[i].Details = ""
	}
}

// stepDone goes on with the next step, or ends the workflow.
func (a *Agent) stepDone(ctx context.Context, r Result) error {
	w := a.s.work
	w.results[w.step] = r
	if w.step+1 < len(w.results) {
		return a.enter(ctx, w.step+1, PhaseInstalled)
	}
	result := Result{Outcome: OutcomeSkipped, Code: CodeSuccess}
	for i := range w.results {
		if w.results[i].Outcome == OutcomeSucceeded {
			result.Outcome = OutcomeSucceeded
		}
	}
	return a.end(ctx, result)
}

// failed undoes the steps up to last after a failure of the current step.
func (a *Agent) failed(ctx context.Context, err error, last int) error {
	w := a.s.work
	w.final, w.restart = failureOf(w.phase, err), false
	w.results[w.step] = w.final
	return a.undoFrom(ctx, last)
}

// undo undoes the steps that have changed the device, the newest one first. The workflow then ends
// with result.
func (a *Agent) undo(ctx context.Context, result Result) error {
	w := a.s.work
	if w.step < len(w.results) && w.results[w.step].Outcome == OutcomeInProgress {
		w.results[w.step] = result
	}
	w.final, w.restart = result, false
	return a.undoFrom(ctx, w.step)
}

// undoFrom undoes the steps up to the given one.
func (a *Agent) undoFrom(ctx context.Context, step int) error {
	w := a.s.work
	for ; step >= 0; step-- {
		if step < len(w.results) && w.results[step].Outcome != OutcomeSkipped {
			return a.enter(ctx, step, PhaseRollback)
		}
	}
	return a.end(ctx, w.final)
}

// undone goes on after a step was undone, or could not be.
func (a *Agent) undone(ctx context.Context, o *outcome) error {
	w := a.s.work
	if o.err != nil {
		w.final.Extended = append(w.final.Extended, failureOf(PhaseRollback, o.err).Extended...)
	}
	a.restart = a.restart || o.next == NextRestart
	return a.undoFrom(ctx, w.step-1)
}

// end ends the current workflow with a final report.
func (a *Agent) end(ctx context.Context, result Result) error {
	w := a.s.work
	r := Report{WorkflowID: w.offer.WorkflowID, Installed: w.before, Result: result, Steps: w.results}
	if r.Steps == nil {
		r.Steps = unbelieved(&w.offer, result)
	}
	if result.Outcome == OutcomeSucceeded || result.Outcome == OutcomeSkipped {
		r.Installed = w.manifest.ID
		a.s.installed = w.manifest.ID
	}
	a.s.end(r)
	a.news = false
	err := a.save(ctx)
	if transport.KindOf(err) == transport.TooLarge {
		newest := &a.s.reports[len(a.s.reports)-1]
		newest.Result.Details, a.s.latest.Details = "", ""
		withoutTexts(newest.Steps)
		err = a.save(ctx)
	}
	a.publish(nil)
	return err
}

var errOtherAgent = errors.New("the stored update is by a version of the agent with other limits")

// unbelieved returns the results of the steps of an offer that was refused: the service wants one
// for each. Only their number is taken from the manifest. nil: it cannot be read.
func unbelieved(o *Offer, result Result) []Result {
	m, err := ParseManifest(o.Manifest)
	if err != nil {
		return nil
	}
	steps := unreached(len(m.Steps))
	steps[0] = result
	return steps
}

// load prepares the workflow of the stored state.
func (s *state) load() {
	w := s.work
	if w == nil || w.phase == PhaseVerify {
		return
	}
	m, err := ParseManifest(w.offer.Manifest)
	if err != nil || len(m.Steps) != len(w.results) || w.step < 0 || w.step >= len(m.Steps) || w.phase == PhaseIdle {
		s.end(Report{WorkflowID: w.offer.WorkflowID, Result: failure(OriginAgentCore, AreaState, errOtherAgent)})
		return
	}
	w.manifest = m
}

// maxStarts is how many starts of the program in a row may begin a phase without an end of it. It
// is the default of update.Options.Tries, the limit for an image on trial.
const maxStarts = 3

// resume lets the current workflow go on after a restart of the program, or of Run. A phase that
// has ended the program maxStarts times is not begun again: it fails.
func (a *Agent) resume(ctx context.Context) error {
	w := a.s.work
	if w == nil {
		return nil
	}
	if w.phase != PhaseConfirm { // the boot loader, or swap.Start, counts the starts of a trial
		w.starts++
		if err := a.saveStarts(ctx); err != nil {
			return err
		}
	}
	if w.phase != PhaseVerify {
		w.restarted, w.resumed = w.restart, !w.restart || w.starts > 1 // restart stays stored
		w.restart, a.news = false, true
	}
	limit := maxStarts
	if w.phase == PhaseApply { // the last start may have applied it: startStep asks Installed before it fails
		limit = 2 * maxStarts
	}
	if w.starts <= limit {
		return nil
	}
	return a.finished(ctx, &outcome{err: errKilled(w.phase)})
}

func errKilled(phase Phase) error {
	return errors.New("the program ended 3 times in a row in the phase " + phase.String() +
		"; look for a crash in the handler, too little memory, or a watchdog")
}

// wentOn records that the phase has come further, or waits for the network: a later end of the
// program is not the fault of the phase alone. Run stores it.
func (a *Agent) wentOn(have int64) {
	a.mu.Lock()
	a.alive, a.have = true, max(a.have, have)
	a.mu.Unlock()
	a.wake()
}

// keepAlive begins the count of starts anew if the phase went on. The error is the Store's.
func (a *Agent) keepAlive(ctx context.Context) error {
	a.mu.Lock()
	alive, have := a.alive, a.have
	a.alive = false
	a.mu.Unlock()
	w := a.s.work
	if !alive || w == nil || w.starts <= 1 {
		return nil
	}
	w.starts, w.have = 1, max(w.have, have)
	return a.saveStarts(ctx)
}

// saveStarts stores the state. A Store without the room for it keeps the older count.
func (a *Agent) saveStarts(ctx context.Context) error {
	err := a.save(ctx)
	if transport.KindOf(err) == transport.TooLarge {
		return nil
	}
	return err
}
