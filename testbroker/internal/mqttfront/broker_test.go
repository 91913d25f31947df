package mqttfront_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"
	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

const (
	upTopic   = "devices/dev-1/up/temperature"
	downTopic = "devices/dev-1/down"
)

// downFilter is the subscription to C2D messages.
var downFilter = packets.Subscription{Filter: downTopic + "/#", Qos: 1}

// newBroker makes a plain broker with the device dev-1.
func newBroker(t testing.TB, o *testbroker.BrokerOptions) (*testbroker.Hub, hubdata.Device) {
	if o == nil {
		o = &testbroker.BrokerOptions{}
	}
	return hubtest.NewHub(t, &testbroker.Options{Broker: o})
}

// inBothVersions runs a test with MQTT 3.1.1 and MQTT 5, in fake time.
func inBothVersions(t *testing.T, test func(t *testing.T, version byte)) {
	for _, version := range []byte{4, 5} {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, version) })
		})
	}
}

func TestBrokerLogsMessagesOfBothVersions(t *testing.T) {
	inBothVersions(t, func(t *testing.T, version byte) {
		h, d := newBroker(t, nil)
		c := loginPlain(t, h, d, version)
		m := message(3, upTopic, "21")
		m.FixedHeader.Retain, m.FixedHeader.Dup = true, true
		c.send(m)
		c.expect(packets.Puback)
		c.send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Publish}, TopicName: upTopic})
		c.ping()
		log := h.Messages()
		require.Len(t, log, 2)
		require.Equal(t, upTopic, log[0].Topic)
		require.Equal(t, "21", string(log[0].Body))
		require.True(t, log[0].Retain && log[0].Dup && !log[0].Will)
		require.Equal(t, uint16(3), log[0].PacketID)
		require.Equal(t, byte(1), log[0].QoS)
		require.Equal(t, byte(0), log[1].QoS)
		require.False(t, log[1].Retain || log[1].Dup)
	})
}

func TestBrokerKeepsEveryPropertyOfMQTT5(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newBroker(t, nil)
		c := loginPlain(t, h, d, 5)
		m := message(1, upTopic, "21")
		m.Properties = packets.Properties{
			PayloadFormatFlag: true, PayloadFormat: 1, MessageExpiryInterval: 30, ContentType: "text/plain",
			ResponseTopic: "answers/1", CorrelationData: []byte("c-1"), User: []packets.UserProperty{
				{Key: "b", Val: "1"}, {Key: "message-id", Val: "m-1"}, {Key: "a", Val: ""}, {Key: "b", Val: "2"},
				{Key: "creation-time", Val: "2026-01-01T00:00:00.000Z"}, {Key: "dt-subject", Val: "thermostat"},
			},
		}
		c.send(m)
		c.expect(packets.Puback)
		got := h.Messages()[0]
		require.Equal(t, []hubdata.Property{{Name: "b", Value: "1"}, {Name: "a"}, {Name: "b", Value: "2"}}, got.Properties)
		require.Equal(t, []hubdata.Property{
			{Name: "payload-format-indicator", Value: "1"}, {Name: "message-expiry-interval", Value: "30"},
			{Name: "content-type", Value: "text/plain"}, {Name: "response-topic", Value: "answers/1"},
			{Name: "correlation-data", Value: "c-1"}, {Name: "message-id", Value: "m-1"},
			{Name: "creation-time", Value: "2026-01-01T00:00:00.000Z"}, {Name: "dt-subject", Value: "thermostat"},
		}, got.System)
		require.Equal(t, []string{"m-1", "c-1", "text/plain", "utf-8", "thermostat", "2026-01-01T00:00:00.000Z", "answers/1"},
			[]string{got.MessageID, got.CorrelationID, got.ContentType, got.ContentEncoding, got.Component, got.CreationTime,
				got.ResponseTopic})
		require.Equal(t, got.Received.Add(30*time.Second).UTC().Format(time.RFC3339Nano), got.Expiry)

		m = message(2, upTopic, "\xff")
		m.Properties = packets.Properties{User: []packets.UserProperty{{Key: "content-encoding", Val: "gzip"}}}
		c.send(m)
		c.expect(packets.Puback)
		require.Equal(t, "gzip", h.Messages()[1].ContentEncoding)
	})
}

func TestBrokerTopicsOfDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newBroker(t, &testbroker.BrokerOptions{Telemetry: "site/{device}/+/up", Commands: "site/{device}/down/#"})
		mod := hubtest.AddModule(t, h, "dev-1", "mod-1")
		c := loginPlain(t, h, d, 5)
		require.Zero(t, c.publish(1, "site/dev-1/a/up", ""))
		for _, topic := range []string{"site/dev-1/up", "site/dev-2/a/up", "site/dev-1/a/up/b", "site/dev-1/mod-1/a/up",
			"x"} {
			require.Equal(t, byte(0x87), c.publish(2, topic, ""), topic)
		}
		require.Equal(t, 1, h.Len())
		codes := func(c *plainClient, filters ...string) []byte {
			var subs []packets.Subscription
			for _, f := range filters {
				subs = append(subs, packets.Subscription{Filter: f, Qos: 1})
			}
			return c.subscribe(subs...).ReasonCodes
		}
		require.Equal(t, []byte{1, 1, 1, 1, 0x87, 0x87, 0x87, 0x8f, 0x8f}, codes(c, "site/dev-1/down/#", "site/dev-1/down",
			"site/dev-1/down/+/a", "$share/g/site/dev-1/down/#", "#", "site/+/down", "site/dev-2/down/#", "site/#/down",
			"$share/g"))
		m := loginPlain(t, h, mod, 4)
		require.Zero(t, m.publish(1, "site/dev-1/mod-1/a/up", ""))
		require.Equal(t, "mod-1", h.Messages()[1].ModuleID)
		require.Equal(t, []byte{1, 0x80}, codes(m, "site/dev-1/mod-1/down/#", "site/dev-1/down/#"))
		m.send(message(2, "site/dev-1/a/up", ""))
		require.Equal(t, io.EOF, m.ended(), "MQTT 3.1.1 cannot refuse a message in another way")
	})
}

