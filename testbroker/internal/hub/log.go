package hub

import (
	"bytes"
	"hash/maphash"
	"sync"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// telemetryLog holds the messages in order of arrival.
type telemetryLog struct {
	events *EventLog // never nil; set once

	mu        sync.Mutex
	messages  keep.History[*storedMessage]
	copies    map[uint64]copies // of messages with an id, by the hash of a messageKey
	seed      maphash.Seed
	conflicts keep.History[hubdata.Conflict]
	touch     func(sequence int) // marks a message as added or forgotten
}

func (l *telemetryLog) init(keep int) {
	l.messages.Keep, l.conflicts.Keep = keep, keep
	l.copies, l.seed = make(map[uint64]copies), maphash.MakeSeed()
}

// A storedMessage is a message with what its event tells of its sender. It is never modified.
type storedMessage struct {
	hubdata.Message
	origin
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
func (l *telemetryLog) hashOf(m *hubdata.Message) uint64 { return maphash.Comparable(l.seed, keyOf(m)) }

// add adds a message and its event.
func (l *telemetryLog) add(m hubdata.Message, from origin) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.Sequence = l.messages.Total() + 1
	l.addLocked(m, from)
	l.touch(m.Sequence)
}

// addLocked adds a message with the next sequence number, and its event.
func (l *telemetryLog) addLocked(m hubdata.Message, from origin) {
	if m.MessageID != "" {
		l.compareLocked(&m)
	}
	kept := &storedMessage{m, from}
	old, forgot := l.messages.Add(kept)
	if forgot {
		l.events.forgetLocked(&old.Message)
		if old.MessageID != "" {
			l.forgetLocked(&old.Message)
		}
		l.touch(old.Sequence)
	}
	l.events.addLocked(kept)
}

// compareLocked compares a message with the first one of the same id.
func (l *telemetryLog) compareLocked(m *hubdata.Message) {
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
func (l *telemetryLog) forgetLocked(old *hubdata.Message) {
	hash := l.hashOf(old)
	switch c := l.copies[hash]; old.Sequence {
	case c.last:
		delete(l.copies, hash)
	case c.first:
		l.copies[hash] = copies{c.last, c.last}
	}
}

// view returns copies of the kept messages. Nothing keeps them: they would hold the bodies of
// messages that are forgotten later.
func (l *telemetryLog) view() []hubdata.Message {
	l.mu.Lock()
	kept := l.messages.View()
	l.mu.Unlock()
	all := make([]hubdata.Message, len(kept))
	for i, m := range kept {
		all[i] = m.Message
	}
	return all
}

// A reading is what somebody has read of the log, so that it need not be copied again.
type reading struct {
	kept []*storedMessage
	all  []hubdata.Message // copies of them
}

// update brings the reading up to date: it drops the messages that are no longer kept, and appends
// the new ones.
func (r *reading) update(l *telemetryLog) {
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
}

// Messages returns a copy of the log: all kept messages, in the order in which the hub stored them.
func (h *Hub) Messages() []hubdata.Message {
	all := h.log.view()
	for i := range all {
		all[i] = cloneMessage(all[i])
	}
	return all
}

// Len returns how many messages the hub has stored since New or the last [Hub.Reset], including
// forgotten ones.
func (h *Hub) Len() int {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	return h.log.messages.Total()
}

// Forgotten returns how many stored messages the hub has dropped from the log: none without
// [Options.Keep].
func (h *Hub) Forgotten() int {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	return h.log.messages.Forgotten
}

// Conflicts returns the pairs of messages that have the same sender and message id, but different
// bodies.
func (h *Hub) Conflicts() []hubdata.Conflict {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	all := append([]hubdata.Conflict(nil), h.log.conflicts.Entries...)
	for i, c := range all {
		all[i] = hubdata.Conflict{First: cloneMessage(c.First), Second: cloneMessage(c.Second)}
	}
	return all
}

// clear empties the log.
func (l *telemetryLog) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages.Clear()
	l.conflicts.Clear()
	clear(l.copies)
	l.events.log.Clear()
}
