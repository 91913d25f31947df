package main

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// A broker over WebSocket, and one with MQTT 5 in its URL, work as others do.
func TestOtherBrokerURLs(t *testing.T) {
	for _, c := range []struct {
		scheme, more string
		transports   []string
	}{
		{"wss", "", []string{"", "mqtt", "mqtt5"}},
		{"mqtts", "&version=5", []string{"", "mqtt", "mqtt5"}},
	} {
		for _, name := range c.transports {
			s := newShell(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{}})
			delete(s.env, target.EnvConnect)
			port := map[string]string{"wss": "443", "mqtts": "8883"}[c.scheme]
			s.env[target.EnvBroker] = s.hub.BrokerURL("pump-1", c.scheme, "localhost:"+port) + c.more
			require.Equal(t, exitOK, s.run("send", "-body", "up", "-transport", name), s.log.String())
			require.Equal(t, []string{"up"}, s.bodies())
			require.NoError(t, s.hub.SendC2D("pump-1", hubdata.C2D{Body: []byte("down")}))
			require.Equal(t, exitOK, s.run("listen", "-count", "1", "-transport", name), s.log.String())
			require.Equal(t, "down\n", s.out.String())
			require.Equal(t, exitOK, s.run("doctor", "-hold", "0", "-transport", name), s.out.String())
		}
	}
}

func TestABrokersURLWithoutADeviceSaysWhereToWriteIt(t *testing.T) {
	for _, url := range []string{"mqtt://127.0.0.1:9", "amqp://127.0.0.1:9"} {
		s := newShell(t, nil)
		delete(s.env, target.EnvConnect)
		s.env[target.EnvBroker] = url
		require.Equal(t, exitUsage, s.run("send", "-body", "x"))
		require.Contains(t, s.log.String(), "?device=ID")
	}
}

// A broker with AMQP gets user name and password, and has its addresses in the URL.
// A file that is neither a connection string nor a URL may hold a secret in front of "://".
func TestTextOfAWrongFileIsNotShown(t *testing.T) {
	for _, text := range []string{"password hunter2\nurl mqtts://broker", "hunter2hunter2hunter2://x", "hunter2\n://"} {
		s := newShell(t, nil)
		s.env[target.EnvConnect] = text
		require.Equal(t, exitUsage, s.run("send", "-body", "up"))
		require.NotContains(t, s.log.String(), "hunter2")
	}
}

func TestABrokerWithAMQP(t *testing.T) {
	s := newShell(t, nil)
	creds, err := device.ParseConnectionString(s.env[target.EnvConnect])
	require.NoError(t, err)
	token, err := creds.NewToken(t.Context())
	require.NoError(t, err)
	name, _, _ := strings.Cut(s.hub.HostName(), ".")
	delete(s.env, target.EnvConnect)
	broker := "amqps://" + url.UserPassword("pump-1@sas."+name, token.Text.Reveal()).String() +
		"@localhost/?device=pump-1" +
		"&telemetry=/devices/{device}/messages/events&commands=/devices/{device}/messages/devicebound"
	s.env[target.EnvBroker] = broker
	require.Equal(t, exitOK, s.run("send", "-body", "up", "-property", "site=roof"), s.log.String())
	require.Equal(t, []string{"up"}, s.bodies())
	require.NoError(t, s.hub.SendC2D("pump-1", hubdata.C2D{Body: []byte("down")}))
	require.Equal(t, exitOK, s.run("listen", "-count", "1"), s.log.String())
	require.Equal(t, "down\n", s.out.String())
	require.Equal(t, exitOK, s.run("doctor", "-hold", "100ms"), s.out.String())
	require.Contains(t, s.out.String(), "connect amqp")
	require.Equal(t, exitUsage, s.run("upload", "send.go"))
	require.Equal(t, exitUsage, s.run("send", "-body", "x", "-dialect", "aws-iot"))
	require.Contains(t, s.log.String(), "-dialect: it is for brokers with MQTT")

	s.env[target.EnvBroker] = strings.Replace(broker, "pump-1%40", "pump-2%40", 1)
	require.Equal(t, exitRefused, s.run("send", "-body", "x"), s.log.String())
	require.NotContains(t, s.log.String()+s.out.String(), "SharedAccessSignature")
}