func TestBrokerTemplatesAreChecked(t *testing.T) {
	for _, o := range []testbroker.BrokerOptions{
		{Telemetry: "up"}, {Telemetry: "{device}/#/up"}, {Telemetry: "{device}/{module}"}, {Commands: "down/{device}/+"},
		{Commands: "down"}, {CommandQoS: 3},
	} {
		_, err := testbroker.New(&testbroker.Options{Broker: &o})
		require.ErrorContains(t, err, "testbroker: BrokerOptions")
	}
}

func TestBrokerCredentials(t *testing.T) {
	inBothVersions(t, func(t *testing.T, version byte) {
		const badCredentials, notAuthorized, badID = 0, 1, 2
		codes := map[byte][]byte{4: {4, 5, 2}, 5: {0x86, 0x87, 0x85}}[version]
		code := func(h *testbroker.Hub, d hubdata.Device, change func(k *packets.ConnectParams)) byte {
			pk := plainConnect(d, version)
			change(&pk.Connect)
			c := dialPlain(t, h, version)
			defer c.conn.Close()
			return c.connect(pk).ReasonCode
		}
		password := func(s string) func(k *packets.ConnectParams) {
			return func(k *packets.ConnectParams) { k.Password = []byte(s) }
		}
		h, d := newBroker(t, nil)
		require.Zero(t, code(h, d, password(d.PrimaryKey)))
		require.Zero(t, code(h, d, password(d.SecondaryKey)))
		require.Zero(t, code(h, d, password(hubtest.Token(d))))
		require.Equal(t, codes[badCredentials], code(h, d, password("x")))
		require.Equal(t, codes[notAuthorized], code(h, d, password(hubtest.Token(d)+"0")))
		require.Equal(t, codes[notAuthorized], code(h, hubdata.Device{ID: "dev-2", PrimaryKey: "x"}, password("x")))
		require.Zero(t, code(h, d, func(k *packets.ConnectParams) { k.ClientIdentifier = "any" }))
		require.Equal(t, codes[badID], code(h, d, func(k *packets.ConnectParams) { k.Username = []byte("dev/#") }))
		none := func(k *packets.ConnectParams) { k.UsernameFlag, k.PasswordFlag = false, false }
		require.Equal(t, codes[badCredentials], code(h, d, none))
		require.NoError(t, h.SetEnabled("dev-1", false))
		require.Equal(t, codes[notAuthorized], code(h, d, password(d.PrimaryKey)))

		h, d = newBroker(t, &testbroker.BrokerOptions{Password: "shared"})
		require.Zero(t, code(h, d, func(k *packets.ConnectParams) {
			k.Username, k.Password = []byte("all"), []byte("shared")
		}))
		require.Equal(t, codes[badCredentials], code(h, d, password(d.PrimaryKey)))
		h, d = newBroker(t, &testbroker.BrokerOptions{Anonymous: true})
		require.Zero(t, code(h, d, none))
		require.Equal(t, codes[notAuthorized], code(h, hubdata.Device{ID: "dev-2"}, none))
	})
}

func TestBrokerEndsConnectionsWithTheirTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{}, ConnectionGrace: -1})
		pk := plainConnect(d, 5)
		pk.Connect.Password, pk.Connect.Keepalive = []byte(hubtest.Token(d)), 0
		c := dialPlain(t, h, 5)
		c.connect(pk)
		begin := time.Now()
		require.Equal(t, byte(0xa0), c.disconnected().ReasonCode)
		require.Equal(t, time.Hour, time.Since(begin))
	})
}

