package docs

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// untried marks what was not tried with a broker, in interop/README.md.
const untried = "not tried"

// Each cell of the table of brokers names a test, or says that there is nothing.
func TestEachTriedBrokerHasATest(t *testing.T) {
	tests := &tree{files: map[string]map[string]bool{}}
	rows := table(t, read(t, "interop/README.md"), "| broker | ")
	require.GreaterOrEqual(t, len(rows), 7)
	for _, row := range rows {
		for _, cell := range row[1:] {
			if cell != none && cell != untried {
				for _, c := range strings.Split(cell, ", ") {
					tests.check(t, row[0], c)
				}
			}
		}
		if slices.Contains([]string{"EMQX", "HiveMQ", "AWS IoT Core", "Event Grid"}, row[0]) {
			require.Contains(t, row, untried)
		}
	}
}

// Each feature of MQTT 5, and of hubs with the MQTT v5 profile, names its tests.
func TestEachFeatureOfMQTT5HasATest(t *testing.T) {
	tests := &tree{files: map[string]map[string]bool{}}
	for _, of := range []string{"MQTT 5", "the MQTT v5 profile"} {
		rows := table(t, read(t, "docs/features.md"), "| feature of "+of+" | held by |")
		require.GreaterOrEqual(t, len(rows), 8)
		for _, row := range rows {
			require.Len(t, row, 2)
			for _, c := range strings.Split(row[1], ", ") {
				tests.check(t, row[0], c)
			}
		}
	}
}
