package interop

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// serviceClient is the official SDK's client of back ends over AMQP.
type serviceClient struct {
	*script
	hub *testbroker.Hub
}

// eachServiceTransport runs a test over AMQP and over WebSocket.
func eachServiceTransport(t *testing.T, test func(t *testing.T, c *serviceClient)) {
	t.Parallel()
	for _, transport := range []string{"amqp", "amqp-ws"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			hub := hubfixture.Open(t, &testbroker.Options{C2D: testbroker.C2DOptions{Queue: 10}})
			policy, err := hub.AddPolicy("service", hubdata.RightServiceConnect)
			require.NoError(t, err)
			c := &serviceClient{startScript(t, "serviceamqp.js", trusting(t, hub)), hub}
			require.Empty(t, c.connect(map[string]any{"connectionString": policy.ConnectionString(), "transport": transport}))
			test(t, c)
		})
	}
}

// connect opens the client, and returns the error as text.
func (c *serviceClient) connect(command map[string]any) string {
	c.t.Helper()
	var ports [][]int
	for service, at := range map[int]testbroker.Port{443: testbroker.PortHTTPS, 5671: testbroker.PortAMQPS} {
		addr, err := c.hub.Listen(at, "127.0.0.1:0")
		require.NoError(c.t, err)
		ports = append(ports, []int{service, addr.(*net.TCPAddr).Port})
	}
	command["do"], command["forward"] = "connect", ports
	return c.ask("connect", command)
}

// ask sends a command, and returns the error of its answer as text.
func (c *serviceClient) ask(name string, command map[string]any) string {
	c.t.Helper()
	c.tell(command)
	return c.next("answer", name).Text
}

// send sends a C2D message, and returns the error as text.
func (c *serviceClient) send(device, payload string, fields, properties map[string]any) string {
	c.t.Helper()
	if fields == nil {
		fields = map[string]any{}
	}
	if properties == nil {
		properties = map[string]any{}
	}
	return c.ask("send", map[string]any{"do": "send", "device": device, "payload": payload, "fields": fields,
		"properties": properties})
}

// notice waits for the next message of a receiver, and decodes it.
func (c *serviceClient) notice(name string, into any) event {
	c.t.Helper()
	e := c.next("message", name)
	require.NoError(c.t, json.Unmarshal([]byte(e.Payload), into), e.Payload)
	require.Equal(c.t, c.hub.HostName(), e.User)
	enqueued, err := strconv.ParseInt(e.Annotations["iothub-enqueuedtime"], 10, 64)
	require.NoError(c.t, err)
	require.WithinDuration(c.t, time.Now(), time.UnixMilli(enqueued), time.Hour)
	return e
}

func (c *serviceClient) settle(e event, how string) {
	c.t.Helper()
	require.Empty(c.t, c.ask("settle", map[string]any{"do": "settle", "name": e.Name, "id": e.ID, "how": how}))
}

type feedbackRecord struct {
	OriginalMessageID, StatusCode, Description, DeviceID, DeviceGenerationID string
	EnqueuedTimeUTC                                                          time.Time
}

func TestServiceSDKSendsC2DOverAMQP(t *testing.T) {
	eachServiceTransport(t, func(t *testing.T, c *serviceClient) {
		for _, id := range []string{"dev-1", "a%b:1", "full"} {
			_, err := c.hub.AddDevice(id)
			require.NoError(t, err)
		}
		expiry := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
		uuid := "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
		require.Empty(t, c.send("dev-1", "größe", map[string]any{
			"messageId": uuid, "correlationId": "c-1", "contentType": "application/json", "contentEncoding": "utf-8",
			"ack": "full", "expiryTimeUtc": expiry,
		}, map[string]any{"unit": "°C"}))
		log := c.hub.C2DLog("dev-1")
		require.Len(t, log, 1)
		require.Equal(t, hubdata.C2D{
			MessageID: uuid, CorrelationID: "c-1", ContentType: "application/json", ContentEncoding: "utf-8", Ack: "full",
			Expiry: expiry, Properties: []hubdata.Property{{Name: "unit", Value: "°C"}}, Body: []byte("größe"),
		}, log[0].C2D)
		require.Empty(t, c.ask("send", map[string]any{"do": "send", "device": "a%b:1", "payload": "text", "plain": true}))
		require.Equal(t, "text", string(c.hub.C2DLog("a%b:1")[0].C2D.Body))
		for range 10 {
			require.Empty(t, c.send("full", "x", nil, nil))
		}
		require.Contains(t, c.send("full", "x", nil, nil), "DeviceMaximumQueueDepthExceededError")
		require.Contains(t, c.send("nobody", "x", nil, nil), "DeviceNotFoundError")
		require.Contains(t, c.send("dev-1", "x", map[string]any{"ack": "maybe"}, nil), "Could not send message")
		seen(t, "sent: with every property, to an odd device id, as a plain text; a full queue, an unknown device and a "+
			"bad ack have errors of their class")

		require.Equal(t, 1, c.hub.Drop(""))
		c.next("disconnect", "client")
		require.Empty(t, c.send("dev-1", "again", nil, nil))
		require.Equal(t, "again", string(c.hub.C2DLog("dev-1")[1].C2D.Body))
		require.Empty(t, c.ask("close", map[string]any{"do": "close"}))
		eventually(t, "the connection ends", func() bool { return c.hub.Connections("") == 0 })
		seen(t, "a reset is an event; the next message connects again; closed in order")
	})
}

