package hubtest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// Version is the query of requests with an API version.
const Version = "?api-version=2021-04-12"

// Inbound is the path of the C2D messages of dev-1 over HTTP.
const Inbound = "/devices/dev-1/messages/devicebound"

// BatchType is the content type of a batch of messages over HTTP.
const BatchType = "application/vnd.microsoft.iothub.json"

// A Poster is an HTTP client of package net/http.
type Poster struct {
	T      testing.TB
	Client *http.Client
	Base   string
	Token  string // empty = none
}

// A Reply is an answer with its whole body.
type Reply struct {
	*http.Response
	Text string
}

// NewPoster returns a client that connects with a dial function. With a TLS configuration it uses
// TLS, and HTTP/2 if the hub offers it.
func NewPoster(t testing.TB, dial func(ctx context.Context, network, addr string) (net.Conn, error), config *tls.Config,
	token string) *Poster {
	way := &http.Transport{DialContext: dial, TLSClientConfig: config, ForceAttemptHTTP2: config != nil}
	// Without pings it would never detect a half-open connection.
	way.HTTP2 = &http.HTTP2Config{SendPingTimeout: 3 * time.Second, PingTimeout: 3 * time.Second}
	t.Cleanup(way.CloseIdleConnections)
	p := &Poster{T: t, Client: &http.Client{Transport: way, Timeout: 10 * time.Minute}, Base: "http://hub.example.test",
		Token: token}
	if config != nil {
		p.Base = "https://hub.example.test"
	}
	return p
}

// OverHTTP returns an in-memory client without TLS.
func OverHTTP(t testing.TB, h *testbroker.Hub, d hubdata.Device) *Poster {
	return NewPoster(t, h.Dial(testbroker.PortHTTP), nil, Token(d))
}

// Try sends a request with pairs of header names and values, and reads the whole answer.
func (p *Poster) Try(method, path, body string, header ...string) (Reply, error) {
	r, err := http.NewRequestWithContext(p.T.Context(), method, p.Base+path, strings.NewReader(body))
	require.NoError(p.T, err)
	if p.Token != "" {
		r.Header.Set("Authorization", p.Token)
	}
	for i := 0; i < len(header); i += 2 {
		if r.Header[header[i]] = []string{header[i+1]}; header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	answer, err := p.Client.Do(r)
	if err != nil {
		return Reply{}, err
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	return Reply{answer, string(all)}, err
}

// Do is Try for a request that must get an answer.
func (p *Poster) Do(method, path, body string, header ...string) Reply {
	r, err := p.Try(method, path, body, header...)
	require.NoError(p.T, err)
	return r
}

// Post is Do with the method POST.
func (p *Poster) Post(path, body string, header ...string) Reply {
	return p.Do(http.MethodPost, path, body, header...)
}

// Send posts a message for dev-1, which must be accepted.
func (p *Poster) Send(body string, header ...string) {
	r := p.Post("/devices/dev-1/messages/events"+Version, body, header...)
	require.Equal(p.T, 204, r.StatusCode, r.Text)
}

// Refused checks that a reply is a refusal with a code, in the body and by name in the header.
func (r Reply) Refused(t testing.TB, code int) {
	t.Helper()
	require.Equal(t, code/1000, r.StatusCode, r.Text)
	var outer struct{ Message, ExceptionMessage string }
	require.NoError(t, json.Unmarshal([]byte(r.Text), &outer), r.Text)
	var inner struct {
		ErrorCode    int
		TrackingID   string
		Message      string
		TimestampUTC time.Time
	}
	require.NoError(t, json.Unmarshal([]byte(outer.Message), &inner), outer.Message)
	require.Equal(t, code, inner.ErrorCode, inner.Message)
	require.NotEmpty(t, inner.TrackingID)
	require.NotEmpty(t, inner.Message)
	require.False(t, inner.TimestampUTC.IsZero())
	require.Equal(t, hub.ErrorName(code), r.Header.Get("iothub-errorcode"))
	require.Equal(t, inner.TrackingID, r.Header.Get("x-ms-request-id"))
	require.Equal(t, "application/json; charset=utf-8", r.Header.Get("Content-Type"))
}

// WebWays returns clients of every kind, with the major version of HTTP that they use.
func WebWays(t testing.TB) map[string]func(t *testing.T, h *testbroker.Hub, token string) (*Poster, int) {
	type way = func(t *testing.T, h *testbroker.Hub, token string) (*Poster, int)
	real := func(t *testing.T, h *testbroker.Hub, p testbroker.Port) func(ctx context.Context, network,
		addr string) (net.Conn, error) {
		addr := Listen(t, h, p)
		return func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr.String())
		}
	}
	return map[string]way{
		"memory": func(t *testing.T, h *testbroker.Hub, token string) (*Poster, int) {
			return NewPoster(t, h.Dial(testbroker.PortHTTP), nil, token), 1
		},
		"memory, TLS": func(t *testing.T, h *testbroker.Hub, token string) (*Poster, int) {
			return NewPoster(t, h.Dial(testbroker.PortHTTPS), h.ClientTLS(), token), 2
		},
		"TCP": func(t *testing.T, h *testbroker.Hub, token string) (*Poster, int) {
			return NewPoster(t, real(t, h, testbroker.PortHTTP), nil, token), 1
		},
		"TLS, HTTP/2": func(t *testing.T, h *testbroker.Hub, token string) (*Poster, int) {
			return NewPoster(t, real(t, h, testbroker.PortHTTPS), h.ClientTLS(), token), 2
		},
		"TLS, HTTP/1.1": func(t *testing.T, h *testbroker.Hub, token string) (*Poster, int) {
			p := NewPoster(t, real(t, h, testbroker.PortHTTPS), h.ClientTLS(), token)
			p.Client.Transport.(*http.Transport).ForceAttemptHTTP2 = false
			return p, 1
		},
	}
}