func TestBrokerDeliversAndRedelivers(t *testing.T) {
	inBothVersions(t, func(t *testing.T, version byte) {
		h, d := newBroker(t, nil)
		pk := plainConnect(d, version)
		pk.Connect.Clean = false
		pk.Properties = packets.Properties{SessionExpiryInterval: 100, SessionExpiryIntervalFlag: true}
		c := dialPlain(t, h, version)
		require.False(t, c.connect(pk).SessionPresent)
		require.Equal(t, []byte{1}, c.subscribe(downFilter).ReasonCodes)
		hubtest.Enqueue(t, h, "a", "b")
		a, b := c.expect(packets.Publish), c.expect(packets.Publish)
		require.Equal(t, downTopic, a.TopicName)
		require.Equal(t, "b", string(b.Payload))
		c.ack(packets.Puback, a.PacketID, 0)
		c.ping()
		require.Equal(t, 1, h.CountC2D("dev-1", hubdata.C2DCompleted))
		time.Sleep(30 * time.Second)
		c.ping()
		c.conn.Close()

		synctest.Wait()
		hubtest.Enqueue(t, h, "c")
		c = dialPlain(t, h, version)
		require.True(t, c.connect(pk).SessionPresent)
		again, next := c.expect(packets.Publish), c.expect(packets.Publish)
		require.Equal(t, "b", string(again.Payload))
		require.True(t, again.FixedHeader.Dup)
		require.Equal(t, b.PacketID, again.PacketID)
		require.Equal(t, "c", string(next.Payload))
		require.False(t, next.FixedHeader.Dup)
		c.ack(packets.Puback, next.PacketID, 0)
		c.ping()
		c.conn.Close()

		synctest.Wait()
		time.Sleep(101 * time.Second)
		c = dialPlain(t, h, version)
		require.Equal(t, version == 4, c.connect(pk).SessionPresent, "sessions of MQTT 3.1.1 do not expire")
		if version == 5 {
			c.subscribe(downFilter)
			again = c.expect(packets.Publish)
			require.Equal(t, "b", string(again.Payload))
			require.False(t, again.FixedHeader.Dup, "the first delivery of another session")
		}
	})
}

func TestBrokerSessionsOfTheTwoVersions(t *testing.T) {
	inBothVersions(t, func(t *testing.T, version byte) {
		h, d := newBroker(t, &testbroker.BrokerOptions{SessionExpiry: time.Minute, KeepAlive: 20 * time.Second})
		pk := plainConnect(d, version)
		pk.Connect.Clean = false
		pk.Properties = packets.Properties{SessionExpiryInterval: 100, SessionExpiryIntervalFlag: true}
		c := dialPlain(t, h, version)
		ack := c.connect(pk)
		sub := downFilter
		sub.NoLocal, sub.RetainHandling = true, 2
		c.send(packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Subscribe}, PacketID: 7, Filters: []packets.Subscription{sub},
			Properties: packets.Properties{SubscriptionIdentifier: []int{9}},
		})
		c.expect(packets.Suback)
		s, ok := h.Session("dev-1")
		require.True(t, ok && s.Connected && !s.CleanStart && !s.Present)
		require.Equal(t, version, s.Version)
		if version == 4 {
			require.Equal(t, []hubdata.Filter{{Filter: sub.Filter, QoS: 1}}, s.Filters)
			require.Equal(t, []time.Duration{-1, time.Minute}, []time.Duration{s.Expiry, s.KeepAlive})
			return
		}
		require.Equal(t, []hubdata.Filter{{Filter: sub.Filter, QoS: 1, NoLocal: true, RetainHandling: 2, Identifier: 9}},
			s.Filters)
		require.Equal(t, []hubdata.Property{{Name: "session-expiry-interval", Value: "100"}}, s.Properties)
		require.Equal(t, []time.Duration{time.Minute, 20 * time.Second}, []time.Duration{s.Expiry, s.KeepAlive})
		require.Equal(t, uint32(60), ack.Properties.SessionExpiryInterval)
		require.Equal(t, uint16(20), ack.Properties.ServerKeepAlive)
		hubtest.Enqueue(t, h, "a")
		require.Equal(t, []int{9}, c.expect(packets.Publish).Properties.SubscriptionIdentifier)
		require.Equal(t, byte(0x8d), c.disconnected().ReasonCode, "30 s without a packet")
		c.conn.Close()
		synctest.Wait()
		s, ok = h.Session("dev-1")
		require.True(t, ok && !s.Connected)
		time.Sleep(time.Minute)
		_, ok = h.Session("dev-1")
		require.False(t, ok)
	})
}

func TestBrokerPropertiesOfDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newBroker(t, nil)
		c := loginPlain(t, h, d, 5)
		c.subscribe(downFilter)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{
			MessageID: "m", CorrelationID: "c", ContentType: "text/plain", ContentEncoding: "utf-8", Topic: downTopic + "/a",
			ResponseTopic: "answers", Retain: true, Expiry: time.Now().Add(9500 * time.Millisecond),
			Properties: []hubdata.Property{{Name: "b", Value: "1"}, {Name: "a"}},
		}))
		m := c.expect(packets.Publish)
		require.True(t, m.FixedHeader.Retain)
		require.Equal(t, downTopic+"/a", m.TopicName)
		require.Equal(t, packets.Properties{
			PayloadFormatFlag: true, PayloadFormat: 1, MessageExpiryInterval: 10, ContentType: "text/plain",
			ResponseTopic: "answers", CorrelationData: []byte("c"),
			User: []packets.UserProperty{{Key: "message-id", Val: "m"}, {Key: "b", Val: "1"}, {Key: "a"}},
		}, m.Properties)
		require.Error(t, h.SendC2D("dev-1", hubdata.C2D{Topic: "a/#"}))
	})
	h, _ := hubtest.NewHub(t, nil)
	require.ErrorContains(t, h.SendC2D("dev-1", hubdata.C2D{Topic: "a"}), "Options.Broker")
}

