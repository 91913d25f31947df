package mqttfront_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// A nextDevice is a device of a hub with the MQTT v5 profile. It encodes packets with the codec of
// another broker.
type nextDevice struct {
	*plainClient
	nonce  nextwire.ID
	id     string
	serial byte
}

// inNextBubble runs a test in fake time, with a hub that has the MQTT v5 profile and the device
// dev-1.
func inNextBubble(t *testing.T, o testbroker.MQTTv5Options, test func(t *testing.T, h *testbroker.Hub)) {
	t.Helper()
	hubtest.InBubble(t, &testbroker.Options{MQTTv5: &o}, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		test(t, h)
	})
}

// nextConnect returns a CONNECT that the hub accepts. Its session lasts an hour.
func nextConnect(id string, nonce nextwire.ID) packets.Packet {
	pk := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Connect}, ProtocolVersion: 5,
		Connect: packets.ConnectParams{
			ProtocolName: []byte("MQTT"), ClientIdentifier: id,
			UsernameFlag: true, Username: []byte(nextwire.UserName(nonce, "test/1")),
		},
	}
	pk.Properties.SessionExpiryInterval, pk.Properties.SessionExpiryIntervalFlag = 3600, true
	return pk
}

// dialNext connects as a device, which must succeed, and returns the CONNACK.
func dialNext(t testing.TB, h *testbroker.Hub, nonce byte, change func(*packets.Packet)) (*nextDevice, packets.Packet) {
	t.Helper()
	d := &nextDevice{plainClient: dialPlain(t, h, 5), nonce: nextwire.ID{nonce}, id: "dev-1"}
	pk := nextConnect(d.id, d.nonce)
	if change != nil {
		change(&pk)
	}
	ack := d.connect(pk)
	require.Zero(t, ack.ReasonCode, "%s", ack.Properties.ReasonString)
	return d, ack
}

// listen subscribes to everything for the device.
func (d *nextDevice) listen() {
	d.t.Helper()
	ack := d.subscribe(packets.Subscription{Filter: "ih/" + d.id + "/dev/#", Qos: 1})
	require.Equal(d.t, []byte{1}, ack.ReasonCodes)
}

// loginNext connects, subscribes and is born without pushes.
func loginNext(t testing.TB, h *testbroker.Hub, nonce byte) *nextDevice {
	t.Helper()
	d, _ := dialNext(t, h, nonce, nil)
	d.listen()
	d.born(nextwire.Birth{})
	return d
}

// born sends a birth and returns the answer.
func (d *nextDevice) born(b nextwire.Birth) (ack nextwire.BirthAck) {
	d.t.Helper()
	d.say("presence", nextwire.TypeBirth, d.nonce, &b)
	d.hear("presence", nextwire.TypeBirthAck, d.nonce, &ack)
	return ack
}

// say publishes a message with QoS 0.
func (d *nextDevice) say(feature, typ string, id nextwire.ID, m nextwire.Message) {
	d.t.Helper()
	d.sayBytes(feature, typ, id, nextwire.Append(nil, m))
}

func (d *nextDevice) sayBytes(feature, typ string, id nextwire.ID, body []byte) {
	d.t.Helper()
	pk := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Publish}, TopicName: "ih/" + d.id + "/srv/" + feature, Payload: body,
	}
	pk.Properties.CorrelationData = id[:]
	pk.Properties.User = []packets.UserProperty{{Key: "type", Val: typ}}
	d.send(pk)
}

// hear reads a message of the hub, which must be of the type and have the correlation data.
func (d *nextDevice) hear(feature, typ string, id nextwire.ID, m nextwire.Message) packets.Packet {
	d.t.Helper()
	pk := d.expect(packets.Publish)
	require.Equal(d.t, "ih/"+d.id+"/dev/"+feature, pk.TopicName)
	require.Equal(d.t, []packets.UserProperty{{Key: "type", Val: typ}}, pk.Properties.User)
	require.Equal(d.t, id[:], pk.Properties.CorrelationData)
	require.NoError(d.t, nextwire.Decode(pk.Payload, m))
	return pk
}

// request returns the id of a new request.
func (d *nextDevice) request() nextwire.ID {
	d.serial++
	return nextwire.ID{0xaa, d.serial}
}

