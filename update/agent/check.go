package agent

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// ask calls Service.Check. The answer is within the limits.
func (a *Agent) ask(ctx context.Context, onboarding bool) (*Answer, error) {
	answer, err := a.opt.Service.Check(ctx, &Query{Onboarding: onboarding, Installed: a.installed(),
		Profile: a.opt.Profile, Properties: a.opt.Properties, Memo: a.s.memo})
	if err != nil || answer == nil {
		return new(Answer), err
	}
	m := answer.Memo
	if len(m.AgentInfoETag) > MaxETag || len(m.ConfigETag) > MaxETag || len(m.RootKeysURL) > MaxURL {
		return nil, errMemo
	}
	if o := answer.Offer; o != nil && (o.WorkflowID == "" || len(o.WorkflowID) > MaxWorkflowID) {
		return nil, errWorkflowID
	}
	return answer, nil
}

// askAgain makes the regular Check.
func (a *Agent) askAgain(ctx context.Context) error {
	var answer *Answer
	waiting := a.waitingForURLs()
	over, err := a.try(ctx, &a.check, func(ctx context.Context) (err error) {
		answer, err = a.ask(ctx, false)
		return err
	})
	if over && err == nil {
		a.check.at = time.Now().Add(a.pause())
		if err := a.answered(ctx, answer); err != nil {
			return err
		}
		a.letGo(waiting)
	}
	a.publish(err)
	return ctx.Err()
}

// maxRetryAfter bounds what a Service can ask for.
const maxRetryAfter = 24 * time.Hour

var (
	errWorkflowID = fault(transport.Protocol, "the service offers a workflow whose id is empty or has more than 128 bytes")
	errMemo       = fault(transport.Protocol, "the service sent an etag or URL that is too long")
)

// answered does what an answer says. The error is the Store's.
func (a *Agent) answered(ctx context.Context, answer *Answer) error {
	a.check.notBefore(time.Now().Add(min(answer.RetryAfter, maxRetryAfter)))
	if answer.Memo != a.s.memo {
		a.s.memo = answer.Memo
		if err := a.save(ctx); err != nil && transport.KindOf(err) != transport.TooLarge {
			return err
		}
	}
	if !a.hasHeard() {
		close(a.heard)
	}
	if answer.Cancel != "" {
		if err := a.cancelled(ctx, answer.Cancel); err != nil {
			return err
		}
	}
	if answer.Offer == nil {
		return nil
	}
	return a.offered(ctx, answer.Offer)
}

// hasHeard reports whether the Service has answered since New.
func (a *Agent) hasHeard() bool {
	select {
	case <-a.heard:
		return true
	default:
		return false
	}
}

// cancelled takes a workflow back. One that is unknown, because the Store is another one, is over
// already. The error is the Store's.
func (a *Agent) cancelled(ctx context.Context, id string) error {
	switch {
	case a.next != nil && a.next.WorkflowID == id:
		a.next = nil
	case a.s.work != nil && a.s.work.offer.WorkflowID == id:
		a.drop("cancelled by the service")
	case a.s.work == nil && !a.s.seen(id) && len(a.s.reports) < maxReports && len(id) <= MaxWorkflowID:
		before := a.s
		a.s.end(Report{WorkflowID: id, Installed: a.installed(), Result: Result{Outcome: OutcomeCanceled, Code: CodeFailure}})
		err := a.save(ctx)
		if transport.KindOf(err) == transport.TooLarge {
			a.s = before // the service asks again
			return nil
		}
		return err
	}
	return nil
}

// offered begins the workflow of an offer that is new, and drops the one before it.
func (a *Agent) offered(ctx context.Context, o *Offer) error {
	id := o.WorkflowID
	switch {
	case a.next != nil && a.next.WorkflowID == id:
		a.next = o
		return nil
	case a.s.work != nil && a.s.work.offer.WorkflowID == id:
		return a.renew(ctx, o)
	case a.s.seen(id):
		return nil
	case len(a.s.reports) == maxReports || a.s.work != nil && len(a.s.reports) == maxReports-1:
		return nil // no room for its report; the service offers it again
	case a.s.work != nil:
		a.next = o
		a.drop("replaced by another update")
		return nil
	}
	return a.begin(ctx, o)
}

// begin makes the offer the current workflow.
func (a *Agent) begin(ctx context.Context, o *Offer) error {
	w := &workflow{offer: *o, phase: PhaseVerify, before: a.installed()}
	a.s.work = w
	if err := o.checkSize(); err != nil {
		w.offer = Offer{WorkflowID: o.WorkflowID}
		return a.end(ctx, failure(OriginCloudService, AreaManifest, err))
	}
	err := a.save(ctx)
	if transport.KindOf(err) == transport.TooLarge {
		w.offer = Offer{WorkflowID: o.WorkflowID}
		return a.end(ctx, failure(OriginAgentDependency, AreaState, err))
	}
	return err
}

// checkSize refuses an offer that is beyond the limits.
func (o *Offer) checkSize() error {
	urls := 0
	for id, url := range o.URLs {
		urls += len(id) + len(url)
		if len(url) > MaxURL {
			return fault(transport.TooLarge, "offer: a URL has more than 4096 bytes")
		}
	}
	switch {
	case len(o.Manifest) > MaxManifest:
		return fault(transport.TooLarge, "offer: the manifest has more than 64 KB")
	case len(o.Signature) > MaxSignature:
		return fault(transport.TooLarge, "offer: the signature has more than 8 KB")
	case len(o.URLs) > maxItems || urls > MaxManifest:
		return fault(transport.TooLarge, "offer: the URLs are more than 256, or have more than 64 KB")
	case len(o.RootKeysURL) > MaxURL:
		return fault(transport.TooLarge, "offer: RootKeysURL has more than 4096 bytes")
	}
	return nil
}
