package interop

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// options returns the options of a device that connects over TLS with user name and password, to
// the queues with these names.
func (b *rabbit) options(telemetry, cloudToDevice string) login {
	o := login{Options: amqp.Options{
		Network:   netopt.Options{Addr: b.secure, TLS: &tls.Config{RootCAs: b.ca.pool()}},
		Addresses: &amqp.Addresses{Telemetry: "/amq/queue/" + telemetry},
	}, user: rabbitUser, password: rabbitPassword}
	if cloudToDevice != "" {
		o.Addresses.Commands = "/amq/queue/" + cloudToDevice
	}
	return o
}

// rhea connects a rhea client to the broker, at the port without TLS.
func (b *rabbit) rhea(t testing.TB, name string) *script {
	js := startScript(t, "rhea.js")
	js.tell(map[string]any{
		"do": "connect", "name": name, "port": b.plainPort, "servername": hostName, "username": rabbitUser,
		"password": rabbitPassword,
	})
	js.next("connected", name)
	return js
}

func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	b := startRabbit(t)
	t.Run("credentials", b.credentials)
	t.Run("telemetry through cuts", b.telemetry)
	t.Run("a full queue", b.fullQueue)
	t.Run("cloud-to-device messages", b.cloudToDevice)
	t.Run("killed and started again", b.restarts)
}

func (b *rabbit) credentials(t *testing.T) {
	once := device.Options{RetryPolicy: retrypolicy.NoRetry{}}
	c := openAMQP(t, b.options(queueTelemetry, ""), once)
	require.NoError(t, c.Send(soon(t), numbered(0)))
	seen(t, "PLAIN over TLS: a message was acknowledged")

	o := b.options(queueTelemetry, "")
	o.user = ""
	o.Auth = amqp.AuthExternal
	cert := b.devices.client(t, rabbitUser)
	o.Network.Certificate = func(context.Context) (*tls.Certificate, error) { return &cert, nil }
	c = openAMQP(t, o, once)
	require.NoError(t, c.Send(soon(t), numbered(1)))
	seen(t, "EXTERNAL with a client certificate: a message was acknowledged")

	creds, opts, err := amqp.ParseBroker("amqps://" + url.UserPassword(rabbitUser, rabbitPassword).String() +
		"@" + b.secure + "/?device=" + deviceID + "&telemetry=/amq/queue/" + queueTelemetry)
	require.NoError(t, err)
	opts.Network.TLS = &tls.Config{RootCAs: b.ca.pool(), ServerName: hostName}
	c, err = device.New(creds, amqp.New(opts), &once)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	require.NoError(t, c.Open(soon(t)))
	require.NoError(t, c.Send(soon(t), numbered(2)))
	seen(t, "URL: a message was acknowledged")

	o = b.options(queueTelemetry, "")
	o.password = "another password"
	err = createAMQP(t, o, once).Open(soon(t))
	require.ErrorIs(t, err, transport.Unauthorized)
	require.NotContains(t, err.Error(), "another password")
	seen(t, "wrong password: %v", err)

	o = b.options(queueTelemetry, "")
	o.user = "" // ANONYMOUS, which this broker lacks
	err = createAMQP(t, o, once).Open(soon(t))
	require.ErrorIs(t, err, transport.Protocol) // it answers with another header instead of an outcome
	seen(t, "no credentials: %v", err)

	o = b.options(queueTelemetry, "")
	o.Network.TLS = &tls.Config{RootCAs: newAuthority(t).pool()}
	err = createAMQP(t, o, once).Open(soon(t))
	require.ErrorIs(t, err, transport.Untrusted)
	seen(t, "unknown authority: %v", err)

	js := b.rhea(t, "drain")
	js.tell(map[string]any{"do": "receiver", "name": "drain", "link": "t", "address": "/amq/queue/" + queueTelemetry,
		"credit": 100, "auto": true})
	for i := range 3 {
		e := js.next("message", "drain")
		require.Equal(t, fmt.Sprintf("%04d", i), e.Payload)
		requireNumbered(t, e)
	}
}

