package compat

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// The AWS SDKs have their own classes of failures. Here each class is a transport.Kind:
//
//	throttling                        Throttled
//	transient: connection, time-out   Network, Timeout
//	server side                       Unavailable, and every other Kind
//	retryable client side             Conflict
//
// A delay or a cost "for throttling" applies to Throttled alone.
const throttling = retrypolicy.KindSet(1 << transport.Throttled)

// AWSOptions configures the standard retry mode that the AWS SDKs share. AWSPreset.Options returns
// published settings.
type AWSOptions struct {
	// Attempts is the highest number of attempts, the first included.
	Attempts int
	// SafeOnly retries only after failures with retrypolicy.SafeYes. Otherwise all failures but SafeNo
	// are retried.
	SafeOnly bool
	// Backoff computes the delays.
	Backoff retrypolicy.Policy
	// Throttled computes the delays after Throttled. Nil: Backoff.
	Throttled retrypolicy.Policy
	// Over is by how much the service's delay may exceed the computed one, which it replaces if it is
	// longer; math.MaxInt64: any. 0: it is ignored, except that a negative one always ends the series.
	Over time.Duration
	// Quota is shared by all operations under the policy. Nil: none.
	Quota *budget.QuotaOptions
}

// NewAWS returns the policy that o describes; nil means AWSStandard. It checks in this order:
// whether a retry is safe, whether attempts are left, the delay, and last the quota.
//
// The quota belongs to the policy: create one policy per client, host or tenant (see budget.PerKey)
// and use it for all operations there. Errors are of Kind Invalid.
func NewAWS(o *AWSOptions) (retrypolicy.Policy, error) {
	if o == nil {
		o = AWSStandard.Options()
	}
	p := o.Backoff
	if p == nil {
		return nil, kit.Invalid("AWSOptions.Backoff is nil; start from a preset such as AWSStandard")
	}
	if o.Throttled != nil {
		p = retrypolicy.ByKind{Rules: []retrypolicy.Rule{{Kinds: throttling, Policy: o.Throttled}}, Default: p}
	}
	if o.Over != 0 {
		p = retrypolicy.RetryAfter{Over: o.Over, Policy: p}
	}
	if o.Quota != nil {
		q, err := budget.NewQuota(o.Quota)
		if err != nil {
			return nil, err
		}
		p = q.Wrap(p)
	}
	p = retrypolicy.MaxAttempts{Total: o.Attempts, Policy: p}
	if o.SafeOnly {
		p = retrypolicy.SafeOnly{Policy: p}
	}
	if err := retrypolicy.Validate(p); err != nil {
		return nil, err
	}
	return p, nil
}

// AWSMode returns the policy of a retry mode by its name in the configuration of the SDKs,
// standard, adaptive or legacy, as boto3's retries={"mode": ..., "total_max_attempts": ...} does
// (its max_attempts counts retries). attempts counts the first attempt too; 0 is the default of the
// mode. Errors are of Kind Invalid.
func AWSMode(mode string, attempts int) (retrypolicy.Policy, error) {
	o := AWSStandard.Options()
	switch mode {
	case "standard", "adaptive":
	case "legacy":
		o = AWSLegacy.Options()
	default:
		return nil, kit.Invalid("AWSMode " + mode + " is not known; give standard, adaptive or legacy")
	}
	if attempts != 0 {
		o.Attempts = attempts
	}
	p, err := NewAWS(o)
	if err != nil || mode != "adaptive" {
		return p, err
	}
	return budget.NewAdaptive().Wrap(p), nil
}
