package dialect_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

var module = transport.Credentials{Host: "h", DeviceID: "Device1", ModuleID: "Module1"}

const inputTopic = "devices/Device1/modules/Module1/inputs/"

// The topic is a vector of the tests of the edge gateway.
func TestAMessageOfAnInputHasItsProperties(t *testing.T) {
	s := hubSession(t, dialect.Hub, module)
	const topic = inputTopic + "input1/Foo=Bar&Prop2=Value2&Prop3=Value3&%24.ce=utf-8&%24.ct=application%2Fjson&" +
		"%24.schema=schema1&%24.to=foo&%24.uid=user1&%24.cid=1234&%24.mid=m1&%24.cdid=fromDevice1&" +
		"%24.cmid=fromModule1&%24.sub=testComponent"
	for _, end := range []string{"", "/"} {
		got := takeBy(s, topic+end, "body").delivery
		require.Equal(t, transport.FeatureMessages, got.Kind)
		require.Equal(t, []byte{0x12, 0x34}, got.Ref)
		require.Equal(t, &transport.Message{
			Input: "input1", ID: "m1", CorrelationID: "1234", ContentType: "application/json", ContentEncoding: "utf-8",
			Component: "testComponent", Body: []byte("body"),
			Properties: []transport.Property{{Name: "Foo", Value: "Bar"}, {Name: "Prop2", Value: "Value2"},
				{Name: "Prop3", Value: "Value3"}},
			System: &transport.SystemProperties{Schema: "schema1", To: "foo", UserID: "user1",
				ConnectionDeviceID: "fromDevice1", ConnectionModuleID: "fromModule1"},
		}, got.Msg)
	}
}

func TestNamesOfInputs(t *testing.T) {
	s := hubSession(t, dialect.Hub, module)
	require.Equal(t, []dialect.Filter{{Topic: inputTopic + "#", QoS: 1}}, s.Filters(transport.FeatureMessages))
	for topic, want := range map[string]transport.Message{
		"in": {Input: "in"}, "in/": {Input: "in"}, "in//": {Input: "in"}, "a%2Fb%20c/": {Input: "a/b c"},
		"50%25/$.mid=1": {Input: "50%", ID: "1"}, "50%/$.mid=1/": {Input: "50%", ID: "1"},
		"in/a=b/c": {Input: "in", Properties: []transport.Property{{Name: "a", Value: "b/c"}}},
	} {
		want.Body = []byte("x")
		require.Equal(t, &want, takeBy(s, inputTopic+topic, "x").delivery.Msg, topic)
	}
	for _, other := range []string{inputTopic, inputTopic + "/", inputTopic + "/a=b", strings.TrimSuffix(inputTopic, "/"),
		"devices/Device1/modules/Module1/messages/devicebound/a=b", "devices/Device1/messages/devicebound/a=b",
		"devices/Device1/modules/Module2/inputs/in/a=b", ""} {
		require.Equal(t, &sink{}, takeBy(s, other, ""), other)
	}
	require.NotNil(t, takeBy(s, "$iothub/methods/POST/x/?$rid=1", "{}").delivery, "the rest is there as well")
}

// Of a device's cloud-to-device messages the address counts as a system property.
func TestADeviceHasNoInputs(t *testing.T) {
	s := hubSession(t, dialect.Hub, transport.Credentials{Host: "h", DeviceID: "d"})
	require.Equal(t, []dialect.Filter{{Topic: "devices/d/messages/devicebound/#", QoS: 1}},
		s.Filters(transport.FeatureMessages))
	got := takeBy(s, "devices/d/messages/devicebound/%24.to=%2Fx&iothub-ack=full&%24.mid=1", "x").delivery.Msg
	require.Equal(t, &transport.Message{ID: "1", Body: []byte("x"), System: &transport.SystemProperties{To: "/x"},
		Properties: []transport.Property{{Name: "iothub-ack", Value: "full"}}}, got)
	got = takeBy(s, "devices/d/messages/devicebound/%24.mid=2", "x").delivery.Msg
	require.Nil(t, got.System, "nothing is left of the message before")
	require.Nil(t, takeBy(s, "devices/d/inputs/in/a=b", "").delivery)
}

func TestOutputsAndSystemPropertiesAreInTheTopic(t *testing.T) {
	s := hubSession(t, dialect.Hub, module)
	m := &transport.Message{ID: "1", Output: "alarms", System: &transport.SystemProperties{UserID: "u"}, Input: "not sent"}
	p, refused := s.Publication(m)
	require.Nil(t, refused)
	const bag = "%24.uid=u&%24.on=alarms&%24.mid=1"
	require.Equal(t, dialect.Publication{Msg: m, Topic: "devices/Device1/modules/Module1/messages/events/",
		Suffix: len(bag)}, p)
	require.Equal(t, bag, string(s.AppendSuffix(nil, m)))
	_, hello, err := dialect.Hub.Session(&dialect.Config{Creds: &module, Will: m})
	require.NoError(t, err)
	require.Equal(t, p, hello.Will)
}

