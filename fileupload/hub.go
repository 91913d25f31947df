package fileupload

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"runtime"

	"github.com/hubline-iot/hubline/internal/percent"
	"github.com/hubline-iot/hubline/transport"
)

// post sends one request about uploads to the hub, with a fresh token. One try; the answer is a good one.
func (u *Uploader) post(ctx context.Context, path string, in any) (*answer, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, &transport.Error{Kind: transport.Invalid, Op: transport.OpSend, Proto: proto, Err: err}
	}
	header := http.Header{"Content-Type": {"application/json; charset=utf-8"}, "Accept": {"application/json"}, "User-Agent": {u.agent}}
	token, err := u.creds.NewToken(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	if token.Text != "" {
		header.Set("Authorization", token.Text)
	}
	device := string(percent.Append(nil, u.creds.DeviceID))
	target := &url.URL{
		Scheme: u.scheme, Host: u.creds.DialHost(), Path: "/devices/" + u.creds.DeviceID + path, RawPath: "/devices/" + device + path, RawQuery: "api-version=" + apiVersion,
	}
	a, err := u.try(ctx, u.hub, &request{http.MethodPost, target, header, body})
	switch {
	case err != nil:
		return nil, err
	case a.status != http.StatusOK && a.status != http.StatusNoContent:
		return nil, hubRefusal(a, u.creds.Time())
	}
	return a, nil
}

// A notice tells the hub how an upload ended, so that it can tell its back end and give the device's place to another.
type notice struct {
	CorrelationID     string `json:"correlationId"`
	IsSuccess         bool   `json:"isSuccess"`
	StatusCode        int    `json:"statusCode"`
	StatusDescription string `json:"statusDescription"`
}

// agent is the name that the device gives itself.
func agent(productInfo string) string {
	text := "Hubline (" + runtime.Version() + "; " + runtime.GOOS + "; " + runtime.GOARCH + ")"
	if productInfo != "" {
		text += " " + productInfo
	}
	return text
}
