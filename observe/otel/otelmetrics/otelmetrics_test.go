package otelmetrics_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/embedded"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/observe/otel/otelmetrics"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// newReader returns a provider with a manual reader.
func newReader(t *testing.T) (*sdk.MeterProvider, *sdk.ManualReader) {
	t.Helper()
	r := sdk.NewManualReader()
	p := sdk.NewMeterProvider(sdk.WithReader(r))
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return p, r
}

// collect collects everything, as one number for each "name{attributes}".
func collect(t *testing.T, r sdk.Reader) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, m := range metrics(t, r) {
		each := func(set attribute.Set, v float64) {
			key := m.Name
			if set.Len() > 0 {
				key += "{" + set.Encoded(attribute.DefaultEncoder()) + "}"
			}
			_, double := all[key]
			require.False(t, double, key)
			all[key] = v
		}
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range d.DataPoints {
				each(p.Attributes, float64(p.Value))
			}
		case metricdata.Gauge[float64]:
			for _, p := range d.DataPoints {
				each(p.Attributes, p.Value)
			}
		default:
			t.Fatalf("%s: %T", m.Name, d)
		}
	}
	return all
}

func metrics(t *testing.T, r sdk.Reader) []metricdata.Metrics {
	t.Helper()
	var rm metricdata.ResourceMetrics
	require.NoError(t, r.Collect(context.Background(), &rm))
	var all []metricdata.Metrics
	for _, s := range rm.ScopeMetrics {
		require.Equal(t, otelmetrics.Scope, s.Scope.Name)
		all = append(all, s.Metrics...)
	}
	return all
}

// fixed is a client in a given state.
type fixed struct {
	status device.Status
	stats  device.Stats
}

func (f fixed) Status() device.Status { return f.status }
func (f fixed) Stats() device.Stats   { return f.stats }

func newClient(t *testing.T, hub *testbroker.Hub, o *device.Options) *device.Client {
	t.Helper()
	creds, err := device.ParseConnectionString(hub.ConnectionString("dev-1"))
	require.NoError(t, err)
	if o == nil {
		o = &device.Options{}
	}
	o.Rand = func() uint64 { return 0 }
	c, err := device.New(creds, mqtt.New(&mqtt.Options{Network: netopt.Options{Plaintext: true,
		Dial: hub.Dial(testbroker.PortMQTT)}}), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestALifeInNumbers(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		hub := hubfixture.Open(t, &testbroker.Options{Seed: 1}, "dev-1")
		c := newClient(t, hub, nil)
		p, r := newReader(t)
		unregister, err := otelmetrics.Register(p, nil, c)
		require.NoError(t, err)
		defer func() { require.NoError(t, unregister()) }()
		state := func(all map[string]float64) string {
			var is []string
			for key, v := range all {
				if name, ok := strings.CutPrefix(key, "hubline.client.connection.state{hubline.client.connection.state="); ok &&
					v == 1 {
					is = append(is, strings.TrimSuffix(name, "}"))
				}
			}
			require.Len(t, is, 1, all)
			return is[0]
		}

		body := []byte("reading")
		require.NoError(t, c.Enqueue(t.Context(), &transport.Message{Body: body}, nil))
		all := collect(t, r)
		require.Equal(t, "disconnected", state(all))
		require.EqualValues(t, 1, all["hubline.client.messages.accepted"])
		require.EqualValues(t, 1, all["hubline.client.queue.size"])
		require.EqualValues(t, 7, all["hubline.client.queue.bytes"])
		require.EqualValues(t, 0, all["hubline.client.queue.in_flight"])
		require.EqualValues(t, 0, all["hubline.client.connection.attempts"])

		refuse := hub.Inject(fault.Fault{Kind: fault.RefuseConnect, Times: -1})
		require.NoError(t, c.Start())
		time.Sleep(30 * time.Second)
		all = collect(t, r)
		require.Equal(t, "retrying", state(all))
		require.EqualValues(t, 30, all["hubline.client.outage.duration"])
		require.EqualValues(t, 30, all["hubline.client.outage.longest"])
		require.Equal(t, float64(c.Stats().Attempts), all["hubline.client.connection.attempts"])
		require.Greater(t, all["hubline.client.connection.attempts"], 5.0)
		require.EqualValues(t, 0, all["hubline.client.connection.successes"])

		refuse.Remove()
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Flush(t.Context()))
		hub.Inject(fault.Fault{Kind: fault.SwallowPuback})
		require.NoError(t, c.Enqueue(t.Context(), &transport.Message{Body: body}, nil))
		synctest.Wait()
		all = collect(t, r)
		require.Equal(t, "connected", state(all))
		require.EqualValues(t, 0, all["hubline.client.outage.duration"])
		require.GreaterOrEqual(t, all["hubline.client.outage.longest"], 30.0)
		require.EqualValues(t, 1, all["hubline.client.connection.successes"])
		require.EqualValues(t, 2, all["hubline.client.messages.accepted"])
		require.EqualValues(t, 1, all["hubline.client.messages.acknowledged"])
		require.EqualValues(t, 1, all["hubline.client.queue.in_flight"])

		hub.Drop("dev-1") // messages in flight are sent again
		time.Sleep(time.Minute)
		require.NoError(t, c.Send(t.Context(), &transport.Message{Body: body}))
		all = collect(t, r)
		require.EqualValues(t, 2, all["hubline.client.connection.successes"])
		require.EqualValues(t, 3, all["hubline.client.messages.acknowledged"])
		require.EqualValues(t, 1, all["hubline.client.messages.resent"])

		require.NoError(t, hub.SetEnabled("dev-1", false))
		time.Sleep(time.Minute)
		require.NoError(t, c.Enqueue(t.Context(), &transport.Message{Body: body}, nil))
		all = collect(t, r)
		require.Equal(t, "disconnected", state(all))
		require.EqualValues(t, 1, all["hubline.client.queue.size"])

		require.NoError(t, c.Close())
		all = collect(t, r)
		require.EqualValues(t, 1, all["hubline.client.messages.cancelled"])
		require.EqualValues(t, 0, all["hubline.client.queue.size"])
		require.Equal(t, all["hubline.client.messages.accepted"], all["hubline.client.messages.acknowledged"]+
			all["hubline.client.messages.cancelled"])
	})
}

