package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A refusal is the reason why a request or setting was refused, in the user's terms.
type refusal struct {
	status int // HTTP status
	// Field is the affected part of the input; empty if none.
	Field   string `json:"field,omitempty"`
	Problem string `json:"problem"`
	Fix     string `json:"fix"`
	// Code is the service's six-digit code, for example of a method call.
	Code int `json:"code,omitempty"`
}

func bad(field, what, fix string) *refusal {
	return &refusal{status: http.StatusBadRequest, Field: field, Problem: what, Fix: fix}
}

// Error returns all fields in one line.
func (p *refusal) Error() string {
	s := p.Problem + "; " + p.Fix
	if p.Field != "" {
		s = p.Field + ": " + s
	}
	return s
}

// A field is a member of a JSON object, or a query parameter: its name, and the function that
// parses its value.
type field struct {
	name string
	text bool // values are strings: in a query they are not quoted
	take func(raw json.RawMessage, path string) *refusal
	form form
}

// A form says how a person can enter a value.
type form struct {
	Type string `json:"type"` // text, whole, number, flag, duration, time, choice, list, bytes or json
	// Want describes the values that fit.
	Want    string   `json:"want,omitempty"`
	Choices []string `json:"choices,omitempty"`
}

// value is a field that accepts values decoded by json.Unmarshal into T and accepted by ok. want
// describes them in errors.
func value[T any](name, want string, into *T, ok func(T) bool) field {
	return field{name: name, form: form{"json", want, nil}, take: func(raw json.RawMessage, path string) *refusal {
		var v T
		if bytes.Equal(raw, []byte("null")) || json.Unmarshal(raw, &v) != nil || ok != nil && !ok(v) {
			return bad(path, "has a value that does not fit", "give "+want)
		}
		*into = v
		return nil
	}}
}

func text(name string, into *string) field {
	f := value(name, "a text", into, nil).as("text")
	f.text = true
	return f
}

// as returns the field with another type in its form.
func (f field) as(kind string) field {
	f.form.Type = kind
	return f
}

func flagField(name string, into *bool) field {
	return value(name, "true or false", into, nil).as("flag")
}

func whole[T int | uint8](name string, least, most int, into *T) field {
	return value(name, fmt.Sprintf("a whole number from %d to %d", least, most),
		into, func(n T) bool { return int(n) >= least && int(n) <= most }).as("whole")
}

func number(name, want string, into *float64, ok func(float64) bool) field {
	return value(name, want, into, ok).as("number")
}

// raw is a field that accepts any JSON value, including null.
func raw(name string, into *json.RawMessage) field {
	return field{name: name, take: func(raw json.RawMessage, _ string) *refusal {
		*into = raw
		return nil
	}}
}

func object(name string, into *json.RawMessage) field {
	return field{name: name, take: func(raw json.RawMessage, path string) *refusal {
		if !bytes.HasPrefix(raw, []byte("{")) {
			return bad(path, "is no object", "give an object of JSON")
		}
		*into = raw
		return nil
	}}
}

// parsed is a string field with a parser.
func parsed[T any](name, want string, into *T, parse func(string) (T, bool)) field {
	var s string
	f := text(name, &s)
	plain := f.take
	f.form.Want = want
	f.take = func(raw json.RawMessage, path string) *refusal {
		problem := plain(raw, path)
		v, ok := parse(s)
		if problem != nil || !ok {
			return bad(path, "has a value that does not fit", "give "+want)
		}
		*into = v
		return nil
	}
	return f
}

// span is a field for a duration from least to most.
func span(name string, least, most time.Duration, into *time.Duration) field {
	want := fmt.Sprintf(`a duration from %v to %v, such as "1.5s" or "200ms"`, least, most)
	return parsed(name, want, into, func(s string) (time.Duration, bool) {
		d, err := time.ParseDuration(s)
		return d, err == nil && d >= least && d <= most
	}).as("duration")
}

func moment(name string, into *time.Time) field {
	return parsed(name, `a time such as "2030-01-02T15:04:05Z"`, into, func(s string) (time.Time, bool) {
		t, err := time.Parse(time.RFC3339Nano, s)
		return t, err == nil
	}).as("time")
}

