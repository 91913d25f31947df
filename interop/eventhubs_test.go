package interop

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// eventsHub is a hub whose events a client of Event Hubs reads.
type eventsHub struct {
	t               testing.TB
	hub             *testbroker.Hub
	policy          hubdata.Policy
	plain, tls, web string // connection strings
	device          *amqp.Sender
	sent            int
}

// readers returns how many links of readers are attached.
func (h *eventsHub) readers() int { return h.hub.Links("", fault.LinkEvents) }

func newEventsHub(t testing.TB, o *testbroker.Options) *eventsHub {
	t.Helper()
	hub, dev := hubfixture.OpenDevice(t, o, deviceID)
	policy, err := hub.AddPolicy("service", hubdata.RightServiceConnect)
	require.NoError(t, err)
	h := &eventsHub{t: t, hub: hub, policy: policy}
	plain, err := hub.Listen(testbroker.PortAMQP, "127.0.0.1:0")
	require.NoError(t, err)
	secured, err := hub.Listen(testbroker.PortAMQPS, "127.0.0.1:0")
	require.NoError(t, err)
	h.plain = hub.EventsConnectionString(policy, plain.String(), true)
	web, err := hub.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
	require.NoError(t, err)
	for at, s := range map[string]*string{secured.String(): &h.tls, web.String(): &h.web} {
		_, port, err := net.SplitHostPort(at)
		require.NoError(t, err)
		*s = hub.EventsConnectionString(policy, net.JoinHostPort("localhost", port), false)
	}
	stream, err := tls.Dial("tcp", secured.String(), hub.ClientTLS())
	require.NoError(t, err)
	user := amqp.SASLTypePlain(dev.ID+"@sas.hub", token(t, dev.PrimaryKey, hub.HostName()+"/devices/"+dev.ID, time.Hour))
	conn, err := amqp.NewConn(soon(t), stream, &amqp.ConnOptions{HostName: hub.HostName(), SASLType: user})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	session, err := conn.NewSession(soon(t), nil)
	require.NoError(t, err)
	h.device, err = session.NewSender(soon(t), amqpEvents, nil)
	require.NoError(t, err)
	return h
}

// send sends n messages. Their bodies are their numbers, from 0.
func (h *eventsHub) send(n int) {
	h.t.Helper()
	for range n {
		m := amqp.NewMessage([]byte(strconv.Itoa(h.sent)))
		kind, encoding := "application/json", "utf-8"
		m.Properties = &amqp.MessageProperties{MessageID: fmt.Sprint("id-", h.sent), ContentType: &kind,
			ContentEncoding: &encoding}
		m.ApplicationProperties = map[string]any{"größe": "1 & 2"}
		require.NoError(h.t, h.device.Send(soon(h.t), m, nil))
		h.sent++
	}
}

// eventsStart is a start position. The fields are those of both versions of the client.
type eventsStart struct {
	offset           string
	sequence         int64
	at               time.Time
	inclusive        bool
	earliest, latest bool
}

// readEvent is an event as a client shows it.
type readEvent struct {
	body, offset, id, contentType string
	sequence                      int64
	enqueued                      time.Time
	properties, system            map[string]any
}

// eventsClient is a version of the client for Go.
type eventsClient interface {
	partitions(ctx context.Context) ([]string, error)
	state(ctx context.Context, partition string) (begin, last int64, offset string, err error)
	open(partition string, at eventsStart, epoch *int64) (eventsReader, error)
}

// eventsReader reads a partition.
type eventsReader interface {
	read(ctx context.Context, n int) ([]readEvent, error)
	close()
}

// goEventsClients are the versions of the client for Go.
var goEventsClients = map[string]func(t testing.TB, h *eventsHub, s, group string) eventsClient{
	"v1": newEventsClient1, "v2": newEventsClient2,
}

// eventsWays are the ways to the endpoint, by name.
var eventsWays = map[string]func(h *eventsHub) *string{
	"plain":     func(h *eventsHub) *string { return &h.plain },
	"TLS":       func(h *eventsHub) *string { return &h.tls },
	"WebSocket": func(h *eventsHub) *string { return &h.web },
}

