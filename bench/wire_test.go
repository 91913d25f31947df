package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	goamqp "github.com/Azure/go-amqp"
	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	hublinehttp "github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// traffic is what crossed a client's sockets, without the headers of TCP and IP.
type traffic struct {
	out, in int
	trips   int // answers that came after something was sent
}

func (a traffic) String() string { return fmt.Sprintf("%d + %d B, %d", a.out, a.in, a.trips) }

func (a traffic) minus(b traffic) traffic {
	return traffic{a.out - b.out, a.in - b.in, a.trips - b.trips}
}

// meter counts the traffic of all its connections.
type meter struct {
	dial netopt.DialFunc

	mu     sync.Mutex
	total  traffic
	waits  bool // something was sent since the latest answer
	former traffic
}

// lap returns the traffic since the former lap.
func (m *meter) lap() traffic {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	lap := m.total.minus(m.former)
	m.former, m.waits = m.total, false
	return lap
}

func (m *meter) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := m.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &meteredConn{c, m}, nil
}

type meteredConn struct {
	net.Conn
	m *meter
}

func (c *meteredConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.m.total.out += n
	c.m.waits = true
	return n, err
}

func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.m.total.in += n
	if n > 0 && c.m.waits {
		c.m.total.trips++
		c.m.waits = false
	}
	return n, err
}

// wireClient opens a connection and returns how to send a message and to close.
type wireClient func(t *testing.T, creds *transport.Credentials, m *meter, settings *tls.Config) (send, stop func())

// hublineOver makes one transport, so that later connections profit from the former ones.
func hublineOver(over func(netopt.Options) transport.Transport) wireClient {
	var tr transport.Transport
	return func(t *testing.T, creds *transport.Credentials, m *meter, settings *tls.Config) (send, stop func()) {
		if tr == nil {
			tr = over(netopt.Options{Dial: m.Dial, Plaintext: settings == nil, TLS: settings})
		}
		c, err := device.New(creds, tr, &device.Options{NoMessageIDs: true})
		done(t, err)
		done(t, c.Open(t.Context()))
		return func() { done(t, c.Send(t.Context(), &transport.Message{Body: make([]byte, 100)})) },
			func() { done(t, c.Close()) }
	}
}

