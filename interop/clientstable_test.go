package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// hubClients are the clients in the tables of CLIENTS.md of testhub: the start of the row, and the
// tests of the client.
var hubClients = []struct{ row, tests string }{
	{"npm azure-iot-device, with keys",
		`^TestDeviceSDK($|RenewsItsToken|WithACertificate|IsRefused$|Twin|Uploads|WithTesthub)`},
	{"npm azure-iot-device: ModuleClient", `^TestModuleSDK`},
	{"npm azure-iot-provisioning-device", `^TestDeviceSDK(Registers|IsRefusedByTheDPS|IsMovedByTesthub)`},
	{"npm azure-iot-provisioning-service", `^TestServiceSDKEnrolls`},
	{"MQTT.js |", `MQTTJS`},
	{"MQTT.js with protobufjs", `^TestIndependentProfileClient`},
	{"rhea for Node.js", `^TestRheaClient`},
	{"eclipse/paho.golang", `^Test(TheHubRefusesPahoV5|PahoWithMQTT5AtAPlainBroker)`},
	{"npm azure-iothub: Registry", `^TestServiceSDK(Registry|Bulk|Queries|Twin|Methods)`},
	{"npm azure-iothub: Client", `^TestServiceSDK.*OverAMQP`},
	{"amenzhinsky/iothub", `^TestAmenzhinsky`},
	{"azeventhubs for Go", `^TestGoEventHubsClient`},
	{"@azure/event-hubs for Node.js", `^TestEventHubsSDK`},
	{"azeventhubs/v2/checkpoints", `^TestGoEventHubs(ProcessorKeeps|Ownership|ProcessorsShare)`},
	{"@azure/eventhubs-checkpointstore-blob", `^TestEventHubsSDK(KeepsCheckpoints|ProcessorSurvives)`},
	{"@azure/storage-blob |", `^TestBlobSDK`},
	{"azblob for Go", `^TestGoBlob`},
}

// testNames returns the names of all tests of the package.
func testNames() ([]string, error) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		return nil, err
	}
	var all []string
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllSubmatch(raw, -1) {
			all = append(all, string(m[1]))
		}
	}
	return all, nil
}

// Each row of the tables of clients says how many tests that client has. All of them pass:
// one that fails ends a run of CI.
func TestTheTablesOfClientsAreComplete(t *testing.T) {
	all, err := testNames()
	require.NoError(t, err)
	raw, err := os.ReadFile("../cmd/testhub/CLIENTS.md")
	require.NoError(t, err)
	counted := regexp.MustCompile(`\b(\d+) of (\d+) tests\b`)
	rows := 0
	for _, line := range strings.Split(string(raw), "\n") {
		if counted.MatchString(line) {
			rows++
		}
	}
	require.Equal(t, len(hubClients), rows)
	for _, c := range hubClients {
		of := 0
		for _, name := range all {
			if regexp.MustCompile(c.tests).MatchString(name) {
				of++
			}
		}
		require.Positive(t, of, c.row)
		_, rest, found := strings.Cut(string(raw), "\n| "+c.row)
		require.True(t, found, c.row)
		row, _, _ := strings.Cut(rest, "\n")
		require.Contains(t, row, fmt.Sprintf("%d of %d tests", of, of), c.row)
		seen(t, "%s: %d tests", strings.TrimSuffix(c.row, " |"), of)
	}
}
