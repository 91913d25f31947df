package twin_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/twin"
)

func TestPatches(t *testing.T) {
	for name, c := range map[string]struct {
		build func(p *twin.Patch)
		want  string
	}{
		"nothing":   {func(*twin.Patch) {}, `{}`},
		"the root":  {func(p *twin.Patch) { p.Report("", "serial", "s-1") }, `{"serial":"s-1"}`},
		"removed":   {func(p *twin.Patch) { p.Report("", "serial", nil) }, `{"serial":null}`},
		"the later": {func(p *twin.Patch) { p.Report("", "n", 1); p.Report("", "n", 2) }, `{"n":2}`},
		"components": {func(p *twin.Patch) {
			p.Report("a", "x", 1)
			p.Report("b", "x", 2)
			p.Report("a", "y", 3)
		}, `{"a":{"__t":"c","x":1,"y":3},"b":{"__t":"c","x":2}}`},
		"same name twice": {func(p *twin.Patch) {
			p.Report("", "x", 1)
			p.Report("a", "x", 2)
		}, `{"a":{"__t":"c","x":2},"x":1}`},
		"accepted": {
			func(p *twin.Patch) { p.Answer(wish("", "t", "21.5"), twin.Answer{Status: twin.StatusOK}) },
			`{"t":{"value":21.5,"ac":200,"av":7,"ad":""}}`,
		},
		"refused": {
			func(p *twin.Patch) {
				p.Answer(wish("a", "t", "-300"), twin.Answer{Status: twin.StatusBadValue, Value: 20, Description: "too cold"})
			},
			`{"a":{"__t":"c","t":{"value":20,"ac":400,"av":7,"ad":"too cold"}}}`,
		},
		"initial": {
			func(p *twin.Patch) { p.Initial("a", "t", 20, "by default") },
			`{"a":{"__t":"c","t":{"value":20,"ac":203,"av":0,"ad":"by default"}}}`,
		},
		"back to the default": {
			func(p *twin.Patch) {
				p.Answer(wish("", "t", "null"), twin.Answer{Status: twin.StatusInitial, Value: 20})
			},
			`{"t":{"value":20,"ac":203,"av":7,"ad":""}}`,
		},
	} {
		var p twin.Patch
		c.build(&p)
		got, err := p.JSON()
		require.NoError(t, err, name)
		require.Equal(t, c.want, string(got), name)
		require.Equal(t, c.want == `{}`, p.Empty(), name)
	}
}

func TestAPatchKeepsWhatWasReported(t *testing.T) {
	var p twin.Patch
	value := []int{1, 2}
	p.Report("", "n", value)
	value[0] = 9
	got, err := p.JSON()
	require.NoError(t, err)
	require.Equal(t, `{"n":[1,2]}`, string(got))
}

func TestMistakesInPatches(t *testing.T) {
	for name, c := range map[string]struct {
		build func(p *twin.Patch)
		want  string
	}{
		"no name":                  {func(p *twin.Patch) { p.Report("", "", 1) }, `property's name ""`},
		"a name with a separator":  {func(p *twin.Patch) { p.Report("", "a*b", 1) }, `"a*b"`},
		"a name of the hub's":      {func(p *twin.Patch) { p.Report("", "$version", 1) }, `"$version"`},
		"a name beginning wrongly": {func(p *twin.Patch) { p.Report("1a", "b", 1) }, `component's name "1a"`},
		"the marker":               {func(p *twin.Patch) { p.Report("a", "__t", "c") }, `"__t"`},
		"a name that is too long":  {func(p *twin.Patch) { p.Report("", strings.Repeat("x", 513), 1) }, `xxx"...`},
		"a value that is no JSON":  {func(p *twin.Patch) { p.Report("a", "b", math.NaN()) }, `property "b" of component "a"`},
		"no status":                {func(p *twin.Patch) { p.Answer(wish("", "a", "1"), twin.Answer{}) }, "status 0"},
		"a removed component": {func(p *twin.Patch) {
			p.Answer(wish("a", "", "null"), twin.Answer{Status: 200})
		}, `name ""`},
		"a property and component": {func(p *twin.Patch) { p.Report("", "a", 1); p.Report("a", "b", 1) }, "both"},
		"a component and property": {func(p *twin.Patch) { p.Report("a", "b", 1); p.Report("", "a", 1) }, "both"},
	} {
		var p twin.Patch
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
