package amqpfront

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/hubline-iot/hubline/testbroker/internal/eventhub"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// The limits of what a reader sends at a time.
const (
	eventBatch      = 64
	eventBatchBytes = 512 << 10
)

// An eventsReader is a link that reads a partition. Whoever finds something to send calls pump: its
// goroutine for new events, the connection's goroutine for new credit.
type eventsReader struct {
	eventsEnd
	reader  *eventhub.Reader
	at      eventhub.Address
	metrics bool // the client wants the state of the partition with each event

	kick chan struct{} // wakes the goroutine
	over sync.Once
	done chan struct{} // closed when the link has ended

	// Guarded by conn.events.
	next    int64 // the sequence number from which to continue
	tag     uint64
	encoded []byte // the buffer of encode
}

func newEventsReader(end eventsEnd) *eventsReader {
	r := &eventsReader{eventsEnd: end, kick: make(chan struct{}, 1), done: make(chan struct{})}
	asked := end.link.Asked
	r.metrics = slices.Contains(asked.DesiredCapabilities, "com.microsoft:enable-receiver-runtime-metric")
	r.reader = &eventhub.Reader{Name: asked.Properties.Text("com.microsoft:receiver-name"), Epoch: eventhub.NoEpoch,
		End: func(why *eventhub.Error) { end.link.detach(eventError(why), true) }}
	return r
}

// permit checks everything but other readers with an epoch: clients take the loss of a partition
// only from a link that was attached.
func (r *eventsReader) permit() error {
	if err := r.eventsEnd.permit(); err != nil {
		return err
	}
	asked, events := r.link.Asked, &r.link.conn.hub.Telemetry
	if v, ok := asked.Properties.Get("com.microsoft:epoch"); ok {
		if r.reader.Epoch, ok = wire.Whole(v); !ok || r.reader.Epoch < 0 {
			return r.refuse(wire.Errorf(wire.InvalidField, "property com.microsoft:epoch: want a whole number from 0 on"))
		}
	}
	at, err := events.Parse(r.path)
	if err == nil {
		r.at = at
		r.next, err = r.start()
	}
	if err == nil {
		if busy := events.Groups.Check(at, r.reader); busy != nil && busy.Reason != eventhub.Stolen {
			err = busy
		}
	}
	if err != nil {
		return r.refuse(eventError(err))
	}
	if asked.SndSettleMode == wire.SendMixed { // also when it is absent
		r.link.Answer.SndSettleMode = wire.SendSettled
	}
	return nil
}

// start returns the sequence number from which the client wants to read.
func (r *eventsReader) start() (int64, *eventhub.Error) {
	var start eventhub.Start
	if v, ok := r.link.Asked.Source.Filter.Get(eventhub.FilterName); ok {
		if d, ok := v.(*wire.Described); ok {
			v = d.Value
		}
		text, _ := v.(string)
		var err *eventhub.Error
		if start, err = eventhub.ParseFilter(text); err != nil {
			return 0, err
		}
	}
	return r.link.conn.hub.Telemetry.Position(r.at.Partition, start)
}

func (r *eventsReader) attached() {
	h := r.link.conn.hub
	if err := h.Telemetry.Groups.Join(r.at, r.reader); err != nil {
		r.link.detach(eventError(err), true)
		return
	}
	h.Wg.Go(r.run) // it ends with the link or the connection
}

func (r *eventsReader) detached() {
	r.link.conn.hub.Telemetry.Groups.Leave(r.reader)
	r.over.Do(func() { close(r.done) })
}

func (r *eventsReader) credit() {
	r.pump()
	select {
	case r.kick <- struct{}{}:
	default: // it will look anyway
	}
}

// run sends new events until the link has ended.
func (r *eventsReader) run() {
	for {
		wait := r.pump()
		select {
		case <-wait:
		case <-r.kick:
		case <-r.done:
			return
		case <-r.link.conn.c.Closed:
			return
		}
	}
}

// pump sends what the client has given credit for. It returns a channel that is closed when there
// is more to send; nil means that the client must act.
func (r *eventsReader) pump() <-chan struct{} {
	a := r.link.conn
	a.events.Lock()
	defer a.events.Unlock()
	var events []telemetry.Event
	var all []amqp.Outgoing
	for {
		room := min(r.link.Room(), eventBatch)
		if room == 0 {
			return nil
		}
		if wait := a.c.Crowded(); wait != nil {
			return wait
		}
		var next int64
		var changed <-chan struct{}
		events, next, changed = a.hub.Telemetry.Read(events[:0], r.at.Partition, r.next, room)
		if changed != nil {
			return changed
		}
		all = r.encode(all[:0], events)
		sent := r.link.SendAll(all)
		a.engine.Flush()
		if r.next = next; sent < len(events) {
			r.next = events[sent].Sequence
		}
	}
}

// encode appends the messages of events up to the limit of a batch, at least one. They are in a
// buffer that the next call uses again.
func (r *eventsReader) encode(all []amqp.Outgoing, events []telemetry.Event) []amqp.Outgoing {
	var metrics wire.Map
	if r.metrics {
		metrics = r.runtimeMetrics()
	}
	tags := make([]byte, 0, 8*len(events)) // of unsettled messages; kept until they are settled
	out := r.encoded[:0]
	for i := range events {
		start := len(out)
		if out = appendEvent(out, &events[i], metrics); len(out) > eventBatchBytes && len(all) > 0 {
			break
		}
		r.tag++
		tags = binary.BigEndian.AppendUint64(tags, r.tag)
		all = append(all, amqp.Outgoing{Tag: tags[len(tags)-8:], Payload: out[start:],
			Settled: r.link.Asked.SndSettleMode != wire.SendUnsettled})
	}
	if r.encoded = out; cap(out) > eventBatchBytes {
		r.encoded = nil // frees the memory of large messages
	}
	return all
}
