package telemetry

import (
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// The tables of the logs: the kept messages by their sequence numbers, and the number of the next
// event of each partition. A store returns them after those of the registry and of twins, which
// events refer to.
const (
	TableMessages   = "messages"
	TablePartitions = "partitions"
)

// maxEvents bounds the numbers of events in a store. No hub comes near it.
const maxEvents = 1 << 52

// Keep makes a store keep the log. origin returns what is known of a sender.
func (l *Log) Keep(records *keep.Saver, origin func(identity.Identity) Origin) {
	l.records = records
	records.Add(TableMessages, l.messageRecord, keep.Decoded(func(key string, m hubdata.Message) error {
		return l.restoreMessage(key, m, origin)
	}))
	records.Add(TablePartitions, l.partitionRecord, keep.Decoded(l.restorePartition))
}

// touchMessage marks a message as added or forgotten.
func (l *Log) touchMessage(sequence int) {
	if l.records.Stores() {
		l.records.Touch(TableMessages, keep.Key(sequence))
	}
}

// touchPartition marks the number of a partition's next event as changed.
func (l *Log) touchPartition(partition int) {
	if l.records.Stores() {
		l.records.Touch(TablePartitions, keep.Key(partition))
	}
}

func (l *Log) messageRecord(key string) []byte {
	sequence, err := keep.ParseKey(key, 1)
	if err != nil {
		return nil
	}
	l.mu.Lock()
	m := l.atLocked(sequence)
	l.mu.Unlock()
	if m == nil {
		return nil
	}
	return keep.MustJSON(m)
}

// restoreMessage adds a message to the log. The first one has the number of the oldest kept one.
func (l *Log) restoreMessage(key string, m hubdata.Message, origin func(identity.Identity) Origin) error {
	sequence, err := keep.ParseKey(key, 1)
	if err != nil {
		return err
	}
	from := origin(SenderOf(&m))
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.messages.Entries) == 0 {
		l.messages.Forgotten = sequence - 1
	}
	if sequence != l.messages.Total()+1 || m.Sequence != sequence {
		return keep.ErrRecord
	}
	l.addLocked(m, from)
	return nil
}

// partitionRecord returns the number of the next event of a partition.
func (l *Log) partitionRecord(key string) []byte {
	partition, err := keep.ParseKey(key, 0)
	if err != nil || partition >= l.Partitions {
		return nil
	}
	return keep.MustJSON(l.partitions.Next(partition))
}

// restorePartition numbers the events of a partition anew, so that the next one has the number
// after that of the last event of the earlier run. Events other than telemetry are not kept: they
// make the numbers of earlier telemetry larger, so a reader may get it twice, and misses none.
func (l *Log) restorePartition(key string, next int64) error {
	partition, err := keep.ParseKey(key, 0)
	if err != nil {
		return err
	}
	if next < 0 || next > maxEvents {
		return keep.ErrRecord
	}
	if partition < l.Partitions {
		l.partitions.Renumber(partition, next)
	}
	return nil
}