// PolicyToken returns a policy's token for a resource, which is valid for an hour.
func PolicyToken(p hubdata.Policy, sr string) string {
	return Sign(sr, p.PrimaryKey, time.Now().Add(time.Hour).Unix()) + "&skn=" + p.Name
}

// ServiceToken returns a policy's token that is valid for an hour.
func ServiceToken(p hubdata.Policy) string {
	return Sign(url.QueryEscape(p.HostName), p.PrimaryKey, time.Now().Add(time.Hour).Unix()) + "&skn=" + p.Name
}

// BackEnd returns a client of a new policy with the rights.
func BackEnd(t testing.TB, h *testbroker.Hub, rights ...hubdata.Right) *Poster {
	p := AddPolicy(t, h, fmt.Sprint("policy", rights), rights...)
	return NewPoster(t, h.Dial(testbroker.PortHTTP), nil, ServiceToken(p))
}

// Object decodes a body.
func (r Reply) Object(t testing.TB) map[string]any {
	t.Helper()
	require.Equal(t, 200, r.StatusCode, r.Text)
	require.Equal(t, "application/json; charset=utf-8", r.Header.Get("Content-Type"))
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.Text), &v), r.Text)
	return v
}

// RefusedOldForm checks that a reply is a refusal with a code in the older form, which registry and
// twin requests use.
func (r Reply) RefusedOldForm(t testing.TB, code int) {
	t.Helper()
	require.Equal(t, code/1000, r.StatusCode, r.Text)
	name := hub.ErrorName(code)
	require.Equal(t, name, r.Header.Get("iothub-errorcode"))
	var body struct{ Message, ExceptionMessage string }
	require.NoError(t, json.Unmarshal([]byte(r.Text), &body), r.Text)
	require.True(t, strings.HasPrefix(body.Message, "ErrorCode:"+name+";"), body.Message)
	require.Equal(t, "Tracking ID:"+r.Header.Get("x-ms-request-id"), body.ExceptionMessage)
}

// StoreRefused checks that a reply is a refusal of the store, in the body and in the header.
func (r Reply) StoreRefused(t testing.TB, status int, code string) {
	t.Helper()
	require.Equal(t, status, r.StatusCode, r.Text)
	require.Equal(t, code, r.Header.Get("x-ms-error-code"))
	require.Equal(t, "application/xml", r.Header.Get("Content-Type"))
	require.NotEmpty(t, r.Header.Get("x-ms-request-id"))
	var body struct {
		XMLName       xml.Name `xml:"Error"`
		Code, Message string
	}
	require.NoError(t, xml.Unmarshal([]byte(r.Text), &body), r.Text)
	require.Equal(t, code, body.Code)
	require.Contains(t, body.Message, "RequestId:"+r.Header.Get("x-ms-request-id"))
}

// Ended returns the notification that an upload has succeeded.
func Ended(id string) string {
	return fmt.Sprintf(`{"correlationId":%q,"isSuccess":true,"statusCode":201,"statusDescription":"Created"}`, id)
}
