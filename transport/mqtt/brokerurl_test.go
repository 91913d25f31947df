package mqtt_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/netopt"
	_ "github.com/hubline-iot/hubline/transport/websocket"
)

const (
	secret = "Zq9/Xv7@?"
	topics = "/?device=dev-1&telemetry=devices/{device}/up/t&commands=devices/{device}/down/%23"
)

// parsed is the result of ParseBroker.
type parsed struct {
	creds *transport.Credentials
	opts  *mqtt.Options
}

func parse(url string) (*parsed, error) {
	creds, opts, err := mqtt.ParseBroker(url)
	if err != nil {
		return nil, err
	}
	return &parsed{creds, opts}, nil
}

// newBroker starts a plain broker with the device dev-1.
func newBroker(t *testing.T, o testbroker.BrokerOptions) *testbroker.Hub {
	h, err := testbroker.New(&testbroker.Options{Broker: &o})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	_, err = h.AddDevice("dev-1")
	require.NoError(t, err)
	return h
}

// listen opens a port of the broker and returns its number. It skips the test without ::1.
func listen(t *testing.T, h *testbroker.Hub, p testbroker.Port, host string) string {
	a, err := h.Listen(p, net.JoinHostPort(host, "0"))
	if err != nil && host == "::1" {
		t.Skipf("NOT TESTED: this machine has no ::1: %v", err)
	}
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(a.String())
	require.NoError(t, err)
	return port
}

func TestAClientConnectsWithAURL(t *testing.T) {
	for _, c := range []struct {
		scheme, at, host string
		port             testbroker.Port
	}{
		{"mqtt", "127.0.0.1", "127.0.0.1", testbroker.PortMQTT},
		{"mqtts", "127.0.0.1", "localhost", testbroker.PortMQTTS},
		{"mqtts", "127.0.0.1", "127.0.0.1", testbroker.PortMQTTS},
		{"mqtt", "::1", "[::1]", testbroker.PortMQTT},
		{"mqtts", "::1", "[::1]", testbroker.PortMQTTS},
		{"ws", "127.0.0.1", "127.0.0.1", testbroker.PortHTTP},
		{"wss", "::1", "[::1]", testbroker.PortHTTPS},
	} {
		t.Run(c.scheme+" "+c.host, func(t *testing.T) {
			h := newBroker(t, testbroker.BrokerOptions{Password: secret})
			port := listen(t, h, c.port, c.at)
			p, err := parse(c.scheme + "://operator:" + url.QueryEscape(secret) + "@" + c.host + ":" + port + topics)
			require.NoError(t, err)
			if strings.HasSuffix(c.scheme, "s") && c.scheme != "ws" {
				p.opts.Network.TLS = h.ClientTLS()
				p.opts.Network.TLS.ServerName = "" // the host of the URL is verified
			}
			exchange(t, h, p)
		})
	}
}

func TestVersion5IsMQTT5(t *testing.T) {
	h := newBroker(t, testbroker.BrokerOptions{Password: secret})
	p, err := parse("mqtt://operator:" + url.QueryEscape(secret) + "@127.0.0.1:" +
		listen(t, h, testbroker.PortMQTT, "127.0.0.1") + topics + "&version=5&session-expiry=never")
	require.NoError(t, err)
	exchange(t, h, p)
	session, kept := h.Session("dev-1")
	require.True(t, kept)
	require.Equal(t, byte(5), session.Version)
	require.Negative(t, session.Expiry, "it does not expire")
}

