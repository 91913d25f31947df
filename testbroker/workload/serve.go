package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// maxBody is the size limit of a request's body in bytes.
const maxBody = 256 << 10

// A route is a call of the API. Segments of its path are literal, or {name} or {genid}.
type route struct {
	call   Call
	method string
	path   string
	do     func(s *Server, q *request) (status int, body any, err error)
}

var routes = []route{
	{CallSign, http.MethodPost, "modules/{name}/genid/{genid}/sign", (*Server).sign},
	{CallEncrypt, http.MethodPost, "modules/{name}/genid/{genid}/encrypt", (*Server).encrypt},
	{CallDecrypt, http.MethodPost, "modules/{name}/genid/{genid}/decrypt", (*Server).decrypt},
	{CallServerCertificate, http.MethodPost, "modules/{name}/genid/{genid}/certificate/server",
		(*Server).serverCertificate},
	{CallIdentityCertificate, http.MethodPost, "modules/{name}/certificate/identity", (*Server).identityCertificate},
	{CallModules, http.MethodGet, "modules", (*Server).modules},
	{CallTrustBundle, http.MethodGet, "trust-bundle", (*Server).trustBundle},
	{CallManifestTrustBundle, http.MethodGet, "manifest-trust-bundle", (*Server).manifestTrustBundle},
}

// A refusal is the answer to a request that is wrong.
type refusal struct {
	status  int
	message string
	allow   string // allowed methods, for 405
}

// Error returns the message.
func (r *refusal) Error() string { return r.message }

func refuse(status int, format string, args ...any) error {
	return &refusal{status: status, message: fmt.Sprintf(format, args...)}
}

// A request is a request with its route.
type request struct {
	*http.Request
	w      http.ResponseWriter
	conn   net.Conn
	text   []byte            // the body, unless textErr says why there is none
	vars   map[string]string // path variables, decoded
	module hubdata.Device    // the called module; empty for routes without {name}, and if there is none
	record Record

	textErr  error
	recorded bool // record is in the log
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		panic(http.ErrAbortHandler)
	}
	defer s.wg.Done()
	q := &request{Request: r, w: w, conn: r.Context().Value(connKey{}).(net.Conn)}
	q.record = Record{Method: r.Method, Path: r.URL.EscapedPath(), Host: r.Host,
		APIVersion: r.URL.Query().Get("api-version"), Time: time.Now()}
	defer func() {
		s.record(q)
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p)
		default: // the server of package net/http would recover it
			go panic(fmt.Sprintf("workload: %v\n%s", p, debug.Stack()))
		}
	}()
	s.handle(q)
}

// enter adds the caller to the goroutines for which Close waits; false when the server is closed.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Add(1)
	return true
}

func (s *Server) handle(q *request) {
	q.readBody()
	to, err := s.find(q)
	if s.before(q) {
		return
	}
	status, body := http.StatusOK, any(nil)
	if err == nil {
		status, body, err = s.perform(q, to)
	}
	if bad := (*refusal)(nil); errors.As(err, &bad) {
		status, body = bad.status, errorBody{bad.message}
		if bad.allow != "" {
			q.w.Header().Set("Allow", bad.allow)
		}
	} else if err != nil {
		status, body = http.StatusInternalServerError, errorBody{err.Error()}
	}
	s.answer(q, status, mustJSON(body))
}

func (s *Server) perform(q *request, to *route) (int, any, error) {
	v := q.URL.Query()["api-version"]
	if len(v) != 1 || !slices.Contains(s.options.APIVersions, v[0]) {
		return 0, nil, refuse(http.StatusBadRequest, "api-version %q, want one of %q", v, s.options.APIVersions)
	}
	if name, genid := q.vars["name"], q.vars["genid"]; name != "" {
		if q.take(s, FaultUnknownModule) != nil || q.module.ModuleID == "" {
			return 0, nil, refuse(http.StatusNotFound, "no module %q with generation id %q", name, genid)
		}
	}
	return to.do(s, q)
}

// errorBody is the body of an error.
type errorBody struct {
	Message string `json:"message"`
}

func (s *Server) find(q *request) (*route, error) {
	path := strings.Split(strings.TrimPrefix(q.URL.EscapedPath(), "/"), "/")
	var allowed []string
	for i := range routes {
		r := &routes[i]
		vars, ok := match(r.path, path)
		switch {
		case !ok:
		case r.method != q.Method:
			allowed = append(allowed, r.method)
		default:
			q.vars, q.record.Call = vars, r.call
			s.findModule(q)
			return r, nil
		}
	}
	if len(allowed) > 0 {
		return nil, &refusal{status: http.StatusMethodNotAllowed, allow: strings.Join(allowed, ", "),
			message: "method " + q.Method + " is not for this path"}
	}
	return nil, refuse(http.StatusNotFound, "no such path: %s", q.URL.EscapedPath())
}

// match compares a path with a pattern, and returns the values of the variables, decoded.
func match(pattern string, path []string) (vars map[string]string, ok bool) {
	want := strings.Split(pattern, "/")
	if len(want) != len(path) {
		return nil, false
	}
	vars = make(map[string]string)
	for i, w := range want {
		text, err := url.PathUnescape(path[i])
		name, variable := strings.CutPrefix(w, "{")
		switch {
		case err != nil || text == "" || !variable && text != w:
			return nil, false
		case variable:
			vars[strings.TrimSuffix(name, "}")] = text
		}
	}
	return vars, true
}

// findModule finds the module of a request, if it has one. Without a generation id in the path it
// is the first of its name.
func (s *Server) findModule(q *request) {
	name, genid := q.vars["name"], q.vars["genid"]
	if name == "" {
		return
	}
	for _, m := range s.registered() {
		if m.ModuleID == name && (genid == "" || genid == m.GenerationID) {
			q.module, q.record.Module = m, m.ID+"/"+m.ModuleID
			return
		}
	}
}

func (s *Server) registered() []hubdata.Device {
	return slices.DeleteFunc(s.hub.Devices(), func(d hubdata.Device) bool {
		return d.ModuleID == "" || s.options.Device != "" && d.ID != s.options.Device
	})
}

// readBody reads the body first of all, because package net/http notices a disconnect only after
// the body.
func (q *request) readBody() {
	q.text, q.textErr = io.ReadAll(http.MaxBytesReader(q.w, q.Body, maxBody))
}

// read decodes the body of a request, one JSON object, into v.
func (q *request) read(v any) error {
	if long := (*http.MaxBytesError)(nil); errors.As(q.textErr, &long) {
		return refuse(http.StatusRequestEntityTooLarge, "body of more than %d bytes", maxBody)
	}
	err := q.textErr
	if err == nil {
		err = json.Unmarshal(q.text, v)
	}
	switch {
	case err == nil:
		return nil
	case q.textErr == nil && len(q.text) == 0:
		return refuse(http.StatusBadRequest, "the request has no body")
	}
	return refuse(http.StatusBadRequest, "body: %v", err)
}