// The limits of a service are checked before a message is sent.
func TestDialects(t *testing.T) {
	for _, p := range target.Dialects {
		for _, name := range []string{"mqtt", "mqtt5"} {
			s := newShell(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{}})
			delete(s.env, target.EnvConnect)
			s.env[target.EnvBroker] = s.hub.BrokerURL("pump-1", "mqtts", "localhost:8883")
			args := []string{"send", "-body", "x", "-transport", name, "-dialect", p.Name}
			require.Equal(t, exitOK, s.run(args...), s.log.String())
			require.Equal(t, exitUsage, s.run(append(args, "-topic", "a/b/c/d/e/f/g/h/i")...))
			require.Contains(t, s.log.String(), "the topic has 9 levels, and ")
			require.Len(t, s.bodies(), 1)
		}
	}
	s := newShell(t, nil)
	require.Equal(t, exitUsage, s.run("send", "-body", "x", "-dialect", "aws-iot"), "a hub is none")
	require.Equal(t, exitUsage, s.run("send", "-body", "x", "-dialect", "pigeons"))
	require.Contains(t, s.log.String(), "give one of aws-iot, event-grid")
}

// A device with a certificate sends over each transport of a hub.
func TestADeviceWithACertificate(t *testing.T) {
	for _, p := range target.Transports {
		if p.Port == "" {
			continue
		}
		s := newShell(t, optionsFor(p.Name))
		s.tool = &tool{lookup: func(context.Context, string) ([]string, error) { return []string{"192.0.2.17"}, nil }}
		pair := testbroker.NewClientCert("pump-x", time.Now().Add(-time.Hour), time.Now().Add(30*24*time.Hour))
		_, err := s.hub.AddDeviceX509("pump-x", testbroker.Thumbprint(pair.Leaf))
		require.NoError(t, err)
		s.env[target.EnvConnect] = "HostName=" + s.hub.HostName() + ";DeviceId=pump-x;x509=true"
		cert, key := s.pair(pair)
		args := []string{"-transport", p.Name, "-cert", cert, "-cert-key", key}
		require.Equal(t, exitOK, s.run(append(args, "send", "-body", "x")...), s.log.String())
		require.Equal(t, []string{"x"}, s.bodies())
		require.Equal(t, exitOK, s.run(append(args, "doctor", "-hold", "0", "-burst", "0")...), s.out.String())
		require.Contains(t, s.out.String(), `certificate "pump-x"`)
		other, key := s.pair(testbroker.NewClientCert("pump-x", time.Now(), time.Now().Add(time.Hour)))
		require.Equal(t, exitRefused, s.run("send", "-body", "x", "-transport", p.Name, "-cert", other, "-cert-key", key),
			s.log.String())
	}
}

// optionsFor are those of a hub for the transport of that name.
func optionsFor(name string) *testbroker.Options {
	if !isMQTTv5(name) {
		return nil
	}
	return &testbroker.Options{Seed: 1, MQTTv5: &testbroker.MQTTv5Options{Topics: []string{"site/{deviceId}/up"}}}
}

func isMQTTv5(name string) bool { return strings.HasPrefix(name, "mqtt5") }

// The model id goes with the login over each transport that has a place for it.
func TestTheModelIsAnnounced(t *testing.T) {
	for _, p := range target.Transports {
		if p.Port == "" {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			s := newShell(t, optionsFor(p.Name))
			status := s.run("send", "-body", "x", "-transport", p.Name, "-model-id", "dtmi:com:example:Tank;1")
			twin, err := s.hub.Twin("pump-1")
			require.NoError(t, err)
			if p.Name == "http" || isMQTTv5(p.Name) {
				require.Equal(t, exitUsage, status)
				return
			}
			require.Equal(t, exitOK, status, s.log.String())
			require.Equal(t, "dtmi:com:example:Tank;1", twin.ModelID)
		})
	}
	s := newShell(t, nil)
	require.Equal(t, exitUsage, s.run("send", "-body", "x", "-model-id", "Tank"))
	require.Contains(t, s.log.String(), "dtmi:com:example:Thermostat;1")
	s.env = map[string]string{target.EnvBroker: "mqtts://localhost?telemetry=a/{device}"}
	require.Equal(t, exitUsage, s.run("send", "-body", "x", "-model-id", "dtmi:com:example:Tank;1"))
}
