package web

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// A Request is a request with a known route.
type Request struct {
	*http.Request
	Hub   *hub.Hub
	Conn  *Conn
	C     *hub.Conn
	w     http.ResponseWriter
	route *Route
	Vars  map[string]string // path variables, decoded
	Query url.Values
	ID    identity.Identity // the stated identity; empty for routes without one
}

// Path returns the request's path, undecoded.
func (q *Request) Path() string { return q.URL.EscapedPath() }

// Sleep waits for d; false when the client has disconnected before.
func (q *Request) Sleep(d time.Duration) bool {
	if d <= 0 {
		return q.Context().Err() == nil
	}
	q.liftDeadline()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-q.Context().Done():
	case <-q.C.Closed:
	}
	return false
}

// Hang waits until the client has disconnected. It reads the rest of the request first, because the
// disconnect is detected only after that.
func (q *Request) Hang() {
	io.Copy(io.Discard, q.Body)
	q.liftDeadline()
	select {
	case <-q.Context().Done():
	case <-q.C.Closed:
	}
}

// liftDeadline removes the time limit of the request, which would otherwise count as a disconnect.
func (q *Request) liftDeadline() { http.NewResponseController(q.w).SetReadDeadline(time.Time{}) }

// Read reads the body, at most limit bytes.
func (q *Request) Read(limit int64) ([]byte, *Error) {
	if q.ContentLength > limit {
		return nil, Errorf(413001, "body of %d bytes, at most %d are allowed", q.ContentLength, limit)
	}
	body, err := io.ReadAll(http.MaxBytesReader(q.w, q.Body, limit))
	var long *http.MaxBytesError
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, &long):
		return nil, Errorf(413001, "body of more than %d bytes", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, Errorf(400024, "body did not come in time")
	}
	return nil, Errorf(400021, "body: %v", err)
}

func (a *Conn) request(w http.ResponseWriter, r *http.Request) {
	h := a.Hub
	if choices := a.webChoices(r); choices != nil {
		if err := a.upgrade(w, r, choices); err != nil {
			a.Refused(r, identity.Identity{}, http.StatusBadRequest, fmt.Errorf("request for a WebSocket: %w", err))
		}
		return
	}
	q := &Request{Request: r, Hub: h, Conn: a, C: a.C, w: w}
	answer := q.answer()
	if q.route != nil {
		answer = q.after(answer)
	}
	if answer.Status < http.StatusBadRequest && answer.Delivery != DeliverNothing {
		a.Served()
	}
	q.send(answer)
}

func (q *Request) answer() Answer {
	var bad *Error
	if q.route, q.Vars, bad = q.Conn.Front.route(q.Request); bad != nil {
		q.Conn.Refused(q.Request, identity.Identity{}, bad.Status(), bad)
		return q.Fail(bad)
	}
	q.ID = identity.Identity{Device: q.Vars["device"], Module: q.Vars["module"]}
	if q.route.ID != nil {
		q.ID = q.route.ID(q.Request)
	}
	query, err := url.ParseQuery(q.URL.RawQuery)
	if err != nil {
		return q.Fail(Errorf(400004, "query: %v", err))
	}
	q.Query = query
	if a, over := q.before(); over {
		return a
	}
	if !q.route.Open {
		if bad := q.authenticate(); bad != nil {
			return q.Fail(bad)
		}
	}
	return q.route.Do(q)
}

// authenticate checks the API version and the client's credentials.
func (q *Request) authenticate() *Error {
	if bad := q.CheckVersion(); bad != nil {
		return bad
	}
	err := identity.CheckID("device", q.ID.Device)
	if _, module := q.Vars["module"]; err == nil && module {
		err = identity.CheckID("module", q.ID.Module)
	}
	if err != nil {
		return Errorf(400004, "%v", err)
	}
	if err := q.AuthenticateAs(q.ID); err != nil {
		bad := AsHTTP(err, q.ID)
		q.Conn.Refused(q.Request, q.ID, bad.Status(), err)
		return bad
	}
	return nil
}

// AuthenticateAs checks that the request's token, or its connection's certificate, is that of an
// identity, and admits it.
func (q *Request) AuthenticateAs(id identity.Identity) error {
	err := authenticateHTTP(q.Hub, q.C, id, q.Header.Values("Authorization"))
	if err == nil {
		q.Conn.Admit(id)
	}
	return err
}

func (q *Request) CheckVersion() *Error {
	if v := q.Query["api-version"]; len(v) != 1 || !slices.Contains(q.Hub.HTTP.APIVersions, v[0]) {
		return Errorf(400001, "api-version %q, want one of %q", v, q.Hub.HTTP.APIVersions)
	}
	return nil
}

// authenticateHTTP checks the token of a request, or without one the certificate of the connection.
func authenticateHTTP(h *hub.Hub, c *hub.Conn, id identity.Identity, tokens []string) error {
	switch len(tokens) {
	case 0:
		var chain []*x509.Certificate
		if c.TLS != nil {
			chain = c.TLS.ConnectionState().PeerCertificates
		}
		return h.Certified(h.Host, id, chain)
	case 1:
		tok, err := identity.ParseToken(tokens[0])
		if err != nil {
			return err
		}
		return h.Authorize(h.Host, id, tok)
	}
	return errors.New("more than one token")
}

// AsHTTP returns the HTTP error for a client that was not authenticated.
func AsHTTP(err error, id identity.Identity) *Error {
	code := 401003
	switch {
	case errors.Is(err, hub.ErrNotFound) && id.Module != "":
		code = 404010
	case errors.Is(err, hub.ErrNotFound):
		code = 404001
	case errors.Is(err, hub.ErrDisabled):
		code = 403012
	case errors.Is(err, hub.ErrNotCovered):
		code = 401002
	}
	return Errorf(code, "%v", err)
}

// ReadJSON decodes the body, one JSON object, into v.
func (q *Request) ReadJSON(v any) error {
	return q.readJSON(v, func(body []byte) error {
		_, err := document.Parse(body)
		return err
	})
}

// ReadArray decodes the body, one JSON array, into v.
func (q *Request) ReadArray(v any) error {
	return q.readJSON(v, func(body []byte) error {
		switch {
		case !utf8.Valid(body):
			return errors.New("not UTF-8")
		case !json.Valid(body):
			return errors.New("not JSON")
		case bytes.TrimLeft(body, " \t\r\n")[0] != '[':
			return errors.New("not an array")
		}
		return nil
	})
}

// readJSON decodes the body into v if check returns nil for it.
func (q *Request) readJSON(v any, check func(body []byte) error) error {
	body, bad := q.Read(maxServiceBody)
	if bad != nil {
		return bad
	}
	if err := check(body); err != nil {
		return Errorf(hub.CodeArgumentInvalid, "body: %v", err)
	}
	if err := decode(body, v); err != nil {
		return Errorf(hub.CodeArgumentInvalid, "body: %v", err)
	}
	return nil
}

// Decode decodes a JSON object that is part of a body into v.
func Decode(raw []byte, v any) error {
	if _, err := document.Parse(raw); err != nil {
		return err
	}
	return decode(raw, v)
}

func decode(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err := d.Decode(v)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) { // its text names Go types
		return fmt.Errorf("%s must not be of the kind %s", wrong.Field, wrong.Value)
	}
	return err
}

// maxServiceBody is the size limit of a back end's request body in bytes. A method call with the
// largest payload fits.
const maxServiceBody = 1 << 20
