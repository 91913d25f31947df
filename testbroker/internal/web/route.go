package web

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// backEnds reports whether requests of the kind come from back ends: whom they are about is not who
// asks, and what happens to that device does not happen to them.
func backEnds(k hub.RouteKind) bool { return k >= hub.RouteRegistry && k <= hub.RouteMethod }

// textErrors reports whether errors have the older form whatever [HTTPOptions] say: SDKs for back
// ends find the name of a code in the text.
func textErrors(k hub.RouteKind) bool { return k == hub.RouteRegistry || k == hub.RouteTwin }

// A Route is a kind of request that the hub understands.
type Route struct {
	Kind   hub.RouteKind
	Method string
	// Path has segments that stand for themselves, in any letter case, or as "{name}" for one that is
	// not empty. The last may be "{name...}", which stands for all that follow, one at least. {device}
	// and {module} say whose request it is.
	Path string
	// Host reports whether requests to a host are for the route; nil: to those by which the hub is
	// known.
	Host func(h *hub.Hub, host string) bool
	// Open routes need no api-version and no authentication: do sees to that. They may be without
	// {device}.
	Open bool
	// Do answers a request that has been authenticated. It runs in the request's goroutine, many at
	// once, with no lock held.
	Do func(q *Request) Answer
	// fails, unless nil, gives errors another form than that of the service.
	Fails func(q *Request, e *Error) Answer
	// blob, unless nil, returns what a request wants of the store.
	Blob func(q *Request) hub.BlobOperation
}

// match compares a path in segments, and returns what stands for the names.
func (r *Route) match(segments []string) (vars map[string]string, ok bool) {
	want := strings.Split(r.Path, "/")
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
func (f *Front) route(r *http.Request) (*Route, map[string]string, *Error) {
	path := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	for i, s := range path {
		text, err := url.PathUnescape(s)
		if err != nil {
			return nil, nil, Errorf(400004, "path %q: %v", r.URL.EscapedPath(), err)
		}
		path[i] = text
	}
	h := f.hub
	var methods []string
	for i := range f.routes {
		route := &f.routes[i]
		if route.Host != nil && !route.Host(h, r.Host) || route.Host == nil && !h.Knows(r.Host) {
			continue
		}
		vars, ok := route.match(path)
		switch {
		case !ok:
		case route.Method == r.Method:
			return route, vars, nil
		default:
			methods = append(methods, route.Method)
		}
	}
	switch {
	case len(methods) > 0:
		e := Errorf(405000, "method %s", r.Method)
		e.allow = strings.Join(methods, ", ")
		return nil, nil, e
	case !h.Knows(r.Host):
		return nil, nil, Errorf(404000, "host name %q is not this hub", r.Host)
	}
	return nil, nil, Errorf(404000, "nothing is at %q", r.URL.EscapedPath())
}
