package agent

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Run asks the Service for updates, installs them and reports, until ctx ends. It returns ctx's
// error, ErrRestart when a Handler asked for a restart, the error of the Store, or one of Kind
// Invalid when Options.Policy, Options.Rand or Service.Wake panicked. A handler that runs is
// cancelled and joined before. An update that Run leaves unfinished goes on with the next Run, also
// after a reset.
func (a *Agent) Run(ctx context.Context) error {
	select {
	case a.running <- struct{}{}:
		defer func() { <-a.running }()
	default:
		return errRunning
	}
	if err := a.take(ctx); err != nil {
		return err
	}
	defer a.give()
	defer a.join()
	err := a.guard(func() error { return a.loop(ctx) })
	if err == ErrRestart { //nolint:errorlint // the value itself
		return err
	}
	a.join()
	a.wentOn(0)                                           // the program lives
	_ = a.guard(func() error { return a.keepAlive(ctx) }) // else this start counts
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// loop is Run while it has the turn.
func (a *Agent) loop(ctx context.Context) error {
	var wake <-chan struct{}
	if w, ok := a.opt.Service.(Waker); ok {
		wake = w.Wake()
	}
	if err := a.resume(ctx); err != nil {
		return err
	}
	a.check.at = time.Now().Add(times.Drawn(min(a.opt.Spread, time.Minute), a.opt.Rand()))
	a.check.notBefore(a.check.least)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if err := a.work(ctx); err != nil {
			return err
		}
		timer.Reset(max(0, time.Until(a.nextCall())))
		a.give()
		var result *outcome
		woken := false
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-a.kick:
		case _, woken = <-wake:
			if !woken { // closed: nothing wakes it again
				wake = nil
			}
		case o := <-a.done:
			result = &o
		}
		a.turn <- struct{}{} // Onboard holds it for a bounded time
		if result != nil {
			a.busy = false
			a.stop()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := a.keepAlive(ctx); err != nil {
			return err
		}
		if woken || a.wasAsked() {
			a.check.soon(time.Now())
		}
		if result != nil {
			if err := a.finished(ctx, result); err != nil {
				return err
			}
		}
	}
}

// wasAsked reports whether Check was called since the latest call of wasAsked.
func (a *Agent) wasAsked() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := a.asked
	a.asked = false
	return asked
}

// work does all that is due: it starts the worker, and calls the Service.
func (a *Agent) work(ctx context.Context) error {
	for {
		if err := a.advance(ctx); err != nil {
			return err
		}
		now := time.Now()
		var err error
		switch {
		case a.hasReport() && !a.report.at.After(now):
			err = a.send(ctx)
		case !a.check.at.After(now):
			err = a.askAgain(ctx)
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// nextCall returns when a call of the Service is due.
func (a *Agent) nextCall() time.Time {
	if a.hasReport() && a.report.at.Before(a.check.at) {
		return a.report.at
	}
	return a.check.at
}

// outcome is what a worker returns.
type outcome struct {
	installed bool
	next      Next
	manifest  *Manifest
	text      []byte // of manifest
	err       error
}

// start runs f as the worker.
func (a *Agent) start(ctx context.Context, f func(ctx context.Context) outcome) {
	child, cancel := lifetime.Within(ctx)
	a.busy, a.dropped, a.stop = true, "", cancel
	a.mu.Lock()
	a.alive, a.have = false, 0
	a.mu.Unlock()
	go func() { // the worker: it ends with f, and Run waits for its outcome
		var o outcome
		o.err = callback.Call("Handler of package agent", func() error {
			o = f(child)
			return o.err
		})
		a.done <- o
	}()
}

// join ends the worker and waits for it. Its phase is done again by the next Run.
func (a *Agent) join() {
	a.next = nil // the service offers it again, and the workflow before it is then dropped again
	if a.busy {
		a.stop()
		<-a.done
		a.busy = false
	}
}

// drop ends the worker, and lets the workflow be undone when it has returned.
func (a *Agent) drop(why string) {
	if a.s.work.phase == PhaseRollback || !a.busy {
		return
	}
	a.dropped = why
	a.stop()
}

// maxSaves is how often the agent tries again to write the state before Run returns.
const maxSaves = 5

// save stores the state. Nothing that depends on it may happen before. The first attempt is made
// even if ctx has ended: an acknowledged report is then not sent again. The memo is left out of a
// state that does not fit into the Store: the Service sends it again after a reset.
func (a *Agent) save(ctx context.Context) error {
	err := a.write(ctx, a.s.encode())
	if transport.KindOf(err) == transport.TooLarge && a.s.memo != (Memo{}) {
		small := a.s
		small.memo = Memo{}
		err = a.write(ctx, small.encode())
	}
	return err
}

// write stores an encoded state.
func (a *Agent) write(ctx context.Context, state []byte) error {
	attempt := func(context.Context) error {
		return callback.Call("Store.Save", func() error { return a.opt.Store.Save(state) })
	}
	err := attempt(ctx)
	if err == nil || transport.KindOf(err) == transport.TooLarge {
		return err
	}
	a.publish(err)
	r := retrypolicy.Retrier{Timeout: -1, Policy: retrypolicy.MaxAttempts{Total: maxSaves, Policy: a.opt.Policy},
		Classify: func(err error) retrypolicy.Info {
			info := retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Safe: retrypolicy.SafeYes}
			if transport.KindOf(err) == transport.TooLarge {
				info.Verdict = retrypolicy.VerdictFail
			}
			return info
		}}
	return r.Do(ctx, attempt)
}