// telemetry sends over a failing network; no message is lost.
func (b *rabbit) telemetry(t *testing.T) {
	const (
		messages = 1500
		window   = 64
		every    = 130 // more than a window, so each cut hits a new connection
	)
	js := b.rhea(t, "watcher")
	js.tell(map[string]any{"do": "receiver", "name": "watcher", "link": "t", "address": "/amq/queue/" + queueTelemetry,
		"credit": 500, "auto": true})
	r := newRelay(t, b.secure)
	o := b.options(queueTelemetry, "")
	o.Network.Addr = r.addr()
	c := openAMQP(t, o, device.Options{Window: window, AckTimeout: 2 * time.Second})
	cuts := 0
	sendNumbered(t, c, messages, window, func(done int) {
		if done%every == 0 {
			if cuts++; cuts%5 == 0 {
				r.silence() // detected by AckTimeout
			} else {
				r.cut()
			}
		}
	})
	var y tally
	for y.next < messages {
		e := js.next("message", "watcher")
		requireNumbered(t, e)
		require.True(t, e.Durable)
		require.False(t, y.add(e.Payload), "%s came before others", e.Payload)
	}
	s := c.Stats()
	require.EqualValues(t, messages, s.Acknowledged)
	require.Zero(t, s.Refused+s.Expired+s.Dropped+s.Cancelled)
	require.GreaterOrEqual(t, s.Connections, uint64(cuts))
	seen(t, "%d messages, window %d, %d cuts: lost %d, in order, %d sent again, %d came twice", messages, window, cuts,
		len(y.lost(messages)), s.Resent, y.duplicates())
}

// fullQueue tests messages that the broker refuses temporarily. Version 3.10 fails on its own
// refusal and goes silent (rabbitmq/rabbitmq-server#2839; version 4 answers with rejected). The
// client detects the silence, and sends the message when the queue has space.
func (b *rabbit) fullQueue(t *testing.T) {
	c := openAMQP(t, b.options(queueSmall, ""), device.Options{AckTimeout: 2 * time.Second})
	for i := range smallQueue {
		require.NoError(t, c.Send(soon(t), numbered(i)))
	}
	var last device.Receipt
	require.NoError(t, c.Enqueue(soon(t), numbered(smallQueue), &last))
	eventually(t, "the message was sent on three connections", func() bool { return c.Stats().Connections >= 3 })
	require.Zero(t, c.Stats().Refused)
	why := c.Stats().LastError

	js := b.rhea(t, "room")
	js.tell(map[string]any{"do": "receiver", "name": "room", "link": "s", "address": "/amq/queue/" + queueSmall,
		"credit": 100,
		"auto":   true})
	for i := range smallQueue + 1 {
		require.Equal(t, fmt.Sprintf("%04d", i), js.next("message", "room").Payload)
	}
	require.NoError(t, last.Wait(soon(t)))
	seen(t, "message %d of %d had no answer (%v); sent again %d times; acknowledged when the queue had room: lost 0",
		smallQueue+1, smallQueue, why, c.Stats().Resent)
}