func TestBrokerDeliversExactlyOnceWithQoS2(t *testing.T) {
	inBothVersions(t, func(t *testing.T, version byte) {
		h, d := newBroker(t, &testbroker.BrokerOptions{CommandQoS: 2})
		pk := plainConnect(d, version)
		pk.Connect.Clean = false
		pk.Properties = packets.Properties{SessionExpiryInterval: 100, SessionExpiryIntervalFlag: true}
		c := dialPlain(t, h, version)
		c.connect(pk)
		sub := downFilter
		sub.Qos = 2
		require.Equal(t, []byte{2}, c.subscribe(sub).ReasonCodes)
		hubtest.Enqueue(t, h, "a", "b")
		a, b := c.expect(packets.Publish), c.expect(packets.Publish)
		require.Equal(t, byte(2), a.FixedHeader.Qos)
		c.ack(packets.Pubrec, a.PacketID, 0)
		require.Equal(t, a.PacketID, c.expect(packets.Pubrel).PacketID)
		require.Equal(t, 1, h.CountC2D("dev-1", hubdata.C2DCompleted))
		cut := h.Inject(fault.Fault{Kind: fault.DropOnReceipt})
		c.ack(packets.Pubcomp, a.PacketID, 0)
		require.Error(t, c.ended())
		require.Equal(t, 1, cut.Fired())

		c = dialPlain(t, h, version)
		require.True(t, c.connect(pk).SessionPresent)
		require.Equal(t, a.PacketID, c.expect(packets.Pubrel).PacketID)
		again := c.expect(packets.Publish)
		require.Equal(t, b.PacketID, again.PacketID)
		require.True(t, again.FixedHeader.Dup)
		c.ack(packets.Pubcomp, a.PacketID, 0)
		for range 2 {
			c.ack(packets.Pubrec, b.PacketID, 0)
			require.Zero(t, c.expect(packets.Pubrel).ReasonCode)
		}
		c.ack(packets.Pubcomp, b.PacketID, 0)
		c.ack(packets.Pubrec, 99, 0)
		rel := c.expect(packets.Pubrel)
		require.Equal(t, version == 5, rel.ReasonCode == 0x92)
		require.Equal(t, 2, h.CountC2D("dev-1", hubdata.C2DCompleted))
	})
}

func TestBrokerObeysTheReceiveMaximumOfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newBroker(t, &testbroker.BrokerOptions{CommandQoS: 2})
		pk := plainConnect(d, 5)
		pk.Properties.ReceiveMaximum, pk.Properties.MaximumPacketSize = 2, 60
		c := dialPlain(t, h, 5)
		c.connect(pk)
		sub := downFilter
		sub.Qos = 2
		c.subscribe(sub)
		hubtest.Enqueue(t, h, "a", "too large"+string(make([]byte, 60)), "b", "c")
		a, b := c.expect(packets.Publish), c.expect(packets.Publish)
		require.Equal(t, "b", string(b.Payload), "the packet that is too large is dropped")
		c.ping()
		c.ack(packets.Pubrec, a.PacketID, 0)
		c.expect(packets.Pubrel)
		c.ping()
		c.ack(packets.Pubcomp, a.PacketID, 0)
		require.Equal(t, "c", string(c.expect(packets.Publish).Payload))
		c.ack(packets.Pubrec, b.PacketID, 0x83)
		c.ping()
		require.Equal(t, 1, h.CountC2D("dev-1", hubdata.C2DRejected))
	})
}

func TestBrokerLimitsOfMQTT5(t *testing.T) {
	o := &testbroker.BrokerOptions{
		ReceiveMaximum: 2, MaximumPacketSize: 100, TopicAliases: 3, NoRetain: true, NoWildcards: true, NoShared: true,
		NoSubscriptionIDs: true,
	}
	withAlias := func(id uint16, topic string, alias uint16) packets.Packet {
		m := message(id, topic, "")
		m.Properties.TopicAlias, m.Properties.TopicAliasFlag = alias, true
		return m
	}
	retained := message(1, upTopic, "")
	retained.FixedHeader.Retain = true
	twice := message(1, upTopic, "")
	twice.FixedHeader.Qos = 2
	for name, row := range map[string]struct {
		send []packets.Packet
		code byte
	}{
		"receive maximum": {[]packets.Packet{message(1, upTopic, ""), message(2, upTopic, ""), message(3, upTopic, "")},
			0x93},
		"packet size":       {[]packets.Packet{message(1, upTopic, string(make([]byte, 100)))}, 0x95},
		"alias too high":    {[]packets.Packet{withAlias(1, upTopic, 4)}, 0x94},
		"unknown alias":     {[]packets.Packet{withAlias(1, "", 2)}, 0x82},
		"retained":          {[]packets.Packet{retained}, 0x9a},
		"QoS 2":             {[]packets.Packet{twice}, 0x9b},
		"wildcard in topic": {[]packets.Packet{message(1, upTopic+"/#", "")}, 0x90},
		"second CONNECT":    {[]packets.Packet{{FixedHeader: packets.FixedHeader{Type: packets.Connect}}}, 0x82},
		"AUTH without a method": {[]packets.Packet{{FixedHeader: packets.FixedHeader{Type: packets.Auth}, ReasonCode: 0x19}},
			0x82},
		"expiry after none": {[]packets.Packet{{FixedHeader: packets.FixedHeader{Type: packets.Disconnect},
			Properties: packets.Properties{SessionExpiryInterval: 1, SessionExpiryIntervalFlag: true}}}, 0x82},
	} {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			h, d := newBroker(t, o)
			h.Inject(fault.Fault{Kind: fault.SwallowPuback, Times: -1})
			c := loginPlain(t, h, d, 5)
			for _, pk := range row.send {
				c.send(pk)
			}
			end := c.disconnected()
			require.Equal(t, row.code, end.ReasonCode)
			require.NotEmpty(t, end.Properties.ReasonString)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		h, d := newBroker(t, o)
		c := dialPlain(t, h, 5)
		ack := c.connect(plainConnect(d, 5)).Properties
		require.Equal(t, packets.Properties{
			ReceiveMaximum: 2, MaximumQos: 1, MaximumQosFlag: true, RetainAvailableFlag: true, MaximumPacketSize: 100,
			TopicAliasMaximum: 3, WildcardSubAvailableFlag: true, SubIDAvailableFlag: true, SharedSubAvailableFlag: true,
		}, ack)
		c.send(withAlias(1, upTopic, 3))
		c.expect(packets.Puback)
		c.send(withAlias(2, "", 3))
		c.expect(packets.Puback)
		require.Equal(t, upTopic, h.Messages()[1].Topic)
		require.Equal(t, "topic-alias", h.Messages()[1].System[0].Name)
		require.Equal(t, []byte{0xa2, 0x9e, 1}, c.subscribe(downFilter, packets.Subscription{Filter: "$share/g/" + downTopic},
			packets.Subscription{Filter: downTopic, Qos: 1}).ReasonCodes)
	})
	synctest.Test(t, func(t *testing.T) {
		h, d := newBroker(t, &testbroker.BrokerOptions{AtMostOnce: true})
		c := dialPlain(t, h, 5)
		ack := c.connect(plainConnect(d, 5)).Properties
		require.True(t, ack.MaximumQosFlag && ack.MaximumQos == 0)
		require.Equal(t, []byte{0}, c.subscribe(downFilter).ReasonCodes)
		c.send(message(1, upTopic, ""))
		require.Equal(t, byte(0x9b), c.disconnected().ReasonCode)
	})
}

