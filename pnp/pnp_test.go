package pnp_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/pnp"
	"github.com/hubline-iot/hubline/transport"
)

func wish(component, name, value string) pnp.Property {
	return pnp.Property{Component: component, Name: name, Value: json.RawMessage(value), Version: 7}
}

func TestPropertiesOfTheRootAndOfComponents(t *testing.T) {
	known := []string{"thermostat1", "thermostat2"}
	for _, c := range []struct {
		name, json string
		components []string
		want       []pnp.Property
	}{
		{"nothing", `{"$version":7}`, nil, nil},
		{"the root", `{"targetTemperature":21.3,"led":true,"$version":7}`, nil, []pnp.Property{wish("", "led", "true"),
			wish("",
				"targetTemperature", "21.3")}},
		{"a component by its marker", `{"thermostat1":{"__t":"c","targetTemperature":21.3},"$version":7}`, nil,
			[]pnp.Property{wish("thermostat1",
				"targetTemperature", "21.3")}},
		{"a component by its name", `{"thermostat1":{"targetTemperature":21.3}}`, known, []pnp.Property{wish("thermostat1",
			"targetTemperature", "21.3")}},
		{"an object without marker", `{"window":{"from":1,"to":2}}`, known,
			[]pnp.Property{wish("", "window", `{"from":1,"to":2}`)}},
		{"another marker", `{"window":{"__t":"d","to":2}}`, nil, []pnp.Property{wish("", "window", `{"__t":"d","to":2}`)}},
		{"the root before components", `{"a":{"__t":"c","x":1},"b":2}`, nil, []pnp.Property{wish("", "b", "2"), wish("a", "x",
			"1")}},
		{"an object in a component", `{"thermostat1":{"__t":"c","window":{"from":1}}}`, nil,
			[]pnp.Property{wish("thermostat1",
				"window", `{"from":1}`)}},
		{"removed", `{"led":null,"thermostat1":{"__t":"c","targetTemperature":null}}`, nil, []pnp.Property{wish("", "led",
			"null"), wish("thermostat1", "targetTemperature", "null")}},
		{"a component removed", `{"thermostat2":null}`, known, []pnp.Property{wish("thermostat2", "", "null")}},
		{"what the hub adds", `{"$metadata":{"led":{}},"$version":7,"thermostat1":{"__t":"c","$metadata":{},"led":1}}`, nil,
			[]pnp.Property{wish("thermostat1",
				"led", "1")}},
		{"without a name", `{"":1,"thermostat1":{"__t":"c","":null}}`, nil, nil},
		{"twice", `{"led":1,"led":2}`, nil, []pnp.Property{wish("", "led", "2")}},
	} {
		for _, full := range []bool{false, true} {
			got, err := pnp.Properties(device.Desired{Version: 7, Full: full, JSON: []byte(c.json)}, c.components...)
			require.NoError(t, err, c.name)
			require.Equal(t, c.want, got, c.name)
		}
	}
}

func TestPropertiesThatAreNone(t *testing.T) {
	for _, text := range []string{``, `null`, `3`, `[]`, `"x"`, `{`, `{"a":}`} {
		got, err := pnp.Properties(device.Desired{JSON: []byte(text)})
		require.ErrorIs(t, err, transport.Protocol, text)
		require.Empty(t, got)
	}
	got, err := pnp.Properties(device.Desired{Version: 7, JSON: []byte(`{"thermostat1":21,"led":true}`)}, "thermostat1")
	require.ErrorIs(t, err, transport.Protocol)
	require.ErrorContains(t, err, `"thermostat1"`)
	require.Equal(t, []pnp.Property{wish("", "led", "true")}, got, "what can be read is returned all the same")
}

func TestPropertiesOutliveTheChange(t *testing.T) {
	text := []byte(`{"led":true}`)
	got, err := pnp.Properties(device.Desired{JSON: text})
	require.NoError(t, err)
	clear(text)
	require.Equal(t, "true", string(got[0].Value))
}

