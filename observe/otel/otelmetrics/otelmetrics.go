// Package otelmetrics reports the counters of device clients to OpenTelemetry. It is a separate
// module, so that only programs that use it depend on OpenTelemetry. It depends on the metrics API
// only; the program supplies the SDK.
//
//	unregister, err := otelmetrics.Register(provider, nil, client)
//	defer unregister()
//
// # Instruments
//
// Those of Register are observed when a reader collects, from one device.Stats of each client, so
// messages cost nothing extra. Counters start at device.New.
//
//	hubline.client.messages.accepted        counter          {message}     entered the queue
//	hubline.client.messages.acknowledged    counter          {message}     acknowledged by the hub
//	hubline.client.messages.refused         counter          {message}     refused, or ended by the message policy
//	hubline.client.messages.expired         counter          {message}     expired before the acknowledgement
//	hubline.client.messages.dropped         counter          {message}     dropped by the full queue's overflow rule
//	hubline.client.messages.cancelled       counter          {message}     ended by Close or with their Send
//	hubline.client.messages.resent          counter          {message}     handed to a connection again
//	hubline.client.messages.received        counter          {message}     cloud-to-device, taken for the handler
//	hubline.client.messages.settled         counter          {message}     by verdict: accepted, released, rejected
//	hubline.client.inputs.unhandled         counter          {message}     rejected: no handler for a module's input
//	hubline.client.handler.panics           counter          {panic}       a handler panicked
//	hubline.client.desired.changes          counter          {change}      queued for the handler of desired properties
//	hubline.client.desired.skipped          counter          {change}      notifications that were not new
//	hubline.client.method.calls             counter          {call}        direct methods called
//	hubline.client.method.refused           counter          {call}        not run: no handler, no room or no time left
//	hubline.client.method.answers_lost      counter          {answer}      answers that could not be sent
//	hubline.client.method.doubled           counter          {call}        calls that came twice and were run once
//	hubline.client.connection.attempts      counter          {attempt}     attempts to connect
//	hubline.client.connection.successes     counter          {connection}  successful attempts
//	hubline.client.connection.state         up-down counter  {client}      1 for the current state, 0 for the others
//	hubline.client.queue.size               up-down counter  {message}     in the queue, including in flight
//	hubline.client.queue.bytes              up-down counter  By            their size
//	hubline.client.queue.in_flight          up-down counter  {message}     handed over and unanswered
//	hubline.client.outage.duration          gauge            s             time spent trying to connect; else 0
//	hubline.client.outage.longest           gauge            s             the longest such time
//
// Transport, around the transport of a client, adds what is measured at each message:
//
//	hubline.client.ack.duration             histogram        s             hand-over to acknowledgement
//	hubline.client.messages.refusals        counter          {refusal}     by error.type: refused for now or for good
//	hubline.client.connection.failures      counter          {failure}     by error.type: attempts and connections
//
// RegisterOutbox adds those of an outbox in files:
//
//	hubline.outbox.put                      counter          {message}     put since Open
//	hubline.outbox.acknowledged             counter          {message}     acknowledged by the hub
//	hubline.outbox.lost                     counter          {message}     failed, dropped or damaged
//	hubline.outbox.size                     up-down counter  {message}     wait in the files
//	hubline.outbox.bytes                    up-down counter  By            size of the files
//	hubline.outbox.stalled                  gauge            s             age of the first as the first; else 0
//
// The states are connected, paused (connected, and the service refused a message for now), retrying
// and disconnected. In each collection, accepted is the sum of acknowledged, refused, expired,
// dropped, cancelled and queue.size.
//
// # Attributes
//
// Besides the state, the verdict and error.type, the Kind of a failure, there are only the
// attributes passed to these functions. The device's id is not included unless the program adds it
// with DeviceID: separate series for each device of a large fleet are expensive. Keys, tokens and
// error texts are never reported.
package otelmetrics

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/device"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Scope is the name of the meter that Register uses.
const Scope = "github.com/hubline-iot/hubline/observe/otel/otelmetrics"

// Keys of the attributes that this package sets.
const (
	KeyDeviceID = attribute.Key("hubline.device.id")
	KeyState    = attribute.Key("hubline.client.connection.state")
	KeyVerdict  = attribute.Key("hubline.client.verdict")
)

// DeviceID returns the attribute for a device that gets its own series.
func DeviceID(id string) attribute.KeyValue { return KeyDeviceID.String(id) }

