package fileupload

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// post sends one upload request to the hub, in one attempt, and returns the answer of status
// success, the only one by which a hub acknowledges that request. If the token may be the reason of
// a refusal, the request is sent once more with another token.
func (u *Uploader) post(ctx context.Context, path string, in any, success int) (*answer, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, &transport.Error{Kind: transport.Invalid, Op: transport.OpSend, Proto: proto, Err: err}
	}
	header := http.Header{"Content-Type": {"application/json; charset=utf-8"}, "Accept": {"application/json"},
		"User-Agent": {u.agent}}
	device := string(texts.AppendEscaped(nil, u.creds.DeviceID))
	target := &url.URL{
		Scheme: u.scheme, Host: dialer.URLHost(u.creds.DialHost()), Path: "/devices/" + u.creds.DeviceID + path,
		RawPath: "/devices/" + device + path, RawQuery: "api-version=" + apiVersion,
	}
	var a *answer
	err = u.tokens.Do(ctx, func(authorization string) (*transport.Error, error) {
		if authorization != "" {
			header.Set("Authorization", authorization)
		}
		sent := time.Now()
		var err error
		r := &request{method: http.MethodPost, target: target, header: header, body: body}
		if a, err = u.try(ctx, u.hub, r); err != nil {
			return nil, err
		}
		u.clock.Learn(a.header, a.tls, sent, time.Now())
		if a.status == success {
			return nil, nil
		}
		now := u.creds.Time()
		if u.creds.Sign != nil {
			now = u.clock.Now() // the credentials' own clock makes no tokens then
		}
		return hubRefusal(a, now), nil
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// A notice tells the hub the outcome of an upload. The hub forwards it to the back end and frees
// the device's slot.
type notice struct {
	CorrelationID     string `json:"correlationId"`
	IsSuccess         bool   `json:"isSuccess"`
	StatusCode        int    `json:"statusCode"`
	StatusDescription string `json:"statusDescription"`
}