func TestADeviceIsBornAndSendsTelemetry(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		hubtest.PatchDesired(t, h, "dev-1", `{"fan":43}`)
		d, ack := dialNext(t, h, 7, nil)
		require.False(t, ack.SessionPresent)
		d.listen()
		got := d.born(nextwire.Birth{PushDesired: true, PushReported: true})
		require.Equal(t, nextwire.BirthAck{DesiredVersion: 2, ReportedVersion: 1}, got)
		var push nextwire.TwinPush
		d.hear("twin", nextwire.TypeTwinPush, d.nonce, &push)
		require.Equal(t, nextwire.TwinPush{
			Desired:  &nextwire.Section{Version: 2, Payload: []byte(`{"fan":43}`)},
			Reported: &nextwire.Section{Version: 1, Payload: []byte(`{}`)},
		}, push)
		s, ok := h.Session("dev-1")
		require.True(t, ok)
		require.Equal(t, "07000000000000000000000000000000", s.Nonce)

		pk := message(1, "ih/dev-1/srv/telemetry", `{"t":1}`)
		pk.Properties.ContentType, pk.Properties.CorrelationData = "application/json", []byte("c-1")
		pk.Properties.PayloadFormat, pk.Properties.PayloadFormatFlag = 1, true
		pk.Properties.User = []packets.UserProperty{
			{Key: "type", Val: "telemetry:1"}, {Key: "content-type", Val: "text/plain"}, {Key: "$.mid", Val: "m-1"},
			{Key: "$.sub", Val: "thermostat"}, {Key: "alert", Val: "high"},
		}
		d.send(pk)
		require.Zero(t, d.expect(packets.Puback).ReasonCode)
		require.Len(t, h.Messages(), 1)
		m := h.Messages()[0]
		require.Equal(t, hubdata.Message{
			DeviceID: "dev-1", MessageID: "m-1", CorrelationID: "c-1", ContentType: "application/json", ContentEncoding: "utf-8",
			Component:  "thermostat",
			Properties: []hubdata.Property{{Name: "alert", Value: "high"}}, Body: []byte(`{"t":1}`), Protocol: hubdata.MQTT,
			Topic: "ih/dev-1/srv/telemetry", QoS: 1, PacketID: 1, Connection: 1, Sequence: 1,
			System: m.System, Received: m.Received,
		}, m)
	})
}

func TestWhatTheProfileRefusesAtConnect(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*packets.Packet)
		code   byte
	}{
		"no user name": {func(pk *packets.Packet) {
			pk.Connect.Username, pk.Connect.UsernameFlag = nil, false
		}, 0x86},
		"an empty user name": {func(pk *packets.Packet) { pk.Connect.Username = nil }, 0x86},
		"a token": {func(pk *packets.Packet) {
			pk.Connect.PasswordFlag, pk.Connect.Password = true, []byte("SharedAccessSignature sr=x&sig=y&se=1")
		}, 0x86},
		"an unknown device": {func(pk *packets.Packet) { pk.Connect.ClientIdentifier = "dev-2" }, 0x87},
		"a module":          {func(pk *packets.Packet) { pk.Connect.ClientIdentifier = "dev-1/mod" }, 0x85},
		"no client id":      {func(pk *packets.Packet) { pk.Connect.ClientIdentifier = "" }, 0x85},
		"a wildcard":        {func(pk *packets.Packet) { pk.Connect.ClientIdentifier = "dev+" }, 0x85},
		"an authentication method": {func(pk *packets.Packet) {
			pk.Properties.AuthenticationMethod = "x"
		}, 0x8c},
		"a will elsewhere": {func(pk *packets.Packet) {
			pk.Connect.WillFlag, pk.Connect.WillTopic, pk.Connect.WillPayload = true, "ih/dev-1/srv/twin", []byte("x")
		}, 0x87},
		"a will with RETAIN": {func(pk *packets.Packet) {
			pk.Connect.WillFlag, pk.Connect.WillTopic, pk.Connect.WillRetain = true, "ih/dev-1/srv/telemetry", true
		}, 0x9a},
	} {
		t.Run(name, func(t *testing.T) {
			inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
				c2 := dialPlain(t, h, 5)
				pk := nextConnect("dev-1", nextwire.ID{1})
				c.change(&pk)
				require.Equal(t, c.code, c2.connect(pk).ReasonCode)
				require.Zero(t, h.Connections(""))
			})
		})
	}
	t.Run("MQTT 3.1.1", func(t *testing.T) {
		inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
			require.Equal(t, byte(1), hubtest.Dial(t, h).Connect(hubtest.Connect{Name: "MQTT", Level: 4, ClientID: "dev-1"})[1])
		})
	})
}

// With TLS the certificate is that of the registry.
func TestTheProfileChecksCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := hubtest.NewHub(t, &testbroker.Options{MQTTv5: &testbroker.MQTTv5Options{}})
		root := testbroker.NewCertAuthority("root")
		require.NoError(t, h.AddCA(root.Cert()))
		_, err := h.AddDeviceCA("dev-ca")
		require.NoError(t, err)
		for name, want := range map[string]byte{"dev-ca": 0, "dev-1": 0x87, "": 0x87} {
			var certs []tls.Certificate
			if name != "" {
				certs = append(certs, root.NewClientCert(name, time.Time{}, time.Time{}))
			}
			w := hubtest.DialTLS(t, h, certs...)
			d := &plainClient{t, w.Conn, w.In, 5}
			require.Equal(t, want, d.connect(nextConnect("dev-ca", nextwire.ID{1})).ReasonCode, name)
		}
	})
}

