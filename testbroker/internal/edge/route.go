// Package edge has the routes of an edge gateway: where messages of its devices and modules go. It
// knows no hub and no protocol.
package edge

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// DefaultRoute sends every message to the hub.
const DefaultRoute = "FROM /messages/* INTO $upstream"

// maxRoute is the length limit of a route in bytes.
const maxRoute = 4096

// A Source is what routes know of a message: the module that sent it, empty for a leaf device, and
// the output, which may be empty.
type Source struct{ Module, Output string }

// An Endpoint is the end of a route: an input of a module, or the hub for the zero value.
type Endpoint struct{ Module, Input string }

// Upstream is the endpoint of messages to the hub.
var Upstream = Endpoint{}

// A Route sends the messages that match to one endpoint.
type Route struct {
	text           string
	modules        bool   // of modules only
	outputs        bool   // by an output only
	module, output string // empty = any
	to             Endpoint
}

// name is the form of the names of modules, inputs and outputs. That of modules is as in the
// registry, except for "*", which means all.
const name = `[A-Za-z0-9\-.+%_#?!(),:=@$']{1,128}`

var (
	// grammar splits a route. The group "where" is the condition.
	grammar = regexp.MustCompile(`(?is)^\s*FROM\s+(?P<from>\S+)(?:\s+WHERE\s+(?P<where>.*?))?` +
		`\s+INTO\s+(?P<into>\S.*?)\s*$`)

	// source matches the sources that are paths of messages.
	source = regexp.MustCompile(`^/messages(?:/\*|/modules(?:/\*|/(?P<module>` + name +
		`)(?:/\*|(?P<outputs>/outputs)(?:/\*|/(?P<output>` + name + `)(?:/\*)?))))?$`)

	sink = regexp.MustCompile(`(?i)^BrokeredEndpoint\s*\(\s*["'](?P<path>[^"']*)["']\s*\)$`)

	inputPath = regexp.MustCompile(`^/modules/(?P<module>` + name + `)/inputs/(?P<input>[A-Za-z0-9\-._]{1,128})$`)
)

// group returns a named group of a match.
func group(r *regexp.Regexp, match []string, name string) string { return match[r.SubexpIndex(name)] }

// ParseRoute parses
//
//	FROM source INTO $upstream
//	FROM source INTO BrokeredEndpoint("/modules/MODULE/inputs/INPUT")
//
// Keywords have any letter case. A source is one of
//
//	/*                                      /messages/modules/MODULE/*
//	/messages, /messages/*                  /messages/modules/MODULE/outputs/*
//	/messages/modules/*                     /messages/modules/MODULE/outputs/OUTPUT
//
// Conditions (WHERE) and changes of twins as a source are refused.
func ParseRoute(text string) (Route, error) {
	r := Route{text: text}
	if len(text) > maxRoute {
		return r, fmt.Errorf("route of %d bytes, at most %d are allowed", len(text), maxRoute)
	}
	m := grammar.FindStringSubmatch(text)
	if m == nil {
		return r, fmt.Errorf("route %q: want FROM source INTO sink", text)
	}
	if group(grammar, m, "where") != "" {
		return r, fmt.Errorf("route %q: conditions are not emulated; leave out WHERE", text)
	}
	if err := r.from(group(grammar, m, "from")); err != nil {
		return r, fmt.Errorf("route %q: %w", text, err)
	}
	if err := r.into(group(grammar, m, "into")); err != nil {
		return r, fmt.Errorf("route %q: %w", text, err)
	}
	return r, nil
}

func (r *Route) from(text string) error {
	if text == "/*" {
		return nil
	}
	if strings.EqualFold(text, "/twinChangeNotifications") {
		return errors.New("changes of twins are not emulated as a source")
	}
	m := source.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("source %q: want /messages/*, /messages/modules/MODULE/* or "+
			"/messages/modules/MODULE/outputs/OUTPUT", text)
	}
	r.modules = strings.HasPrefix(text, "/messages/modules")
	r.outputs = group(source, m, "outputs") != ""
	r.module, r.output = group(source, m, "module"), group(source, m, "output")
	return nil
}

func (r *Route) into(text string) error {
	if strings.EqualFold(text, "$upstream") {
		return nil
	}
	m := sink.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf(`sink %q: want $upstream or BrokeredEndpoint("/modules/MODULE/inputs/INPUT")`, text)
	}
	path := group(sink, m, "path")
	m = inputPath.FindStringSubmatch(path)
	if m == nil {
		return fmt.Errorf("endpoint %q: want /modules/MODULE/inputs/INPUT", path)
	}
	r.to = Endpoint{group(inputPath, m, "module"), group(inputPath, m, "input")}
	return nil
}

// String returns the text of the route.
func (r Route) String() string { return r.text }

// Matches reports whether a message takes the route.
func (r Route) Matches(s Source) bool {
	switch {
	case r.modules && s.Module == "", r.outputs && s.Output == "":
		return false
	case r.module != "" && r.module != s.Module:
		return false
	}
	return r.output == "" || r.output == s.Output
}

// Routes are the routes of a gateway.
type Routes []Route

// ParseRoutes parses routes; none means DefaultRoute.
func ParseRoutes(texts []string) (Routes, error) {
	if len(texts) == 0 {
		texts = []string{DefaultRoute}
	}
	var all Routes
	for _, text := range texts {
		r, err := ParseRoute(text)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// Endpoints returns the endpoints of a message, each once, in the order of the routes. A message
// without an endpoint is dropped.
func (all Routes) Endpoints(s Source) []Endpoint {
	var to []Endpoint
	for _, r := range all {
		if r.Matches(s) && !slices.Contains(to, r.to) {
			to = append(to, r.to)
		}
	}
	return to
}