// cloudToDevice tests cloud-to-device messages that are accepted, released and rejected.
func (b *rabbit) cloudToDevice(t *testing.T) {
	js := b.rhea(t, "cloud")
	js.tell(map[string]any{"do": "sender", "name": "cloud", "link": "c", "address": "/amq/queue/" + queueCloudToDevice})
	js.next("attached", "cloud")
	js.tell(map[string]any{"do": "receiver", "name": "cloud", "link": "d", "address": "/amq/queue/" + queueDead,
		"credit": 100,
		"auto":   true})
	js.next("attached", "cloud")
	sendC2D := func(bodies ...string) {
		var messages []map[string]any
		for _, body := range bodies {
			messages = append(messages, map[string]any{
				"payload": body, "id": "id of " + body, "correlation": "c", "contentType": "text/plain",
				"properties": map[string]any{"größe/": "1 & 2"},
			})
		}
		js.tell(map[string]any{"do": "send", "name": "cloud", "link": "c", "messages": messages})
		for range bodies {
			require.Equal(t, "accepted", js.next("settled", "cloud").Outcome)
		}
	}
	j := newJudge()
	got := make(chan transport.Message, 100)
	r := newRelay(t, b.secure)
	o := b.options(queueTelemetry, queueCloudToDevice)
	o.Network.Addr = r.addr()
	c := createAMQP(t, o, device.Options{})
	c.HandleMessages(func(ctx context.Context, m *transport.Message) error {
		got <- transport.Message{ID: m.ID, CorrelationID: m.CorrelationID, ContentType: m.ContentType,
			Properties: append([]transport.Property(nil), m.Properties...)}
		return j.handle(ctx, m)
	})
	require.NoError(t, c.Open(soon(t)))
	sendC2D("accept 1")
	require.Equal(t, "accept 1 1", j.next(t))
	require.Equal(t, transport.Message{
		ID: "id of accept 1", CorrelationID: "c", ContentType: "text/plain", Properties: []transport.Property{{Name: "größe/",
			Value: "1 & 2"}},
	}, <-got)
	sendC2D("release 1")
	require.Equal(t, "release 1 1", j.next(t))
	require.Equal(t, "release 1 2", j.next(t))
	sendC2D("reject 1")
	require.Equal(t, "reject 1 1", j.next(t))
	dead := js.next("message", "cloud")
	require.Equal(t, "reject 1", dead.Payload)
	require.Equal(t, "id of reject 1", dead.ID)
	seen(t, "one accepted, one released and delivered again, one rejected and found among the dead letters; properties "+
		"as sent")

	// In bulk, with the connection cut in between: each is handled, none remains in the queue.
	const n = 60
	want := map[string]bool{}
	for i := range n {
		body := fmt.Sprintf("%s bulk %d", []string{"accept", "release", "reject"}[i%3], i)
		want[body] = true
		sendC2D(body)
		if i%20 == 19 {
			r.cut()
		}
	}
	for len(want) > 0 {
		body := j.next(t)
		if strings.HasPrefix(body, "release") && strings.HasSuffix(body, " 1") {
			continue // it is delivered again
		}
		delete(want, body[:len(body)-2])
	}
	sendC2D("accept last") // after all messages that the broker has requeued
	for j.next(t) != "accept last 1" {
	}
	for left := n / 3; left > 0; left-- {
		require.Contains(t, js.next("message", "cloud").Payload, "reject")
	}
	require.NoError(t, c.Close()) // hands over the last verdict
	s := c.Stats()
	seen(t, "%d more over %d connections: %d accepted, %d released, %d rejected", n, s.Connections, s.MessagesAccepted,
		s.MessagesReleased, s.MessagesRejected)

	js.tell(map[string]any{"do": "receiver", "name": "cloud", "link": "rest", "address": "/amq/queue/" +
		queueCloudToDevice,
		"credit": 100, "auto": true})
	js.next("attached", "cloud")
	sendC2D("the end")
	for {
		e := js.next("message", "cloud")
		if e.Link == "rest" && e.Payload == "the end" {
			break
		}
		require.NotEqual(t, "rest", e.Link, "left in the queue: %+v", e)
	}
	seen(t, "the queue is empty afterwards")
}

// restarts kills the broker's process while messages are in flight and starts it again.
// Acknowledged messages must survive.
func (b *rabbit) restarts(t *testing.T) {
	const (
		messages = 600
		window   = 32
	)
	c := openAMQP(t, b.options(queueTelemetry, ""), device.Options{Window: window, AckTimeout: 5 * time.Second})
	sendNumbered(t, c, messages, window, func(done int) {
		if done == messages/2 {
			b.kill() // with a window of messages in flight
			b.start()
		}
	})
	s := c.Stats()
	require.GreaterOrEqual(t, s.Connections, uint64(2))
	require.EqualValues(t, messages, s.Acknowledged)

	js := b.rhea(t, "heir")
	js.tell(map[string]any{"do": "receiver", "name": "heir", "link": "t", "address": "/amq/queue/" + queueTelemetry,
		"credit": 500, "auto": true})
	const end = "end of the series"
	require.NoError(t, c.Send(soon(t), &transport.Message{Body: []byte(end)}))
	var y tally
	early := 0
	for {
		e := js.next("message", "heir")
		if e.Payload == end {
			break
		}
		requireNumbered(t, e)
		if y.add(e.Payload) {
			early++
		}
	}
	require.Empty(t, y.lost(messages))
	require.Zero(t, early, "first copies out of order")
	seen(t, "%d messages, killed with up to %d in flight: lost 0 of those acknowledged, %d sent again, %d came twice",
		messages, window, s.Resent, y.duplicates())
}
