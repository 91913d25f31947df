package dialect_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/stretchr/testify/require"
)

// hubSession returns a session of a hub's dialect for this device.
func hubSession(t testing.TB, d dialect.Dialect, creds transport.Credentials) dialect.Session {
	s, _, err := d.Session(&dialect.Config{Creds: &creds})
	require.NoError(t, err)
	return s
}

func TestRequestTopics(t *testing.T) {
	s := hubSession(t, dialect.HubTwinAndMethods, transport.Credentials{DeviceID: "d"})
	for want, r := range map[string]transport.Request{
		"$iothub/twin/GET/?$rid=16":                                  {Op: transport.OpTwinGet, ID: 16},
		"$iothub/twin/PATCH/properties/reported/?$rid=4294967295":    {Op: transport.OpTwinPatch, ID: 1<<32 - 1},
		"$iothub/twin/PATCH/properties/reported/?$rid=17&$version=9": {Op: transport.OpTwinPatch, ID: 17, Version: 9},
		"$iothub/methods/res/200/?$rid=1f": {Op: transport.OpRespond, Ref: []byte("1f"),
			Status: 200},
		"$iothub/methods/res/-1/?$rid=": {Op: transport.OpRespond, Status: -1},
	} {
		got, qos, ok := s.AppendRequest([]byte("x"), &r)
		require.True(t, ok)
		require.Zero(t, qos)
		require.Equal(t, "x"+want, string(got))
	}
	for _, op := range []transport.Op{transport.OpNone, transport.OpSend, transport.OpSubscribe, transport.OpRenew,
		transport.OpPing, transport.OpSettle, transport.OpIssue} {
		_, _, ok := s.AppendRequest(nil, &transport.Request{Op: op})
		require.False(t, ok, op)
	}
}

func TestFilters(t *testing.T) {
	s := hubSession(t, dialect.Hub, transport.Credentials{DeviceID: "d", ModuleID: "m"})
	require.Equal(t, []dialect.Filter{
		{Topic: "devices/d/modules/m/inputs/#", QoS: 1}, {Topic: "$iothub/methods/POST/#"},
		{Topic: "$iothub/twin/PATCH/properties/desired/#"}, {Topic: "$iothub/twin/res/#"},
	}, s.Filters(transport.FeatureMessages|transport.FeatureMethods|transport.FeatureDesired|transport.FeatureTwin))
	require.Empty(t, s.Filters(0))
}

// sink keeps the latest of each kind.
type sink struct {
	id       uint32
	reply    *transport.Reply
	delivery *transport.Delivery
}

func (s *sink) Done(uint16, error) { panic("not for messages") }
func (s *sink) Reply(id uint32, r transport.Reply) {
	if s.reply != nil {
		panic("two replies")
	}
	s.id, s.reply = id, &r
}
func (s *sink) Deliver(d *transport.Delivery) bool { s.delivery = d; return true }

func take(topic, body string) *sink {
	return takeBy(hubTwin, topic, body)
}

var hubTwin, _, _ = dialect.HubTwinAndMethods.Session(&dialect.Config{Creds: &transport.Credentials{DeviceID: "d"}})

func takeBy(session dialect.Session, topic, body string) *sink {
	var in mqttwire.Inbound
	s := &sink{}
	session.Take(s, []byte(topic), in.Delivery([]byte(body), 0x1234, false, true))
	return s
}

func TestAnswersOfTheTwin(t *testing.T) {
	s := take("$iothub/twin/res/200/?$rid=16", `{"desired":{}}`)
	require.Equal(t, uint32(16), s.id)
	require.Equal(t, &transport.Reply{Status: 200, Body: []byte(`{"desired":{}}`)}, s.reply)
	s = take("$iothub/twin/res/204/?$version=10&$rid=17", "")
	require.Equal(t, uint32(17), s.id)
	require.EqualValues(t, 10, s.reply.Version)
	require.NoError(t, s.reply.Err)
	s = take("$iothub/twin/res/429/?$rid=18", `{"errorCode":429002,"message":"slow down"}`)
	require.ErrorIs(t, s.reply.Err, transport.Throttled)
	var refused *transport.StatusError
	require.True(t, errors.As(s.reply.Err, &refused))
	require.Equal(t, &transport.StatusError{Service: "hub", Status: 429, Code: 429002, Message: "slow down"}, refused)
	for query, want := range map[string]time.Duration{
		"$rid=18": 0, "$rid=18&retry-after=7": 7 * time.Second, "retry-after=3600&$rid=18": time.Hour,
		"$rid=18&retry-after=": 0, "$rid=18&retry-after=-7": 0, "$rid=18&retry-after=x": 0,
		"$rid=18&retry-after=9000000000": 0,
	} {
		err := take("$iothub/twin/res/429/?"+query, "").reply.Err
		require.Equal(t, want, transport.Find(err).RetryAfter, query)
	}
	for _, bad := range []string{"", "200", "200/", "200/?", "200/?$rid=", "200/?$rid=x", "200/?$rid=4294967296",
		"200/?$rid=2147483648", "400/?$rid=2147483649", // the client's own
		"200/?$rid=-1", "x/?$rid=16", "/?$rid=16", "-1/?$rid=16", "1000/?$rid=16", "200/?rid=16"} {
		s := take("$iothub/twin/res/"+bad, "")
		require.Nil(t, s.reply, bad)
		require.Nil(t, s.delivery, bad)
	}
	s = missed("$iothub/twin/res/200/?$rid=16")
	require.Equal(t, uint32(16), s.id)
	require.ErrorIs(t, s.reply.Err, transport.TooLarge)
}

