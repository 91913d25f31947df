package provisioning

import (
	"context"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/transport"
)

// now returns the wall clock: the device's, or the service's if that replaces it. It has no
// monotonic reading.
func (c *Client) now() time.Time {
	if c.keeper != nil {
		return c.keeper.TokenTime(c.clock()).Round(0)
	}
	return c.clock().Time()
}

// clock returns credentials that have the device's clock.
func (c *Client) clock() *transport.Credentials {
	return &transport.Credentials{Now: c.id.Now, Earliest: c.id.Earliest}
}

// clockSet is the earliest time at which tokens are signed, 2000-01-01.
const clockSet = 946684800

// sign makes the login's token.
func (r *registration) sign(l *Login) error {
	id := &r.c.id
	sign := id.signer(r.second)
	if sign == nil {
		return nil
	}
	if err := r.readClock(l); err != nil {
		return err
	}
	token, err := r.c.token(r.ctx, sign, l.Resource(), r.signed.Add(id.TokenLife))
	if err != nil {
		return err
	}
	l.Token, r.expires, r.renew = token, token.Expires, time.Now().Add(id.TokenLife-renewBefore)
	return nil
}

// readClock notes when the login is signed. If the clock is not set, it asks the service for the
// time.
func (r *registration) readClock(l *Login) error {
	r.signed = r.c.now()
	if r.signed.Unix() < clockSet && r.c.keeper != nil {
		if err := r.askTime(l); err != nil {
			return err
		}
		r.signed = r.c.now()
	}
	if r.signed.Unix() < clockSet {
		return &transport.Error{Kind: transport.ClockUnset, Scope: transport.ScopeConnection, Op: transport.OpRegister,
			Err: errors.New("set the clock before registering" + hint(": a token has an expiry time"))}
	}
	return nil
}

// token returns a token that sign has signed.
func (c *Client) token(ctx context.Context, sign func(context.Context, []byte) ([]byte, error), resource string,
	expires time.Time) (transport.Token, error) {
	caught := func(ctx context.Context, text []byte) (mac []byte, err error) {
		err = callback.Call("Identity.Sign", func() (err error) {
			mac, err = sign(ctx, text)
			return err
		})
		return mac, err
	}
	token, err := transport.SignToken(ctx, caught, resource, "registration", expires)
	if err != nil {
		kind := transport.KindOf(err)
		if kind == transport.Unknown {
			kind = transport.Unauthorized
		}
		return transport.Token{}, &transport.Error{Kind: kind, Scope: transport.ScopeConnection, Op: transport.OpRegister,
			Err: errchain.Unasked{Err: &signError{err}}}
	}
	return token, nil
}

// askTime asks the service for its time, by which a token can be signed.
func (r *registration) askTime(l *Login) error {
	return callback.Call("Carrier.AskTime", func() error { return r.c.keeper.AskTime(r.ctx, l) })
}

// signError is the error of a key that did not sign.
type signError struct{ err error }

// keys returns the number of keys.
func (r *registration) keys() int {
	switch {
	case r.c.id.SecondSign != nil:
		return 2
	case r.c.id.Sign != nil:
		return 1
	}
	return 0
}

// clockAtFault reports whether a refused token may be due to a clock that is not set, or is known
// to be behind by more than the life of a token.
func (r *registration) clockAtFault(failure *transport.Error) bool {
	unset := r.c.clock().Implausible(r.signed) ||
		r.c.keeper != nil && r.c.keeper.Outlived(transport.Token{Expires: r.expires})
	return unset && !errchain.IsUnasked(failure)
}

// otherProof reports whether failure is the refusal of a token or a key, and there is another one
// to try at once.
func (r *registration) otherProof(failure *transport.Error) bool {
	return r.otherToken(failure) || r.swapped != r.attempt && r.otherKey(failure)
}

// otherToken reports whether failure is the refusal of a token that would be made by another time
// now, because an answer has told the service's. That is tried once in an attempt.
func (r *registration) otherToken(failure *transport.Error) bool {
	if r.c.keeper == nil || r.corrected == r.attempt || r.keys() == 0 ||
		failure.Kind != transport.Unauthorized && failure.Kind != transport.ClockUnset ||
		!r.c.keeper.Corrected(r.c.clock(), r.signed) {
		return false
	}
	r.corrected = r.attempt
	r.closeSession()
	r.publish(Event{Step: StepClockCorrected, Attempt: r.attempt, Err: failure})
	return true
}

// otherKey reports whether failure is the refusal of a key, and the other key was not refused yet.
// That key is used from then on.
func (r *registration) otherKey(failure *transport.Error) bool {
	if failure.Kind != transport.Unauthorized || r.refused+1 >= r.keys() {
		return false
	}
	r.refused++
	r.swapped = r.attempt
	r.second = !r.second
	r.closeSession()
	r.publish(Event{Step: StepOtherKey, Attempt: r.attempt, Err: failure})
	return true
}
