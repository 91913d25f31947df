package twin

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

func object(t testing.TB, text string) map[string]any {
	o, err := decodeObject([]byte(text))
	require.NoError(t, err, text)
	return o
}

// The examples of RFC 7396, appendix A.
func TestTheExamplesOfTheRFC(t *testing.T) {
	for _, c := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	} {
		target, err := decodeJSON([]byte(c[0]))
		require.NoError(t, err)
		patch, err := decodeJSON([]byte(c[1]))
		require.NoError(t, err)
		text, err := json.Marshal(mergePatch(target, patch))
		require.NoError(t, err)
		require.JSONEq(t, c[2], string(text), "%s and %s", c[0], c[1])
		unchanged, err := json.Marshal(target)
		require.NoError(t, err)
		require.JSONEq(t, c[0], string(unchanged))
	}
}

func TestTheDifferenceOfTwoObjects(t *testing.T) {
	for _, c := range [][3]string{
		{`{"a":1}`, `{"a":1}`, `{}`},
		{`{"a":1}`, `{"a":1.0}`, `{}`},
		{`{"a":100}`, `{"a":1e2}`, `{}`},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, `{"a":9007199254740992}`},
		{`{"a":1}`, `{"a":"1"}`, `{"a":"1"}`},
		{`{"a":1,"b":2}`, `{"b":2}`, `{"a":null}`},
		{`{"a":1}`, `{"a":null}`, `{"a":null}`},
		{`{}`, `{"a":null}`, `{}`},
		{`{"a":{"b":1,"c":2}}`, `{"a":{"b":1,"c":3}}`, `{"a":{"c":3}}`},
		{`{"a":{"b":1}}`, `{"a":2}`, `{"a":2}`},
		{`{"a":2}`, `{"a":{"b":1,"c":null}}`, `{"a":{"b":1}}`},
		{`{"a":[1,2]}`, `{"a":[1,2]}`, `{}`},
		{`{"a":[1,2]}`, `{"a":[1,3]}`, `{"a":[1,3]}`},
		{`{"a":[1]}`, `{"a":[1,2]}`, `{"a":[1,2]}`},
		{`{}`, `{"a":{}}`, `{"a":{}}`},
	} {
		patch, differ := diffPatch(object(t, c[0]), object(t, c[1]))
		text, err := json.Marshal(patch)
		require.NoError(t, err)
		require.JSONEq(t, c[2], string(text), "from %s to %s", c[0], c[1])
		require.Equal(t, c[2] != `{}`, differ)

		exported, err := Diff([]byte(c[0]), []byte(c[1]))
		require.NoError(t, err)
		if differ {
			require.JSONEq(t, c[2], string(exported))
		} else {
			require.Nil(t, exported)
		}
	}
}

func TestDiffTakesObjectsOnly(t *testing.T) {
	for _, texts := range [][2]string{{`5`, `{}`}, {`{}`, `null`}} {
		_, err := Diff([]byte(texts[0]), []byte(texts[1]))
		require.ErrorIs(t, err, transport.Invalid)
	}
}

// All of them are infinite as a big.Float, or zero.
func TestNumbersBeyondBigFloatsDiffer(t *testing.T) {
	numbers := []json.Number{"0", "1e-888888888", "1e-999999999", "1E888888888", "1e999999999", "-1e999999999"}
	for i, a := range numbers {
		for j, b := range numbers {
			require.Equal(t, i == j, equalJSON(a, b), "%s and %s", a, b)
		}
	}
}

func TestOnlyOneObjectIsDecoded(t *testing.T) {
	for _, text := range []string{``, `null`, `[]`, `1`, `{} {}`, `{}x`, `{`} {
		_, err := decodeObject([]byte(text))
		require.Error(t, err, text)
	}
}

// A difference that is merged makes the same document, and no difference is left.
func FuzzDiff(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1,"c":[1,null]}}`), []byte(`{"a":{"b":null,"d":{"e":null}}}`))
	f.Add([]byte(`{"a":1e999999999}`), []byte(`{"a":1e-999999999}`))
	f.Add([]byte(`{"a":0}`), []byte(`{"a":-0}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		from, err := decodeObject(a)
		if err != nil {
			return
		}
		to, err := decodeObject(b)
		if err != nil {
			return
		}
		from, _ = mergePatch(nil, from).(map[string]any) // a document has no null members
		patch, differ := diffPatch(from, to)
		merged, _ := mergePatch(from, patch).(map[string]any)
		require.True(t, equalJSON(merged, mergePatch(nil, to)), "%v", patch)
		require.Equal(t, !equalJSON(from, mergePatch(nil, to)), differ)
		_, differ = diffPatch(merged, to)
		require.False(t, differ)
	})
}
