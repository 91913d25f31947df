package twin_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/twin"
)

func TestCommandNames(t *testing.T) {
	for method, parts := range map[string][2]string{
		"reboot":               {"", "reboot"},
		"thermostat1*getMax":   {"thermostat1", "getMax"},
		"thermostat1*getMax*x": {"thermostat1", "getMax*x"},
	} {
		require.Equal(t, method, twin.Command(parts[0], parts[1]))
		component, name := twin.SplitCommand(method)
		require.Equal(t, parts, [2]string{component, name})
	}
}

func TestTheComponentOfTelemetry(t *testing.T) {
	m := transport.Message{ID: "1", Body: []byte("{}")}
	for _, name := range []string{"thermostat1", "a", "a_1", strings.Repeat("x", 512), ""} {
		require.NoError(t, twin.SetComponent(&m, name))
		require.Equal(t, transport.Message{ID: "1", Component: name, Body: []byte("{}")}, m)
		require.NoError(t, m.Validate())
	}
	m.Component = "before"
	for _, name := range []string{"a*b", "1a", "a_", "_a", "$sub", "a b", "größe", "a\xff", strings.Repeat("x", 513)} {
		err := twin.SetComponent(&m, name)
		require.ErrorIs(t, err, transport.Invalid, name)
		require.ErrorContains(t, err, "message Component: the component's name \""+name[:1])
		require.Equal(t, transport.OpSend, transport.Find(err).Op)
		require.Equal(t, "before", m.Component)
	}
}
