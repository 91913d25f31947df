package amqp

import (
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp/internal/message"
)

// batchBytes is the most bytes of a batch, unless its first message is larger. A larger batch saves
// nothing, and its outcome arrives later.
const batchBytes = 24 << 10

// aloneBytes is the body from which on a message is sent without others, and not copied before the
// connection's buffer.
const aloneBytes = 16 << 10

// encoder makes a transfer of messages. Its buffer is reused for the next one.
type encoder struct {
	format uint32
	size   int    // bytes of the message that is sent
	buf    []byte // that message, or all of it but the body of a single one
	body   []byte // the rest
	both   [2][]byte
}

// parts returns the message for Sender.Send.
func (e *encoder) parts() [][]byte {
	e.both = [2][]byte{e.buf, e.body}
	return e.both[:]
}

// done forgets the message.
func (e *encoder) done() {
	e.body, e.both = nil, [2][]byte{}
	if cap(e.buf) > 2*batchBytes {
		e.buf = nil
	}
}

// encode makes a message of the first items, as many as fit into limit, and returns their number. A
// hub gets a batch: data sections that each hold a whole encoded message.
func (e *encoder) encode(items []transport.Item, limit int, o *Options) int {
	first := items[0].Msg
	hub := o.Addresses == nil
	e.buf, e.body, e.format = e.buf[:0], nil, 0
	if o.Batch == 1 {
		e.buf, e.body = message.AppendHead(e.buf, first, hub), first.Body
		e.size = len(e.buf) + len(e.body)
		return 1
	}
	e.format = wire.BatchFormat
	n := 0
	if len(items) == 1 || len(first.Body) >= aloneBytes {
		e.buf, e.body = e.appendSection(first, false), first.Body
		n = 1
	}
	for ; n < len(items) && e.body == nil; n++ {
		begin := len(e.buf)
		if n > 0 && begin+items[n].Msg.Size() > limit {
			break
		}
		if e.buf = e.appendSection(items[n].Msg, true); n > 0 && len(e.buf) > limit {
			e.buf = e.buf[:begin]
			break
		}
	}
	e.size = len(e.buf) + len(e.body)
	return n
}

// appendSection appends a message as a data section of a batch, with its body or without.
func (e *encoder) appendSection(m *transport.Message, whole bool) []byte {
	const most = 8 // bytes before a section's content
	begin := len(e.buf)
	b := message.AppendHead(append(e.buf, make([]byte, most)...), m, true)
	if whole {
		b = append(b, m.Body...)
	}
	n := len(b) - begin - most
	if !whole {
		n += len(m.Body)
	}
	if head := wire.AppendDataHead(b[:begin], n); len(head) < begin+most {
		return append(head, b[begin+most:]...)
	}
	return b
}
