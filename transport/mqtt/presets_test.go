package mqtt_test

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/netopt"
)

var levels = strings.Repeat("a/", 7) + "b" // 8 of them

func config() *dialect.Config {
	return &dialect.Config{Creds: &transport.Credentials{Host: "h", DeviceID: "thing-7"}, Properties: true}
}

func TestTopicsWithinTheLimitsAreTaken(t *testing.T) {
	long := strings.Repeat("x", 256)
	d := mqtt.AWSIoT(dialect.Topics{
		Telemetry: levels, Commands: []string{long, "site/{device}/#"}, ClientID: strings.Repeat("c", 128),
		Birth: &transport.Message{Topic: long}, MaxSize: 200 << 10,
	})
	c := config()
	c.Will = &transport.Message{Topic: levels}
	s, hello, err := d.Session(c)
	require.NoError(t, err)
	require.Equal(t, 128<<10, hello.MaxSize, "the smaller limit counts")
	require.Equal(t, strings.Repeat("c", 128), hello.ClientID)
	require.Equal(t, levels, hello.Will.Topic)
	require.Len(t, s.Filters(transport.FeatureMessages), 2)
	p, refused := s.Publication(&transport.Message{})
	require.Nil(t, refused)
	require.Equal(t, levels, p.Topic)
	p, refused = s.Publication(&transport.Message{Topic: "$aws/rules/store/" + levels})
	require.Nil(t, refused, "the prefix of Basic Ingest is free")
	require.Equal(t, "$aws/rules/store/"+levels, p.Topic)
	shake, ok := s.(dialect.Handshaker)
	require.True(t, ok)
	require.Equal(t, long, shake.Handshake().(*dialect.Handshake).Message.Topic)
}

func TestMoreThanALimitIsRefusedByName(t *testing.T) {
	for _, c := range []struct {
		want   string
		topics dialect.Topics
		will   string
	}{
		{"the client id has 129 bytes, and AWS IoT Core takes 128", dialect.Topics{Telemetry: "t",
			ClientID: strings.Repeat("c", 129)}, ""},
		{`filter "a/a/a/a/a/a/a/b/c" has 9 levels, and AWS IoT Core takes 8`, dialect.Topics{Telemetry: "t",
			Commands: []string{levels + "/c"}}, ""},
		{"has 257 bytes, and AWS IoT Core takes 256", dialect.Topics{Telemetry: "t",
			Commands: []string{strings.Repeat("x", 257)}}, ""},
		{"there are 9 filters to subscribe to, and AWS IoT Core takes 8 at once", dialect.Topics{Telemetry: "t",
			Commands: strings.Split("a/b/c/d/e/f/g/h/i", "/")}, ""},
		{"options: Will: the topic has 9 levels", dialect.Topics{Telemetry: "t"}, levels + "/c"},
		{"the handshake's message: the topic has 9 levels", dialect.Topics{Telemetry: "t",
			Birth: &transport.Message{Topic: levels + "/c"}}, ""},
	} {
		conf := config()
		if c.will != "" {
			conf.Will = &transport.Message{Topic: c.will}
		}
		_, _, err := mqtt.AWSIoT(c.topics).Session(conf)
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, c.want)
	}
	s, _, err := mqtt.AWSIoT(dialect.Topics{Telemetry: "t"}).Session(config())
	require.NoError(t, err)
	_, refused := s.Publication(&transport.Message{Topic: levels + "/c"})
	require.NotNil(t, refused)
	require.ErrorIs(t, refused, transport.Invalid)
	require.Equal(t, transport.ScopeOperation, refused.Scope, "the message alone is refused")
	require.ErrorContains(t, refused, "the topic has 9 levels, and AWS IoT Core takes 8; shorten it")
	require.Nil(t, s.(dialect.Handshaker).Handshake())
}

