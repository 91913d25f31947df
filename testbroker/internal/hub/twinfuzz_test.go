package hub_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hubline-iot/hubline/testbroker"
)

// FuzzPatch sets a document, patches it, and compares the result with RFC 7396. A refused patch
// must change nothing, and the result must be accepted as a document.
func FuzzPatch(f *testing.F) {
	for _, c := range [][2]string{
		{`{"a":"b"}`, `{"a":"c"}`}, {`{"a":"b"}`, `{"b":"c"}`}, {`{"a":"b"}`, `{"a":null}`}, {`{"a":["b"]}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`}, {`{"a":[{"b":"c"}]}`, `{"a":[1]}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`}, {`{"e":null}`, `{"a":1}`},
	} {
		f.Add(c[0], c[1])
	}
	f.Fuzz(func(t *testing.T, document, patch string) {
		h, err := testbroker.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		if _, err := h.AddDevice("d"); err != nil {
			t.Fatal(err)
		}
		if _, err := h.SetDesired("d", document); err != nil {
			return
		}
		before, _ := h.Twin("d")
		if _, err = h.PatchDesired("d", patch); err != nil {
			after, _ := h.Twin("d")
			if string(after.Desired) != string(before.Desired) || after.Version != before.Version {
				t.Fatalf("%s refused for %v, yet it made %s of %s", patch, err, after.Desired, before.Desired)
			}
			return
		}
		after, _ := h.Twin("d")
		want := rfc7396(decoded(t, before.Desired), decoded(t, []byte(patch)))
		text, _ := json.Marshal(want)
		got, _ := json.Marshal(decoded(t, after.Desired))
		if string(got) != string(text) {
			t.Fatalf("%s patched with %s is %s, not %s", before.Desired, patch, text, got)
		}
		if _, err := h.SetDesired("d", string(after.Desired)); err != nil {
			t.Fatalf("%s cannot be set: %v", after.Desired, err)
		}
	})
}

func decoded(t *testing.T, text []byte) any {
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// rfc7396 is the pseudocode in RFC 7396, section 2.
func rfc7396(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, ok := target.(map[string]any)
	if !ok {
		t = map[string]any{}
	}
	for name, value := range p {
		if value == nil {
			delete(t, name)
		} else {
			t[name] = rfc7396(t[name], value)
		}
	}
	return t
}
