package dpscert

import (
	"context"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/internal/attempt"
	"github.com/hubline-iot/hubline/transport"
)

// registration is a request to the provisioning service.
type registration struct {
	request  *request
	attempts *provisioning.Attempts
}

// fromService makes one attempt to get a certificate by a registration. The error of one that may
// go on has a retryable Kind, and the delay that the policy of the registrar asks for. It waits as
// cfg says.
func (r *Renewer) fromService(ctx context.Context, cfg *transport.Config) (*provisioning.Assignment, error) {
	if !r.clockSet(r.now()) {
		return nil, errClock
	}
	if r.service == nil {
		q, err := r.newRequest(ctx, r.opt.Registrar.Login().DeviceID)
		if err != nil {
			return nil, err
		}
		c, err := r.opt.Registrar.WithCSR(q.csr)
		if err != nil {
			return nil, err
		}
		r.service = &registration{q, c.Attempts()}
	}
	if err := attempt.Wait(ctx, cfg, r.service.attempts.Spread()); err != nil {
		return nil, err
	}
	a, retry, err := r.service.attempts.Next(ctx)
	if err != nil && retry >= 0 {
		failure := *failureOf(ctx, err)
		failure.RetryAfter = max(failure.RetryAfter, retry)
		if !errfilter.Of(&failure).Retry {
			failure.Kind = transport.Unavailable
		}
		return nil, &failure
	}
	q := r.service.request
	r.service = nil
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.twin++
	r.mu.Unlock()
	if len(a.Chain) == 0 {
		return nil, errNotIssued
	}
	cert, err := Check(a.Chain, q.key, q.name, r.now())
	if err != nil { // another registration may reset the twin for nothing
		failure := *failureOf(ctx, err)
		failure.RetryAfter = min(uselessDelay<<min(r.useless, maxDoublings), times.MaxRetryAfter)
		r.useless++
		return nil, &failure
	}
	r.useless = 0
	return a, r.adopt(ctx, hold(cert, q.keyName))
}

const (
	// uselessDelay is the delay after the first useless chain. Each further one doubles it.
	uselessDelay = time.Minute
	maxDoublings = 6
)

var errNotIssued = &transport.Error{Kind: transport.Unsupported, Op: transport.OpIssue,
	Err: errors.New("the enrollment issues no certificates; link it to a certificate authority, or check the " +
		"APIVersion of the registrar")}

var errClock = &transport.Error{Kind: transport.ClockUnset, Op: transport.OpRegister,
	Err: errors.New("set the clock before requesting a certificate: it has a beginning and an end")}