// dialWeb dials a WebSocket, as the clients' documents have it.
func (h *eventsHub) dialWeb(ctx context.Context, url string) (net.Conn, error) {
	way := &http.Transport{TLSClientConfig: h.hub.ClientTLS()}
	h.t.Cleanup(way.CloseIdleConnections)
	ws, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{Subprotocols: []string{"amqp"},
		HTTPClient: &http.Client{Transport: way}})
	if err != nil {
		return nil, err
	}
	return websocket.NetConn(context.Background(), ws, websocket.MessageBinary), nil
}

// eachEventsClient runs a test for each version and way.
func eachEventsClient(t *testing.T, test func(t *testing.T, h *eventsHub, dial func(group string) eventsClient)) {
	for version, open := range goEventsClients {
		for way, stringOf := range eventsWays {
			t.Run(fmt.Sprint(version, " ", way), func(t *testing.T) {
				h := newEventsHub(t, &testbroker.Options{Events: testbroker.EventOptions{ConsumerGroups: []string{"second"}}})
				s := stringOf(h)
				test(t, h, func(group string) eventsClient { return open(t, h, *s, group) })
			})
		}
	}
}

// find returns the partition that has events.
func find(t testing.TB, c eventsClient) string {
	t.Helper()
	all, err := c.partitions(soon(t))
	require.NoError(t, err)
	require.Equal(t, []string{"0", "1", "2", "3"}, all)
	i := slices.IndexFunc(all, func(p string) bool {
		_, last, _, err := c.state(soon(t), p)
		require.NoError(t, err)
		return last >= 0
	})
	require.GreaterOrEqual(t, i, 0)
	return all[i]
}

// collect reads n events.
func collect(t testing.TB, r eventsReader, n int) []readEvent {
	t.Helper()
	var all []readEvent
	for len(all) < n {
		some, err := r.read(soon(t), n-len(all))
		require.NoError(t, err)
		all = append(all, some...)
	}
	return all
}

// bodiesFrom returns the bodies of the messages from a number up to another.
func bodiesFrom(from, to int) []string {
	var all []string
	for i := from; i < to; i++ {
		all = append(all, strconv.Itoa(i))
	}
	return all
}

func bodiesOf(all []readEvent) []string {
	var bodies []string
	for _, e := range all {
		bodies = append(bodies, e.body)
	}
	return bodies
}

func TestGoEventHubsClientReadsFromEveryPosition(t *testing.T) {
	eachEventsClient(t, func(t *testing.T, h *eventsHub, dial func(group string) eventsClient) {
		h.send(700) // more than twice the credit
		for h.hub.Len() < 700 {
			require.NoError(t, h.hub.WaitMessages(soon(t), 700))
		}
		c := dial("$Default")
		p := find(t, c)
		begin, last, offset, err := c.state(soon(t), p)
		require.NoError(t, err)
		require.Equal(t, []any{int64(0), int64(699), "357888"}, []any{begin, last, offset})
		r, err := c.open(p, eventsStart{earliest: true}, nil)
		require.NoError(t, err)
		all := collect(t, r, 700)
		require.Equal(t, bodiesFrom(0, 700), bodiesOf(all))
		r.close()
		e := all[5]
		require.Equal(t, []any{"id-5", "application/json", int64(5), "2560"},
			[]any{e.id, e.contentType, e.sequence, e.offset})
		require.WithinDuration(t, time.Now(), e.enqueued, time.Minute)
		require.Equal(t, map[string]any{"größe": "1 & 2"}, e.properties)
		require.Equal(t, deviceID, e.system["iothub-connection-device-id"])
		require.Equal(t, "Telemetry", e.system["iothub-message-source"])

		for what, at := range map[string]eventsStart{
			"offset":             {offset: all[500].offset},
			"offset inclusive":   {offset: all[501].offset, inclusive: true},
			"sequence":           {sequence: 500},
			"sequence inclusive": {sequence: 501, inclusive: true},
		} {
			r, err := dial("second").open(p, at, nil)
			require.NoError(t, err, what)
			require.Equal(t, bodiesFrom(501, 700), bodiesOf(collect(t, r, 199)), what)
			r.close()
		}
		r, err = c.open(p, eventsStart{at: all[699].enqueued.Add(time.Millisecond)}, nil)
		require.NoError(t, err)
		h.send(1)
		require.Equal(t, bodiesFrom(700, 701), bodiesOf(collect(t, r, 1)))
		r.close()
	})
}