func TestSmallDialectsRefuseOutputsAndSystemProperties(t *testing.T) {
	for _, d := range []dialect.Dialect{dialect.HubMessages, dialect.HubTwinAndMethods} {
		s := hubSession(t, d, module)
		for _, m := range []*transport.Message{{Output: "o"}, {System: &transport.SystemProperties{To: "x"}}} {
			_, refused := s.Publication(m)
			require.ErrorIs(t, refused, transport.Unsupported)
			require.Equal(t, transport.ScopeOperation, refused.Scope)
			require.EqualError(t, refused, "mqtt send: unsupported: message Output and System have no place in this "+
				"dialect; leave them unset, or use dialect.Hub")
			_, _, err := d.Session(&dialect.Config{Creds: &module, Will: m})
			require.ErrorIs(t, err, transport.Invalid)
		}
		got := takeBy(s, "devices/Device1/modules/Module1/messages/devicebound/%24.to=x&%24.uid=me&%24.mid=1", "").delivery
		require.Equal(t, []transport.Property{{Name: "$.uid", Value: "me"}}, got.Msg.Properties)
		require.Nil(t, got.Msg.System)
	}
}

func TestBrokersThatAreNoHubsRefuseOutputsAndSystemProperties(t *testing.T) {
	for name, m := range map[string]*transport.Message{
		"Output": {Output: "o"}, "System.To": {System: &transport.SystemProperties{To: "x"}},
		"System.DiagnosticContext": {System: &transport.SystemProperties{DiagnosticContext: "x"}},
	} {
		for _, properties := range []bool{false, true} {
			for _, topics := range []*dialect.Topics{{Telemetry: "t"}, {Telemetry: "t", DropProperties: true}} {
				s, _, err := topics.Session(&dialect.Config{Creds: &transport.Credentials{Host: "h", DeviceID: "d"},
					Properties: properties})
				require.NoError(t, err)
				_, refused := s.Publication(m)
				require.ErrorIs(t, refused, transport.Unsupported)
				require.EqualError(t, refused, "mqtt send: unsupported: message "+name+" has no place over MQTT to this peer; "+
					"leave it unset, or use a transport to a hub that has it")
				_, refused = s.Publication(&transport.Message{ID: "1", Input: "i", System: new(transport.SystemProperties)})
				require.Nil(t, refused)
			}
		}
	}
}

// An envelope that takes the fields is one that leaves them out of its message.
func TestAnEnvelopeMayTakeOutputs(t *testing.T) {
	for _, properties := range []bool{false, true} {
		topics := &dialect.Topics{Telemetry: "up", Envelope: picky{}}
		s, _, err := topics.Session(&dialect.Config{Creds: &transport.Credentials{Host: "h", DeviceID: "d"},
			Properties: properties})
		require.NoError(t, err)
		_, refused := s.Publication(&transport.Message{Output: "o", Body: []byte("x")})
		require.Nil(t, refused)
	}
}

func TestAMessageOverAHubsDialectAllocatesOnlyItsText(t *testing.T) {
	s := hubSession(t, dialect.Hub, module)
	var in mqttwire.Inbound
	k, body := new(sink), []byte("x")
	for _, topic := range []string{inputTopic + "in/$.mid=1", inputTopic + "in/$.mid=1&$.uid=u&$.cdid=d"} {
		text := []byte(topic)
		require.EqualValues(t, 1, testing.AllocsPerRun(100, func() { s.Take(k, text, in.Delivery(body, 7, false, false)) }))
	}
	m := &transport.Message{ID: "1", Output: "o", Created: time.Now(), System: &transport.SystemProperties{UserID: "u"}}
	buf := make([]byte, 0, 256)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if p, refused := s.Publication(m); refused != nil || len(s.AppendSuffix(buf[:0], m)) != p.Suffix {
			t.Error(refused)
		}
	}))
}

func FuzzTakeOfAModule(f *testing.F) {
	for _, topic := range []string{inputTopic + "in/%24.uid=u&a=b/", inputTopic + "a%2Fb", inputTopic,
		"$iothub/methods/POST/x/?$rid=1", "$iothub/credentials/res/200/?$rid=1"} {
		f.Add(topic, `{}`)
	}
	s, _, err := dialect.Hub.Session(&dialect.Config{Creds: &module})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, topic, body string) {
		d := takeBy(s, topic, body).delivery
		if d != nil && d.Kind == transport.FeatureMessages && d.Msg.Input == "" && !strings.Contains(topic, "%") {
			t.Fatalf("%q: %+v", topic, d.Msg)
		}
	})
}
