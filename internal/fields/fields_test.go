package fields_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/fields"
)

type window struct {
	From int8 `json:"from"`
}

type all struct {
	Name    string         `json:"name"`
	On      bool           `json:"on,omitempty"`
	Small   uint8          `json:"small"`
	Ratio   float32        `json:"ratio"`
	List    []int          `json:"list"`
	Window  window         `json:"window"`
	Map     map[string]int `json:"map"`
	Odd     odd            `json:"odd"`
	Plain   int
	Ignored int `json:"-"`
	hidden  int
}

type odd struct{ text string }

func (o *odd) UnmarshalJSON(b []byte) error {
	if string(b) == `"bad"` {
		return errors.New("SharedAccessKey=c2VjcmV0LWtleS1vZi10aGUtdGVzdHM=")
	}
	o.text = string(b)
	return nil
}

func TestNamesAreThoseOfJSON(t *testing.T) {
	set, err := fields.Of(reflect.TypeFor[all]())
	require.NoError(t, err)
	require.Equal(t, []string{"name", "on", "small", "ratio", "list", "window", "map", "odd", "Plain"}, set.Names)
	require.False(t, set.Has("hidden"))
	v := all{hidden: 1}
	require.NoError(t, set.Decode(reflect.ValueOf(&v).Elem(), "Plain", []byte("3")))
	require.Equal(t, all{Plain: 3, hidden: 1}, v)
}

func TestStructsThatHaveNoFieldForEachName(t *testing.T) {
	for want, typ := range map[string]reflect.Type{
		"int is not a struct":       reflect.TypeFor[int](),
		"is not a struct":           reflect.TypeFor[any](),
		"embeds fields_test.window": reflect.TypeFor[struct{ window }](),
		"option string": reflect.TypeFor[struct {
			A int `json:",string"`
		}](),
		"two fields": reflect.TypeFor[struct {
			A int `json:"B"`
			B int
		}](),
	} {
		_, err := fields.Of(typ)
		require.ErrorContains(t, err, want)
	}
	_, err := fields.Of(reflect.TypeFor[struct {
		window `json:"w"`
	}]())
	require.NoError(t, err, "it has a name of its own")
}

func TestEachErrorNamesItsField(t *testing.T) {
	set, err := fields.Of(reflect.TypeFor[all]())
	require.NoError(t, err)
	for text, want := range map[string]string{
		`{"name":1}`:               "field name: want a string, got a number",
		`{"on":"yes"}`:             "field on: want true or false, got a string",
		`{"small":256}`:            "field small: want a whole number in its range, not below 0, got a number",
		`{"small":-1}`:             "field small: want a whole number in its range, not below 0, got a number",
		`{"ratio":1e99}`:           "field ratio: want a number in its range, got a number",
		`{"list":{}}`:              "field list: want an array, got an object",
		`{"list":[1,"x"]}`:         "field list: want a whole number in its range, got a string",
		`{"window":[]}`:            "field window: want an object, got an array",
		`{"window":{"from":true}}`: "field window.from: want a whole number in its range, got true or false",
		`{"NAME":1}`:               "field name: want a string, got a number",
		`{"nam":"x"}`:              "field nam: there is no such field",
		`{"a\nb":1}`:               `field a\nb: there is no such field`,
		`{"name":2,"on":2,"bogus":{}}`: "field name: want a string, got a number\n" +
			"field on: want true or false, got a number\nfield bogus: there is no such field",
		`[]`:                             "want an object, got an array",
		`{"window":{"from":1,"form":2}}`: "field window: there is no such field: form",
	} {
		var v all
		err := set.DecodeAll(reflect.ValueOf(&v), []byte(text))
		require.EqualError(t, err, want, text)
		require.NotEmpty(t, fields.Named(err))
	}
	var v all
	err = set.DecodeAll(reflect.ValueOf(&v), []byte(`{"odd":"bad","name":"x"}`))
	require.ErrorContains(t, err, "field odd: ")
	require.NotContains(t, err.Error(), "c2VjcmV0", "errors of the program's types may quote a secret")
	require.Equal(t, "x", v.Name, "the other fields are decoded")
}

// encoding/json is the reference, for each order of members.
func TestNamesMatchAsThoseOfEncodingJSON(t *testing.T) {
	type cases struct {
		Times int
		Name  string `json:"name"`
		A     int    `json:"a"`
		Upper int    `json:"A"`
	}
	set, err := fields.Of(reflect.TypeFor[cases]())
	require.NoError(t, err)
	for _, text := range []string{
		`{"times":1}`, `{"TIMES":2,"NAME":"x"}`, `{"Times":1,"times":2}`, `{"times":2,"Times":1,"tImes":3}`,
		`{"a":1,"A":2}`, `{"A":1}`, `{"times":1,"times":null}`, `{"\u0074imes":4,"Na\u006de":"x"}`, `null`, `{}`,
	} {
		var got, want cases
		require.NoError(t, json.Unmarshal([]byte(text), &want), text)
		require.NoError(t, set.DecodeAll(reflect.ValueOf(&got), []byte(text)), text)
		require.Equal(t, want, got, text)
	}
}

func TestErrorsAreBounded(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, `,"f%d":1`, i)
	}
	set, err := fields.Of(reflect.TypeFor[all]())
	require.NoError(t, err)
	var v all
	err = set.DecodeAll(reflect.ValueOf(&v), []byte("{"+text.String()[1:]+"}"))
	require.Len(t, fields.Named(err), 10)
}

func TestNamedFindsErrorsInTheTree(t *testing.T) {
	a, b := &fields.Error{Field: "a", Err: errors.New("x")}, &fields.Error{Field: "b", Err: fields.ErrUnknown}
	err := fmt.Errorf("both: %w", errors.Join(a, errors.New("other"), fmt.Errorf("wrapped: %w", b)))
	require.Equal(t, []*fields.Error{a, b}, fields.Named(err))
	require.ErrorIs(t, err, fields.ErrUnknown)
	require.Empty(t, fields.Named(errors.New("none")))
	require.Empty(t, fields.Named(nil))
}

func TestAWholeValue(t *testing.T) {
	var n int
	require.NoError(t, fields.Value(&n, []byte("3")))
	require.Equal(t, 3, n)
	require.EqualError(t, fields.Value(&n, []byte(`"3"`)), "want a whole number in its range, got a string")
	require.Error(t, fields.Value(&n, []byte(`{`)))
	require.Error(t, fields.Value(n, []byte(`1`)), "no pointer")
}