func TestDecode(t *testing.T) {
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

func TestPatches(t *testing.T) {
	for name, c := range map[string]struct {
		build func(p *pnp.Patch)
		want  string
	}{
		"nothing":   {func(*pnp.Patch) {}, `{}`},
		"the root":  {func(p *pnp.Patch) { p.Report("", "serial", "s-1") }, `{"serial":"s-1"}`},
		"removed":   {func(p *pnp.Patch) { p.Report("", "serial", nil) }, `{"serial":null}`},
		"the later": {func(p *pnp.Patch) { p.Report("", "n", 1); p.Report("", "n", 2) }, `{"n":2}`},
		"components": {func(p *pnp.Patch) {
			p.Report("a", "x", 1)
			p.Report("b", "x", 2)
			p.Report("a", "y", 3)
		}, `{"a":{"__t":"c","x":1,"y":3},"b":{"__t":"c","x":2}}`},
		"same name twice": {func(p *pnp.Patch) {
			p.Report("", "x", 1)
			p.Report("a", "x", 2)
		}, `{"a":{"__t":"c","x":2},"x":1}`},
		"accepted": {
			func(p *pnp.Patch) { p.Answer(wish("", "t", "21.5"), pnp.Answer{Status: pnp.OK}) },
			`{"t":{"value":21.5,"ac":200,"av":7,"ad":""}}`,
		},
		"refused": {
			func(p *pnp.Patch) {
				p.Answer(wish("a", "t", "-300"), pnp.Answer{Status: pnp.BadValue, Value: 20, Description: "too cold"})
			},
			`{"a":{"__t":"c","t":{"value":20,"ac":400,"av":7,"ad":"too cold"}}}`,
		},
		"initial": {
			func(p *pnp.Patch) { p.Initial("a", "t", 20, "by default") },
			`{"a":{"__t":"c","t":{"value":20,"ac":203,"av":0,"ad":"by default"}}}`,
		},
		"back to the default": {
			func(p *pnp.Patch) { p.Answer(wish("", "t", "null"), pnp.Answer{Status: pnp.Initial, Value: 20}) },
			`{"t":{"value":20,"ac":203,"av":7,"ad":""}}`,
		},
	} {
		var p pnp.Patch
		c.build(&p)
		got, err := p.JSON()
		require.NoError(t, err, name)
		require.Equal(t, c.want, string(got), name)
		require.Equal(t, c.want == `{}`, p.Empty(), name)
	}
}

func TestAPatchKeepsWhatWasReported(t *testing.T) {
	var p pnp.Patch
	value := []int{1, 2}
	p.Report("", "n", value)
	value[0] = 9
	got, err := p.JSON()
	require.NoError(t, err)
	require.Equal(t, `{"n":[1,2]}`, string(got))
}

func TestMistakesInPatches(t *testing.T) {
	for name, c := range map[string]struct {
		build func(p *pnp.Patch)
		want  string
	}{
		"no name":                  {func(p *pnp.Patch) { p.Report("", "", 1) }, `property's name ""`},
		"a name with a separator":  {func(p *pnp.Patch) { p.Report("", "a*b", 1) }, `"a*b"`},
		"a name of the hub's":      {func(p *pnp.Patch) { p.Report("", "$version", 1) }, `"$version"`},
		"a name beginning wrongly": {func(p *pnp.Patch) { p.Report("1a", "b", 1) }, `component's name "1a"`},
		"the marker":               {func(p *pnp.Patch) { p.Report("a", "__t", "c") }, `"__t"`},
		"a name that is too long":  {func(p *pnp.Patch) { p.Report("", strings.Repeat("x", 513), 1) }, `xxx"...`},
		"a value that is no JSON":  {func(p *pnp.Patch) { p.Report("a", "b", math.NaN()) }, `property "b" of component "a"`},
		"no status":                {func(p *pnp.Patch) { p.Answer(wish("", "a", "1"), pnp.Answer{}) }, "status 0"},
		"a removed component": {func(p *pnp.Patch) {
			p.Answer(wish("a", "", "null"), pnp.Answer{Status: 200})
		}, `name ""`},
		"a property and component": {func(p *pnp.Patch) { p.Report("", "a", 1); p.Report("a", "b", 1) }, "both"},
		"a component and property": {func(p *pnp.Patch) { p.Report("a", "b", 1); p.Report("", "a", 1) }, "both"},
	} {
		var p pnp.Patch
		c.build(&p)
		p.Report("", "good", 1)
		p.Report("", "", 1) // a second mistake does not replace the first
		got, err := p.JSON()
		require.ErrorIs(t, err, transport.Invalid, name)
		require.ErrorContains(t, err, c.want, name)
		require.Nil(t, got, name)
		require.False(t, p.Empty(), "%s: a program that skips empty patches would not see the error", name)
	}
}

func TestCommandNames(t *testing.T) {
	for method, parts := range map[string][2]string{
		"reboot":               {"", "reboot"},
		"thermostat1*getMax":   {"thermostat1", "getMax"},
		"thermostat1*getMax*x": {"thermostat1", "getMax*x"},
	} {
		require.Equal(t, method, pnp.Command(parts[0], parts[1]))
		component, name := pnp.SplitCommand(method)
		require.Equal(t, parts, [2]string{component, name})
	}
}

func TestTheComponentOfTelemetry(t *testing.T) {
	m := transport.Message{ID: "1", Body: []byte("{}")}
	for _, name := range []string{"thermostat1", "a", "a_1", strings.Repeat("x", 512), ""} {
		require.NoError(t, pnp.SetComponent(&m, name))
		require.Equal(t, transport.Message{ID: "1", Component: name, Body: []byte("{}")}, m)
		require.NoError(t, m.Validate())
	}
	m.Component = "before"
	for _, name := range []string{"a*b", "1a", "a_", "_a", "$sub", "a b", "größe", "a\xff", strings.Repeat("x", 513)} {
		err := pnp.SetComponent(&m, name)
		require.ErrorIs(t, err, transport.Invalid, name)
		require.ErrorContains(t, err, "message Component: the component's name \""+name[:1])
		require.Equal(t, transport.OpSend, transport.Find(err).Op)
		require.Equal(t, "before", m.Component)
	}
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
		all, err := pnp.Properties(device.Desired{Version: 7, JSON: text}, component)
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
			var p pnp.Patch
			p.Answer(one, pnp.Answer{Status: pnp.OK})
			patch, err := p.JSON()
			if err != nil {
				require.ErrorIs(t, err, transport.Invalid)
				continue
			}
			back, err := pnp.Properties(device.Desired{JSON: patch})
			require.NoError(t, err)
			require.Len(t, back, 1)
			require.Equal(t, [2]string{one.Component, one.Name}, [2]string{back[0].Component, back[0].Name})
		}
	})
}