func rawBytes(name string, into *[]byte) field {
	return parsed(name, "bytes in base64, with padding", into, func(s string) ([]byte, bool) {
		b, err := base64.StdEncoding.DecodeString(s)
		return b, err == nil
	}).as("bytes")
}

// key is a field for a symmetric key. Errors omit the value.
func key(name string, into *string) field {
	return parsed(name, "16 to 64 bytes in base64", into, func(s string) (string, bool) {
		b, err := base64.StdEncoding.DecodeString(s)
		return s, err == nil && len(b) >= 16 && len(b) <= 64
	})
}

// choice is a field for one of the names in a table.
func choice[T any](name string, table map[string]T, into *T) field {
	names := slices.Sorted(maps.Keys(table))
	f := parsed(name, "one of: "+strings.Join(names, ", "), into, func(s string) (T, bool) {
		v, ok := table[s]
		return v, ok
	})
	f.form = form{"choice", "one of the list", names}
	return f
}

// list is a field for an array. take parses each member.
func list(name string, take func(path string, raw json.RawMessage) *refusal) field {
	return field{name: name, form: form{Type: "list"}, take: func(raw json.RawMessage, path string) *refusal {
		var all []json.RawMessage
		if json.Unmarshal(raw, &all) != nil || all == nil {
			return bad(path, "is no list", "give an array of JSON")
		}
		for i, one := range all {
			if problem := take(fmt.Sprintf("%s[%d]", path, i), one); problem != nil {
				return problem
			}
		}
		return nil
	}}
}

// readObject parses a JSON object that has only the given members. path is its location, for
// errors.
func readObject(data []byte, path string, fields ...field) *refusal {
	members, problem := membersOf(data, path)
	if problem != nil {
		problem.Fix = cmp.Or(problem.Fix, "give an object with members out of: "+names(fields))
		return problem
	}
	return readMembers(members, path, fields)
}

// membersOf splits a JSON object into its members and refuses repeated ones. In some errors Fix is
// empty; the caller fills it in.
func membersOf(data []byte, path string) (map[string]json.RawMessage, *refusal) {
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		return nil, bad(path, "is no object of JSON ("+err.Error()+")", "")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return nil, bad(path, "is no object of JSON", "")
	}
	members := make(map[string]json.RawMessage)
	for d.More() {
		key, err := d.Token()
		name, ok := key.(string)
		var raw json.RawMessage
		if err == nil {
			err = d.Decode(&raw)
		}
		if err != nil || !ok {
			return nil, bad(path, "is no object of JSON", "")
		}
		if _, again := members[name]; again {
			return nil, bad(strings.TrimPrefix(path+"."+name, "."), "is there more than once", "give it once")
		}
		members[name] = raw
	}
	return members, nil
}

func readMembers(members map[string]json.RawMessage, path string, fields []field) *refusal {
	if path != "" {
		path += "."
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.ContainsFunc(fields, func(f field) bool { return f.name == name }) {
			return bad(path+name, "is not known", "leave it out; there are: "+names(fields))
		}
	}
	for _, f := range fields {
		raw, ok := members[f.name]
		if !ok {
			continue
		}
		if problem := f.take(raw, path+f.name); problem != nil {
			return problem
		}
	}
	return nil
}

// readQuery parses the query parameters and refuses repeated ones.
func readQuery(q url.Values, fields ...field) *refusal {
	members := make(map[string]json.RawMessage)
	for name, values := range q {
		if len(values) > 1 {
			return bad(name, "is there more than once", "give it once")
		}
		members[name] = json.RawMessage(values[0])
		if i := slices.IndexFunc(fields, func(f field) bool { return f.name == name }); i >= 0 && fields[i].text {
			quoted, err := json.Marshal(values[0])
			if err != nil {
				return bad(name, "is no text", "give UTF-8")
			}
			members[name] = quoted
		}
	}
	return readMembers(members, "", fields)
}

func names(fields []field) string {
	var all []string
	for _, f := range fields {
		all = append(all, f.name)
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

// cutModule splits "device/module".
func cutModule(id string) (device, module string, isModule bool) { return strings.Cut(id, "/") }