func TestPresetsSayWhatTheyLack(t *testing.T) {
	for _, d := range []dialect.Dialect{mqtt.AWSIoT(dialect.Topics{Telemetry: "up"}),
		mqtt.EventGrid(dialect.Topics{Telemetry: "up"})} {
		c, err := device.New(config().Creds, mqtt.New(&mqtt.Options{Dialect: d}), nil)
		require.NoError(t, err)
		defer c.Close()
		err = c.HandleDesired(func(context.Context, device.Desired) {})
		require.ErrorIs(t, err, transport.Unsupported)
		require.ErrorContains(t, err, "desired properties are not available from a broker with dialect.Topics")
		err = c.HandleMessages(func(context.Context, *transport.Message) error { return nil })
		require.ErrorIs(t, err, transport.Unsupported)
		require.ErrorContains(t, err, "cloud-to-device messages are not available without Commands in dialect.Topics")
	}
}

func TestPort443NegotiatesTheProtocol(t *testing.T) {
	own := netopt.Options{TLS: &tls.Config{ServerName: "x"}}
	n := mqtt.AWSIoTPort443(own, "endpoint", mqtt.AWSIoTCertificate)
	require.Equal(t, "endpoint:443", n.Addr)
	require.Equal(t, []string{"x-amzn-mqtt-ca"}, n.TLS.NextProtos)
	require.Equal(t, "x", n.TLS.ServerName)
	require.Empty(t, own.TLS.NextProtos, "the caller's settings are copied")
	require.Equal(t, []string{"mqtt"}, mqtt.AWSIoTPort443(netopt.Options{}, "e", mqtt.AWSIoTCustom).TLS.NextProtos)
}

// The limits are those of any engine and version: MQTT 5 takes the dialect as it takes a topic map.
func TestMQTT5TakesTheDialect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, err := testbroker.New(&testbroker.Options{Broker: &testbroker.BrokerOptions{}})
		require.NoError(t, err)
		defer hub.Close()
		d, err := hub.AddDevice("thing-7")
		require.NoError(t, err)
		creds := &transport.Credentials{Host: "h", DeviceID: d.ID, UserName: d.ID, Token: transport.FixedToken(d.PrimaryKey)}
		network := &netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortMQTT)}
		client, err := device.New(creds, mqtt.New(&mqtt.Options{Network: *network,
			Dialect:  mqtt.AWSIoT(dialect.Topics{Telemetry: "devices/{device}/up"}),
			Protocol: mqtt.MQTT5(nil)}), nil)
		require.NoError(t, err)
		defer client.Close()
		require.NoError(t, client.Open(t.Context()))
		require.NoError(t, client.Send(t.Context(), &transport.Message{Body: []byte("x")}))
		require.Len(t, hub.Messages(), 1)
		err = client.Send(t.Context(), &transport.Message{Topic: levels + "/c"})
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, "AWS IoT Core takes 8")
	})
}

func TestTheSessionHasTheClientIDAndTheAuthenticationName(t *testing.T) {
	user, id := strings.Repeat("ü", 128), strings.Repeat("é", 128)
	creds := &transport.Credentials{Host: "h", DeviceID: id, UserName: user}
	_, hello, err := mqtt.EventGrid(dialect.Topics{Telemetry: "a/b"}).Session(&dialect.Config{Creds: creds})
	require.NoError(t, err)
	require.Equal(t, id, hello.ClientID)
	require.Equal(t, user, hello.UserName)
	require.LessOrEqual(t, hello.MaxSize, 512<<10)

	creds.UserName += "x"
	_, _, err = mqtt.EventGrid(dialect.Topics{Telemetry: "a/b"}).Session(&dialect.Config{Creds: creds})
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, "the user name has 129 characters, and Event Grid takes 128; shorten it")
	require.NotContains(t, err.Error(), user)

	creds.UserName, creds.DeviceID = "", id+"x"
	_, _, err = mqtt.EventGrid(dialect.Topics{Telemetry: "a/b"}).Session(&dialect.Config{Creds: creds})
	require.ErrorContains(t, err, "the client id has 129 characters")
}

func TestALongTopicForEventGridIsRefused(t *testing.T) {
	creds := &transport.Credentials{Host: "h", DeviceID: "d"}
	s, _, err := mqtt.EventGrid(dialect.Topics{Telemetry: "a/b"}).Session(&dialect.Config{Creds: creds})
	require.NoError(t, err)
	_, refused := s.Publication(&transport.Message{Topic: strings.Repeat("x", 257)})
	require.ErrorContains(t, refused, "the topic has 257 bytes, and Event Grid takes 256")
}