func TestBrokerAssignsAClientID(t *testing.T) {
	inBothVersions(t, func(t *testing.T, version byte) {
		h, d := newBroker(t, nil)
		pk := plainConnect(d, version)
		pk.Connect.ClientIdentifier = ""
		c := dialPlain(t, h, version)
		ack := c.connect(pk)
		require.Zero(t, ack.ReasonCode)
		s, _ := h.Session("dev-1")
		require.NotEmpty(t, s.ClientID)
		if version == 5 {
			require.Equal(t, s.ClientID, ack.Properties.AssignedClientID)
			return
		}
		pk.Connect.Clean = false
		require.Equal(t, byte(2), dialPlain(t, h, version).connect(pk).ReasonCode)
	})
}

func TestBrokerTakesOver(t *testing.T) {
	inBothVersions(t, func(t *testing.T, version byte) {
		h, d := newBroker(t, nil)
		first := loginPlain(t, h, d, version)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if version == 5 {
				require.Equal(t, byte(0x8e), first.expect(packets.Disconnect).ReasonCode)
			}
			require.Equal(t, io.EOF, first.ended())
			first.conn.Close()
		}()
		second := loginPlain(t, h, d, version)
		<-done
		second.ping()
		require.Equal(t, 1, h.Connections("dev-1"))
	})
}

func TestBrokerWills(t *testing.T) {
	inBothVersions(t, func(t *testing.T, version byte) {
		h, d := newBroker(t, nil)
		with := func(delay uint32) *plainClient {
			pk := plainConnect(d, version)
			pk.Connect.Clean = false
			pk.Properties = packets.Properties{SessionExpiryInterval: 60, SessionExpiryIntervalFlag: true}
			pk.Connect.WillFlag, pk.Connect.WillQos, pk.Connect.WillRetain = true, 1, true
			pk.Connect.WillTopic, pk.Connect.WillPayload = upTopic, []byte("gone")
			pk.Connect.WillProperties = packets.Properties{WillDelayInterval: delay, ContentType: "text/plain"}
			c := dialPlain(t, h, version)
			require.Zero(t, c.connect(pk).ReasonCode)
			return c
		}
		wills := func() int {
			synctest.Wait()
			return h.Len()
		}
		with(0).conn.Close()
		require.Equal(t, 1, wills())
		m := h.Messages()[0]
		require.True(t, m.Will && m.Retain)
		require.Equal(t, "gone", string(m.Body))

		c := with(0)
		c.send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Disconnect}})
		require.Equal(t, io.EOF, c.ended())
		require.Equal(t, 1, wills())
		if version == 4 {
			return
		}
		require.Equal(t, "text/plain", m.ContentType)
		c = with(0)
		c.send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Disconnect}, ReasonCode: 4})
		require.Equal(t, io.EOF, c.ended())
		require.Equal(t, 2, wills())

		with(10).conn.Close()
		require.Equal(t, 2, wills(), "the will waits")
		c = with(10)
		time.Sleep(20 * time.Second)
		require.Equal(t, 2, wills(), "the session was resumed")
		c.conn.Close()
		time.Sleep(9 * time.Second)
		require.Equal(t, 2, wills())
		time.Sleep(time.Second)
		require.Equal(t, 3, wills())
		with(100).conn.Close()
		time.Sleep(60 * time.Second)
		require.Equal(t, 4, wills(), "the session has ended")
		with(50).conn.Close()
		synctest.Wait()
		loginPlain(t, h, d, 5) // clean start
		require.Equal(t, 5, wills(), "the session has ended")

		before := runtime.NumGoroutine()
		for range 10 {
			with(50).conn.Close()
			synctest.Wait()
			with(50).conn.Close()
			synctest.Wait()
		}
		require.Less(t, runtime.NumGoroutine(), before+10, "a will that was dropped waits no more")
	})
}

func TestBrokerAuthenticatesWithAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{}, ConnectionGrace: -1})
		auth := func(code byte, data string) packets.Packet {
			return packets.Packet{
				FixedHeader: packets.FixedHeader{Type: packets.Auth}, ReasonCode: code,
				Properties: packets.Properties{AuthenticationMethod: testbroker.AuthMethod, AuthenticationData: []byte(data)},
			}
		}
		connectWith := func(method, data string) packets.Packet {
			pk := plainConnect(d, 5)
			pk.Connect.UsernameFlag, pk.Connect.PasswordFlag = false, false
			pk.Properties = packets.Properties{AuthenticationMethod: method, AuthenticationData: []byte(data)}
			return pk
		}
		c := dialPlain(t, h, 5)
		ack := c.connect(connectWith(testbroker.AuthMethod, hubtest.Token(d)))
		require.Zero(t, ack.ReasonCode)
		require.Equal(t, testbroker.AuthMethod, ack.Properties.AuthenticationMethod)
		time.Sleep(30 * time.Minute)
		c.conn.Close()

		require.Equal(t, byte(0x8c), dialPlain(t, h, 5).connect(connectWith("SCRAM", "")).ReasonCode)
		require.Equal(t, byte(0x87), dialPlain(t, h, 5).connect(connectWith(testbroker.AuthMethod, "x")).ReasonCode)

		c = dialPlain(t, h, 5)
		pk := connectWith(testbroker.AuthMethod, "")
		pk.Connect.Keepalive = 0
		c.send(pk)
		asked := c.expect(packets.Auth)
		require.Equal(t, byte(0x18), asked.ReasonCode)
		require.NotEmpty(t, asked.Properties.AuthenticationData)
		c.send(auth(0x18, hubtest.Token(d)))
		require.Zero(t, c.expect(packets.Connack).ReasonCode)
		time.Sleep(50 * time.Minute)
		c.send(auth(0x19, hubtest.Token(d)))
		require.Zero(t, c.expect(packets.Auth).ReasonCode)
		s, _ := h.Session("dev-1")
		require.Equal(t, 2, s.Authentications)
		time.Sleep(50 * time.Minute)
		c.send(auth(0x19, ""))
		require.Equal(t, byte(0x18), c.expect(packets.Auth).ReasonCode)
		c.send(auth(0x18, hubtest.Token(d)))
		require.Zero(t, c.expect(packets.Auth).ReasonCode)
		h.Inject(fault.Fault{Kind: fault.SwallowAuth})
		c.send(auth(0x19, hubtest.Token(d)))
		h.Inject(fault.Fault{Kind: fault.SlowAuth, Delay: time.Second})
		begin := time.Now()
		c.send(auth(0x19, hubtest.Token(d)))
		c.expect(packets.Auth)
		require.Equal(t, time.Second, time.Since(begin))
		h.Inject(fault.Fault{Kind: fault.RefuseAuth, Description: "go away", ServerReference: "other:1883"})
		c.send(auth(0x19, hubtest.Token(d)))
		end := c.disconnected()
		require.Equal(t, byte(0x87), end.ReasonCode)
		require.Equal(t, "go away", end.Properties.ReasonString)
		require.Equal(t, "other:1883", end.Properties.ServerReference)
	})
}

func TestBrokerReasonCodesAsFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newBroker(t, nil)
		inject := func(k fault.Kind, code byte) {
			h.Inject(fault.Fault{Kind: k, Code: code, Description: "because", ServerReference: "other:1883"})
		}
		inject(fault.RefuseConnect, 0x9c)
		ack := dialPlain(t, h, 5).connect(plainConnect(d, 5))
		require.Equal(t, byte(0x9c), ack.ReasonCode)
		require.Equal(t, "because", ack.Properties.ReasonString)
		require.Equal(t, "other:1883", ack.Properties.ServerReference)
		inject(fault.RefuseConnect, 0)
		require.Equal(t, byte(0x88), dialPlain(t, h, 5).connect(plainConnect(d, 5)).ReasonCode)
		inject(fault.RefuseConnect, 0)
		require.Equal(t, byte(3), dialPlain(t, h, 4).connect(plainConnect(d, 4)).ReasonCode)
		inject(fault.RefuseConnect, 0x88)
		require.Equal(t, byte(3), dialPlain(t, h, 4).connect(plainConnect(d, 4)).ReasonCode)

		c := loginPlain(t, h, d, 5)
		for code := 0x80; code <= 0xff; code++ {
			inject(fault.RefuseSubscribe, byte(code))
			sub := c.subscribe(downFilter)
			require.Equal(t, []byte{byte(code)}, sub.ReasonCodes)
			require.Equal(t, "because", sub.Properties.ReasonString)
			inject(fault.RefusePublish, byte(code))
			require.Equal(t, byte(code), c.publish(1, upTopic, ""))
		}
		require.Zero(t, h.Len())
		inject(fault.DisconnectOnPublish, 0x97)
		c.send(message(1, upTopic, ""))
		end := c.disconnected()
		require.Equal(t, byte(0x97), end.ReasonCode)
		require.Equal(t, "other:1883", end.Properties.ServerReference)
		require.Zero(t, h.Len())

		h.Inject(fault.Fault{Kind: fault.DisconnectWhileIdle, Delay: 5 * time.Second})
		c = loginPlain(t, h, d, 5)
		begin := time.Now()
		require.Equal(t, byte(0x8b), c.disconnected().ReasonCode)
		require.Equal(t, 5*time.Second, time.Since(begin))

		pk := plainConnect(d, 5)
		pk.Properties.RequestProblemInfoFlag = true
		inject(fault.RefuseConnect, 0x89)
		require.Empty(t, dialPlain(t, h, 5).connect(pk).Properties.ReasonString)
	})
}

