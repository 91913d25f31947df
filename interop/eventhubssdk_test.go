package interop

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// eventsScript is the official client for Node.js.
type eventsScript struct {
	*script
	hub *eventsHub
}

func startEventsScript(t testing.TB, h *eventsHub) *eventsScript {
	t.Helper()
	return &eventsScript{startScript(t, "eventhubs.js", trusting(t, h.hub)), h}
}

// open makes a client for a connection string and a group.
func (s *eventsScript) open(name, connection, group string) {
	s.t.Helper()
	s.openWith(name, map[string]any{"connectionString": connection, "group": group})
}

// openWith makes a client with fields of the command open. The group is $Default unless they say
// so.
func (s *eventsScript) openWith(name string, fields map[string]any) {
	s.t.Helper()
	command := map[string]any{"do": "open", "name": name, "group": "$Default",
		"webSocket": fields["connectionString"] == s.hub.web}
	maps.Copy(command, fields)
	s.tell(command)
	s.next("opened", name)
}

// describe asks about the event hub, or about a partition unless that is nil.
func (s *eventsScript) describe(name string, partition any) (map[string]any, event) {
	s.t.Helper()
	command := map[string]any{"do": "describe", "name": name}
	if partition != nil {
		command["partition"] = partition
	}
	s.tell(command)
	e := s.next("described", name)
	var found map[string]any
	if e.Text == "" {
		require.NoError(s.t, json.Unmarshal([]byte(e.Payload), &found))
	}
	return found, e
}

// read subscribes to a partition from a position; more are further fields of the command.
func (s *eventsScript) read(name, client, partition string, at any, more map[string]any) {
	s.t.Helper()
	command := map[string]any{"do": "read", "name": name, "client": client, "at": at}
	if partition != "" {
		command["partition"] = partition
	}
	for k, v := range more {
		command[k] = v
	}
	s.tell(command)
	s.next("reading", name)
}

// stop ends a subscription.
func (s *eventsScript) stop(name string) {
	s.t.Helper()
	s.tell(map[string]any{"do": "stop", "name": name})
	s.next("stopped", name)
}

// bodies returns the bodies of the next n events.
func (s *eventsScript) bodies(name string, n int) []string {
	s.t.Helper()
	var all []string
	for range n {
		all = append(all, s.next("event", name).Payload)
	}
	return all
}

// find returns the partition that has events.
func (s *eventsScript) find(name string) string {
	s.t.Helper()
	for i := range 4 {
		found, e := s.describe(name, fmt.Sprint(i))
		require.Empty(s.t, e.Text)
		if found["isEmpty"] == false {
			return fmt.Sprint(i)
		}
	}
	require.Fail(s.t, "no partition has events")
	return ""
}

func TestEventHubsSDKReadsFromEveryPosition(t *testing.T) {
	t.Parallel()
	h := newEventsHub(t, nil)
	h.send(30)
	s := startEventsScript(t, h)
	for way, connection := range map[string]string{"plain": h.plain, "TLS": h.tls, "WebSocket": h.web} {
		s.open(way, connection, "$Default")
		found, e := s.describe(way, nil)
		require.Empty(t, e.Text)
		require.Equal(t, []any{"0", "1", "2", "3"}, found["partitionIds"])
		p := s.find(way)
		found, _ = s.describe(way, p)
		require.Equal(t, float64(29), found["lastEnqueuedSequenceNumber"])
		require.Equal(t, "14848", found["lastEnqueuedOffset"])
		for what, c := range map[string]struct {
			from int
			at   any
		}{
			"earliest":           {0, "earliest"},
			"offset":             {11, map[string]any{"offset": "5120"}},
			"sequence":           {11, map[string]any{"sequenceNumber": 10}},
			"sequence inclusive": {10, map[string]any{"sequenceNumber": 10, "isInclusive": true}},
			"time":               {0, map[string]any{"enqueuedOn": int64(1_000_000_000_000)}},
		} {
			name := way + " " + what
			s.read(name, way, p, c.at, nil)
			require.Equal(t, bodiesFrom(c.from, 30), s.bodies(name, 30-c.from), name)
			s.stop(name)
		}
	}
	seen(t, "@azure/event-hubs: five start positions over plain AMQP, TLS and WebSocket")
}