// A number added to Stats must be reported here too.
func TestNoFieldIsForgotten(t *testing.T) {
	var f fixed
	f.stats.LastError = errors.New("SharedAccessKey=geheim")
	v := reflect.ValueOf(&f.stats).Elem()
	want := map[float64]string{}
	for i := range v.NumField() {
		n := 1001 + i
		switch field := v.Field(i); field.Interface().(type) {
		case time.Duration:
			field.SetInt(int64(time.Duration(n) * time.Second))
		case int:
			field.SetInt(int64(n))
		case uint64:
			field.SetUint(uint64(n))
		case error:
			continue // a text is not a number
		default:
			t.Fatalf("%s has a type of which this test does not know", v.Type().Field(i).Name)
		}
		want[float64(n)] = v.Type().Field(i).Name
	}
	p, r := newReader(t)
	_, err := otelmetrics.Register(p, nil, f)
	require.NoError(t, err)
	all := collect(t, r)
	for _, n := range all {
		delete(want, n)
	}
	require.Empty(t, want, "not told")
	require.NotContains(t, fmt.Sprint(all), "geheim")
}

func TestSeveralClientsAreAddedUp(t *testing.T) {
	p, r := newReader(t)
	_, err := otelmetrics.Register(p, []attribute.KeyValue{attribute.String("site", "north")},
		fixed{device.Status{State: device.StateConnected, Reason: device.ReasonPaused}, device.Stats{Acknowledged: 5,
			MessagesRejected: 1, LongestOutage: 90 * time.Second}},
		fixed{device.Status{State: device.StateConnected, Reason: device.ReasonConnectionOK}, device.Stats{Acknowledged: 7,
			QueuedBytes: 10}},
		fixed{device.Status{State: device.StateDisconnectedRetrying}, device.Stats{MessagesRejected: 2, QueuedBytes: 20,
			Outage: 1500 * time.Millisecond, LongestOutage: 2 * time.Second}},
	)
	require.NoError(t, err)
	all := collect(t, r)
	for key, want := range map[string]float64{
		"hubline.client.messages.acknowledged{site=north}":                                         12,
		"hubline.client.queue.bytes{site=north}":                                                   30,
		"hubline.client.messages.settled{hubline.client.verdict=rejected,site=north}":              3,
		"hubline.client.messages.settled{hubline.client.verdict=accepted,site=north}":              0,
		"hubline.client.outage.duration{site=north}":                                               1.5,
		"hubline.client.outage.longest{site=north}":                                                90,
		"hubline.client.connection.state{hubline.client.connection.state=connected,site=north}":    1,
		"hubline.client.connection.state{hubline.client.connection.state=paused,site=north}":       1,
		"hubline.client.connection.state{hubline.client.connection.state=retrying,site=north}":     1,
		"hubline.client.connection.state{hubline.client.connection.state=disconnected,site=north}": 0,
	} {
		got, ok := all[key]
		require.True(t, ok, "%s in %v", key, all)
		require.Equal(t, want, got, key)
	}
}

