package nexthub_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/nexthub"
)

// tap is a connection that records what is written.
type tap struct {
	net.Conn
	written *[]byte
}

func (c tap) Write(p []byte) (int, error) {
	*c.written = append(*c.written, p...)
	return c.Conn.Write(p)
}

// tapped makes the network record what is written.
func tapped(o *mqtt.Options) *[]byte {
	written, dial := new([]byte), o.Network.Dial
	o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return tap{c, written}, err
	}
	return written
}

// published returns the properties of the PUBLISHs to a topic.
func published(t *testing.T, written []byte, topic string) (all [][]string) {
	names := map[mqttwire.PropertyID]string{mqttwire.PayloadFormat: "format", mqttwire.MessageExpiry: "expiry",
		mqttwire.ContentType: "content type", mqttwire.CorrelationData: "correlation data"}
	for len(written) > 0 {
		h, ok, err := mqttwire.Next5(written)
		require.NoError(t, err)
		require.True(t, ok)
		body := written[h.Size : h.Size+h.Body]
		written = written[h.Size+h.Body:]
		if h.Type != mqttwire.Publish {
			continue
		}
		in, err := mqttwire.ReadPublish5(h.Flags, body)
		require.NoError(t, err)
		if string(in.Topic) != topic {
			continue
		}
		properties := []string{"QoS " + strconv.Itoa(int(in.QoS))}
		for p, rest, ok := in.Properties.Next(); ok; p, rest, ok = rest.Next() {
			switch name := names[p.ID]; {
			case p.ID == mqttwire.UserProperty:
				properties = append(properties, string(p.Text)+"="+string(p.Value))
			case len(p.Text) > 0:
				properties = append(properties, name+" "+string(p.Text))
			default:
				properties = append(properties, name+" "+strconv.Itoa(int(p.Number)))
			}
		}
		all = append(all, properties)
	}
	return all
}

func TestTelemetryHasAllItsProperties(t *testing.T) {
	created := time.Date(2030, 1, 2, 3, 4, 5, 6e6, time.UTC)
	for name, c := range map[string]struct {
		m    transport.Message
		want []string
	}{
		"an id alone": {transport.Message{ID: "m-1"}, []string{"QoS 1", "type=telemetry:1", "$.mid=m-1"}},
		"text": {transport.Message{ID: "m-1", ContentType: "application/json", ContentEncoding: "utf-8"},
			[]string{"QoS 1", "type=telemetry:1", "format 1", "content type application/json", "content-type=application/json",
				"$.mid=m-1", "$.ce=utf-8"}},
		"no text": {transport.Message{ID: "m-1", ContentEncoding: "utf-16"},
			[]string{"QoS 1", "type=telemetry:1", "$.mid=m-1", "$.ce=utf-16"}},
		"the others": {transport.Message{ID: "m-1", CorrelationID: "any length, and no UUID", Component: "thermostat1",
			Created: created, Properties: []transport.Property{{Name: "level", Value: "high & ä"}, {Name: "b"}}},
			[]string{"QoS 1", "type=telemetry:1", "correlation data any length, and no UUID", "$.mid=m-1",
				"$.ctime=2030-01-02T03:04:05.006Z", "$.sub=thermostat1", "level=high & ä", "b="}},
		"on a custom topic": {transport.Message{ID: "m-1", Topic: "site/{deviceId}/up", ContentType: "text/plain",
			Properties: []transport.Property{{Name: "type", Value: "alarm"}}},
			[]string{"QoS 1", "content type text/plain", "content-type=text/plain", "$.mid=m-1", "type=alarm"}},
		"at most once": {transport.Message{ID: "m-1", AtMostOnce: true}, []string{"QoS 0", "type=telemetry:1", "$.mid=m-1"}},
		"with an expiry": {transport.Message{ID: "m-1", Expires: time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC)},
			[]string{"QoS 1", "type=telemetry:1", "expiry 60", "$.mid=m-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testbroker.MQTTv5Options{Topics: []string{"site/{deviceId}/up"}}, func(t *testing.T, h *testbroker.Hub) {
				o := options(h, &nexthub.Hub{})
				written := tapped(o)
				d, err := device.New(creds(), mqtt.New(o), nil)
				require.NoError(t, err)
				defer d.Close()
				open(t, d)
				c.m.Body = []byte("21.5")
				require.NoError(t, d.Send(t.Context(), &c.m))
				synctest.Wait()
				got := h.Messages()[0]
				require.Equal(t, [][]string{c.want}, published(t, *written, got.Topic))
				require.Equal(t, "m-1", got.MessageID)
				require.Equal(t, c.m.CorrelationID, got.CorrelationID)
				require.Equal(t, c.m.ContentType, got.ContentType)
				require.Equal(t, c.m.ContentEncoding, got.ContentEncoding)
				require.Equal(t, c.m.Component, got.Component)
			})
		})
	}
}