func TestServiceSDKReceivesFeedbackOverAMQP(t *testing.T) {
	eachServiceTransport(t, func(t *testing.T, c *serviceClient) {
		dev, err := c.hub.AddDevice("dev-1")
		require.NoError(t, err)
		require.Empty(t, c.ask("feedback", map[string]any{"do": "receive", "name": "feedback"}))
		require.Empty(t, c.ask("feedback", map[string]any{"do": "receive", "name": "feedback"}), "the same receiver again")
		for i, ack := range []string{"none", "positive", "negative", "full"} {
			require.Empty(t, c.send("dev-1", "x", map[string]any{"messageId": fmt.Sprint("m-", i), "ack": ack}, nil))
		}
		require.Equal(t, 4, c.hub.PurgeC2D("dev-1"))
		for i, id := range []string{"m-2", "m-3"} {
			var all []feedbackRecord
			e := c.notice("feedback", &all)
			require.Equal(t, "application/vnd.microsoft.iothub.feedback.json", e.ContentType)
			require.Len(t, all, 1)
			require.WithinDuration(t, time.Now(), all[0].EnqueuedTimeUTC, time.Hour)
			require.Equal(t, feedbackRecord{id, "Purged", "Purged", "dev-1", dev.GenerationID, all[0].EnqueuedTimeUTC}, all[0])
			c.settle(e, []string{"complete", "reject"}[i])
		}
		require.Empty(t, c.send("dev-1", "x", map[string]any{"messageId": "m-4", "ack": "full",
			"expiryTimeUtc": time.Now().Add(-time.Hour)}, nil))
		var all []feedbackRecord
		c.notice("feedback", &all)
		require.Equal(t, "Expired", all[0].StatusCode)
		require.Empty(t, c.ask("detach", map[string]any{"do": "detach", "name": "feedback"}))
		require.Empty(t, c.ask("close", map[string]any{"do": "close"}))
		require.Equal(t, 3, c.hub.CountC2D("dev-1", hubdata.C2DPurged)-1)
		seen(t, "feedback: purged and expired, to those that asked for it; completed, rejected and detached")
	})
}

func TestServiceSDKReceivesFileNotificationsOverAMQP(t *testing.T) {
	eachServiceTransport(t, func(t *testing.T, c *serviceClient) {
		dev, err := c.hub.AddDevice("dev-1")
		require.NoError(t, err)
		require.Empty(t, c.ask("files", map[string]any{"do": "receive", "name": "files"}))
		uploadFile(t, c.hub, dev, "logs/a b.txt", "content")
		var f struct {
			DeviceID, BlobURI, BlobName      string
			LastUpdatedTime, EnqueuedTimeUTC time.Time
			BlobSizeInBytes                  int
		}
		e := c.notice("files", &f)
		require.Equal(t, "application/vnd.microsoft.iothub.filenotification.json", e.ContentType)
		require.Equal(t, "dev-1", f.DeviceID)
		require.Equal(t, "dev-1/logs/a b.txt", f.BlobName)
		require.Equal(t, 7, f.BlobSizeInBytes)
		at, err := url.Parse(f.BlobURI)
		require.NoError(t, err)
		require.Equal(t, "/uploads/dev-1/logs/a b.txt", at.Path)
		require.WithinDuration(t, time.Now(), f.LastUpdatedTime, time.Hour)
		require.False(t, f.EnqueuedTimeUTC.Before(f.LastUpdatedTime))
		c.settle(e, "complete")
		seen(t, "file notification: %s", e.Payload)
	})
}

// uploadFile uploads a file of a device.
func uploadFile(t *testing.T, hub *testbroker.Hub, dev hubdata.Device, name, content string) {
	creds, err := device.ParseConnectionString(dev.ConnectionString())
	require.NoError(t, err)
	u, err := fileupload.New(creds, &fileupload.Options{
		Network: netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortHTTP)},
	})
	require.NoError(t, err)
	defer u.Close()
	_, err = u.Upload(soon(t), name, strings.NewReader(content), int64(len(content)))
	require.NoError(t, err)
}

// A client can have a token in place of a connection string; a wrong one has an error of its class.
func TestServiceSDKTokensOverAMQP(t *testing.T) {
	t.Parallel()
	hub := hubfixture.Open(t, nil)
	_, err := hub.AddDevice("dev-1")
	require.NoError(t, err)
	policy, err := hub.AddPolicy("service", hubdata.RightServiceConnect)
	require.NoError(t, err)
	reader, err := hub.AddPolicy("reader", hubdata.RightRegistryRead)
	require.NoError(t, err)
	for name, of := range map[string]struct {
		policy hubdata.Policy
		key    string
		class  string
	}{
		"a token":       {policy, policy.SecondaryKey, ""},
		"another key":   {policy, reader.PrimaryKey, "UnauthorizedError"},
		"another right": {reader, reader.PrimaryKey, "UnauthorizedError"},
	} {
		c := &serviceClient{startScript(t, "serviceamqp.js", trusting(t, hub)), hub}
		text := c.connect(map[string]any{"sign": []string{hub.HostName(), of.policy.Name, of.key}, "transport": "amqp"})
		if of.class == "" {
			require.Empty(t, text)
			require.Empty(t, c.send("dev-1", "x", nil, nil))
		} else {
			require.Contains(t, text, of.class)
		}
		seen(t, "%s: %q", name, text)
	}
}
