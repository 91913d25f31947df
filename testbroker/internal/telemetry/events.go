package telemetry

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/eventhub"
)

// The limits of an event hub.
const (
	defaultGroup      = "$Default"
	maxPartitions     = 32
	maxConsumerGroups = 20
)

// entityName is the form of the names of event hubs and consumer groups.
var entityName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,49}$`)

const nameRule = "want 1 to 50 of A-Z a-z 0-9 . _ - with a letter or digit first"

// noticeSources are the sources of events that are not telemetry.
var noticeSources = []hubdata.EventSource{
	hubdata.EventSourceTwinChange, hubdata.EventSourceDeviceLifecycle, hubdata.EventSourceDeviceConnectionState,
	hubdata.EventSourceDigitalTwinChange,
}

// layoutOf checks the options and returns the form of the endpoint.
func layoutOf(o hubdata.EventOptions, hubName string) (eventhub.Layout, error) {
	l := eventhub.Layout{
		Path: cmp.Or(o.EntityPath, hubName), Partitions: cmp.Or(o.Partitions, 4), Groups: []string{defaultGroup},
	}
	if !entityName.MatchString(l.Path) && o.EntityPath != "" {
		return l, fmt.Errorf("testbroker: EventOptions.EntityPath: %q is no name: %s", l.Path, nameRule)
	}
	if l.Partitions < 1 || l.Partitions > maxPartitions {
		return l, fmt.Errorf("testbroker: EventOptions.Partitions: %d, want 1 to %d", l.Partitions, maxPartitions)
	}
	if len(o.ConsumerGroups) > maxConsumerGroups {
		return l, fmt.Errorf("testbroker: EventOptions.ConsumerGroups: %d names, at most %d are allowed",
			len(o.ConsumerGroups), maxConsumerGroups)
	}
	for _, name := range o.ConsumerGroups {
		same := func(other string) bool { return strings.EqualFold(name, other) }
		switch {
		case same(defaultGroup): // always there
		case !entityName.MatchString(name):
			return l, fmt.Errorf("testbroker: EventOptions.ConsumerGroups: %q is no name: %s", name, nameRule)
		case slices.ContainsFunc(l.Groups, same):
			return l, fmt.Errorf("testbroker: EventOptions.ConsumerGroups: %q occurs twice; names have no letter case", name)
		default:
			l.Groups = append(l.Groups, name)
		}
	}
	for _, s := range o.Sources {
		if !slices.Contains(noticeSources, s) {
			return l, fmt.Errorf("testbroker: EventOptions.Sources: no such source: %q; want some of %q", s, noticeSources)
		}
	}
	return l, nil
}

// An event is in a partition: one of the two.
type event struct {
	telemetry *storedMessage
	notice    *notice
}

// number returns the number of the telemetry message, or of the one before a notice.
func (e event) number() int {
	if e.notice != nil {
		return e.notice.number
	}
	return e.telemetry.Sequence
}

// A notice is an event that is not telemetry.
type notice struct {
	number  int
	source  hubdata.EventSource
	message hubdata.Message
}

// State returns the state of a partition.
func (l *Log) State(partition int) eventhub.State { return l.partitions.State(partition) }

// Position returns the sequence number from which a reader starts.
func (l *Log) Position(partition int, s eventhub.Start) (int64, *eventhub.Error) {
	return l.partitions.Position(partition, s)
}

func (l *Log) addEventLocked(device string, at time.Time, e event) {
	partition := l.PartitionOf(device)
	l.partitions.Add(partition, at, e)
	l.touchPartition(partition)
}

// forgetEventLocked removes the event of a forgotten message, and the notices before it.
func (l *Log) forgetEventLocked(m *hubdata.Message) {
	l.partitions.Forget(l.PartitionOf(m.DeviceID), func(e event) bool { return e.number() <= m.Sequence })
}

// An Event is an event as back ends read it. Its message must not be modified.
type Event struct {
	Sequence int64
	Enqueued time.Time
	Source   hubdata.EventSource
	Message  *hubdata.Message
	Origin   // of telemetry
}

// Read appends to all at most n events of a partition, from a sequence number on, and returns the
// number from which to continue. At the end of the partition it returns a channel that the next
// event closes. The events are in the hub's store, if there is one: otherwise other events could
// get their numbers after a kill, and a reader that has stored its position would miss those.
func (l *Log) Read(all []Event, partition int, from int64, n int) (_ []Event, next int64, changed <-chan struct{}) {
	entries, changed := l.partitions.Read(partition, from, n, make([]eventhub.Entry[event], 0, n))
	all, from = l.appendEvents(all, entries, from)
	if changed == nil {
		l.records.Saved()
	}
	return all, from, changed
}

// appendEvents appends events to all, and returns the number after the last one.
func (l *Log) appendEvents(all []Event, entries []eventhub.Entry[event], from int64) ([]Event, int64) {
	l.mu.Lock() // so that those who have added the events have marked them as changed too
	defer l.mu.Unlock()
	for _, e := range entries {
		from = e.Sequence + 1
		if note := e.Value.notice; note != nil {
			all = append(all, Event{Sequence: e.Sequence, Enqueued: e.Enqueued, Source: note.source, Message: &note.message})
			continue
		}
		m := e.Value.telemetry
		all = append(all, Event{Sequence: e.Sequence, Enqueued: e.Enqueued, Source: hubdata.EventSourceTelemetry,
			Message: &m.Message,
			Origin:  m.Origin})
	}
	return all, from
}