func TestCustomTopics(t *testing.T) {
	o := testbroker.MQTTv5Options{Topics: []string{"site/{deviceId}/*"}}
	inBubble(t, o, func(t *testing.T, h *testbroker.Hub) {
		c := client(t, h, &nexthub.Hub{}, nil)
		open(t, c)
		for range 2 {
			require.NoError(t, c.Send(t.Context(), &transport.Message{ID: "m-1", Topic: "site/{deviceId}/up",
				ContentType: "text/plain", Body: []byte("x")}))
		}
		got := h.Messages()[1]
		require.Equal(t, "site/dev-1/up", got.Topic)
		require.EqualValues(t, 1, got.QoS)

		for topic, c2 := range map[string]struct {
			kind transport.Kind
			text string
		}{
			"site/{device}/up":      {transport.Invalid, "placeholder other than {deviceId}"},
			"site/{deviceId}/{x}":   {transport.Invalid, "placeholder other than {deviceId}"},
			"site/+/up":             {transport.Invalid, "Topic"},
			"site/#":                {transport.Invalid, "Topic"},
			"ih/dev-1/srv/twin":     {transport.Unsupported, "no custom topic"},
			"ih/{deviceId}/srv/x":   {transport.Unsupported, "no custom topic"},
			"ih/dev-2/srv/presence": {transport.Unsupported, "no custom topic"},
			"$SYS/x":                {transport.Unsupported, "no custom topic"},
			"other/dev-1/up":        {transport.Forbidden, "0x87"},
		} {
			err := c.Send(t.Context(), &transport.Message{Topic: topic})
			require.ErrorIs(t, err, c2.kind, topic)
			require.ErrorContains(t, err, c2.text)
		}
		for name, m := range map[string]transport.Message{
			"Output": {Output: "o"}, "System.UserID": {System: &transport.SystemProperties{UserID: "u"}},
			"ResponseTopic": {ResponseTopic: "a"}, "Retain": {Retain: true},
			"AtMostOnce":        {Topic: "site/{deviceId}/up", AtMostOnce: true},
			"property \"type\"": {Properties: []transport.Property{{Name: "type", Value: "alarm"}}},
		} {
			err := c.Send(t.Context(), &m)
			require.ErrorIs(t, err, transport.Unsupported, name)
			require.ErrorContains(t, err, name)
		}
		require.Equal(t, device.StateConnected, c.Status().State)
		require.Len(t, h.Messages(), 2)
		require.Equal(t, 1, h.Connections("dev-1"))
	})
}

func TestPUBACKs(t *testing.T) {
	for code, kind := range map[byte]transport.Kind{
		0x10: 0, 0x87: transport.Forbidden, 0x90: transport.Invalid, 0x99: transport.Invalid,
		0x80: transport.Unavailable, 0x83: transport.Unavailable, 0x91: transport.Unavailable, 0x97: transport.Quota,
		0xc0: transport.Unavailable,
	} {
		inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
			h.Inject(fault.Fault{Kind: fault.RefusePublish, Code: code})
			c := client(t, h, &nexthub.Hub{}, nil)
			open(t, c)
			first, second := new(device.Receipt), new(device.Receipt)
			require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: "1"}, first))
			require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: "2"}, second))
			synctest.Wait()
			retried := kind == transport.Unavailable || kind == transport.Quota
			require.NoError(t, second.Wait(t.Context()))
			err := first.Wait(t.Context())
			switch {
			case kind == 0 || retried:
				require.NoError(t, err, "%#x", code)
			default:
				require.ErrorIs(t, err, kind, "%#x", code)
			}
			require.Equal(t, 1, h.Connections("dev-1"), "no PUBACK ends the session")
		})
	}
}

