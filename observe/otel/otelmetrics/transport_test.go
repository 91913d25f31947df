package otelmetrics_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/observe/otel/otelmetrics"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// overTransport is a client whose sessions are observed.
func overTransport(t *testing.T, hub *testbroker.Hub, p *sdk.MeterProvider, inner transport.Transport) *device.Client {
	t.Helper()
	observed, err := otelmetrics.Transport(p, []attribute.KeyValue{otelmetrics.DeviceID("dev-1")}, inner)
	require.NoError(t, err)
	creds, err := device.ParseConnectionString(hub.ConnectionString("dev-1"))
	require.NoError(t, err)
	c, err := device.New(creds, observed, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.Open(t.Context()))
	return c
}

// failWith sends a message that is acknowledged late, one whose connection is cut, and one that the
// hub refuses for now.
func failWith(t *testing.T, p *sdk.MeterProvider) {
	hub := hubfixture.Open(t, nil, "dev-1")
	plain := func(port testbroker.Port) netopt.Options {
		return netopt.Options{Plaintext: true, Dial: hub.Dial(port)}
	}
	c := overTransport(t, hub, p, mqtt.New(&mqtt.Options{Network: plain(testbroker.PortMQTT)}))
	hub.Inject(fault.Fault{Kind: fault.SlowPuback, Delay: 300 * time.Millisecond})
	require.NoError(t, c.Send(t.Context(), &transport.Message{}))
	require.NoError(t, c.Send(t.Context(), &transport.Message{AtMostOnce: true})) // neither an answer nor a refusal
	hub.Inject(fault.Fault{Kind: fault.DropBeforePublish})
	require.NoError(t, c.Send(t.Context(), &transport.Message{}))
	require.NoError(t, c.Close())

	c = overTransport(t, hub, p, http.New(&http.Options{Network: plain(testbroker.PortHTTP)}))
	hub.Inject(fault.Fault{Kind: fault.AnswerStatus, Statuses: []int{429}})
	require.NoError(t, c.Send(t.Context(), &transport.Message{}))
	require.NoError(t, c.Close())
}

func TestTransportRecordsLatenciesAndKindsOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, r := newReader(t)
		failWith(t, p)
		var latency metricdata.HistogramDataPoint[float64]
		sums := map[string]int64{}
		for _, m := range metrics(t, r) {
			switch d := m.Data.(type) {
			case metricdata.Histogram[float64]:
				latency = d.DataPoints[0]
			case metricdata.Sum[int64]:
				for _, point := range d.DataPoints {
					sums[m.Name+" "+point.Attributes.Encoded(attribute.DefaultEncoder())] = point.Value
				}
			}
		}
		require.EqualValues(t, 3, latency.Count)
		longest, _ := latency.Max.Value()
		require.InDelta(t, 0.3, longest, 0.01, "the time of a lost connection is no latency")
		require.Equal(t, map[string]int64{
			"hubline.client.connection.failures error.type=network failure,hubline.device.id=dev-1": 1,
			"hubline.client.messages.refusals error.type=throttled,hubline.device.id=dev-1":         1,
		}, sums)
	})
}

// waiting is an outbox that does not get through.
type waiting struct{}

func (waiting) Stats() outbox.Stats {
	return outbox.Stats{Waiting: 7, Bytes: 512, Stalled: time.Minute, Put: 12, Acknowledged: 2, Failed: 1, Dropped: 1,
		Damaged: 1}
}

func TestAnOutboxInNumbers(t *testing.T) {
	p, r := newReader(t)
	unregister, err := otelmetrics.RegisterOutbox(p, nil, waiting{})
	require.NoError(t, err)
	require.Equal(t, map[string]float64{
		"hubline.outbox.put": 12, "hubline.outbox.acknowledged": 2, "hubline.outbox.lost": 3, "hubline.outbox.size": 7,
		"hubline.outbox.bytes": 512, "hubline.outbox.stalled": 60,
	}, collect(t, r))
	require.NoError(t, unregister())
	require.Empty(t, collect(t, r))
}