func TestChangesAndCalls(t *testing.T) {
	d := take("$iothub/twin/PATCH/properties/desired/?$version=5", `{"$version":5}`).delivery
	require.Equal(t, transport.FeatureDesired, d.Kind)
	require.EqualValues(t, 5, d.Version)
	require.Equal(t, `{"$version":5}`, string(d.Msg.Body))
	d = take("$iothub/methods/POST/get-Log_1.2!/?$rid=a1f", `[1]`).delivery
	require.Equal(t, transport.FeatureMethods, d.Kind)
	require.Equal(t, "get-Log_1.2!", string(d.Name))
	require.Equal(t, "a1f", string(d.Ref))
	require.Equal(t, `[1]`, string(d.Msg.Body))
	for topic, name := range map[string]string{"a%2Bb": "a+b", "a%2bb": "a+b", "a%23b": "a#b", "a%25b": "a%b",
		"50%2525": "50%25",
		"a%":      "a%", "a%zz": "a%zz", "a+b": "a+b"} {
		require.Equal(t, name, string(take("$iothub/methods/POST/"+topic+"/?$rid=1", "").delivery.Name))
	}
	for _, bad := range []string{"$iothub/methods/POST/", "$iothub/methods/POST/x", "$iothub/methods/POST//?$rid=1",
		"$iothub/methods/POST/x/?$rid=", "$iothub/methods/POST/x/", "$iothub/other", "$iothub/"} {
		require.Nil(t, take(bad, "").delivery, bad)
	}
}

// A message that did not fit is reported without its body.
func TestMissed(t *testing.T) {
	k := missed("$iothub/methods/POST/a%2Bb/?$rid=a1f")
	require.Equal(t, transport.FeatureMethods, k.delivery.Kind)
	require.Equal(t, "a+b a1f", string(k.delivery.Name)+" "+string(k.delivery.Ref))
	require.Nil(t, k.delivery.Msg)
	k = missed("$iothub/twin/PATCH/properties/desired/?$version=5")
	require.Equal(t, transport.FeatureDesired, k.delivery.Kind)
	require.Zero(t, k.delivery.Version)
	require.Equal(t, "{}", string(k.delivery.Msg.Body))
	for _, topic := range []string{"$iothub/twin/res/200/?$rid=", "$iothub/methods/POST/x",
		"devices/d/messages/devicebound/a=b", "$iothub", "$iothub/other"} {
		require.Equal(t, &sink{}, missed(topic), topic)
	}
}

func missed(topic string) *sink {
	var in mqttwire.Inbound
	s := &sink{}
	hubTwin.Missed(s, []byte(topic), in.Delivery(nil, 0, false, false), 900, 512)
	return s
}

func FuzzTake(f *testing.F) {
	for _, topic := range []string{"$iothub/twin/res/200/?$rid=16&$version=3",
		"$iothub/twin/PATCH/properties/desired/?$version=5", "$iothub/methods/POST/x/?$rid=1",
		"$iothub/twin/res/400/?$rid=16"} {
		f.Add(topic, `{"errorCode":"1","message":2}`)
	}
	f.Fuzz(func(t *testing.T, topic, body string) {
		s := take(topic, body)
		if s.reply != nil && (s.reply.Err == nil) != (s.reply.Status >= 200 && s.reply.Status < 300) {
			t.Fatalf("%q: %+v", topic, s.reply)
		}
		if d := s.delivery; d != nil && d.Kind == transport.FeatureMethods && (len(d.Name) == 0 || len(d.Ref) == 0) {
			t.Fatalf("%q: %+v", topic, d)
		}
	})
}