func done(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// socketOf dials as the raw libraries do.
func socketOf(t *testing.T, m *meter, settings *tls.Config) net.Conn {
	socket, err := m.Dial(t.Context(), "tcp", "hub:1")
	done(t, err)
	if settings == nil {
		return socket
	}
	secure := tls.Client(socket, settings)
	done(t, secure.HandshakeContext(t.Context()))
	return secure
}

func rawPaho(t *testing.T, creds *transport.Credentials, m *meter, settings *tls.Config) (send, stop func()) {
	token, err := creds.NewToken(t.Context())
	done(t, err)
	o := paho.NewClientOptions().AddBroker("tcp://hub:1").SetClientID(creds.DeviceID).SetUsername(userName(creds)).
		SetPassword(token.Text.Reveal()).SetProtocolVersion(4).SetAutoReconnect(false).SetCleanSession(false).
		SetCustomOpenConnectionFn(func(*url.URL, paho.ClientOptions) (net.Conn, error) {
			return socketOf(t, m, settings), nil
		})
	c := paho.NewClient(o)
	wait := func(token paho.Token) {
		token.Wait()
		done(t, token.Error())
	}
	wait(c.Connect())
	return func() { wait(c.Publish(telemetryTopic(creds), 1, false, make([]byte, 100))) }, func() { c.Disconnect(250) }
}

func rawGoAMQP(t *testing.T, creds *transport.Credentials, m *meter, settings *tls.Config) (send, stop func()) {
	token, err := creds.NewToken(t.Context())
	done(t, err)
	hub, _, _ := strings.Cut(creds.Host, ".")
	conn, err := goamqp.NewConn(t.Context(), socketOf(t, m, settings), &goamqp.ConnOptions{HostName: creds.Host,
		SASLType: goamqp.SASLTypePlain(creds.DeviceID+"@sas."+hub, token.Text.Reveal())})
	done(t, err)
	session, err := conn.NewSession(t.Context(), nil)
	done(t, err)
	sender, err := session.NewSender(t.Context(), eventsAddress(creds), nil)
	done(t, err)
	return func() { done(t, sender.Send(t.Context(), goamqp.NewMessage(make([]byte, 100)), nil)) },
		func() { done(t, conn.Close()) }
}

// The bytes and round trips of a device's life on the wire: docs/performance.md has the table that
// this test prints. Hubline needs no more trips than the raw library, and fewer bytes to connect
// again over TLS.
func TestTheWire(t *testing.T) {
	rows := []struct {
		name          string
		plain, secure testbroker.Port
		make          func() wireClient
		raw           func() wireClient // nil: none
	}{
		{"MQTT", testbroker.PortMQTT, testbroker.PortMQTTS, func() wireClient {
			return hublineOver(func(n netopt.Options) transport.Transport { return mqtt.New(&mqtt.Options{Network: n}) })
		}, func() wireClient { return rawPaho }},
		{"AMQP, SASL PLAIN", testbroker.PortAMQP, testbroker.PortAMQPS, func() wireClient {
			return hublineOver(func(n netopt.Options) transport.Transport {
				return amqp.New(&amqp.Options{Network: n, Auth: amqp.AuthPlain})
			})
		}, func() wireClient { return rawGoAMQP }},
		{"AMQP", testbroker.PortAMQP, testbroker.PortAMQPS, func() wireClient {
			return hublineOver(func(n netopt.Options) transport.Transport { return amqp.New(&amqp.Options{Network: n}) })
		}, nil},
		{"HTTPS", testbroker.PortHTTP, testbroker.PortHTTPS, func() wireClient {
			return hublineOver(func(n netopt.Options) transport.Transport {
				return hublinehttp.New(&hublinehttp.Options{Network: n})
			})
		}, nil},
	}
	t.Log("| client | over | connect, send 100 B | connect again, send | send 100 B | an idle hour |")
	for _, row := range rows {
		for _, version := range []uint16{0, tls.VersionTLS12, tls.VersionTLS13} {
			port := row.secure
			if version == 0 {
				port = row.plain
			}
			ours := life(t, row.name, port, version, row.make())
			if row.raw == nil {
				continue
			}
			raw := life(t, "raw "+row.name, port, version, row.raw())
			for i := range 3 { // the idle hour is a matter of settings
				if ours[i].trips > raw[i].trips {
					t.Errorf("%s, TLS %x, column %d: %d round trips, the raw library has %d", row.name, version, i+1,
						ours[i].trips, raw[i].trips)
				}
			}
			if again := ours[1]; version != 0 && again.in >= raw[1].in {
				t.Errorf("%s, TLS %x: %d bytes come in at a reconnect, the raw library reads %d", row.name, version, again.in,
					raw[1].in)
			}
		}
	}
}

// life measures a first and a second connection with a message each, a message alone and an idle
// hour, and prints the row.
func life(t *testing.T, name string, port testbroker.Port, version uint16, open wireClient) (laps [4]traffic) {
	testkit.Bubble(t, func(t *testing.T) {
		h := hubfixture.New(t)
		m := &meter{dial: h.Dial(port)}
		var settings *tls.Config
		over := "TCP"
		if version != 0 {
			settings = h.ClientTLS()
			settings.MinVersion, settings.MaxVersion = version, version
			over = tls.VersionName(version)
		}
		creds := h.CredsWith(t, "")
		send, stop := open(t, creds, m, settings)
		send()
		laps[0] = m.lap()
		stop()
		m.lap()
		send, stop = open(t, creds, m, settings)
		send()
		laps[1] = m.lap()
		send()
		laps[2] = m.lap()
		time.Sleep(time.Hour)
		laps[3] = m.lap()
		stop()
		t.Logf("| %s | %s | %s | %s | %s | %s |", name, over, laps[0], laps[1], laps[2], laps[3])
	})
	return laps
}
