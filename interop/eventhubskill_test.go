package interop

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// An event processor with its checkpoints in the hub, and two devices, go on after a kill -9 of
// testhub and its restart at the same ports: each acknowledged message is read, and the sequence
// numbers of a partition have no gap. Events may come twice.
func TestEventHubsSDKProcessorSurvivesAKillOfTheHub(t *testing.T) {
	t.Parallel()
	nodeDir(t) // before the build
	flags := []string{"-state", t.TempDir(), "-device", "dev-1", "-device", "dev-2"}
	h := startTesthub(t, flags...)
	pem, err := os.ReadFile(h.CA)
	require.NoError(t, err)
	trust := fmt.Sprint(t.TempDir(), "/trusted.pem") // the program's own file goes with its test directory
	require.NoError(t, os.WriteFile(trust, pem, 0o600))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)

	var devices []*device.Client
	for _, d := range h.Devices {
		creds, err := device.ParseConnectionString(d.ConnectionString)
		require.NoError(t, err)
		network := netopt.Options{Addr: loopback(h.Ports["mqtt"]), TLS: &tls.Config{RootCAs: roots}}
		c, err := device.New(creds, mqtt.New(&mqtt.Options{Network: network}), nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		require.NoError(t, c.Open(soon(t)))
		devices = append(devices, c)
	}
	const half = 100
	sent := 0
	send := func() {
		for range half {
			m := &transport.Message{Body: []byte(strconv.Itoa(sent)), ContentType: "application/json",
				ContentEncoding: "utf-8"}
			require.NoError(t, devices[sent%len(devices)].Send(soon(t), m))
			sent++
		}
	}

	s := &eventsScript{script: startScript(t, "eventhubs.js", "NODE_EXTRA_CA_CERTS="+trust), hub: new(eventsHub)}
	s.openWith("processor", map[string]any{"connectionString": h.Events.ConnectionString,
		"container": h.Storage.Container})
	s.read("all", "processor", "", "earliest", nil)
	l := &killLedger{t: t, bodies: make(map[string]int), newest: make(map[string]int)}
	send()
	for len(l.bodies) < half/2 { // the other half is on its way, and was read or not, when the hub ends
		l.take(s.next("event", "all"))
	}
	require.NoError(t, h.cmd.Process.Kill())
	<-h.read

	_, events, ok := strings.Cut(h.Events.ConnectionString, "Endpoint=sb://")
	require.True(t, ok)
	events, _, _ = strings.Cut(events, ";")
	again := startTesthub(t, append(flags, "-mqtt", loopback(h.Ports["mqtt"]), "-https", loopback(h.Ports["https"]),
		"-events", strings.Trim(events, "/"))...)
	require.Equal(t, h.Events.ConnectionString, again.Events.ConnectionString)
	send()
	for len(l.bodies) < sent {
		l.take(s.next("event", "all"))
	}
	for i := range sent {
		require.Positive(t, l.bodies[strconv.Itoa(i)], "message %d", i)
	}
	seen(t, "@azure/event-hubs, its checkpoints in testhub: a kill -9 and a restart; %d messages, %d came twice, no gap",
		sent, l.doubled)
}

// A killLedger has what a processor has read.
type killLedger struct {
	t       testing.TB
	bodies  map[string]int
	newest  map[string]int // sequence number by partition
	doubled int
}

// take takes an event. A partition may begin anew at a checkpoint, but skip nothing.
func (l *killLedger) take(e event) {
	number, _, _ := strings.Cut(e.Text, " ")
	sequence, err := strconv.Atoi(number)
	require.NoError(l.t, err)
	newest, known := l.newest[e.Topic]
	if !known {
		newest = -1
	}
	require.LessOrEqual(l.t, sequence, newest+1, "partition %s", e.Topic)
	l.newest[e.Topic] = max(newest, sequence)
	if l.bodies[e.Payload]++; l.bodies[e.Payload] > 1 {
		l.doubled++
	}
}