// Client is the part of *device.Client that is observed. Both methods are safe for concurrent use.
type Client interface {
	Status() device.Status
	Stats() device.Stats
}

// Register makes p observe the clients, with the attributes attrs, which may be nil, until
// unregister is called. Several clients in one call are reported as one: their values are added,
// and of the outages the longest counts. To distinguish clients, call Register for each. The
// attributes of each call must differ from those of all other calls with the same provider, or the
// provider's result is undefined.
//
// unregister ends the series and releases the clients; it may be called more than once. A closed
// client is reported until then. Register and unregister are safe for concurrent use.
func Register(p metric.MeterProvider, attrs []attribute.KeyValue, clients ...Client) (unregister func() error,
	err error) {
	m := p.Meter(Scope)
	g := &group{clients: slices.Clone(clients)}
	var all []metric.Observable
	var errs []error
	note := func(o metric.Observable, err error) {
		all = append(all, o)
		errs = append(errs, err)
	}
	with := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append(slices.Clone(attrs), more...)...))
	}
	plain := with()

	for _, d := range counters {
		i, err := m.Int64ObservableCounter(d.name, metric.WithUnit(d.unit), metric.WithDescription(d.text))
		note(i, err)
		g.sums = append(g.sums, sum{i, plain, d.value})
	}
	settled, err := m.Int64ObservableCounter("hubline.client.messages.settled", metric.WithUnit("{message}"),
		metric.WithDescription("Cloud-to-device messages settled."))
	note(settled, err)
	for _, v := range verdicts {
		g.sums = append(g.sums, sum{settled, with(KeyVerdict.String(v.name)), v.value})
	}
	for _, d := range levels {
		i, err := m.Int64ObservableUpDownCounter(d.name, metric.WithUnit(d.unit), metric.WithDescription(d.text))
		note(i, err)
		g.sums = append(g.sums, sum{i, plain, d.value})
	}
	state, err := m.Int64ObservableUpDownCounter("hubline.client.connection.state", metric.WithUnit("{client}"),
		metric.WithDescription("Clients in each state of the connection."))
	note(state, err)
	for _, name := range states {
		g.states = append(g.states, stateCount{state, with(KeyState.String(name)), name})
	}
	for _, d := range gauges {
		i, err := m.Float64ObservableGauge(d.name, metric.WithUnit("s"), metric.WithDescription(d.text))
		note(i, err)
		g.longest = append(g.longest, longest{i, plain, d.value})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	r, err := m.RegisterCallback(g.observe, all...)
	if err != nil {
		return nil, err
	}
	return r.Unregister, nil
}

// row describes an instrument whose values are summed over clients.
type row struct {
	name, unit, text string
	value            func(*device.Stats) uint64
}

var counters = [...]row{
	{"hubline.client.messages.accepted",
		"{message}", "Messages that entered the queue.", func(s *device.Stats) uint64 { return s.Accepted }},
	{"hubline.client.messages.acknowledged",
		"{message}", "Messages that the hub acknowledged, or with QoS 0 were written.", func(s *device.Stats) uint64 {
			return s.Acknowledged
		}},
	{"hubline.client.messages.refused", "{message}",
		"Messages that failed: a terminal refusal, or a stop of the message policy.", func(s *device.Stats) uint64 {
			return s.Refused
		}},
	{"hubline.client.messages.expired", "{message}",
		"Messages that expired before the hub acknowledged them.", func(s *device.Stats) uint64 { return s.Expired }},
	{"hubline.client.messages.dropped", "{message}",
		"Messages dropped because the queue was full.", func(s *device.Stats) uint64 { return s.Dropped }},
	{"hubline.client.messages.cancelled", "{message}",
		"Messages cancelled by Close or by the end of their Send.", func(s *device.Stats) uint64 { return s.Cancelled }},
	{"hubline.client.messages.resent",
		"{message}", "Messages sent again.", func(s *device.Stats) uint64 { return s.Resent }},
	{"hubline.client.messages.received",
		"{message}", "Cloud-to-device messages received.", func(s *device.Stats) uint64 { return s.Received }},
	{"hubline.client.inputs.unhandled",
		"{message}", "Messages of a module's inputs that have no handler.", func(s *device.Stats) uint64 {
			return s.InputsUnhandled
		}},
	{"hubline.client.handler.panics",
		"{panic}", "Panics of handlers.", func(s *device.Stats) uint64 { return s.HandlerPanics }},
	{"hubline.client.desired.changes", "{change}",
		"Changes of desired properties, delivered or queued.", func(s *device.Stats) uint64 { return s.DesiredChanges }},
	{"hubline.client.desired.skipped", "{change}", "Notifications of desired properties that were not new.",
		func(s *device.Stats) uint64 { return s.DesiredSkipped }},
	{"hubline.client.method.calls",
		"{call}", "Calls of direct methods accepted.", func(s *device.Stats) uint64 { return s.MethodCalls }},
	{"hubline.client.method.refused", "{call}",
		"Calls of direct methods refused: no handler, or too many calls.", func(s *device.Stats) uint64 {
			return s.MethodsRefused
		}},
	{"hubline.client.method.answers_lost", "{answer}",
		"Answers to direct methods that could not be sent.", func(s *device.Stats) uint64 { return s.AnswersLost }},
	{"hubline.client.method.doubled", "{call}", "Calls of direct methods received twice and run once.",
		func(s *device.Stats) uint64 { return s.MethodsDoubled }},
	{"hubline.client.connection.attempts",
		"{attempt}", "Attempts to connect.", func(s *device.Stats) uint64 { return s.Attempts }},
	{"hubline.client.connection.successes",
		"{connection}", "Attempts to connect that succeeded.", func(s *device.Stats) uint64 { return s.Connections }},
}