func TestATakeOverEndsTheOlderConnection(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		first := loginNext(t, h, 1)
		second, ack := dialNext(t, h, 2, nil)
		require.True(t, ack.SessionPresent)
		require.Equal(t, byte(0x8e), first.disconnected().ReasonCode)
		hubtest.PatchDesired(t, h, "dev-1", `{"a":1}`)
		second.ping() // nothing before the birth
		require.Equal(t, uint64(2), second.born(nextwire.Birth{}).DesiredVersion)
	})
}

func TestSessionsExpireAsTheHubSays(t *testing.T) {
	for name, c := range map[string]struct {
		asked    int // negative: nothing
		longest  time.Duration
		want     time.Duration
		announce uint32
	}{
		"an hour":       {3600, 0, time.Hour, 0},
		"nothing":       {-1, 0, time.Hour, 3600},
		"no session":    {0, 0, 0, 0},
		"a day":         {86400, 0, 8 * time.Hour, 8 * 3600},
		"a short limit": {3600, time.Minute, time.Minute, 60},
	} {
		t.Run(name, func(t *testing.T) {
			inNextBubble(t, testbroker.MQTTv5Options{SessionExpiry: c.longest}, func(t *testing.T, h *testbroker.Hub) {
				_, ack := dialNext(t, h, 1, func(pk *packets.Packet) {
					pk.Properties.SessionExpiryIntervalFlag = c.asked >= 0
					pk.Properties.SessionExpiryInterval = uint32(max(c.asked, 0))
				})
				require.Equal(t, c.announce, ack.Properties.SessionExpiryInterval)
				s, _ := h.Session("dev-1")
				require.Equal(t, c.want, s.Expiry)
				h.Drop("dev-1")
				synctest.Wait()
				time.Sleep(c.want)
				_, kept := h.Session("dev-1")
				require.False(t, kept)
			})
		})
	}
}

func TestOneFilterIsGranted(t *testing.T) {
	filters := map[string][2]byte{ // codes without and with narrow filters
		"ih/dev-1/dev/#":          {1, 1},
		"ih/dev-1/dev/twin":       {0x87, 1},
		"ih/dev-2/dev/#":          {0x87, 0x87},
		"ih/+/dev/#":              {0x87, 0x87},
		"#":                       {0x87, 0x87},
		"custom/dev-1":            {0x87, 0x87},
		"ih/dev-1/srv/#":          {0x87, 0x87},
		"$share/g/ih/dev-1/dev/#": {0x9e, 0x9e},
		"ih/#/dev":                {0x8f, 0x8f},
	}
	for i, narrow := range []bool{false, true} {
		inNextBubble(t, testbroker.MQTTv5Options{NarrowFilters: narrow}, func(t *testing.T, h *testbroker.Hub) {
			d, _ := dialNext(t, h, 1, nil)
			for f, want := range filters {
				ack := d.subscribe(packets.Subscription{Filter: f, Qos: 1})
				require.Equal(t, []byte{want[i]}, ack.ReasonCodes, f)
			}
		})
	}
}

func TestTopicsOfDevices(t *testing.T) {
	o := testbroker.MQTTv5Options{
		Topics: []string{"plant/{deviceId}/alarm", "plant/shared", "free/{deviceId}/*"},
		Routes: []string{"ih/+/srv/telemetry", "free/#"},
	}
	inNextBubble(t, o, func(t *testing.T, h *testbroker.Hub) {
		d := loginNext(t, h, 1)
		for topic, want := range map[string]byte{
			"ih/dev-1/srv/telemetry": 0, "plant/dev-1/alarm": 0, "plant/shared": 0, "free/dev-1/a/b": 0,
			"ih/dev-1/srv/other":     0x10, // allowed, and nobody listens
			"ih/dev-2/srv/twin":      0x87,
			"ih/dev-1/dev/twin":      0x87,
			"ih/dev-1/srv/a/b":       0x87,
			"plant/dev-2/alarm":      0x87,
			"plant/{deviceId}/alarm": 0x87,
			"plant/dev-1/alarm/x":    0x87,
			"free/dev-1":             0x87,
			"free/dev-1/":            0x87,
		} {
			require.Equal(t, want, d.publish(3, topic, "x"), topic)
		}
		routed := map[string]bool{}
		for _, m := range h.Messages() {
			routed[m.Topic] = !m.Unrouted
		}
		require.Equal(t, map[string]bool{
			"ih/dev-1/srv/telemetry": true, "free/dev-1/a/b": true, "plant/dev-1/alarm": false, "plant/shared": false,
		}, routed)

		h.Inject(fault.Fault{Kind: fault.RefusePublish, Code: 0x90})
		require.Equal(t, byte(0x90), d.publish(4, "plant/dev-2/alarm", "x"))
		h.Inject(fault.Fault{Kind: fault.DisconnectOnPublish, Code: 0x90})
		d.send(message(5, "plant/dev-2/alarm", "x"))
		require.Equal(t, byte(0x90), d.disconnected().ReasonCode)
	})
}

