package testbroker

import (
	"errors"
	"net/url"
	"slices"
	"strings"
)

// serviceRoutes are the requests of back ends.
var serviceRoutes = slices.Concat(registryRoutes, twinRoutes, methodRoutes)

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

// ifMatch returns what If-Match wants, without its quotes, and whether it is there.
func (q *httpRequest) ifMatch() (etag string, ok bool) {
	all := q.Header.Values("If-Match")
	if len(all) == 0 {
		return "", false
	}
	return strings.Trim(all[0], `"`), true
}
