package fileupload

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/hubline-iot/hubline/internal/percent"
	"github.com/hubline-iot/hubline/transport"
)

// post sends one upload request to the hub, in one attempt, and returns a successful answer. If the
// token may be the reason of a refusal, the request is sent once more with another token.
func (u *Uploader) post(ctx context.Context, path string, in any) (*answer, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, &transport.Error{Kind: transport.Invalid, Op: transport.OpSend, Proto: proto, Err: err}
	}
	header := http.Header{"Content-Type": {"application/json; charset=utf-8"}, "Accept": {"application/json"},
		"User-Agent": {u.agent}}
	device := string(percent.Append(nil, u.creds.DeviceID))
	target := &url.URL{
		Scheme: u.scheme, Host: u.creds.DialHost(), Path: "/devices/" + u.creds.DeviceID + path,
		RawPath: "/devices/" + device + path, RawQuery: "api-version=" + apiVersion,
	}
	for again := false; ; again = true {
		made := u.creds.Time()
		token, fresh, err := u.tokens.Get(ctx)
		_, known := u.clock.Skew()
		// the hub sends its time without authentication
		askTime := transport.KindOf(err) == transport.ClockUnset && !known && !again
		switch {
		case askTime:
		case err != nil && ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			return nil, err
		case token.Text.Reveal() != "":
			header.Set("Authorization", token.Text.Reveal())
		}
		sent := time.Now()
		a, err := u.try(ctx, u.hub, &request{http.MethodPost, target, header, body})
		if err != nil {
			return nil, err
		}
		u.clock.Learn(a.header, a.tls, sent, time.Now())
		if a.status == http.StatusOK || a.status == http.StatusNoContent {
			return a, nil
		}
		now := u.creds.Time()
		if u.creds.Sign != nil {
			now = u.clock.Now() // the credentials' own clock makes no tokens then
		}
		refusal := hubRefusal(a, now)
		if refusal.Kind != transport.Unauthorized {
			return nil, refusal
		}
		if again || !askTime && !u.canReplaceToken(ctx, token, fresh) {
			if u.creds.ClockRefused(made, refusal) || u.creds.Sign != nil && u.clock.Outlived(token) {
				refusal.Kind = transport.ClockUnset
			}
			return nil, refusal
		}
	}
}

// canReplaceToken reports whether the hub may accept another token after it refused this one. A
// token source may have cached a token for too long, so it is called again even for a fresh token.
func (u *Uploader) canReplaceToken(ctx context.Context, refused transport.Token, fresh bool) bool {
	return u.tokens.Refused(ctx, refused, fresh) || u.creds.Token != nil && !refused.Fixed
}

// A notice tells the hub the outcome of an upload. The hub forwards it to the back end and frees
// the device's slot.
type notice struct {
	CorrelationID     string `json:"correlationId"`
	IsSuccess         bool   `json:"isSuccess"`
	StatusCode        int    `json:"statusCode"`
	StatusDescription string `json:"statusDescription"`
}
