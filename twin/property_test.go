package twin_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/twin"
)

func wish(component, name, value string) twin.Property {
	return twin.Property{Component: component, Name: name, Value: json.RawMessage(value), Version: 7}
}

func TestPropertiesOfTheRootAndOfComponents(t *testing.T) {
	type all = []twin.Property
	known := []string{"thermostat1", "thermostat2"}
	for _, c := range []struct {
		name, json string
		components []string
		want       all
	}{
		{"nothing", `{"$version":7}`, nil, nil},
		{"the root", `{"targetTemperature":21.3,"led":true,"$version":7}`, nil,
			all{wish("", "led", "true"), wish("", "targetTemperature", "21.3")}},
		{"a component by its marker", `{"thermostat1":{"__t":"c","targetTemperature":21.3},"$version":7}`, nil,
			all{wish("thermostat1", "targetTemperature", "21.3")}},
		{"a component by its name", `{"thermostat1":{"targetTemperature":21.3}}`, known,
			all{wish("thermostat1", "targetTemperature", "21.3")}},
		{"an object without marker", `{"window":{"from":1,"to":2}}`, known,
			all{wish("", "window", `{"from":1,"to":2}`)}},
		{"another marker", `{"window":{"__t":"d","to":2}}`, nil, all{wish("", "window", `{"__t":"d","to":2}`)}},
		{"the root before components", `{"a":{"__t":"c","x":1},"b":2}`, nil,
			all{wish("", "b", "2"), wish("a", "x", "1")}},
		{"an object in a component", `{"thermostat1":{"__t":"c","window":{"from":1}}}`, nil,
			all{wish("thermostat1", "window", `{"from":1}`)}},
		{"removed", `{"led":null,"thermostat1":{"__t":"c","targetTemperature":null}}`, nil,
			all{wish("", "led", "null"), wish("thermostat1", "targetTemperature", "null")}},
		{"a component removed", `{"thermostat2":null}`, known, all{wish("thermostat2", "", "null")}},
		{"what the hub adds", `{"$metadata":{"led":{}},"$version":7,"thermostat1":{"__t":"c","$metadata":{},"led":1}}`, nil,
			all{wish("thermostat1", "led", "1")}},
		{"without a name", `{"":1,"thermostat1":{"__t":"c","":null}}`, nil, nil},
		{"twice", `{"led":1,"led":2}`, nil, all{wish("", "led", "2")}},
	} {
		for _, full := range []bool{false, true} {
			got, err := twin.Properties(device.Desired{Version: 7, Full: full, JSON: []byte(c.json)}, c.components...)
			require.NoError(t, err, c.name)
			require.Equal(t, c.want, got, c.name)
		}
	}
}

func TestPropertiesThatAreNone(t *testing.T) {
	for _, text := range []string{``, `null`, `3`, `[]`, `"x"`, `{`, `{"a":}`} {
		got, err := twin.Properties(device.Desired{JSON: []byte(text)})
		require.ErrorIs(t, err, transport.Protocol, text)
		require.Empty(t, got)
	}
	got, err := twin.Properties(device.Desired{Version: 7, JSON: []byte(`{"thermostat1":21,"led":true}`)}, "thermostat1")
	require.ErrorIs(t, err, transport.Protocol)
	require.ErrorContains(t, err, `"thermostat1"`)
	require.Equal(t, []twin.Property{wish("", "led", "true")}, got, "what can be read is returned all the same")
}

func TestPropertiesOutliveTheChange(t *testing.T) {
	text := []byte(`{"led":true}`)
	got, err := twin.Properties(device.Desired{JSON: text})
	require.NoError(t, err)
	clear(text)
	require.Equal(t, "true", string(got[0].Value))
}

func TestDecodeOfAProperty(t *testing.T) {
	var f float64
	require.NoError(t, wish("", "led", "2.5").Decode(&f))
	require.Equal(t, 2.5, f)

	err := wish("thermostat1", "led", `"on"`).Decode(&f)
	require.ErrorIs(t, err, transport.Protocol)
	require.ErrorContains(t, err, `property "led" of component "thermostat1"`)
	var small int8
	require.ErrorIs(t, wish("", "led", "1000").Decode(&small), transport.Protocol)

	require.ErrorIs(t, wish("", "led", "1").Decode(f), transport.Invalid)
	require.ErrorIs(t, wish("", "led", "1").Decode(nil), transport.Invalid)
	f = 3
	require.ErrorIs(t, wish("", "led", "null").Decode(&f), transport.Invalid,
		"null would leave the variable as it is and look like success")
	require.Equal(t, 3.0, f)
}

// Every property that is read can be answered, and the client accepts the answer as a patch;
// nothing panics.
func FuzzProperties(f *testing.F) {
	for _, seed := range []string{
		`{"targetTemperature":21.3,"$version":4}`, `{"thermostat1":{"__t":"c","targetTemperature":21.3},"$version":4}`,
		`{"thermostat1":null}`, `{"a":{"__t":"c"}}`, `{"a":{"__t":"c","a":{"__t":"c"}}}`,
		`{"a":[1,{"b":null}]}`, `{"\u0000":1}`, "{\"\xff\":1}", `null`, `{"a":1e999}`, `{"":{"__t":"c","x":1}}`,
	} {
		f.Add([]byte(seed), "thermostat1")
	}
	f.Fuzz(func(t *testing.T, text []byte, component string) {
		all, err := twin.Properties(device.Desired{Version: 7, JSON: text}, component)
		if err != nil {
			require.ErrorIs(t, err, transport.Protocol)
		}
		for _, one := range all {
			require.True(t, json.Valid(one.Value), "%q", one.Value)
			require.NotEqual(t, "__t", one.Name)
			require.True(t, one.Name != "" || one.Component == component && one.Removed(), "%+v", one)
			var any any
			if err := one.Decode(&any); err != nil {
				require.True(t, one.Removed() || transport.KindOf(err) == transport.Protocol, "%v", err)
			}
			var p twin.Patch
			p.Answer(one, twin.Answer{Status: twin.StatusOK})
			patch, err := p.JSON()
			if err != nil {
				require.ErrorIs(t, err, transport.Invalid)
				continue
			}
			back, err := twin.Properties(device.Desired{JSON: patch})
			require.NoError(t, err)
			require.Len(t, back, 1)
			require.Equal(t, [2]string{one.Component, one.Name}, [2]string{back[0].Component, back[0].Name})
		}
	})
}
