// Package hubauth proves a device to its hub over HTTPS: with a token for each request, made by the
// hub's own clock where its answers tell that the device's is wrong.
package hubauth

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Tokens are the tokens of one identity. Each request carries one; it is made anew before it runs
// out, so that no connection has to be renewed. The methods may be called by many goroutines at a
// time.
type Tokens struct {
	creds *transport.Credentials
	clock *Clock
	turn  chan struct{} // capacity 1: held to look at what follows, and while a token is made

	now     transport.Token
	made    time.Time // when its life began
	renewAt time.Time
}

// life is the part of a token's life after which it is renewed.
const life = 0.85

// renewPause is how long a token that could not be renewed, and is valid still, is used before the
// next try.
const renewPause = 30 * time.Second

// NewTokens returns the tokens of the identity that creds name, made by their clock unless c knows
// better.
func NewTokens(creds *transport.Credentials, c *Clock) *Tokens {
	return &Tokens{creds: creds, clock: c, turn: make(chan struct{}, 1)}
}

// Get returns the token to send, the zero Token if none is to be sent. fresh says that it was made
// for this call.
func (t *Tokens) Get(ctx context.Context) (token transport.Token, fresh bool, err error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return token, false, context.Cause(ctx)
	}
	defer func() { <-t.turn }()
	now, from := t.clock.judge(t.creds)
	if t.now.Text.Reveal() != "" && (t.renewAt.IsZero() || now.Before(t.renewAt)) {
		return t.now, false, nil
	}
	creds := *t.creds
	creds.Now = func() time.Time { return from }
	token, err = creds.NewToken(ctx)
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

// Refused says that the hub did not take a token, and reports whether another one may be taken:
// where the token was made earlier, or by a clock that the hub has set right meanwhile. A token
// that cannot be renewed stays what it is.
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
		return true // somebody else was told already
	}
	_, from := t.clock.judge(t.creds)
	better := !fresh || from.Sub(t.made).Abs() > tolerance
	t.now = transport.Token{}
	return better
}

// Forget makes the next request carry a new token, unless one is being made at this moment.
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