func TestSizesOfTelemetry(t *testing.T) {
	for name, c := range map[string]struct {
		hub    testbroker.MQTTv5Options
		d      nexthub.Hub
		fits   int
		tooBig int
	}{
		"default":     {fits: 254_900, tooBig: 255_001},
		"option":      {d: nexthub.Hub{MaxSize: 1000}, fits: 900, tooBig: 1001},
		"of this hub": {hub: testbroker.MQTTv5Options{MaximumPacketSize: 2000}, fits: 1800, tooBig: 2000},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.hub, func(t *testing.T, h *testbroker.Hub) {
				d := client(t, h, &c.d, nil)
				open(t, d)
				require.NoError(t, d.Send(t.Context(), &transport.Message{Body: make([]byte, c.fits)}))
				require.ErrorIs(t, d.Send(t.Context(), &transport.Message{Body: make([]byte, c.tooBig)}), transport.TooLarge)
				require.NoError(t, d.Send(t.Context(), &transport.Message{}))
				require.Equal(t, 1, h.Connections("dev-1"))
			})
		})
	}
}

func TestAWillHasThePropertiesOfTelemetry(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		o := options(h, &nexthub.Hub{})
		o.Will = &transport.Message{ID: "w", Body: []byte("gone")}
		c, err := device.New(creds(), mqtt.New(o), nil)
		require.NoError(t, err)
		defer c.Close()
		open(t, c)
		h.Drop("dev-1")
		require.NoError(t, h.WaitMessages(t.Context(), 1))
		got := h.Messages()[0]
		require.True(t, got.Will)
		require.Equal(t, "gone", string(got.Body))
		require.Equal(t, "w", got.MessageID)
		require.Equal(t, "ih/dev-1/srv/telemetry", got.Topic)
	})
}

// A message costs no memory of its own, also on a custom topic.
func TestPublicationsAllocateNothing(t *testing.T) {
	s, _, err := new(nexthub.Hub).Session(&dialect.Config{Creds: creds(), Properties: true})
	require.NoError(t, err)
	for _, m := range []transport.Message{{ID: "1"}, {ID: "1", Topic: "site/{deviceId}/up"}} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if p, refused := s.Publication(&m); refused != nil || !strings.Contains(p.Topic, "dev-1") {
				t.Error(p, refused)
			}
		}))
	}
}

// Answers of methods count among the messages that may wait for their PUBACK, too.
func TestAReceiveMaximumHoldsForEverything(t *testing.T) {
	for _, most := range []uint16{1, 2, 3, 20} {
		inBubble(t, testbroker.MQTTv5Options{ReceiveMaximum: most}, func(t *testing.T, h *testbroker.Hub) {
			h.Inject(fault.Fault{Kind: fault.SlowPuback, Delay: 100 * time.Millisecond, Times: -1})
			c := client(t, h, &nexthub.Hub{}, nil)
			require.NoError(t, c.HandleMethod("m", func(context.Context, *device.MethodCall) (int, []byte) { return 200, nil }))
			open(t, c)
			for range 200 {
				require.NoError(t, c.Enqueue(t.Context(), &transport.Message{}, nil))
			}
			calls := make(chan error)
			for range 8 {
				go func() {
					_, err := h.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: "m"})
					calls <- err
				}()
			}
			for range 8 {
				require.NoError(t, <-calls, "%d", most)
			}
			require.NoError(t, c.Flush(t.Context()))
			require.Len(t, h.Messages(), 200)
			require.EqualValues(t, 1, c.Stats().Connections, "%d", most)
		})
	}
}
