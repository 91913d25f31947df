package testbroker

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// serviceRoutes are the requests of back ends.
var serviceRoutes = slices.Concat(registryRoutes, twinRoutes, methodRoutes)

// maxServiceBody is what the body of a request of a back end may have in bytes: a call with the
// largest payload fits.
const maxServiceBody = 1 << 20

// asService is what stands before a request of a back end: it must name a version, and have a token
// of a policy with one of the rights.
func asService(need Right, do func(q *httpRequest) (httpAnswer, error)) func(q *httpRequest) httpAnswer {
	return func(q *httpRequest) httpAnswer {
		if bad := q.checkVersion(); bad != nil {
			return q.fail(bad)
		}
		if err := q.authorizeService(need); err != nil {
			q.conn.refused(q.Request, identity{}, 401, err)
			return q.fail(httpErrorf(401003, "%v", err))
		}
		q.conn.served() // whatever the answer is
		answer, err := do(q)
		if err != nil {
			return q.fail(asServiceError(err))
		}
		return answer
	}
}

// authorizeService checks the token: for the hub, or what lies below it.
func (q *httpRequest) authorizeService(need Right) error {
	h := q.hub
	tokens := q.Header.Values("Authorization")
	if len(tokens) != 1 {
		return errors.New("want one token")
	}
	t, err := parseToken(tokens[0])
	if err != nil {
		return err
	}
	resource, err := url.PathUnescape(t.resource)
	if err != nil || !strings.EqualFold(resource, h.host) {
		return errors.New("token is not for this hub")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.authorizePolicyLocked(t, need)
}

// asServiceError is an error as it goes over HTTP.
func asServiceError(err error) *httpError {
	var web *httpError
	var e *ServiceError
	switch {
	case errors.As(err, &web):
		return web
	case errors.As(err, &e):
		return httpErrorf(e.Code, "%s", e.Message)
	case errors.Is(err, ErrClosed):
		return httpErrorf(503001, "%v", err)
	}
	return httpErrorf(codeServerError, "%v", err)
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

// ifMatch returns what If-Match wants, without its quotes, and whether it is there.
func (q *httpRequest) ifMatch() (etag string, ok bool) {
	all := q.Header.Values("If-Match")
	if len(all) == 0 {
		return "", false
	}
	return strings.Trim(all[0], `"`), true
}

// answerJSON is an answer with a body.
func answerJSON(v any, etag string) httpAnswer {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // we made it
	}
	header := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	if etag != "" {
		header.Set("ETag", `"`+etag+`"`)
	}
	return httpAnswer{status: http.StatusOK, header: header, body: bytes.TrimSuffix(b.Bytes(), []byte("\n"))}
}
