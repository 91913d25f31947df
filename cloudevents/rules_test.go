package cloudevents_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cloudevents"
)

func valid() cloudevents.Event {
	return cloudevents.Event{ID: "1", Source: "/s", Type: "t"}
}

func attributeError(t *testing.T, err error, name string) {
	t.Helper()
	var fault *cloudevents.AttributeError
	require.ErrorAs(t, err, &fault)
	require.Equal(t, name, fault.Name, "%v", err)
	require.True(t, strings.HasPrefix(err.Error(), "cloudevents: "), "%v", err)
	require.NotContains(t, err.Error(), "\n")
}

// Each rule of the specification has an event that breaks it alone, and the error names the
// attribute.
func TestABrokenRuleIsReportedWithItsAttribute(t *testing.T) {
	require.NoError(t, ptr(valid()).Validate())
	for _, c := range []struct {
		name  string
		spoil func(*cloudevents.Event)
	}{
		{"id", func(e *cloudevents.Event) { e.ID = "" }},
		{"id", func(e *cloudevents.Event) { e.ID = "a\nb" }},
		{"id", func(e *cloudevents.Event) { e.ID = "a\x7f" }},
		{"id", func(e *cloudevents.Event) { e.ID = "a\u0085" }},
		{"id", func(e *cloudevents.Event) { e.ID = "a\ufffe" }},
		{"id", func(e *cloudevents.Event) { e.ID = "a\ufdd0" }},
		{"id", func(e *cloudevents.Event) { e.ID = "a\U0010ffff" }},
		{"id", func(e *cloudevents.Event) { e.ID = "a\xff" }},
		{"id", func(e *cloudevents.Event) { e.ID = strings.Repeat("x", 65536) }},
		{"source", func(e *cloudevents.Event) { e.Source = "" }},
		{"source", func(e *cloudevents.Event) { e.Source = "a b" }},
		{"type", func(e *cloudevents.Event) { e.Type = "" }},
		{"subject", func(e *cloudevents.Event) { e.Subject = "\x00" }},
		{"time", func(e *cloudevents.Event) { e.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"dataschema", func(e *cloudevents.Event) { e.DataSchema = "/relative" }},
		{"dataschema", func(e *cloudevents.Event) { e.DataSchema = "urn:a#fragment" }},
		{"datacontenttype", func(e *cloudevents.Event) { e.DataContentType = "json" }},
		{"Level", func(e *cloudevents.Event) { e.Extensions = map[string]any{"Level": "1"} }},
		{"a-b", func(e *cloudevents.Event) { e.Extensions = map[string]any{"a-b": true} }},
		{"a_b", func(e *cloudevents.Event) { e.Extensions = map[string]any{"a_b": time.Now()} }},
		{"", func(e *cloudevents.Event) { e.Extensions = map[string]any{"": "1"} }},
		{"é", func(e *cloudevents.Event) { e.Extensions = map[string]any{"é": "1"} }},
		{"data", func(e *cloudevents.Event) { e.Extensions = map[string]any{"data": "1"} }},
		{"id", func(e *cloudevents.Event) { e.Extensions = map[string]any{"id": "1"} }},
		{"a", func(e *cloudevents.Event) { e.Extensions = map[string]any{"a": 1.5} }},
		{"a", func(e *cloudevents.Event) { e.Extensions = map[string]any{"a": 1 << 31} }},
		{"a", func(e *cloudevents.Event) { e.Extensions = map[string]any{"a": nil} }},
		{"a", func(e *cloudevents.Event) { e.Extensions = map[string]any{"a": "\x1f"} }},
		{"x124", func(e *cloudevents.Event) {
			e.Extensions = map[string]any{}
			for i := range 125 {
				e.Extensions[fmt.Sprintf("x%03d", i)] = ""
			}
		}},
	} {
		e := valid()
		c.spoil(&e)
		attributeError(t, e.Validate(), c.name)
		_, err := e.MarshalJSON()
		attributeError(t, err, c.name)
		_, err = e.Message()
		attributeError(t, err, c.name)
	}
	e := valid()
	e.DataContentType, e.Data = "application/json", []byte("{")
	require.NoError(t, e.Validate(), "data is opaque in the binary mode")
	_, err := e.MarshalJSON()
	attributeError(t, err, "data")
	e.Data = []byte("\"\xff\"")
	_, err = e.MarshalJSON()
	attributeError(t, err, "data")
}

func ptr(e cloudevents.Event) *cloudevents.Event { return &e }

func TestSourcesAreURIReferences(t *testing.T) {
	for _, good := range []string{
		"https://github.com/cloudevents", "mailto:cncf-wg-serverless@lists.cncf.io",
		"urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66", "cloudevents/spec/pull/123", "/sensors/tn-1234567/alerts",
		"1-555-123-4567", "//host/path", "//user:pw@host:80/", "http://[::1]:8080/a?b=c/d?e#f/g", "?q", "#f", "a%20b",
		"./a:b",
		"a/b:c", "http://", "file:///etc", "http://host:", "a:",
	} {
		e := valid()
		e.Source = good
		require.NoError(t, e.Validate(), good)
	}
	for _, bad := range []string{
		"a b", "é", "a%2", "a%zz", "1a:b", ":a", "a\\b", "<a>", "a#b#c", "http://host:8a/", "http://[::1/", "http://[::1]x",
		"http://[::1]80",
		"http://a]b/", "a[b]", "http://a b@c", "http://[]", "a^b", "a`b", "{device}",
	} {
		e := valid()
		e.Source = bad
		attributeError(t, e.Validate(), "source")
	}
	e := valid()
	e.DataSchema = "https://example.com/schema?v=1"
	require.NoError(t, e.Validate())
}

// Media types decide how data goes into JSON.
func TestDataGoesAsJSONTextOrBase64(t *testing.T) {
	for _, c := range []struct{ contentType, data, want string }{
		{"application/json", `{"a":1}`, `"data":{"a":1}`},
		{"Application/JSON", `null`, `"data":null`},
		{"application/vnd.x+json; v=1", `[1]`, `"data":[1]`},
		{"text/json", `"x"`, `"data":"x"`},
		{"application/json", "", ``},
		{"text/plain", "a\"\\\n\r\t\x01é", `"data":"a\"\\\n\r\t\u0001é"`},
		{`text/plain; charset="UTF-8"`, "é", `"data":"é"`},
		{"image/svg+xml", "<svg/>", `"data":"<svg/>"`},
		{"text/plain; charset=iso-8859-1", "\xe9", `"data_base64":"6Q=="`},
		{"text/plain", "\xe9", `"data_base64":"6Q=="`},
		{"application/octet-stream", "abc", `"data_base64":"YWJj"`},
		{"application/jsonx", "abc", `"data_base64":"YWJj"`},
		{"", `{"a":1}`, `"data_base64":"eyJhIjoxfQ=="`},
	} {
		e := valid()
		e.DataContentType = c.contentType
		if c.data != "" {
			e.Data = []byte(c.data)
		}
		text, err := e.MarshalJSON()
		require.NoError(t, err)
		if c.want == "" {
			require.NotContains(t, string(text), `"data"`)
		} else {
			require.True(t, strings.HasSuffix(string(text), ","+c.want+"}"), "%s", text)
		}
		var got cloudevents.Event
		require.NoError(t, got.UnmarshalJSON(text))
		require.Equal(t, e, got)
	}
}

func TestMediaTypesAreChecked(t *testing.T) {
	for contentType, ok := range map[string]bool{
		"text/plain": true, "text/plain;charset=utf-8": true, "text/plain ; a=b ;c=\"d;\\\"e\"": true, "a/b": true,
		"text": false, "/": false, "text/": false, "text/pl ain": false, "text/plain;": false, "text/plain; a": false,
		"text/plain; a=": false, "text/plain; a=\"b": false, "text/plain; a=b c": false, "te(xt/plain": false, "a/b/c": false,
	} {
		e := valid()
		e.DataContentType = contentType
		if ok {
			require.NoError(t, e.Validate(), contentType)
		} else {
			attributeError(t, e.Validate(), "datacontenttype")
		}
	}
}

func TestExtensionsHaveTheTypesOfTheSpecification(t *testing.T) {
	e := valid()
	e.Extensions = map[string]any{
		"a": "text", "b": true, "c": int32(-1 << 31), "d": 1<<31 - 1, "e": []byte{0, 255},
		"f": time.Date(2030, 1, 2, 3, 4, 5, 60, time.FixedZone("", 3600)),
	}
	text, err := e.MarshalJSON()
	require.NoError(t, err)
	require.JSONEq(t, `{"specversion":"1.0","id":"1","source":"/s","type":"t","a":"text","b":true,"c":-2147483648,
		"d":2147483647,"e":"AP8=","f":"2030-01-02T02:04:05.00000006Z"}`, string(text))
	var got cloudevents.Event
	require.NoError(t, got.UnmarshalJSON(text))
	require.Equal(t, map[string]any{"a": "text", "b": true, "c": int32(-1 << 31), "d": int32(1<<31 - 1), "e": "AP8=",
		"f": "2030-01-02T02:04:05.00000006Z"}, got.Extensions)
	m, err := e.Message()
	require.NoError(t, err)
	got, err = cloudevents.Read(m)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"a": "text", "b": "true", "c": "-2147483648", "d": "2147483647", "e": "AP8=",
		"f": "2030-01-02T02:04:05.00000006Z"}, got.Extensions)
}