// exchange sends a message each way.
func exchange(t *testing.T, h *testbroker.Hub, p *parsed) {
	t.Helper()
	c, err := device.New(p.creds, mqtt.New(p.opts), &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	got := make(chan string, 1)
	c.HandleMessages(func(_ context.Context, m *transport.Message) error {
		got <- m.Topic + " " + string(m.Body)
		return nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(t, c.Open(ctx))
	require.NoError(t, c.Send(ctx, &transport.Message{Body: []byte("21.5")}))
	require.Equal(t, "devices/dev-1/up/t", h.Messages()[0].Topic)
	require.Equal(t, "21.5", string(h.Messages()[0].Body))
	require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("blink"), Topic: "devices/dev-1/down/led"}))
	select {
	case command := <-got:
		require.Equal(t, "devices/dev-1/down/led blink", command)
	case <-ctx.Done():
		t.Fatal("the command did not come")
	}
}

func TestAnonymousClientsConnectOverTLS(t *testing.T) {
	h := newBroker(t, testbroker.BrokerOptions{Anonymous: true})
	p, err := parse("mqtts://localhost:" + listen(t, h, testbroker.PortMQTTS, "127.0.0.1") + topics)
	require.NoError(t, err)
	p.opts.Network.TLS = h.ClientTLS()
	exchange(t, h, p)
}

func TestAWrongPasswordIsNotShown(t *testing.T) {
	h := newBroker(t, testbroker.BrokerOptions{Password: "another"})
	p, err := parse("mqtt://operator:" + url.QueryEscape(secret) + "@127.0.0.1:" +
		listen(t, h, testbroker.PortMQTT, "127.0.0.1") + topics)
	require.NoError(t, err)
	var log strings.Builder
	c, err := device.New(p.creds, mqtt.New(p.opts), &device.Options{RetryPolicy: retrypolicy.NoRetry{},
		OnStatus: func(s device.Status) { fmt.Fprintf(&log, "%v %+v %#v", s, s, s) }})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err = c.Open(ctx)
	require.ErrorIs(t, err, transport.Unauthorized)
	require.NoError(t, c.Close())
	token, tokenErr := p.creds.NewToken(ctx)
	require.NoError(t, tokenErr)
	require.Equal(t, secret, token.Text.Reveal())
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "creds", p.creds, "opts", p.opts, "token", token, "err", err)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "creds", p.creds, "opts", p.opts, "token", token, "err", err)
	fmt.Fprintf(&log, "%v %+v %#v %+v %#v %+v", err, *p.creds, *p.creds, p.opts, p.opts, p.opts.Network)
	require.NotContains(t, log.String(), secret)
	require.NotContains(t, log.String(), "Xv7")
}

func TestEachParameterArrivesInTheOptions(t *testing.T) {
	const full = "mqtts://u@b:1/?device=d&module=m&client-id=c-{module}&telemetry=a&commands=b/%23&commands=c&qos=0" +
		"&retain=true&clean-session=true&keep-alive=7&will-topic=w&will-payload=gone&will-retain=true&birth-topic=n" +
		"&birth-payload=here&birth-retain=true&version=3.1.1"
	topics := &dialect.Topics{Telemetry: "a", Commands: []string{"b/#", "c"}, ClientID: "c-{module}", Retain: true,
		AtMostOnce: true, Birth: &transport.Message{Topic: "n", Body: []byte("here"), Retain: true}}
	will := &transport.Message{Topic: "w", Body: []byte("gone"), Retain: true}

	creds, opts, err := mqtt.ParseBroker(full)
	require.NoError(t, err)
	require.Equal(t, &transport.Credentials{Host: "b", DeviceID: "d", ModuleID: "m", UserName: "u"}, creds)
	require.Equal(t, &mqtt.Options{Network: netopt.Options{Addr: "b:1"}, Dialect: topics, KeepAlive: 7 * time.Second,
		CleanSession: true, Will: will}, opts)
}

func TestWrongURLs(t *testing.T) {
	for url, want := range map[string]string{
		"":                              "broker URL: it is empty",
		"amqp://b?device=d":             "its scheme amqp is for AMQP",
		"mqtt://u:" + secret + "@b?x=1": "user name or password",
	} {
		p, err := parse(url)
		require.Nil(t, p)
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "Xv7")
	}
}
