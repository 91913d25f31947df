package updates

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// MaxBody is the size limit of the body of a request in bytes.
const MaxBody = 64 << 10

// An object is a JSON object of a request. Unknown members are skipped. The first problem of any
// object of the request stays in bad.
type object struct {
	path string // with a dot at the end; empty for the request itself
	tree document.Tree
	bad  **Error
}

// parse parses the body of a request.
func parse(body []byte) (object, *Error) {
	fail := func(err error) (object, *Error) {
		return object{}, refusef(updatedata.CodeInvalidRequest, "body", "body: %v", err).numbered(numberNotJSON)
	}
	if len(body) > MaxBody {
		return fail(fmt.Errorf("%d bytes, at most %d are allowed", len(body), MaxBody))
	}
	tree, err := document.Parse(body)
	if err == nil {
		err = checkUnique(body)
	}
	if err != nil {
		return fail(err)
	}
	return object{tree: tree, bad: new(*Error)}, nil
}

// checkUnique returns an error for an object with two members of a name, which package json
// accepts. The text is valid JSON.
func checkUnique(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	var names []map[string]bool // of the open objects and arrays, nil for an array
	isName := false
	for {
		token, err := d.Token()
		if err != nil {
			return nil // the end
		}
		switch t := token.(type) {
		case json.Delim:
			switch t {
			case '{':
				names = append(names, make(map[string]bool))
			case '[':
				names = append(names, nil)
			default:
				names = names[:len(names)-1]
			}
		case string:
			if isName && names[len(names)-1][t] {
				return fmt.Errorf("two members are named %q", t)
			}
			if isName {
				names[len(names)-1][t] = true
				isName = false
				continue // a value follows
			}
		}
		isName = len(names) > 0 && names[len(names)-1] != nil
	}
}

// fail notes a problem of a member.
func (o object) fail(name, format string, args ...any) {
	o.failAs(updatedata.CodeInvalidRequest, name, format, args...)
}

func (o object) failAs(code updatedata.Code, name, format string, args ...any) {
	if *o.bad == nil {
		*o.bad = refusef(code, o.path+name, o.path+name+" "+format, args...)
	}
}

func (o object) has(name string) bool { return o.tree[name] != nil }

// object returns a member that is an object. Without the member, or if it is null or another value,
// the object is empty; that is a problem unless the member is absent and optional.
func (o object) object(name string, optional bool) object {
	v, ok := o.tree[name]
	tree, isObject := v.(document.Tree)
	if !isObject && (ok || !optional) {
		o.fail(name, "must be an object")
	}
	return object{o.path + name + ".", tree, o.bad}
}

// text returns a member that is a text of so many characters. If least is zero, it may be absent.
func (o object) text(name string, least, most int) string {
	v, ok := o.tree[name]
	s, isText := v.(string)
	n := utf8.RuneCountInString(s)
	switch {
	case !ok && least == 0:
	case !isText:
		o.fail(name, "must be a text")
	case n < least || n > most:
		o.fail(name, "has %d characters, %d to %d are allowed", n, least, most)
	}
	return s
}

// integer returns a member that is an integer of 64 bits.
func (o object) integer(name string) int64 {
	n, isNumber := o.tree[name].(json.Number)
	i, err := n.Int64()
	if !isNumber || err != nil {
		o.fail(name, "must be an integer")
	}
	return i
}

// updateID returns a member that is the id of an update; zero if it is absent. It must not be null.
func (o object) updateID(name string) updatedata.UpdateID {
	if _, ok := o.tree[name]; !ok {
		return updatedata.UpdateID{}
	}
	in := o.object(name, false)
	id := updatedata.UpdateID{Provider: in.text("provider", 1, 64), Name: in.text("name", 1, 64),
		Version: in.text("version", 1, 64)}
	if err := id.Check(); *o.bad == nil && err != nil {
		o.fail(name, "is wrong: %v", err)
	}
	return id
}