func TestTimesOfRFC3339(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2018-04-05T17:31:00Z":      time.Date(2018, 4, 5, 17, 31, 0, 0, time.UTC),
		"2018-04-05t17:31:00.5z":    time.Date(2018, 4, 5, 17, 31, 0, 5e8, time.UTC),
		"2018-04-05T17:31:00+02:00": time.Date(2018, 4, 5, 15, 31, 0, 0, time.UTC),
		"2016-12-31T23:59:60Z":      time.Date(2017, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		var e cloudevents.Event
		require.NoError(t, e.UnmarshalJSON([]byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t","time":"`+text+
			`"}`)))
		require.Equal(t, want, e.Time, text)
	}
}

// Texts that are no events, and the attribute that the error names.
func TestWrongJSONIsRefused(t *testing.T) {
	const min = `"specversion":"1.0","id":"1","source":"/s","type":"t"`
	for _, c := range []struct{ text, name string }{
		{``, ""}, {`[]`, ""}, {`{` + min, ""}, {`{` + min + `} {}`, ""}, {"{" + min + ",\"a\":\"\xff\"}", ""},
		{`{` + min + `,"data":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, ""},
		{`{}`, "specversion"}, {`{"specversion":"0.3","id":"1"}`, "specversion"}, {`{"specversion":1}`, "specversion"},
		{`{"specversion":"1.0","source":"/s","type":"t"}`, "id"},
		{`{"specversion":"1.0","id":"1","type":"t"}`, "source"},
		{`{"specversion":"1.0","id":"1","source":"/s"}`, "type"},
		{`{"specversion":"1.0","id":1,"source":"/s","type":"t"}`, "id"},
		{`{` + min + `,"id":"2"}`, "id"}, {`{` + min + `,"a":1,"a":null}`, "a"},
		{`{` + min + `,"subject":""}`, "subject"}, {`{` + min + `,"subject":{}}`, "subject"},
		{`{` + min + `,"time":"yesterday"}`, "time"}, {`{` + min + `,"time":"2018-04-05T17:61:00Z"}`, "time"},
		{`{` + min + `,"dataschema":"x y"}`, "dataschema"}, {`{` + min + `,"datacontenttype":"x"}`, "datacontenttype"},
		{`{` + min + `,"Level":1}`, "Level"}, {`{` + min + `,"":1}`, ""}, {`{` + min + `,"a":1.5}`, "a"},
		{`{` + min + `,"a":1e2}`, "a"}, {`{` + min + `,"a":2147483648}`, "a"}, {`{` + min + `,"a":[]}`, "a"},
		{`{` + min + `,"a":"\u0007"}`, "a"}, {`{` + min + `,"a":"\uDEAD"}`, "a"}, {`{` + min + `,"a":"\uD800\u0041"}`, "a"},
		{`{` + min + `,"a":"\uD800x"}`, "a"},
		{`{` + min + `,"data":1,"data_base64":"AA=="}`, "data"}, {`{` + min + `,"data_base64":"!"}`, "data_base64"},
		{`{` + min + `,"data_base64":1}`, "data_base64"}, {`{` + min + `,"datacontenttype":"text/plain","data":1}`, "data"},
		{`{` + min + `,"datacontenttype":"text/plain;charset=utf-16","data":"x"}`, "data"},
		{`{` + min + `,"datacontenttype":"text/plain","data":"\uDC00"}`, "data"},
	} {
		var e cloudevents.Event
		attributeError(t, e.UnmarshalJSON([]byte(c.text)), c.name)
		require.Zero(t, e)
	}
	many := `{` + min
	for i := range 130 {
		many += fmt.Sprintf(`,"x%03d":null`, i)
	}
	var e cloudevents.Event
	attributeError(t, e.UnmarshalJSON([]byte(many+"}")), "x126")
	require.NoError(t, e.UnmarshalJSON([]byte(`{`+min+`,"a":"\uD83D\uDE00\\u\u00e9","data_base64":null}`)))
	require.Equal(t, map[string]any{"a": "😀\\ué"}, e.Extensions)
}
