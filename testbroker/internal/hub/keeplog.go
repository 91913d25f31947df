package hub

import (
	"encoding/json"
	"strconv"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
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
	if h.saver.store != nil {
		h.log.touch = func(sequence int) { h.Touch(tableMessages, sequenceKey(sequence)) }
		h.Events.touch = func(partition int) { h.Touch(tablePartitions, sequenceKey(partition)) }
	}
	h.AddTable(Table{tableMessages, h.messageRecord, h.restoreMessage})
	h.AddTable(Table{tablePartitions, h.partitionRecord, h.restorePartition})
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
	return mustJSON(m)
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
	if l := &h.log.messages; len(l.entries) == 0 {
		l.forgotten = sequence - 1
	}
	if sequence != h.log.messages.total()+1 || m.Sequence != sequence {
		return errRecord
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
	return mustJSON(h.Events.log.Next(partition))
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
		return errRecord
	}
	if partition < h.Events.Partitions {
		h.Events.log.Renumber(partition, next)
	}
	return nil
}

func parsePartition(key string) (int, error) {
	n, err := strconv.ParseUint(key, 16, 31)
	if err != nil || len(key) != 16 {
		return 0, errRecord
	}
	return int(n), nil
}
