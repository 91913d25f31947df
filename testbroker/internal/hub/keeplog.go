package hub

import (
	"encoding/json"
	"strconv"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// The tables of the logs: the kept messages by their sequence numbers, and the number of the next
// event of each partition. A store returns them after those of the registry and of twins, which
// events refer to.
const (
	tableMessages   = "messages"
	tablePartitions = "partitions"
)

// maxEvents bounds the numbers of events in a store. No hub comes near it.
const maxEvents = 1 << 52

func (h *Hub) addLogTable() {
	h.log.touch, h.Events.touch = func(int) {}, func(int) {}
	if h.Records.Stores() {
		h.log.touch = func(sequence int) { h.Records.Touch(tableMessages, sequenceKey(sequence)) }
		h.Events.touch = func(partition int) { h.Records.Touch(tablePartitions, sequenceKey(partition)) }
	}
	h.Records.Add(tableMessages, h.messageRecord, h.restoreMessage)
	h.Records.Add(tablePartitions, h.partitionRecord, h.restorePartition)
}

func (h *Hub) messageRecord(key string) []byte {
	sequence, err := parseSequence(key)
	if err != nil {
		return nil
	}
	h.log.mu.Lock()
	m := h.log.atLocked(sequence)
	h.log.mu.Unlock()
	if m == nil {
		return nil
	}
	return keep.MustJSON(m)
}

// restoreMessage adds a message to the log. The first one has the number of the oldest kept one.
func (h *Hub) restoreMessage(key string, record []byte) error {
	sequence, err := parseSequence(key)
	if err != nil {
		return err
	}
	var m hubdata.Message
	if err := json.Unmarshal(record, &m); err != nil {
		return err
	}
	from := h.originOf(SenderOf(&m))
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	if l := &h.log.messages; len(l.Entries) == 0 {
		l.Forgotten = sequence - 1
	}
	if sequence != h.log.messages.Total()+1 || m.Sequence != sequence {
		return keep.ErrRecord
	}
	h.log.addLocked(m, from)
	return nil
}

// partitionRecord returns the number of the next event of a partition.
func (h *Hub) partitionRecord(key string) []byte {
	partition, err := parsePartition(key)
	if err != nil || partition >= h.Events.Partitions {
		return nil
	}
	return keep.MustJSON(h.Events.log.Next(partition))
}

// restorePartition numbers the events of a partition anew, so that the next one has the number
// after that of the last event of the earlier run. Events other than telemetry are not kept: they
// make the numbers of earlier telemetry larger, so a reader may get it twice, and misses none.
func (h *Hub) restorePartition(key string, record []byte) error {
	partition, err := parsePartition(key)
	if err != nil {
		return err
	}
	var next int64
	if err := json.Unmarshal(record, &next); err != nil {
		return err
	}
	if next < 0 || next > maxEvents {
		return keep.ErrRecord
	}
	if partition < h.Events.Partitions {
		h.Events.log.Renumber(partition, next)
	}
	return nil
}

func parsePartition(key string) (int, error) {
	n, err := strconv.ParseUint(key, 16, 31)
	if err != nil || len(key) != 16 {
		return 0, keep.ErrRecord
	}
	return int(n), nil
}
