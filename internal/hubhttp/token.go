package hubhttp

import (
	"context"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Tokens makes the tokens of one identity. Each request carries a token, which is renewed before it
// expires, so no connection has to be renewed. It is safe for concurrent use.
type Tokens struct {
	creds *transport.Credentials
	clock *Clock
	limit time.Duration // of the making of a token
	turn  chan struct{} // capacity 1: guards the fields below, also while a token is made

	now     transport.Token
	made    time.Time // start of its life
	renewAt time.Time
}

// life is the fraction of a token's life after which it is renewed.
const life = 0.85

// renewPause is the delay until the next attempt after a failed renewal, while the old token is
// still valid.
const renewPause = 30 * time.Second

// NewTokens returns the Tokens of the identity that creds name. Tokens are made by their clock,
// corrected by c. limit bounds the making of a token.
func NewTokens(creds *transport.Credentials, c *Clock, limit time.Duration) *Tokens {
	return &Tokens{creds: creds, clock: c, limit: limit, turn: make(chan struct{}, 1)}
}

var errSlow = errors.New("the token source gave no token in time")

// Get returns the token to send, the zero Token if none is needed. fresh reports that it was made
// for this call. If the source takes longer than the limit, the error has Kind Timeout.
func (t *Tokens) Get(ctx context.Context) (token transport.Token, fresh bool, err error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return token, false, context.Cause(ctx)
	}
	defer func() { <-t.turn }()
	now, from := t.clock.tokenTimes(t.creds)
	if t.now.Text.Reveal() != "" && (t.renewAt.IsZero() || now.Before(t.renewAt)) {
		return t.now, false, nil
	}
	creds := *t.creds
	creds.Now = func() time.Time { return from }
	limited, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	if token, err = creds.NewToken(limited); err != nil {
		now, _ = t.clock.tokenTimes(t.creds) // the failure may have taken long
		if limited.Err() != nil && ctx.Err() == nil {
			err = &transport.Error{Kind: transport.Timeout, Scope: transport.ScopeConnection, Op: transport.OpDial,
				Proto: Protocol.Name, Err: errSlow}
		}
	}
	switch {
	case err != nil && t.now.Text.Reveal() != "" && now.Before(t.now.Expires):
		t.renewAt = now.Add(renewPause)
		return t.now, false, nil
	case err != nil:
		return token, false, err
	}
	t.now, t.made, t.renewAt = token, from, time.Time{}
	if !token.Fixed && !token.Expires.IsZero() {
		if left := token.Expires.Sub(now); left > 0 {
			t.renewAt = now.Add(time.Duration(life * float64(left)))
		}
	}
	return token, true, nil
}

// Refused records that the hub refused a token, and reports whether another one may be accepted:
// the token was made for an earlier request, or by a clock that has been corrected since. A token
// that cannot be renewed is kept.
func (t *Tokens) Refused(ctx context.Context, token transport.Token, fresh bool) bool {
	if token.Text.Reveal() == "" || token.Fixed {
		return false
	}
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-t.turn }()
	if t.now.Text.Reveal() != token.Text.Reveal() {
		return true // another goroutine has replaced it
	}
	better := !fresh || t.clock.Corrected(t.creds, t.made)
	t.now = transport.Token{}
	return better
}

// Forget discards the token, so that the next request makes a new one. It has no effect while
// another call holds the token.
func (t *Tokens) Forget() {
	select {
	case t.turn <- struct{}{}:
		if !t.now.Fixed {
			t.now = transport.Token{}
		}
		<-t.turn
	default:
	}
}
