// Package telemetry is the hub's room of messages from devices: the log, and the events that back
// ends read at the endpoint compatible with Event Hubs.
package telemetry

import (
	"bytes"
	"hash/maphash"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/eventhub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// A Log holds the messages in order of arrival, and the events made of them and of notices.
type Log struct {
	eventhub.Layout
	Groups  *eventhub.Groups
	Created time.Time

	hubName    string
	sources    []hubdata.EventSource
	now        func() time.Time
	records    *keep.Saver
	partitions *eventhub.Log[event]

	mu        sync.Mutex // guards the fields below; held while events are added to partitions
	messages  keep.History[*storedMessage]
	copies    map[uint64]copies // of messages with an id, by the hash of a messageKey
	seed      maphash.Seed
	conflicts keep.History[hubdata.Conflict]
}

// Init makes the log of a hub with a name. most bounds the kept messages, 0 = no bound.
func (l *Log) Init(o hubdata.EventOptions, hubName string, most int, now func() time.Time) error {
	layout, err := layoutOf(o, hubName)
	if err != nil {
		return err
	}
	l.Layout, l.Groups, l.Created = layout, eventhub.NewGroups(), now()
	l.hubName, l.sources, l.now = hubName, o.Sources, now
	l.partitions = eventhub.NewLog[event](layout.Partitions, most)
	l.messages.Keep, l.conflicts.Keep = most, most
	l.copies, l.seed = make(map[uint64]copies), maphash.MakeSeed()
	return nil
}

// An Origin is what events tell of the sender, as it was when the message was stored.
type Origin struct {
	Generation, Model string
	X509              bool
}

// A storedMessage is a message with its origin. It is never modified.
type storedMessage struct {
	hubdata.Message
	Origin
}

type messageKey struct {
	sender identity.Identity
	id     string
}

// copies are the sequence numbers of the first message with an id and of its last unchanged
// repetition.
type copies struct{ first, last int }

func keyOf(m *hubdata.Message) messageKey { return messageKey{SenderOf(m), m.MessageID} }

// hashOf returns the key of copies. Without texts, the garbage collector need not look into the
// map.
func (l *Log) hashOf(m *hubdata.Message) uint64 { return maphash.Comparable(l.seed, keyOf(m)) }

// Add adds a message and its event.
func (l *Log) Add(m hubdata.Message, from Origin) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.Sequence = l.messages.Total() + 1
	l.addLocked(m, from)
	l.touchMessage(m.Sequence)
}

// addLocked adds a message with the next sequence number, and its event.
func (l *Log) addLocked(m hubdata.Message, from Origin) {
	if m.MessageID != "" {
		l.compareLocked(&m)
	}
	kept := &storedMessage{m, from}
	old, forgot := l.messages.Add(kept)
	if forgot {
		l.forgetEventLocked(&old.Message)
		if old.MessageID != "" {
			l.forgetLocked(&old.Message)
		}
		l.touchMessage(old.Sequence)
	}
	if !kept.Unrouted {
		l.addEventLocked(kept.DeviceID, kept.Received, event{telemetry: kept})
	}
}

// compareLocked compares a message with the first one of the same id.
func (l *Log) compareLocked(m *hubdata.Message) {
	hash := l.hashOf(m)
	c, again := l.copies[hash]
	var first *hubdata.Message
	if again {
		first = l.atLocked(c.first)
	}
	switch {
	case first == nil || keyOf(first) != keyOf(m): // another one with the same hash is not watched further
		c.first = m.Sequence
	case !bytes.Equal(first.Body, m.Body):
		l.conflicts.Add(hubdata.Conflict{First: *first, Second: *m})
		return
	}
	c.last = m.Sequence
	l.copies[hash] = c
}

// forgetLocked removes a forgotten message from copies. If it was the first of its id, a kept copy
// takes its place.
func (l *Log) forgetLocked(old *hubdata.Message) {
	hash := l.hashOf(old)
	switch c := l.copies[hash]; old.Sequence {
	case c.last:
		delete(l.copies, hash)
	case c.first:
		l.copies[hash] = copies{c.last, c.last}
	}
}

// Clear empties the log.
func (l *Log) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages.Clear()
	l.conflicts.Clear()
	clear(l.copies)
	l.partitions.Clear()
}

// atLocked returns a kept message by its number; nil if it is forgotten.
func (l *Log) atLocked(number int) *hubdata.Message {
	i := number - 1 - l.messages.Forgotten
	if i < 0 || i >= len(l.messages.Entries) {
		return nil
	}
	return &l.messages.Entries[i].Message
}

// A Reading is what somebody has read of the log, so that it need not be copied again.
type Reading struct {
	kept []*storedMessage
	all  []hubdata.Message // copies of them
}

// Update brings the reading up to date, and returns the kept messages, which must not be modified.
func (r *Reading) Update(l *Log) []hubdata.Message {
	l.mu.Lock()
	kept := l.messages.View()
	l.mu.Unlock()
	for len(r.kept) > 0 && (len(kept) == 0 || r.kept[0] != kept[0]) {
		r.kept, r.all = r.kept[1:], r.all[1:]
	}
	for _, m := range kept[len(r.all):] {
		r.all = append(r.all, m.Message)
	}
	r.kept = kept
	return r.all
}

// Messages returns copies of the kept messages in order. Nothing keeps them: they would hold the
// bodies of messages that are forgotten later.
func (l *Log) Messages() []hubdata.Message {
	l.mu.Lock()
	kept := l.messages.View()
	l.mu.Unlock()
	all := make([]hubdata.Message, len(kept))
	for i, m := range kept {
		all[i] = cloneMessage(m.Message)
	}
	return all
}

// Len returns how many messages were added since the last [Log.Clear], forgotten ones included.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.messages.Total()
}

// Forgotten returns how many messages the log has dropped.
func (l *Log) Forgotten() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.messages.Forgotten
}

// Conflicts returns the pairs of messages with one sender and id, and different bodies.
func (l *Log) Conflicts() []hubdata.Conflict {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := append([]hubdata.Conflict(nil), l.conflicts.Entries...)
	for i, c := range all {
		all[i] = hubdata.Conflict{First: cloneMessage(c.First), Second: cloneMessage(c.Second)}
	}
	return all
}

// Held returns the number of entries in each collection.
func (l *Log) Held() (messages, conflicts, ids int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.messages.Entries), len(l.conflicts.Entries), len(l.copies)
}