func TestTemplatesThatTheHubRefuses(t *testing.T) {
	for _, bad := range [][]string{
		{"a/{device}"}, {"a/+"}, {"a/#"}, {"ih/{deviceId}/x"}, {"$x/y"}, {"a/*/b"}, {""}, make([]string, 11),
	} {
		_, err := testbroker.New(&testbroker.Options{MQTTv5: &testbroker.MQTTv5Options{Topics: bad}})
		require.ErrorContains(t, err, "Topics", "%q", bad)
	}
	_, err := testbroker.New(&testbroker.Options{MQTTv5: &testbroker.MQTTv5Options{Routes: []string{"a/#/b"}}})
	require.ErrorContains(t, err, "Routes")
	_, err = testbroker.New(&testbroker.Options{
		MQTTv5: &testbroker.MQTTv5Options{}, Broker: &testbroker.BrokerOptions{},
	})
	require.ErrorContains(t, err, "exclude each other")
}

// A will is a message as any other, on the topic of telemetry or of a template.
func TestWillsOfTheProfile(t *testing.T) {
	o := testbroker.MQTTv5Options{Topics: []string{"lost/{deviceId}"}}
	inNextBubble(t, o, func(t *testing.T, h *testbroker.Hub) {
		for i, topic := range []string{"ih/dev-1/srv/telemetry", "lost/dev-1"} {
			dialNext(t, h, 1, func(pk *packets.Packet) {
				pk.Connect.WillFlag, pk.Connect.WillTopic, pk.Connect.WillPayload = true, topic, []byte("gone")
			})
			h.Drop("dev-1")
			require.NoError(t, h.WaitMessages(t.Context(), i+1))
			m := h.Messages()[i]
			require.Equal(t, []any{topic, "gone", true}, []any{m.Topic, string(m.Body), m.Will})
		}
	})
}

// Properties without a native place become system properties, as those of the classic hub.
func TestPropertiesOfMessagesOfTheProfile(t *testing.T) {
	o := testbroker.MQTTv5Options{Topics: []string{"site/up"}}
	inNextBubble(t, o, func(t *testing.T, h *testbroker.Hub) {
		d, _ := dialNext(t, h, 1, nil)
		pk := message(3, "site/up", "x")
		pk.Properties.MessageExpiryInterval, pk.Properties.ResponseTopic = 60, "answers"
		pk.Properties.User = []packets.UserProperty{
			{Key: "content-type", Val: "text/plain"}, {Key: "type", Val: "mine"}, {Key: "$.cid", Val: "c"},
		}
		d.send(pk)
		require.Zero(t, d.expect(packets.Puback).ReasonCode)
		m := h.Messages()[0]
		require.Equal(t, []string{"text/plain", "c", "answers", "2000-01-01T00:01:00Z"},
			[]string{m.ContentType, m.CorrelationID, m.ResponseTopic, m.Expiry})
		require.Equal(t, []hubdata.Property{{Name: "type", Value: "mine"}}, m.Properties)

		pk = message(4, "ih/dev-1/srv/telemetry", "\xff")
		pk.Properties.PayloadFormat, pk.Properties.PayloadFormatFlag = 1, true
		d.send(pk)
		require.Equal(t, byte(0x99), d.expect(packets.Puback).ReasonCode)
		d.send(message(5, "ih/dev-1/srv/telemetry", string(make([]byte, hubdata.MaxMessage+1))))
		require.Equal(t, byte(0x95), d.disconnected().ReasonCode)
	})
}

// What is larger than the client's maximum packet size is not sent.
func TestPacketsThatTheClientCannotTake(t *testing.T) {
	inNextBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		d, _ := dialNext(t, h, 1, func(pk *packets.Packet) { pk.Properties.MaximumPacketSize = 150 })
		d.listen()
		d.born(nextwire.Birth{})
		hubtest.PatchDesired(t, h, "dev-1", `{"a":"`+strings.Repeat("x", 200)+`"}`)
		require.Equal(t, 404103,
			hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: strings.Repeat("m", 200)}).Code())
		hubtest.PatchDesired(t, h, "dev-1", `{"a":1}`)
		require.Equal(t, uint64(3), d.patched().Version)
	})
}