func TestGoEventHubsClientReadsNewEventsOnly(t *testing.T) {
	eachEventsClient(t, func(t *testing.T, h *eventsHub, dial func(group string) eventsClient) {
		h.send(3)
		c := dial("$Default")
		p := find(t, c)
		r, err := c.open(p, eventsStart{latest: true}, nil)
		require.NoError(t, err)
		attached := make(chan struct{})
		got := make(chan []string, 1)
		go func() { // the client attaches with its first read; ends with the event
			close(attached)
			got <- bodiesOf(collect(t, r, 1))
		}()
		<-attached
		// The reader has no sign of its attach but the hub's.
		require.NoError(t, h.hub.Wait(soon(t), func([]hubdata.Message) bool { return h.readers() == 1 }))
		h.send(1)
		require.Equal(t, []string{"3"}, <-got)
		r.close()
	})
}

func TestGoEventHubsClientLosesAPartition(t *testing.T) {
	eachEventsClient(t, func(t *testing.T, h *eventsHub, dial func(group string) eventsClient) {
		h.send(2)
		p := find(t, dial("$Default"))
		zero, one := int64(0), int64(1)
		old, err := dial("$Default").open(p, eventsStart{earliest: true}, &zero)
		require.NoError(t, err)
		require.Equal(t, bodiesFrom(0, 2), bodiesOf(collect(t, old, 2)))
		newer, err := dial("$Default").open(p, eventsStart{earliest: true}, &one)
		require.NoError(t, err)
		require.Equal(t, bodiesFrom(0, 2), bodiesOf(collect(t, newer, 2)))
		_, err = old.read(soon(t), 1)
		require.ErrorContains(t, err, "ownershiplost")
		again, err := dial("$Default").open(p, eventsStart{earliest: true}, &zero)
		require.NoError(t, err)
		_, err = again.read(soon(t), 1)
		require.ErrorContains(t, err, "ownershiplost")
		other, err := dial("second").open(p, eventsStart{earliest: true}, &zero)
		require.NoError(t, err)
		require.Equal(t, bodiesFrom(0, 2), bodiesOf(collect(t, other, 2)), "another group is not concerned")
		newer.close()
		other.close()
	})
}

func TestGoEventHubsClientIsRefused(t *testing.T) {
	eachEventsClient(t, func(t *testing.T, h *eventsHub, dial func(group string) eventsClient) {
		for partition, group := range map[string]string{"9": "$Default", "0": "third"} {
			r, err := dial(group).open(partition, eventsStart{earliest: true}, nil)
			require.NoError(t, err)
			_, err = r.read(soon(t), 1)
			require.Error(t, err)
			require.NotErrorIs(t, err, context.DeadlineExceeded, "the refusal is final")
			seen(t, "partition %s of %s: %v", partition, group, err)
		}
		_, _, _, err := dial("$Default").state(soon(t), "9")
		require.ErrorContains(t, err, "between 0 and 3")
		key := h.policy.PrimaryKey
		h.plain = strings.Replace(h.plain, ";SharedAccessKey=", ";SharedAccessKey=x", 1)
		h.tls = strings.Replace(h.tls, ";SharedAccessKey=", ";SharedAccessKey=x", 1)
		h.web = strings.Replace(h.web, ";SharedAccessKey=", ";SharedAccessKey=x", 1)
		_, err = dial("$Default").partitions(soon(t))
		require.ErrorContains(t, err, "401 and description: token is signed with another key")
		require.NotContains(t, err.Error(), key)
	})
}
