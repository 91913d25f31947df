package web

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// backEnds reports whether requests of the kind come from back ends. Such a request is about a
// device but not sent by it, so the device's faults do not apply.
func backEnds(k fault.RouteKind) bool {
	return k >= fault.RouteRegistry && k <= fault.RouteMethod || k == fault.RouteServiceMessage || k == fault.RouteStorage
}

// textErrors reports whether errors always have the older form, regardless of
// testbroker.HTTPOptions: back-end SDKs find the name of a code in the text.
func textErrors(k fault.RouteKind) bool { return k == fault.RouteRegistry || k == fault.RouteTwin }

// A Route is a kind of request that the hub handles.
type Route struct {
	Kind   fault.RouteKind
	Method string
	// Path is a list of segments. A segment is literal, in any letter case, or "{name}" for any
	// segment that is not empty. The last may be "{name...}", which matches one or more segments.
	// {device} and {module} are the identity of the request.
	Path string
	// Host reports whether the route serves a host name; nil: the hub's own names.
	Host func(h *hub.Hub, host string) bool
	// For reports whether the route serves a request with its path and method; nil: every one. Later
	// routes may serve the others.
	For func(h *hub.Hub, r *http.Request) bool
	// ID returns the identity that a request states, for faults; nil: that of the path. It may be
	// empty.
	ID func(r *http.Request) identity.Identity
	// Open routes need no api-version and no authentication: Do checks both. They may lack {device}.
	Open bool
	// Do answers an authenticated request. It runs in the request's goroutine, concurrently with
	// others, with no lock held.
	Do func(q *Request) Answer
	// Fails, unless nil, returns errors in a form other than the service's.
	Fails func(q *Request, e *Error) Answer
	// Blob, unless nil, returns the request's blob store operation; BlobAny if it is none of a file.
	Blob func(q *Request) fault.BlobOperation
}

// match compares a path in segments, and returns the values of the variables.
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

// route returns the route of a request. The error is for an unknown path, host or method.
// Some back ends encode the slashes between the segments, so that is tried last.
func (f *Front) route(r *http.Request) (*Route, map[string]string, *Error) {
	escaped := r.URL.EscapedPath()
	route, vars, bad := f.find(r, escaped)
	if plain := encodedSlashes.Replace(escaped); bad != nil && bad.Code == 404000 && plain != escaped {
		if route, vars, again := f.find(r, plain); again == nil {
			return route, vars, nil
		}
	}
	return route, vars, bad
}

var encodedSlashes = strings.NewReplacer("%2F", "/", "%2f", "/")

func (f *Front) find(r *http.Request, escaped string) (*Route, map[string]string, *Error) {
	path := strings.Split(strings.TrimPrefix(escaped, "/"), "/")
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
		case route.Method == r.Method && route.For != nil && !route.For(h, r):
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
