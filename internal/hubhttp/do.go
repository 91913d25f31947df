package hubhttp

import (
	"context"

	"github.com/hubline-iot/hubline/transport"
)

// Do makes one request with a token. It calls send with the text of the header Authorization; empty
// means that the request has none. send returns the hub's refusal, or another failure as err; it
// passes the hub's answers to Clock.Learn. err is never followed by another call: a refused request
// that must not be repeated is one.
//
// If another token may be accepted in place of a refused one, Do calls send once more. If a clock
// that is not set makes no token, the first call is without one, because the hub sends its time to
// anybody. A refusal whose cause is the clock becomes ClockUnset. The error is ctx's if ctx ended
// while a token was made.
func (t *Tokens) Do(ctx context.Context, send func(authorization string) (refusal *transport.Error,
	err error)) error {
	for again := false; ; again = true {
		made := t.creds.Time()
		token, fresh, err := t.Get(ctx)
		_, known := t.clock.Skew()
		askTime := transport.KindOf(err) == transport.ClockUnset && !known && !again
		switch {
		case askTime:
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		}
		refusal, err := send(token.Text.Reveal())
		switch {
		case err != nil:
			return err
		case refusal == nil:
			return nil
		case refusal.Kind != transport.Unauthorized:
			return refusal
		case !again && (askTime || t.canReplace(ctx, token, fresh)):
		case t.creds.ClockRefused(made, refusal) || t.creds.Sign != nil && t.clock.Outlived(token):
			own := *refusal
			own.Kind = transport.ClockUnset
			return &own
		default:
			return refusal
		}
	}
}

// canReplace reports whether the hub may accept another token after it refused this one. A token
// source may have cached a token for too long, so it is called again even for a fresh token.
func (t *Tokens) canReplace(ctx context.Context, refused transport.Token, fresh bool) bool {
	return t.Refused(ctx, refused, fresh) || t.creds.Token != nil && !refused.Fixed
}
