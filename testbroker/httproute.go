package testbroker

import (
	"net/http"
	"net/url"
	"strings"
)

// backEnds says whether requests of the kind come from back ends: whom they are about is not who
// asks, and what happens to that device does not happen to them.
func (k RouteKind) backEnds() bool { return k >= RouteRegistry && k <= RouteMethod }

// textErrors says whether errors have the older form whatever [HTTPOptions] say: SDKs for back ends
// find the name of a code in the text.
func (k RouteKind) textErrors() bool { return k == RouteRegistry || k == RouteTwin }

// An httpRoute is a kind of request that the hub understands.
type httpRoute struct {
	kind   RouteKind
	method string
	// path has segments that stand for themselves, in any letter case, or as "{name}" for one that is
	// not empty. The last may be "{name...}", which stands for all that follow, one at least. {device}
	// and {module} say whose request it is.
	path string
	// host says whether requests to a host are for the route; nil: to those by which the hub is known.
	host func(h *Hub, host string) bool
	// open routes need no api-version and no authentication: do sees to that. They may be without
	// {device}.
	open bool
	// do answers a request that has been authenticated. It runs in the request's goroutine, many at
	// once, with no lock held.
	do func(q *httpRequest) httpAnswer
	// fails, unless nil, gives errors another form than that of the service.
	fails func(q *httpRequest, e *httpError) httpAnswer
	// blob, unless nil, returns what a request wants of the store.
	blob func(q *httpRequest) BlobOperation
}

// match compares a path in segments, and returns what stands for the names.
func (r *httpRoute) match(segments []string) (vars map[string]string, ok bool) {
	want := strings.Split(r.path, "/")
	vars = make(map[string]string)
	for i, w := range want {
		if i >= len(segments) {
			return nil, false
		}
		name, named := strings.CutPrefix(w, "{")
		name = strings.TrimSuffix(name, "}")
		switch {
		case !named && strings.EqualFold(w, segments[i]):
		case !named, segments[i] == "":
			return nil, false
		case strings.HasSuffix(name, "..."):
			vars[strings.TrimSuffix(name, "...")] = strings.Join(segments[i:], "/")
			return vars, true
		default:
			vars[name] = segments[i]
		}
	}
	return vars, len(segments) == len(want)
}

// route finds what a request is for. The error is for a path, host or method that the hub does not
// have.
func (f *webFront) route(r *http.Request) (*httpRoute, map[string]string, *httpError) {
	path := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	for i, s := range path {
		text, err := url.PathUnescape(s)
		if err != nil {
			return nil, nil, httpErrorf(400004, "path %q: %v", r.URL.EscapedPath(), err)
		}
		path[i] = text
	}
	h := f.hub
	var methods []string
	for i := range f.routes {
		route := &f.routes[i]
		if route.host != nil && !route.host(h, r.Host) || route.host == nil && !h.knows(r.Host) {
			continue
		}
		vars, ok := route.match(path)
		switch {
		case !ok:
		case route.method == r.Method:
			return route, vars, nil
		default:
			methods = append(methods, route.method)
		}
	}
	switch {
	case len(methods) > 0:
		e := httpErrorf(405000, "method %s", r.Method)
		e.allow = strings.Join(methods, ", ")
		return nil, nil, e
	case !h.knows(r.Host):
		return nil, nil, httpErrorf(404000, "host name %q is not this hub", r.Host)
	}
	return nil, nil, httpErrorf(404000, "nothing is at %q", r.URL.EscapedPath())
}