func TestEventHubsSDKShowsWholeEvents(t *testing.T) {
	t.Parallel()
	h := newEventsHub(t, nil)
	h.send(1)
	s := startEventsScript(t, h)
	s.open("c", h.plain, "$Default")
	p := s.find("c")
	s.read("new", "c", p, "latest", map[string]any{"metrics": true})
	require.NoError(t, h.hub.Wait(soon(t), func([]hubdata.Message) bool { return h.readers() == 1 }))
	h.send(1)
	e := s.next("event", "new")
	require.Equal(t, []string{"1", p, "id-1", "application/json", "1 512"},
		[]string{e.Payload, e.Topic, e.ID, e.ContentType, e.Text})
	require.Equal(t, map[string]string{"größe": "1 & 2"}, e.Properties)
	require.Equal(t, "dev-1", e.Annotations["iothub-connection-device-id"])
	require.Equal(t, "Telemetry", e.Annotations["iothub-message-source"])
	require.Contains(t, e.Annotations["iothub-connection-auth-method"], `"type":"sas"`)
	require.NotEmpty(t, e.Annotations["iothub-connection-auth-generation-id"])
	require.Equal(t, 1, e.Delivery, "the state of the partition comes with the event")
	s.stop("new")
}

func TestEventHubsSDKReadsNotices(t *testing.T) {
	t.Parallel()
	h := newEventsHub(t, &testbroker.Options{Events: testbroker.EventOptions{Partitions: 1, Sources: []hubdata.EventSource{
		hubdata.EventSourceTwinChange, hubdata.EventSourceDeviceLifecycle, hubdata.EventSourceDeviceConnectionState,
	}}})
	_, err := h.hub.PatchDesired(deviceID, `{"interval":60}`)
	require.NoError(t, err)
	h.send(1)
	s := startEventsScript(t, h)
	s.open("c", h.plain, "$Default")
	s.read("all", "c", "0", "earliest", nil)
	var got []string
	for range 4 {
		e := s.next("event", "all")
		got = append(got, strings.TrimSpace(e.Annotations["iothub-message-source"]+" "+e.Properties["opType"]))
		if e.Properties["opType"] == "updateTwin" {
			require.Contains(t, e.Payload, `"interval":60`)
		}
	}
	slices.Sort(got)
	require.Equal(t, []string{"Telemetry", "deviceConnectionStateEvents deviceConnected",
		"deviceLifecycleEvents createDeviceIdentity", "twinChangeEvents updateTwin"}, got)
	s.stop("all")
}

func TestEventHubsSDKLosesAPartition(t *testing.T) {
	t.Parallel()
	h := newEventsHub(t, nil)
	h.send(2)
	s := startEventsScript(t, h)
	s.open("c", h.plain, "$Default")
	p := s.find("c")
	s.read("old", "c", p, "earliest", map[string]any{"epoch": 1})
	require.Equal(t, bodiesFrom(0, 2), s.bodies("old", 2))
	s.open("d", h.plain, "$Default")
	s.read("new", "d", p, "earliest", map[string]any{"epoch": 2})
	require.Equal(t, bodiesFrom(0, 2), s.bodies("new", 2))
	require.Equal(t, "ReceiverDisconnectedError", s.next("failed", "old").Condition)
	s.open("e", h.plain, "$Default")
	s.read("low", "e", p, "earliest", map[string]any{"epoch": 1})
	require.Equal(t, "ReceiverDisconnectedError", s.next("failed", "low").Condition)
	s.stop("new")
	seen(t, "@azure/event-hubs: a partition goes to the higher epoch")
}

func TestEventHubsSDKIsRefused(t *testing.T) {
	t.Parallel()
	h := newEventsHub(t, nil)
	s := startEventsScript(t, h)
	s.open("good", h.plain, "$Default")
	_, e := s.describe("good", "9")
	require.Contains(t, e.Text, "between 0 and 3")
	s.open("group", h.plain, "third")
	s.read("group", "group", "0", "earliest", nil)
	require.Equal(t, "MessagingEntityNotFoundError", s.next("failed", "group").Condition)
}
