package hub

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/eventhub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
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
	hubdata.TwinChangeEvents, hubdata.DeviceLifecycleEvents, hubdata.DeviceConnectionStateEvents,
	hubdata.DigitalTwinChangeEvents,
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

// EventLog holds what back ends read from the endpoint compatible with Event Hubs. Its events refer
// to the messages of the telemetry log.
type EventLog struct {
	eventhub.Layout
	Groups  *eventhub.Groups
	Created time.Time

	sources []hubdata.EventSource
	log     *eventhub.Log[eventRef]
	touch   func(partition int) // marks a partition as changed; set once
}

// An origin is what an event tells of its sender, as it was when the event was made.
type origin struct {
	generation, model string
	x509              bool
}

// An eventRef is an event in a partition: one of the two.
type eventRef struct {
	telemetry *storedMessage
	notice    *notice
}

// number returns the number of the telemetry message, or of the one before a notice.
func (r eventRef) number() int {
	if r.notice != nil {
		return r.notice.number
	}
	return r.telemetry.Sequence
}

// A notice is an event that is not telemetry.
type notice struct {
	number  int
	source  hubdata.EventSource
	message hubdata.Message
}

// initEvents makes the event log.
func (h *Hub) initEvents(o hubdata.EventOptions) error {
	layout, err := layoutOf(o, h.Name())
	if err != nil {
		return err
	}
	h.Events = &EventLog{
		Layout: layout, Groups: eventhub.NewGroups(), Created: h.Now(), sources: o.Sources,
		log: eventhub.NewLog[eventRef](layout.Partitions, h.Keep),
	}
	h.log.events = h.Events
	return nil
}

// Name returns the first label of the hub's name.
func (h *Hub) Name() string {
	name, _, _ := strings.Cut(h.Host, ".")
	return name
}

// State returns the state of a partition.
func (e *EventLog) State(partition int) eventhub.State { return e.log.State(partition) }

// Position returns the sequence number from which a reader starts.
func (e *EventLog) Position(partition int, s eventhub.Start) (int64, *eventhub.Error) {
	return e.log.Position(partition, s)
}

// add adds an event of a device. The telemetry log is locked.
func (e *EventLog) add(device string, at time.Time, r eventRef) {
	partition := e.PartitionOf(device)
	e.log.Add(partition, at, r)
	e.touch(partition)
}

// addLocked adds the event of a stored message. The telemetry log is locked.
func (e *EventLog) addLocked(m *storedMessage) {
	e.add(m.DeviceID, m.Received, eventRef{telemetry: m})
}

// forgetLocked removes the event of a forgotten message, and the notices before it. The telemetry
// log is locked.
func (e *EventLog) forgetLocked(m *hubdata.Message) {
	e.log.Forget(e.PartitionOf(m.DeviceID), func(r eventRef) bool { return r.number() <= m.Sequence })
}

// originLocked returns what events tell of a sender at present. The hub is locked.
func (h *Hub) originLocked(id identity.Identity) origin {
	var from origin
	if r := h.registry[id]; r != nil {
		from.generation, from.x509 = r.Generation, r.X509
	}
	if t := h.twinOf[id]; t != nil {
		t.mu.Lock()
		from.model = t.Model
		t.mu.Unlock()
	}
	return from
}

func (h *Hub) originOf(id identity.Identity) origin {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.originLocked(id)
}

// An EventMessage is an event as back ends read it. Its message must not be modified.
type EventMessage struct {
	Sequence int64
	Enqueued time.Time
	Source   hubdata.EventSource
	Message  *hubdata.Message

	// Of the sender of telemetry.
	Generation, Model string
	X509              bool
}

// ReadEvents appends to all at most n events of a partition, from a sequence number on, and returns
// the number from which to continue. At the end of the partition it returns a channel that the next
// event closes. The events are in the hub's store, if there is one: otherwise other events could
// get their numbers after a kill, and a reader that has stored its position would miss those.
func (h *Hub) ReadEvents(all []EventMessage, partition int, from int64, n int) (_ []EventMessage, next int64,
	changed <-chan struct{}) {
	entries, changed := h.Events.log.Read(partition, from, n, make([]eventhub.Entry[eventRef], 0, n))
	all, from = h.eventMessages(all, entries, from)
	if changed == nil {
		h.Records.Saved()
	}
	return all, from, changed
}

// eventMessages appends the messages of events to all, and returns the number after the last one.
func (h *Hub) eventMessages(all []EventMessage, entries []eventhub.Entry[eventRef], from int64) ([]EventMessage,
	int64) {
	h.log.mu.Lock() // so that those who have added the events have marked them as changed too
	defer h.log.mu.Unlock()
	for _, e := range entries {
		from = e.Sequence + 1
		if note := e.Value.notice; note != nil {
			all = append(all, EventMessage{Sequence: e.Sequence, Enqueued: e.Enqueued, Source: note.source,
				Message: &note.message})
			continue
		}
		m := e.Value.telemetry
		all = append(all, EventMessage{Sequence: e.Sequence, Enqueued: e.Enqueued, Source: hubdata.Telemetry,
			Message: &m.Message, Generation: m.generation, Model: m.model, X509: m.x509})
	}
	return all, from
}

// atLocked returns a kept message by its number; nil if it is forgotten.
func (l *telemetryLog) atLocked(number int) *hubdata.Message {
	i := number - 1 - l.messages.Forgotten
	if i < 0 || i >= len(l.messages.Entries) {
		return nil
	}
	return &l.messages.Entries[i].Message
}