func TestFaultsOfPlainBrokers(t *testing.T) {
	require.NotEmpty(t, fault.BrokerKinds())
	for _, k := range fault.BrokerKinds() {
		require.NotContains(t, k.String(), "Kind(")
		require.NotContains(t, fault.Kinds(), k)
		require.Equal(t, hubdata.MQTT, k.Protocols())
	}
}

// TestBrokerFaultsOfMessages puts each fault of a message in force at a plain broker.
func TestBrokerFaultsOfMessages(t *testing.T) {
	inBothVersions(t, func(t *testing.T, version byte) {
		h, d := newBroker(t, nil)
		for _, row := range []struct {
			kind   fault.Kind
			stored int
			acked  bool
		}{
			{fault.DropDuringPublish, 0, false}, {fault.DropBeforePublish, 0, false}, {fault.DropAfterPublish, 1, false},
			{fault.DropAfterPuback, 1, true}, {fault.SlowPuback, 1, true}, {fault.Forget, 0, true},
			{fault.DuplicatePuback, 1, true}, {fault.DisconnectOnPublish, 0, false},
		} {
			in := h.Inject(fault.Fault{Kind: row.kind, Delay: time.Second})
			before := h.Len()
			c := loginPlain(t, h, d, version)
			c.send(message(5, upTopic, "x"))
			pk, err := c.read()
			require.Equal(t, row.acked, err == nil && pk.FixedHeader.Type == packets.Puback, "%v: %v", row.kind, err)
			synctest.Wait() // some count after they have answered
			require.Equal(t, 1, in.Fired(), row.kind)
			require.Equal(t, row.stored, h.Len()-before, row.kind)
			c.conn.Close()
			synctest.Wait()
		}
		c := loginPlain(t, h, d, version)
		h.Inject(fault.Fault{Kind: fault.StrayPuback})
		c.send(message(5, upTopic, "x"))
		require.NotEqual(t, uint16(5), c.expect(packets.Puback).PacketID)
		require.Equal(t, uint16(5), c.expect(packets.Puback).PacketID)
		h.Inject(fault.Fault{Kind: fault.SwallowPuback})
		c.send(message(6, upTopic, "x"))
		c.ping()
		h.Inject(fault.Fault{Kind: fault.SwallowPingresp})
		c.send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Pingreq}})
		c.ping()
		throttle := h.Inject(fault.Fault{Kind: fault.Throttle, Rate: 1})
		begin := time.Now()
		for i := range uint16(3) {
			c.send(message(10+i, upTopic, "x"))
		}
		for range 3 {
			c.expect(packets.Puback)
		}
		require.Equal(t, 2*time.Second, time.Since(begin))
		throttle.Remove()
		quota := h.Inject(fault.Fault{Kind: fault.Quota, Limit: 1})
		c.publish(20, upTopic, "x")
		c.send(message(21, upTopic, "x"))
		if version == 5 {
			require.Equal(t, byte(0x97), c.expect(packets.Disconnect).ReasonCode)
		}
		require.Equal(t, io.EOF, c.ended())
		quota.Remove()
	})
}

func TestBrokerReportsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds []event.Kind
		h, d := hubtest.NewHub(t, &testbroker.Options{
			Broker: &testbroker.BrokerOptions{}, OnEvent: func(e event.Event) { kinds = append(kinds, e.Kind) },
		})
		c := loginPlain(t, h, d, 5)
		c.publish(1, upTopic, "x")
		h.CloseConnections("dev-1")
		require.Equal(t, byte(0x98), c.disconnected().ReasonCode)
		c.conn.Close()
		synctest.Wait()
		pk := plainConnect(d, 5)
		pk.Connect.Password = []byte("x")
		dialPlain(t, h, 5).connect(pk)
		synctest.Wait()
		require.Equal(t, []event.Kind{event.Connected, event.MessageStored, event.Disconnected, event.Refused}, kinds)
	})
}

func TestBrokerIsResetAndForgetsRemovedDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newBroker(t, nil)
		pk := plainConnect(d, 4)
		pk.Connect.Clean = false
		c := dialPlain(t, h, 4)
		c.connect(pk)
		c.publish(1, upTopic, "x")
		h.Reset()
		require.Zero(t, h.Len())
		_, ok := h.Session("dev-1")
		require.False(t, ok)
		c = dialPlain(t, h, 4)
		require.False(t, c.connect(pk).SessionPresent)
		require.NoError(t, h.RemoveDevice("dev-1"))
		require.Equal(t, io.EOF, c.ended())
		_, ok = h.Session("dev-1")
		require.False(t, ok)
	})
}

