package amqpfront

import (
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
	"github.com/hubline-iot/hubline/testbroker/internal/eventhub"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// An eventsQuestions is a link to or from $management.
type eventsQuestions struct{ eventsEnd }

func (q *eventsQuestions) credit() { q.link.post.flush(q.link) }

// eventsSubjects maps the types of questions to their answers.
var eventsSubjects = map[string]func(e *telemetry.Log, asked wire.Map) (wire.Map, *eventhub.Error){
	"com.microsoft:eventhub":  describeEvents,
	"com.microsoft:partition": describePartition,
}

// message answers a question.
func (q *eventsQuestions) message(d amqp.Delivery) error {
	m, bad := readMessage(d)
	q.link.settle(d, bad)
	if bad != nil {
		return nil
	}
	body, status, text := q.answer(m.ApplicationProperties)
	var correlation any
	replyTo := ""
	if p := m.Properties; p != nil {
		correlation, replyTo = p.MessageID, p.ReplyTo.V
	}
	q.link.conn.reply(q.link, q.link.kind, replyTo, &wire.Message{
		Properties: &wire.Properties{CorrelationID: correlation},
		ApplicationProperties: wire.Map{{Key: "status-code", Value: int32(status)},
			{Key: "status-description", Value: utf8Text(text)}},
		Value: body, HasValue: true,
	})
	return nil
}

func (q *eventsQuestions) answer(asked wire.Map) (body any, status int, text string) {
	events := &q.link.conn.hub.Telemetry
	operation, name, kind := asked.Text("operation"), asked.Text("name"), asked.Text("type")
	describe := eventsSubjects[kind]
	switch {
	case operation != "READ":
		return nil, 400, "operation " + strconv.Quote(operation) + ", want READ"
	case describe == nil:
		return nil, 400, "type " + strconv.Quote(kind) + ", want com.microsoft:eventhub or com.microsoft:partition"
	case !strings.EqualFold(name, events.Path):
		return nil, 404, "The messaging entity '" + name + "' could not be found. The event hub is " + events.Path + "."
	}
	all, err := describe(events, asked)
	if err != nil {
		return nil, 404, err.Error()
	}
	return all, 200, "OK"
}

func describeEvents(e *telemetry.Log, _ wire.Map) (wire.Map, *eventhub.Error) {
	var ids wire.Array
	for i := range e.Partitions {
		ids = append(ids, strconv.Itoa(i))
	}
	return wire.Map{
		{Key: "name", Value: e.Path}, {Key: "type", Value: "com.microsoft:eventhub"},
		{Key: "created_at", Value: wire.Timestamp(e.Created.UnixMilli())},
		{Key: "partition_count", Value: int32(e.Partitions)}, {Key: "partition_ids", Value: ids},
		{Key: "georeplication_factor", Value: int32(1)},
	}, nil
}

func describePartition(e *telemetry.Log, asked wire.Map) (wire.Map, *eventhub.Error) {
	number, err := e.Partition(asked.Text("partition"))
	if err != nil {
		return nil, err
	}
	s := e.State(number)
	return wire.Map{
		{Key: "name", Value: e.Path}, {Key: "type", Value: "com.microsoft:partition"},
		{Key: "partition", Value: strconv.Itoa(number)}, {Key: "begin_sequence_number", Value: s.Begin},
		{Key: "last_enqueued_sequence_number", Value: s.Last}, {Key: "last_enqueued_offset", Value: lastOffset(s)},
		{Key: "last_enqueued_time_utc", Value: lastEnqueued(s)}, {Key: "is_partition_empty", Value: s.Empty},
	}, nil
}

// runtimeMetrics returns the state of the partition as annotations of an event.
func (r *eventsReader) runtimeMetrics() wire.Map {
	h := r.link.conn.hub
	s := h.Telemetry.State(r.at.Partition)
	return wire.Map{
		{Key: wire.Symbol("last_enqueued_sequence_number"), Value: s.Last},
		{Key: wire.Symbol("last_enqueued_offset"), Value: lastOffset(s)},
		{Key: wire.Symbol("last_enqueued_time_utc"), Value: lastEnqueued(s)},
		{Key: wire.Symbol("runtime_info_retrieval_time_utc"), Value: wire.Timestamp(h.Now().UnixMilli())},
	}
}

func lastOffset(s eventhub.State) string { return strconv.FormatInt(s.LastOffset(), 10) }

// lastEnqueued returns the time of the newest event; 1970 without one.
func lastEnqueued(s eventhub.State) wire.Timestamp {
	if s.LastEnqueued.IsZero() {
		s.LastEnqueued = time.Unix(0, 0)
	}
	return wire.Timestamp(s.LastEnqueued.UnixMilli())
}
