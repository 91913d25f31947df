package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/brokerurl"
)

// docs/brokers.md has the table of the parameters as the parser has them, and docs/amqp.md names
// those of AMQP.
func TestTheParametersOfBrokerURLs(t *testing.T) {
	read := func(page string) string {
		text, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		return string(text)
	}
	table := "| parameter | for | value | default | what for |\n|--|--|--|--|--|\n"
	amqp := read("docs/amqp.md")
	for _, p := range brokerurl.Parameters {
		name, protocols := "`"+p.Name+"`", "MQTT"
		if p.Protocols&brokerurl.AMQP != 0 {
			require.Contains(t, amqp, name)
			protocols = "MQTT, AMQP"
		}
		table += "| " + strings.Join([]string{name, protocols, p.Value, p.Default, p.Help}, " | ") + " |\n"
	}
	if !strings.Contains(read("docs/brokers.md"), table) {
		t.Errorf("the table of docs/brokers.md is not this one:\n\n%s", table)
	}
}