var verdicts = [...]struct {
	name  string
	value func(*device.Stats) uint64
}{
	{"accepted", func(s *device.Stats) uint64 { return s.MessagesAccepted }},
	{"released", func(s *device.Stats) uint64 { return s.MessagesReleased }},
	{"rejected", func(s *device.Stats) uint64 { return s.MessagesRejected }},
}

var levels = [...]row{
	{"hubline.client.queue.size", "{message}",
		"Messages in the queue, including those in flight.", func(s *device.Stats) uint64 { return uint64(s.Queued) }},
	{"hubline.client.queue.bytes",
		"By", "Size of the messages in the queue.", func(s *device.Stats) uint64 { return uint64(s.QueuedBytes) }},
	{"hubline.client.queue.in_flight",
		"{message}", "Messages in flight.", func(s *device.Stats) uint64 { return uint64(s.InFlight) }},
}

var gauges = [...]struct {
	name, text string
	value      func(*device.Stats) time.Duration
}{
	{"hubline.client.outage.duration", "Time for which the client has been trying without a connection.",
		func(s *device.Stats) time.Duration { return s.Outage }},
	{"hubline.client.outage.longest", "Longest time for which the client has been trying without a connection.",
		func(s *device.Stats) time.Duration { return s.LongestOutage }},
}

const paused = "paused"

var states = [...]string{device.StateConnected.String(), paused, device.StateDisconnectedRetrying.String(),
	device.StateDisconnected.String()}

func stateOf(s device.Status) string {
	if s.State == device.StateConnected && s.Reason == device.ReasonPaused {
		return paused
	}
	return s.State.String()
}

// group is the set of clients of one Register. It is immutable.
type group struct {
	clients []Client
	sums    []sum
	states  []stateCount
	longest []longest
}

type sum struct {
	instrument metric.Int64Observable
	attrs      metric.MeasurementOption
	value      func(*device.Stats) uint64
}

type stateCount struct {
	instrument metric.Int64Observable
	attrs      metric.MeasurementOption
	name       string
}

type longest struct {
	instrument metric.Float64Observable
	attrs      metric.MeasurementOption
	value      func(*device.Stats) time.Duration
}

// observe is the callback. Readers may call it concurrently.
func (g *group) observe(_ context.Context, o metric.Observer) error {
	stats := make([]device.Stats, len(g.clients))
	inState := make(map[string]int64, len(states))
	for i, c := range g.clients {
		stats[i] = c.Stats()
		inState[stateOf(c.Status())]++
	}
	for _, s := range g.sums {
		var n uint64
		for i := range stats {
			n += s.value(&stats[i])
		}
		o.ObserveInt64(s.instrument, int64(n), s.attrs)
	}
	for _, s := range g.states {
		o.ObserveInt64(s.instrument, inState[s.name], s.attrs)
	}
	for _, l := range g.longest {
		var d time.Duration
		for i := range stats {
			d = max(d, l.value(&stats[i]))
		}
		o.ObserveFloat64(l.instrument, d.Seconds(), l.attrs)
	}
	return nil
}
