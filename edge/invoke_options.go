package edge

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// InvokerOptions are the settings of an Invoker. The zero value of each field means its default;
// nil means all defaults.
type InvokerOptions struct {
	// Network configures the connection to the gateway, for example Module.Network of FromEnvironment.
	// Tunnel and WriteTimeout must be unset, or NewInvoker fails with Invalid: HTTPS has no tunnels,
	// and each call has its own limit.
	Network netopt.Options
	// RetryPolicy decides about calls that the callee has certainly not received; see Invoker.Invoke.
	// It decides only about failures that package errfilter lets through. The delay is at least the
	// one that the gateway asked for, up to an hour, at least 10 s to a minute after Throttled, Quota
	// and ClockUnset, and from the second retry on at least 100 ms unless the policy is
	// retrypolicy.Immediately. Nil: retrypolicy.ExponentialBackoffWithJitter{} for at most 4 minutes
	// (retrypolicy.DefaultTimeout).
	RetryPolicy retrypolicy.Policy
	// Rand returns random numbers for RetryPolicy; concurrent calls use it at the same time. Nil:
	// built-in generators.
	Rand func() uint64
	// Margin is added to the two time-outs of a method: so long may a token, a connection and the
	// network take. An attempt that takes longer fails with Timeout, and so does a connection or a
	// token that alone takes longer than Margin. 0: 30 s.
	Margin time.Duration
	// OnRetry is called before the delay of each retry, on the goroutine of Invoke, which it blocks.
	// It must not call Close. Nil: not called.
	OnRetry func(InvokeRetry)
}

// InvokeRetry describes a retry of a call.
type InvokeRetry struct {
	Target Target
	// Method is the method's name.
	Method string
	// Number is 1 for the first retry of this call.
	Number int
	// Delay is the delay before the retry.
	Delay time.Duration
	// Err is the failure that causes the retry.
	Err error
}

const defaultMargin = 30 * time.Second

// resolve returns a copy with the defaults filled in.
func (o *InvokerOptions) resolve() (InvokerOptions, error) {
	var r InvokerOptions
	if o != nil {
		r = *o
	}
	switch {
	case r.Margin < 0:
		return r, invalidInvoker("options: Margin is negative; give a positive duration, or 0 for " + defaultMargin.String())
	case r.Margin == 0:
		r.Margin = defaultMargin
	}
	r.Margin = times.Cap(r.Margin)
	if r.RetryPolicy == nil {
		r.RetryPolicy = retrypolicy.MaxElapsed{Limit: retrypolicy.DefaultTimeout,
			Policy: retrypolicy.ExponentialBackoffWithJitter{}}
	}
	if err := retrypolicy.Validate(r.RetryPolicy); err != nil {
		return r, invalidInvoker("options: RetryPolicy: " + err.Error())
	}
	r.Network.TLS = r.Network.TLS.Clone()
	d := r.dialer()
	if err := d.Resolve(); err != nil {
		e := *transport.Find(err)
		e.Scope, e.Op = transport.ScopeOperation, transport.OpOpen
		return r, &e
	}
	r.Network = d.Network
	return r, nil
}

// dialer returns the dialer of one connection.
func (o *InvokerOptions) dialer() *dialer.Dialer {
	return &dialer.Dialer{Protocol: &hubhttp.Protocol, Network: o.Network, ALPN: []string{"http/1.1"}}
}

func invalidInvoker(text string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpOpen, Proto: hubhttp.Protocol.Name,
		Err: errors.New(text)}
}
