package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func TestADeviceSurvivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, err := testbroker.New(nil)
		require.NoError(t, err)
		defer hub.Close()
		dev, err := hub.AddDevice("thermometer")
		require.NoError(t, err)
		creds, err := device.ParseConnectionString(dev.ConnectionString())
		require.NoError(t, err)
		network := netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortMQTT)}
		client, err := device.New(creds, mqtt.New(&mqtt.Options{Network: network}), nil)
		require.NoError(t, err)
		defer client.Close()
		require.NoError(t, client.Open(t.Context()))

		outage := hub.Inject(fault.Fault{Kind: fault.Absent, For: 10 * time.Minute})
		began := time.Now()
		require.NoError(t, client.Enqueue(t.Context(), &transport.Message{ID: "1"}, nil))
		require.NoError(t, client.Flush(t.Context())) // ten minutes of the bubble's clock
		require.InDelta(t, 10*time.Minute, time.Since(began), float64(15*time.Second))
		require.Greater(t, outage.Fired(), 50) // refused dials: the back-off ends at 10 s
		require.Equal(t, 1, hub.Len())
	})
}

// The page has the test above.
func TestThePageHasTheTestOfAnOutage(t *testing.T) {
	own, err := os.ReadFile("outage_test.go")
	require.NoError(t, err)
	_, text, _ := strings.Cut(string(own), "func TestADeviceSurvivesAnOutage")
	text, _, _ = strings.Cut(text, "\n}\n")
	page, err := os.ReadFile(filepath.Join(root, "docs/testhub.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "func TestADeviceSurvivesAnOutage"+text+"\n}\n```\n")
}
