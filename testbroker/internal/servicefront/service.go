package servicefront

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// Routes are the routes of back ends.
var Routes = slices.Concat(registryRoutes, twinRoutes, methodRoutes, messageRoutes, configurationRoutes, jobRoutes,
	transferRoutes, digitalTwinRoutes)

// readers are the rights that let a back end read the registry.
const readers = hubdata.RightRegistryRead | hubdata.RightRegistryWrite

// A handler answers a request of a back end. With an error the answer does not count.
type handler func(q *web.Request) (web.Answer, error)

// A serviceRow is a route of back ends.
type serviceRow struct {
	request string        // method and path
	need    hubdata.Right // one of them
	do      handler
}

func serviceRoutes(kind fault.RouteKind, rows []serviceRow) (all []web.Route) {
	for _, r := range rows {
		method, path, _ := strings.Cut(r.request, " ")
		all = append(all, web.Route{Kind: kind, Method: method, Path: path, Open: true, Do: asService(r.need, r.do)})
	}
	return all
}

// withBody returns the handler of requests whose body is one JSON object.
func withBody[T any](do func(q *web.Request, body *T) (web.Answer, error)) handler {
	return func(q *web.Request) (web.Answer, error) {
		body := new(T)
		if err := q.ReadJSON(body); err != nil {
			return web.Answer{}, err
		}
		return do(q, body)
	}
}

// asService wraps the handler of a back end's request: the request must name an API version, and
// have a token of a policy with one of the rights.
func asService(need hubdata.Right, do handler) func(q *web.Request) web.Answer {
	return func(q *web.Request) web.Answer {
		if bad := q.CheckVersion(); bad != nil {
			return q.Fail(bad)
		}
		if err := authorizeService(q, need); err != nil {
			q.Conn.Refused(q.Request, identity.Identity{}, 401, err)
			return q.Fail(web.Errorf(401003, "%v", err))
		}
		q.Conn.Served() // whatever the answer is
		answer, err := do(q)
		if err != nil {
			return q.Fail(web.AsServiceError(err))
		}
		return answer
	}
}

// authorizeService checks the token: its resource must be the hub or a path below it.
func authorizeService(q *web.Request, need hubdata.Right) error {
	h := q.Hub
	tokens := q.Header.Values("Authorization")
	if len(tokens) != 1 {
		return errors.New("want one token")
	}
	t, err := identity.ParseToken(tokens[0])
	if err != nil {
		return err
	}
	resource, err := url.PathUnescape(t.Resource)
	if err != nil || !h.IsName(resource) {
		return errors.New("token is not for this hub")
	}
	return h.AuthorizePolicy(t, need)
}

// ifMatch returns the value of If-Match without its quotes, and whether it is present.
func ifMatch(q *web.Request) (etag string, ok bool) {
	all := q.Header.Values("If-Match")
	if len(all) == 0 {
		return "", false
	}
	return strings.Trim(all[0], `"`), true
}
