package testbroker

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
)

// An httpRequest is a request whose route is known.
type httpRequest struct {
	*http.Request
	hub   *Hub
	conn  *httpConn
	c     *conn
	w     http.ResponseWriter
	route *httpRoute
	vars  map[string]string // of the path, decoded
	query url.Values
	id    identity // who asks; empty for routes without {device}
}

// path is that of the request, as it came.
func (q *httpRequest) path() string { return q.URL.EscapedPath() }

// sleep waits; false when the client has gone meanwhile.
func (q *httpRequest) sleep(d time.Duration) bool {
	if d <= 0 {
		return q.Context().Err() == nil
	}
	q.unhurry()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-q.Context().Done():
	case <-q.c.closed:
	}
	return false
}

// hang waits until the client has gone. That it does so is only seen when there is nothing left to
// read of the request.
func (q *httpRequest) hang() {
	io.Copy(io.Discard, q.Body)
	q.unhurry()
	select {
	case <-q.Context().Done():
	case <-q.c.closed:
	}
}

// unhurry ends the limit of time for the request, which would count as the client's going.
func (q *httpRequest) unhurry() { http.NewResponseController(q.w).SetReadDeadline(time.Time{}) }

// read reads the body, of so many bytes at most.
func (q *httpRequest) read(limit int64) ([]byte, *httpError) {
	if q.ContentLength > limit {
		return nil, httpErrorf(413001, "body of %d bytes, at most %d are allowed", q.ContentLength, limit)
	}
	body, err := io.ReadAll(http.MaxBytesReader(q.w, q.Body, limit))
	var long *http.MaxBytesError
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, &long):
		return nil, httpErrorf(413001, "body of more than %d bytes", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, httpErrorf(400024, "body did not come in time")
	}
	return nil, httpErrorf(400021, "body: %v", err)
}

// request answers a request, whatever it is.
func (a *httpConn) request(w http.ResponseWriter, r *http.Request) {
	h := a.hub
	if path, err := url.PathUnescape(r.URL.EscapedPath()); err == nil && path == webPath {
		if err := a.upgrade(w, r); err != nil {
			a.refused(r, identity{}, http.StatusBadRequest, fmt.Errorf("request for a WebSocket: %w", err))
		}
		return
	}
	q := &httpRequest{Request: r, hub: h, conn: a, c: a.c, w: w}
	answer := q.answer()
	if q.route != nil {
		answer = q.after(answer)
	}
	if answer.status < http.StatusBadRequest && answer.way != wayNone {
		a.served()
	}
	q.send(answer)
}

// answer deals with a request.
func (q *httpRequest) answer() httpAnswer {
	var bad *httpError
	if q.route, q.vars, bad = q.conn.front.route(q.Request); bad != nil {
		q.conn.refused(q.Request, identity{}, bad.status(), bad)
		return q.fail(bad)
	}
	q.id = identity{q.vars["device"], q.vars["module"]}
	query, err := url.ParseQuery(q.URL.RawQuery)
	if err != nil {
		return q.fail(httpErrorf(400004, "query: %v", err))
	}
	q.query = query
	if a, over := q.before(); over {
		return a
	}
	if !q.route.open {
		if bad := q.authenticate(); bad != nil {
			return q.fail(bad)
		}
	}
	return q.route.do(q)
}

// authenticate checks the version of the API and who the client is.
func (q *httpRequest) authenticate() *httpError {
	h := q.hub
	if bad := q.checkVersion(); bad != nil {
		return bad
	}
	err := checkID("device", q.id.device)
	if _, module := q.vars["module"]; err == nil && module {
		err = checkID("module", q.id.module)
	}
	if err != nil {
		return httpErrorf(400004, "%v", err)
	}
	if err := h.authenticateHTTP(q.c, q.id, q.Header.Values("Authorization")); err != nil {
		bad := asHTTP(err, q.id)
		q.conn.refused(q.Request, q.id, bad.status(), err)
		return bad
	}
	q.conn.admit(q.id)
	return nil
}

func (q *httpRequest) checkVersion() *httpError {
	if v := q.query["api-version"]; len(v) != 1 || !slices.Contains(q.hub.http.APIVersions, v[0]) {
		return httpErrorf(400001, "api-version %q, want one of %q", v, q.hub.http.APIVersions)
	}
	return nil
}

// authenticateHTTP checks the token of a request, or without one the certificate of the connection.
func (h *Hub) authenticateHTTP(c *conn, id identity, tokens []string) error {
	switch len(tokens) {
	case 0:
		var chain []*x509.Certificate
		if c.tls != nil {
			chain = c.tls.ConnectionState().PeerCertificates
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.certifiedLocked(h.host, id, chain)
	case 1:
		tok, err := parseToken(tokens[0])
		if err != nil {
			return err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.authorizeLocked(h.host, id, tok)
	}
	return errors.New("more than one token")
}

// asHTTP is the error for a client that was not authenticated.
func asHTTP(err error, id identity) *httpError {
	code := 401003
	switch {
	case errors.Is(err, ErrNotFound) && id.module != "":
		code = 404010
	case errors.Is(err, ErrNotFound):
		code = 404001
	case errors.Is(err, ErrDisabled):
		code = 403012
	case errors.Is(err, errNotCovered):
		code = 401002
	}
	return httpErrorf(code, "%v", err)
}

// readJSON reads the body, one object, into v.
func (q *httpRequest) readJSON(v any) error {
	body, bad := q.read(maxServiceBody)
	if bad != nil {
		return bad
	}
	if _, err := parseTree(body); err != nil {
		return httpErrorf(codeArgumentInvalid, "body: %v", err)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	err := d.Decode(v)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) { // its text is about our types
		return httpErrorf(codeArgumentInvalid, "body: %s must not be of the kind %s", wrong.Field, wrong.Value)
	}
	if err != nil {
		return httpErrorf(codeArgumentInvalid, "body: %v", err)
	}
	return nil
}

// maxServiceBody is what the body of a request of a back end may have in bytes: a call with the
// largest payload fits.
const maxServiceBody = 1 << 20
