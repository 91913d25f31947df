package mqttfront_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/mqttfront"
)

// events is the telemetry topic of dev-1.
const events = "devices/dev-1/messages/events/"

func TestParseTelemetry(t *testing.T) {
	type props = []hubdata.Property
	p := func(name, value string) hubdata.Property { return hubdata.Property{Name: name, Value: value} }
	for name, c := range map[string]struct {
		topic string
		want  hubdata.Message
	}{
		"empty bag":           {events, hubdata.Message{}},
		"empty bag and slash": {events + "/", hubdata.Message{}},
		"encoded dollar": {events + "%24.mid=m-1", hubdata.Message{MessageID: "m-1",
			System: props{p("$.mid", "m-1")}}},
		"raw dollar": {events + "$.mid=m-1/", hubdata.Message{MessageID: "m-1",
			System: props{p("$.mid", "m-1")}}},
		"one slash is dropped": {events + "a=b/", hubdata.Message{Properties: props{p("a", "b")}}},
		"plus is a plus":       {events + "a+b=c+d", hubdata.Message{Properties: props{p("a+b", "c+d")}}},
		"name alone":           {events + "a&b=&c", hubdata.Message{Properties: props{p("a", ""), p("b", ""), p("c", "")}}},
		"equals in the value":  {events + "a=b=c", hubdata.Message{Properties: props{p("a", "b=c")}}},
		"order and case kept": {events + "b=1&A=2&a=3&b=4",
			hubdata.Message{Properties: props{p("b", "1"), p("A", "2"), p("a", "3"), p("b", "4")}}},
		"component": {events + "$.sub=thermostat1",
			hubdata.Message{Component: "thermostat1", System: props{p("$.sub", "thermostat1")}}},
		"a property, no more":  {events + "sub=thermostat1", hubdata.Message{Properties: props{p("sub", "thermostat1")}}},
		"not ASCII":            {events + "h%C3%B6he=%E2%82%AC", hubdata.Message{Properties: props{p("höhe", "€")}}},
		"dollar is not enough": {events + "%24x=1", hubdata.Message{Properties: props{p("$x", "1")}}},
		"all of them": {
			events + "%24.mid=m-1&%24.cid=c%2F1&%24.ct=application%2Fjson%3Bcharset%3Dutf-8&%24.ce=utf-8" +
				"&%24.ctime=2030-01-01T00%3A00%3A00Z&%24.exp=2030-01-02T00%3A00%3A00Z" +
				"&%24.sub=thermostat1&%24.on=out&level=high%20temp",
			hubdata.Message{
				MessageID: "m-1", CorrelationID: "c/1", ContentType: "application/json;charset=utf-8", ContentEncoding: "utf-8",
				Output: "out", Component: "thermostat1", CreationTime: "2030-01-01T00:00:00Z", Expiry: "2030-01-02T00:00:00Z",
				System: props{
					p("$.mid", "m-1"), p("$.cid", "c/1"), p("$.ct", "application/json;charset=utf-8"), p("$.ce", "utf-8"),
					p("$.ctime", "2030-01-01T00:00:00Z"), p("$.exp", "2030-01-02T00:00:00Z"),
					p("$.sub", "thermostat1"), p("$.on", "out"),
				},
				Properties: props{p("level", "high temp")},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.DeviceID, c.want.Topic = "dev-1", c.topic
			got, err := mqttfront.ParseTelemetry("dev-1", "", c.topic)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestInvalidTopics(t *testing.T) {
	for _, topic := range []string{
		"", "devices/dev-1", "devices/dev-1/messages/events", "devices/dev-2/messages/events/",
		"devices/dev-1/messages/devicebound/",
		"devices/dev-1/modules/m/messages/events/", "Devices/dev-1/messages/events/",
		events + "a=%", events + "a=%2", events + "a=%zz", events + "a=%ff", events + "$.sub=%ff", events + "=b",
		events + "a=b&", events + "&", events + "a=b//", events + "a/b=c",
	} {
		_, err := mqttfront.ParseTelemetry("dev-1", "", topic)
		require.Error(t, err, topic)
	}
}