func TestBrokerTakesClientCertificates(t *testing.T) {
	inBothVersions(t, func(t *testing.T, version byte) {
		h, _ := newBroker(t, nil)
		cert := testbroker.NewClientCert("dev-x", time.Time{}, time.Time{})
		d, err := h.AddDeviceX509("dev-x", testbroker.Thumbprint(cert.Leaf))
		require.NoError(t, err)
		code := func(certs ...tls.Certificate) byte {
			w := hubtest.DialTLS(t, h, certs...)
			c := &plainClient{t, w.Conn, w.In, version}
			pk := plainConnect(d, version)
			pk.Connect.UsernameFlag, pk.Connect.PasswordFlag = false, false
			return c.connect(pk).ReasonCode
		}
		require.Zero(t, code(cert))
		require.Equal(t, map[byte]byte{4: 5, 5: 0x87}[version], code(testbroker.NewClientCert("dev-x", time.Time{},
			time.Time{})))
		require.Equal(t, map[byte]byte{4: 4, 5: 0x86}[version], code())
	})
}

// TestBrokerServesPaho uses an independent client on real sockets, with and without TLS and over
// WebSocket.
func TestBrokerServesPaho(t *testing.T) {
	h, d := newBroker(t, nil)
	for port, scheme := range map[testbroker.Port]string{
		testbroker.PortMQTT: "mqtt", testbroker.PortMQTTS: "mqtts", testbroker.PortHTTP: "ws", testbroker.PortHTTPS: "wss",
	} {
		t.Run(scheme, func(t *testing.T) {
			addr := hubtest.Listen(t, h, port)
			got := make(chan paho.Message, 1)
			o := paho.NewClientOptions().AddBroker(scheme + "://" + addr.String() + "/mqtt").SetClientID("any").
				SetUsername(d.ID).SetPassword(d.PrimaryKey).SetTLSConfig(h.ClientTLS()).SetProtocolVersion(4)
			o.SetDefaultPublishHandler(func(_ paho.Client, m paho.Message) { got <- m })
			c := paho.NewClient(o)
			require.True(t, c.Connect().WaitTimeout(hubtest.WaitLimit))
			defer c.Disconnect(100)
			before := h.Len()
			token := c.Publish(upTopic, 1, true, "21")
			require.True(t, token.WaitTimeout(hubtest.WaitLimit))
			require.NoError(t, token.Error())
			require.Equal(t, before+1, h.Len())
			token = c.Subscribe(downFilter.Filter, 1, nil)
			require.True(t, token.WaitTimeout(hubtest.WaitLimit))
			require.NoError(t, token.Error())
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Topic: downTopic + "/reboot", Body: []byte("now")}))
			m := <-got
			require.Equal(t, downTopic+"/reboot", m.Topic())
			require.Equal(t, "now", string(m.Payload()))
		})
	}
}

func TestBrokerSessionsBelongToClientIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newBroker(t, nil)
		pk := plainConnect(d, 4)
		pk.Connect.Clean = false
		present := func(client string) bool {
			pk.Connect.ClientIdentifier = client
			c := dialPlain(t, h, 4)
			defer synctest.Wait()
			defer c.conn.Close()
			return c.connect(pk).SessionPresent
		}
		require.False(t, present("a"))
		require.True(t, present("a"))
		require.False(t, present("b"))
		require.False(t, present("a"))
	})
}

func TestBrokerQuotaRefusesConnects(t *testing.T) {
	inBothVersions(t, func(t *testing.T, version byte) {
		h, d := newBroker(t, nil)
		h.Inject(fault.Fault{Kind: fault.Quota, Limit: -1})
		require.Equal(t, map[byte]byte{4: 3, 5: 0x97}[version], dialPlain(t, h, version).connect(plainConnect(d,
			version)).ReasonCode)
	})
}

func TestBrokerFreesItsReceiveMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newBroker(t, &testbroker.BrokerOptions{ReceiveMaximum: 2})
		c := loginPlain(t, h, d, 5)
		for i := range uint16(10) {
			require.Zero(t, c.publish(1+i, upTopic, ""))
		}
	})
}

func TestBrokerRefusesWrongAuthentications(t *testing.T) {
	auth := func(code byte, method string) packets.Packet {
		return packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Auth}, ReasonCode: code,
			Properties: packets.Properties{AuthenticationMethod: method, AuthenticationData: []byte("x")}}
	}
	for name, pk := range map[string]packets.Packet{
		"an answer without a challenge": auth(0x18, testbroker.AuthMethod), "another method": auth(0x19, "SCRAM"),
		"no method": auth(0x19, ""), "a code of the broker": auth(0, testbroker.AuthMethod),
	} {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			h, d := newBroker(t, nil)
			connect := plainConnect(d, 5)
			connect.Properties = packets.Properties{AuthenticationMethod: testbroker.AuthMethod,
				AuthenticationData: []byte(d.PrimaryKey)}
			c := dialPlain(t, h, 5)
			require.Zero(t, c.connect(connect).ReasonCode)
			c.send(pk)
			require.Equal(t, byte(0x82), c.disconnected().ReasonCode)
		})
	}
}
