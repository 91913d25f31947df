package interop

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// testhub is killed with -9 while devices send, and restarts at the same ports. A new process with
// an event processor begins each partition right after its checkpoint in the hub. Each acknowledged
// message is read. Of each partition one event at most is read by both processes, and of each
// device one message at most is stored twice: the one whose PUBACK the kill took.
func TestEventHubsSDKProcessorSurvivesAKillOfTheHub(t *testing.T) {
	t.Parallel()
	nodeDir(t) // before the build
	flags := []string{"-state", t.TempDir(), "-device", "dev-1", "-device", "dev-2", "-device", "dev-3", "-device",
		"dev-4"}
	h := startTesthub(t, flags...)
	pem, err := os.ReadFile(h.CA)
	require.NoError(t, err)
	trust := fmt.Sprint(t.TempDir(), "/trusted.pem") // the program's own file goes with its test directory
	require.NoError(t, os.WriteFile(trust, pem, 0o600))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	senders := startKillSenders(t, h, roots)

	const before, during = 200, 800
	s := startKillReader(t, h, trust)
	l := &killLedger{t: t, bodies: make(map[string]int), events: make(map[string]int), first: make(map[string]int)}
	senders.send(before)
	for len(l.events) < before/2 {
		l.take(s.next("event", "all"))
	}
	senders.send(during)
	require.NoError(t, h.cmd.Process.Kill())
	<-h.read
	require.Less(t, senders.acknowledged.Load(), int64(before+during), "the devices still send")
	s.end()
	for range s.count("event", "all") - len(l.events) - l.again {
		l.take(s.next("event", "all"))
	}

	_, events, ok := strings.Cut(h.Events.ConnectionString, "Endpoint=sb://")
	require.True(t, ok)
	events, _, _ = strings.Cut(events, ";")
	again := startTesthub(t, append(flags, "-mqtt", loopback(h.Ports["mqtt"]), "-https", loopback(h.Ports["https"]),
		"-events", strings.Trim(events, "/"))...)
	require.Equal(t, h.Events.ConnectionString, again.Events.ConnectionString)
	kept := checkpointsOf(t, again.Storage.Container, roots)
	require.NotEmpty(t, kept)
	l.restart()
	s = startKillReader(t, again, trust)
	senders.end()
	for len(l.bodies) < before+during {
		l.take(s.next("event", "all"))
	}
	for partition, first := range l.first {
		want := 0
		if at, known := kept[partition]; known {
			want = at + 1
		}
		require.Equal(t, want, first, "partition %s", partition)
	}
	stored := 0
	for _, n := range l.bodies {
		stored += n - 1
	}
	require.LessOrEqual(t, l.again, 4, "events that both processes read")
	require.LessOrEqual(t, stored, 4, "messages that were stored twice")
	seen(t, "@azure/event-hubs, its checkpoints in testhub: a kill -9 while 4 devices send, a restart, a new process: "+
		"%d partitions begin right after their checkpoints; %d messages, none lost; %d events read twice, %d messages "+
		"stored twice", len(kept), before+during, l.again, stored)
}

// killSenders are four devices that send numbered messages.
type killSenders struct {
	work         chan int
	next         int
	acknowledged atomic.Int64
	all          sync.WaitGroup
	end          func() // waits until all messages are acknowledged
}

func startKillSenders(t *testing.T, h *testhub, roots *x509.CertPool) *killSenders {
	s := &killSenders{work: make(chan int, 1000)}
	for _, d := range h.Devices {
		creds, err := device.ParseConnectionString(d.ConnectionString)
		require.NoError(t, err)
		network := netopt.Options{Addr: loopback(h.Ports["mqtt"]), TLS: &tls.Config{RootCAs: roots}}
		c, err := device.New(creds, mqtt.New(&mqtt.Options{Network: network}), nil)
		require.NoError(t, err)
		require.NoError(t, c.Open(soon(t)))
		s.all.Go(func() {
			defer c.Close()
			for i := range s.work {
				m := &transport.Message{Body: []byte(strconv.Itoa(i)), ContentType: "application/json", ContentEncoding: "utf-8"}
				if err := c.Send(t.Context(), m); err != nil {
					t.Error(err)
					return
				}
				s.acknowledged.Add(1)
			}
		})
	}
	s.end = sync.OnceFunc(func() {
		close(s.work)
		s.all.Wait()
	})
	t.Cleanup(s.end)
	return s
}

// send has the next n messages sent.
func (s *killSenders) send(n int) {
	for range n {
		s.work <- s.next
		s.next++
	}
}

// startKillReader starts a process with an event processor.
func startKillReader(t *testing.T, h *testhub, trust string) *eventsScript {
	s := &eventsScript{script: startScript(t, "eventhubs.js", "NODE_EXTRA_CA_CERTS="+trust), hub: new(eventsHub)}
	s.openWith("processor", map[string]any{"connectionString": h.Events.ConnectionString,
		"container": h.Storage.Container, "ownership": 2000})
	s.read("all", "processor", "", "earliest", map[string]any{"after": true})
	return s
}

// checkpointsOf returns the sequence number of each partition's checkpoint in a container.
func checkpointsOf(t *testing.T, url string, roots *x509.CertPool) map[string]int {
	way := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(way.CloseIdleConnections)
	c, err := container.NewClientWithNoCredential(url, &container.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: way}}})
	require.NoError(t, err)
	all := make(map[string]int)
	pages := c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{
		Include: container.ListBlobsInclude{Metadata: true}})
	for pages.More() {
		page, err := pages.NextPage(soon(t))
		require.NoError(t, err)
		for _, b := range page.Segment.BlobItems {
			dir, partition := path.Split(*b.Name)
			if path.Base(dir) != "checkpoint" {
				continue
			}
			at, err := strconv.Atoi(*b.Metadata["sequencenumber"])
			require.NoError(t, err)
			all[partition] = at
		}
	}
	return all
}

// A killLedger has what processors have read.
type killLedger struct {
	t      testing.TB
	bodies map[string]int // how often a message was stored
	events map[string]int // how often an event was read, by partition and sequence number
	first  map[string]int // the first sequence number of the present process, by partition
	newest map[string]int // its newest one
	again  int            // events that were read twice
}

// restart is called when a new process begins.
func (l *killLedger) restart() { l.first, l.newest = make(map[string]int), nil }

// take takes an event. A process skips no event of a partition, and reads none twice.
func (l *killLedger) take(e event) {
	number, _, _ := strings.Cut(e.Text, " ")
	sequence, err := strconv.Atoi(number)
	require.NoError(l.t, err)
	if l.newest == nil {
		l.newest = make(map[string]int)
	}
	if _, known := l.first[e.Topic]; !known {
		l.first[e.Topic], l.newest[e.Topic] = sequence, sequence-1
	}
	require.Equal(l.t, l.newest[e.Topic]+1, sequence, "partition %s", e.Topic)
	l.newest[e.Topic] = sequence
	id := fmt.Sprint(e.Topic, "/", sequence)
	if l.events[id]++; l.events[id] > 1 {
		l.again++
		return
	}
	l.bodies[e.Payload]++
}
