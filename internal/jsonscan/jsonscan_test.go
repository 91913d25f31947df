package jsonscan_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/stretchr/testify/require"
)

func TestValid(t *testing.T) {
	for _, good := range []string{`{}`, ` [ ] `, `null`, `true`, `false`, `0`, `-0`, `-1.5e+7`, `1E5`,
		`"a\"\\\/\b\f\n\r\tÿ"`, `{"a":{"b":[1,2,{"c":null}]},"":0}`} {
		require.True(t, jsonscan.Valid([]byte(good)), good)
		require.True(t, json.Valid([]byte(good)), good)
	}
	for _, bad := range []string{``, ` `, `{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `[1,]`, `[1 2]`, `01`, `+1`, `.5`,
		`1.`, `1e`, `-`, `tru`, `nul`, `"`, `"\x"`, `"\u12g4"`, `"\u12`,
		"\"\n\"", `{} {}`, `1 1`, "\"\\"} {
		require.False(t, jsonscan.Valid([]byte(bad)), bad)
		require.False(t, json.Valid([]byte(bad)), bad)
	}
	for _, bad := range []string{"\"\x80\"", "{\"\xff\":1}", "[\"\xed\xa0\x80\"]"} { // RFC 8259, section 8.1
		require.False(t, jsonscan.Valid([]byte(bad)), "%q", bad)
		require.True(t, json.Valid([]byte(bad)), "%q", bad)
	}
	require.True(t, jsonscan.Valid([]byte(strings.Repeat("[", jsonscan.MaxDepth)+strings.Repeat("]", jsonscan.MaxDepth))))
	require.False(t, jsonscan.Valid([]byte(strings.Repeat("[", jsonscan.MaxDepth+1)+strings.Repeat("]",
		jsonscan.MaxDepth+1))))
	require.False(t, jsonscan.Valid([]byte(strings.Repeat("[", 1<<20))), "no deep recursion")
}

func TestIsObject(t *testing.T) {
	for text, want := range map[string]bool{`{}`: true, " \n{\"a\":1} ": true, `[]`: false, `1`: false, `{`: false,
		``: false, `{} 1`: false, "{\"\xff\":1}": false} {
		require.Equal(t, want, jsonscan.IsObject([]byte(text)), text)
	}
}

func TestMember(t *testing.T) {
	doc := []byte(
		` {"desired": {"interval":30, "$version":4 } ,"reported":[1, 2],"a\u0062\n":"x","twice":1,"twice":2,"é":true}`)
	for name, want := range map[string]string{
		"desired": `{"interval":30, "$version":4 }`, "reported": `[1, 2]`, "ab\n": `"x"`, "twice": `2`, "é": `true`,
	} {
		v, ok := jsonscan.Member(doc, name)
		require.True(t, ok, name)
		require.Equal(t, want, string(v), name)
	}
	for _, name := range []string{"", "desire", "desiredx", "interval", "$version"} {
		_, ok := jsonscan.Member(doc, name)
		require.False(t, ok, name)
	}
	for _, bad := range []string{``, `[]`, `{"a":1`, `{"a":1} x`} {
		_, ok := jsonscan.Member([]byte(bad), "a")
		require.False(t, ok, bad)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { jsonscan.Member(doc, "reported") }))
}

func TestMembers(t *testing.T) {
	var got []string
	show := func(name string, value []byte) { got = append(got, name+"="+string(value)) }
	require.True(t, jsonscan.Members([]byte(` {"a\u0062": [1, 2] ,"é":"x","ab":{"c":null}} `), show))
	require.Equal(t, []string{"ab=[1, 2]", `é="x"`, `ab={"c":null}`}, got)
	for _, bad := range []string{``, `[]`, `{"a":1`, `{"a":1} x`} {
		require.False(t, jsonscan.Members([]byte(bad), show), bad)
	}
}

func TestElements(t *testing.T) {
	var got []string
	show := func(value []byte) { got = append(got, string(value)) }
	require.True(t, jsonscan.Elements([]byte(" [ [1, 2] ,\"x\", {\"a\":[null]} ] "), show))
	require.Equal(t, []string{"[1, 2]", `"x"`, `{"a":[null]}`}, got)
	require.True(t, jsonscan.Elements([]byte("[]"), show))
	for _, bad := range []string{``, `{}`, `[1`, `[1] x`, `[1,]`} {
		require.False(t, jsonscan.Elements([]byte(bad), show), bad)
	}
}

func TestInt(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "-0": 0, "17": 17, "-17": -17, "9223372036854775807": 1<<63 - 1,
		"-9223372036854775808": -1 << 63} {
		n, ok := jsonscan.Int([]byte(text))
		require.True(t, ok, text)
		require.Equal(t, want, n, text)
	}
	for _, bad := range []string{"", "-", "01", "1.0", "1e3", "9223372036854775808", "-9223372036854775809",
		"99999999999999999999", `"1"`} {
		_, ok := jsonscan.Int([]byte(bad))
		require.False(t, ok, bad)
	}
}

func TestAStringIsReadAsItWasWritten(t *testing.T) {
	for _, text := range []string{"", "plain", "a\"b\\c/\x00\n\x1f\x7f", "é€😀\u2028"} {
		raw := jsonscan.AppendString([]byte("x"), text)[1:]
		require.Equal(t, text, jsonscan.Text(raw))
		var read string
		require.NoError(t, json.Unmarshal(raw, &read))
		require.Equal(t, text, read)
	}
	require.Equal(t, "\"\ufffd\"", string(jsonscan.AppendString(nil, "\x80")))
}

// encoding/json is the reference.
func FuzzAgainstEncodingJSON(f *testing.F) {
	for _, seed := range []string{`{"desired":{"$version":4},"reported":{}}`, `{"a\u0062":[1,2.5e3,null,true,"x"]}`,
		`"\ud83d\ude00"`, `[[[[]]]]`, `-0.1E-2`,
		"{\"\x80\":1}"} {
		f.Add([]byte(seed), "a")
	}
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		if jsonscan.Valid(text) != (json.Valid(text) && utf8.Valid(text)) {
			if strings.Count(string(text), "[")+strings.Count(string(text), "{") <= jsonscan.MaxDepth {
				t.Fatalf("%q: valid %v", text, jsonscan.Valid(text))
			}
			return
		}
		var members map[string]json.RawMessage
		isObject := json.Unmarshal(text, &members) == nil && members != nil
		if !jsonscan.Valid(text) {
			isObject = false
		}
		if jsonscan.IsObject(text) != isObject {
			t.Fatalf("%q: object %v", text, !isObject)
		}
		value, ok := jsonscan.Member(text, name)
		if ok && !json.Valid(value) {
			t.Fatalf("%q has %q = %q", text, name, value)
		}
		plain := !(strings.Contains(string(text), "\\") || strings.IndexByte(string(text), 0x80) >= 0) &&
			strings.ToValidUTF8(string(text),
				"") == string(text)
		if want, has := members[name]; plain && isObject && (has != ok || string(want) != string(value)) {
			t.Fatalf("%q: %q is %q, %v; want %q, %v", text, name, value, ok, want, has)
		}
	})
}
