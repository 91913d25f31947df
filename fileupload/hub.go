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

// post sends one request about uploads to the hub. One try; the answer is a good one. Where the
// token may be why the hub refused, the request goes once more, with another one.
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
		// for the time, which the hub tells to anybody
		ask := transport.KindOf(err) == transport.ClockUnset && !known && !again
		switch {
		case ask:
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
			now = u.clock.Now() // the credentials' clock is none of the reasons
		}
		refusal := hubRefusal(a, now)
		if refusal.Kind != transport.Unauthorized {
			return nil, refusal
		}
		if again || !ask && !u.another(ctx, token, fresh) {
			if u.creds.ClockRefused(made, refusal) || u.creds.Sign != nil && u.clock.Outlived(token) {
				refusal.Kind = transport.ClockUnset
			}
			return nil, refusal
		}
	}
}

// another reports whether there may be a token that the hub takes, when it refused this one. A
// source may have kept one for too long, so it is asked again even for what it just gave.
func (u *Uploader) another(ctx context.Context, refused transport.Token, fresh bool) bool {
	return u.tokens.Refused(ctx, refused, fresh) || u.creds.Token != nil && !refused.Fixed
}

// A notice tells the hub how an upload ended, so that it can tell its back end and give the
// device's place to another.
type notice struct {
	CorrelationID     string `json:"correlationId"`
	IsSuccess         bool   `json:"isSuccess"`
	StatusCode        int    `json:"statusCode"`
	StatusDescription string `json:"statusDescription"`
}
