package http

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/transport"
)

// A batch entry is JSON that any parser reads back as the same message.
func FuzzAppendEntry(f *testing.F) {
	f.Add([]byte("body"), "id", "user", "name", "value")
	f.Add([]byte{0, 0xff}, "ä\"\\\x00", "\x01\"é", "a!#$%&'*+-.^_`|~", "line\r\n\u2028</script>\x7f")
	f.Fuzz(func(t *testing.T, body []byte, id, user, name, value string) {
		m := &transport.Message{Body: body, ID: id, System: &transport.SystemProperties{UserID: user},
			Properties: []transport.Property{{Name: name, Value: value}}}
		if e := check(m); e != nil {
			if isToken(name) && utf8.ValidString(id) && utf8.ValidString(user) && utf8.ValidString(value) &&
				m.Size() <= transport.MaxMessageSize {
				t.Fatalf("refused: %v", e)
			}
			return
		}
		text := appendEntry([]byte("x"), m)[1:]
		var got struct {
			Body          []byte
			Base64Encoded bool
			Properties    map[string]string
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&got); err != nil || d.More() {
			t.Fatalf("%s: %v", text, err)
		}
		n := 1
		for _, s := range []string{id, user} {
			if s != "" {
				n++
			}
		}
		if !bytes.Equal(got.Body, body) || !got.Base64Encoded || got.Properties["iothub-messageid"] != id ||
			got.Properties["iothub-userid"] != user || got.Properties["iothub-app-"+name] != value ||
			len(got.Properties) != n {
			t.Fatalf("%s", text)
		}
		if fitsHeaders(m, true) && (!plain(id) || !plain(user) || !plain(value)) {
			t.Fatal("a header would change it")
		}
	})
}

// Encoding allocates nothing beyond the buffer.
func TestAnEntryAllocatesNothing(t *testing.T) {
	m := &transport.Message{ID: "m-1", Body: make([]byte, 100), Properties: []transport.Property{{Name: "level",
		Value: "high"}, {Name: "unit", Value: "°C"}}}
	buf := make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() { buf = appendEntry(buf[:0], m) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if check(m) != nil {
			t.Error("refused")
		}
	}); n > 0 {
		t.Errorf("%v allocations to check", n)
	}
}

// Each text of a message has a row, or is refused by package operr, or comes only from a hub.
func TestEveryTextHasARow(t *testing.T) {
	others := map[string]bool{"Topic": true, "ResponseTopic": true, "Input": true}
	rows := map[string]bool{}
	for _, p := range textProperties {
		if rows[p.field] || others[p.field] {
			t.Errorf("%s has two rows", p.field)
		}
		rows[p.field] = true
	}
	m := &transport.Message{System: new(transport.SystemProperties)}
	count := 0
	for prefix, of := range map[string]any{"": m, "System.": m.System} {
		v := reflect.ValueOf(of).Elem()
		for i := range v.NumField() {
			name := prefix + v.Type().Field(i).Name
			if v.Field(i).Kind() != reflect.String || others[name] {
				continue
			}
			count++
			v.Field(i).SetString("x")
			for _, p := range textProperties {
				if got := *p.at(m, m.System); (got == "x") != (p.field == name) {
					t.Errorf("row %s has %q when %s is set", p.field, got, name)
				}
			}
			v.Field(i).SetString("")
			if !rows[name] {
				t.Errorf("%s has no row", name)
			}
		}
	}
	if count != len(textProperties) {
		t.Errorf("%d fields, %d rows", count, len(textProperties))
	}
}