func TestEachClientCanHaveItsOwnSeries(t *testing.T) {
	p, r := newReader(t)
	var stop []func() error
	for i, id := range []string{"dev-1", "dev-2"} {
		unregister, err := otelmetrics.Register(p, []attribute.KeyValue{otelmetrics.DeviceID(id)},
			fixed{stats: device.Stats{Attempts: uint64(i + 1)}})
		require.NoError(t, err)
		stop = append(stop, unregister)
	}
	all := collect(t, r)
	require.EqualValues(t, 1, all["hubline.client.connection.attempts{hubline.device.id=dev-1}"])
	require.EqualValues(t, 2, all["hubline.client.connection.attempts{hubline.device.id=dev-2}"])

	require.NoError(t, stop[0]())
	require.NoError(t, stop[0]())
	all = collect(t, r)
	require.NotContains(t, fmt.Sprint(all), "dev-1")
	require.EqualValues(t, 2, all["hubline.client.connection.attempts{hubline.device.id=dev-2}"])
	require.NoError(t, stop[1]())
	require.Empty(t, collect(t, r))
}

// The instruments match the package documentation in name, unit and kind, and each has a
// description.
func TestTheDocumentedInstruments(t *testing.T) {
	source, err := os.ReadFile("otelmetrics.go")
	require.NoError(t, err)
	text, _, _ := strings.Cut(string(source), "\npackage ")
	var documented []string
	for _, row := range regexp.MustCompile(
		`(?m)^//\t(hubline\S+) +(counter|up-down counter|gauge|histogram) +(\S+) `).FindAllStringSubmatch(text, -1) {
		documented = append(documented, strings.Join(row[1:], " "))
	}

	p, r := newReader(t)
	_, err = otelmetrics.Register(p, nil, fixed{})
	require.NoError(t, err)
	_, err = otelmetrics.RegisterOutbox(p, nil, waiting{})
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) { failWith(t, p) })
	var found []string
	for _, m := range metrics(t, r) {
		kind := "gauge"
		switch s := m.Data.(type) {
		case metricdata.Sum[int64]:
			kind = "up-down counter"
			if s.IsMonotonic {
				kind = "counter"
			}
			require.Equal(t, metricdata.CumulativeTemporality, s.Temporality)
		case metricdata.Histogram[float64]:
			kind = "histogram"
		}
		require.NotEmpty(t, m.Description)
		require.Regexp(t, `^hubline\.(client|outbox)(\.[a-z]+(_[a-z]+)*)+$`, m.Name)
		found = append(found, m.Name+" "+kind+" "+m.Unit)
	}
	slices.Sort(documented)
	slices.Sort(found)
	require.Equal(t, documented, found)
}

// Collections, messages, Register and unregister run concurrently.
func TestConcurrently(t *testing.T) {
	hub := hubfixture.Open(t, &testbroker.Options{Seed: 1}, "dev-1")
	c := newClient(t, hub, nil)
	require.NoError(t, c.Open(t.Context()))
	first, second := sdk.NewManualReader(), sdk.NewManualReader()
	p := sdk.NewMeterProvider(sdk.WithReader(first), sdk.WithReader(second))
	defer func() { _ = p.Shutdown(context.Background()) }()
	_, err := otelmetrics.Register(p, nil, c)
	require.NoError(t, err)

	var wg sync.WaitGroup
	for _, r := range []sdk.Reader{first, second} {
		wg.Go(func() {
			for range 50 {
				var rm metricdata.ResourceMetrics
				if err := r.Collect(context.Background(), &rm); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 4 {
		wg.Go(func() {
			for range 20 {
				unregister, err := otelmetrics.Register(p, []attribute.KeyValue{attribute.Int("n", i)}, c)
				if err != nil {
					t.Error(err)
					return
				}
				if err := c.Send(t.Context(), &transport.Message{Body: []byte("x")}); err != nil {
					t.Error(err)
				}
				if err := unregister(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	all := collect(t, first)
	require.EqualValues(t, 80, all["hubline.client.messages.acknowledged"])
}

// A provider that fails leaves nothing registered.
func TestErrorsOfTheProvider(t *testing.T) {
	for _, m := range []metric.Meter{&refusing{instrument: true}, &refusing{callback: true}} {
		unregister, err := otelmetrics.Register(provider{m: m}, nil, fixed{})
		require.ErrorIs(t, err, errRefused)
		require.Nil(t, unregister)
	}
	unregister, err := otelmetrics.Register(noop.NewMeterProvider(), nil)
	require.NoError(t, err)
	require.NoError(t, unregister())
}

var errRefused = errors.New("refused")

type provider struct {
	embedded.MeterProvider
	m metric.Meter
}

func (p provider) Meter(string, ...metric.MeterOption) metric.Meter { return p.m }

type refusing struct {
	noop.Meter
	instrument, callback bool
}

func (r *refusing) Float64ObservableGauge(name string, o ...metric.Float64ObservableGaugeOption) (
	metric.Float64ObservableGauge, error) {
	if r.instrument {
		return nil, errRefused
	}
	return r.Meter.Float64ObservableGauge(name, o...)
}

func (r *refusing) RegisterCallback(f metric.Callback, all ...metric.Observable) (metric.Registration, error) {
	if r.instrument {
		panic("registered in spite of an error")
	}
	if r.callback {
		return nil, errRefused
	}
	return r.Meter.RegisterCallback(f, all...)
}
