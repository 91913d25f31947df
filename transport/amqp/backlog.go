package amqp

import (
	"slices"
	"strconv"

	"github.com/hubline-iot/hubline/transport"
)

// backlog holds the messages that wait for the link, and makes transfers of them: batches, and
// messages alone to find the one for which a batch was rejected or a link ended. session.mu is held
// in all methods.
type backlog struct {
	queue     []transport.Item
	rejected  []transport.Item // messages of a rejected batch, each to be sent alone before the queue
	next      *transfer        // made of the first of both, and not sent yet; nil: none
	single    int              // messages to send one at a time, because one of them ended a link
	wasSingle bool             // the latest one was sent alone
	buf       encoder          // has next
}

// waits reports whether there are messages of which no transfer is made.
func (b *backlog) waits() bool { return b.next == nil && len(b.queue)+len(b.rejected) > 0 }

// empty reports whether nothing waits.
func (b *backlog) empty() bool { return b.next == nil && !b.waits() }

// needsIdleLink reports whether the next transfer has to wait until nothing is in flight.
func (b *backlog) needsIdleLink() bool { return b.single > 0 || b.wasSingle || len(b.rejected) > 0 }

// prepare makes the next transfer, of up to limit bytes and o.Batch messages. peer is the largest
// message that the peer takes, 0 for no limit. A message that is larger is removed and returned.
func (b *backlog) prepare(t *telemetry, limit int, peer uint64, o *Options) (tooLarge []transport.Item) {
	from, most := &b.queue, o.Batch
	if len(b.rejected) > 0 {
		from = &b.rejected
	}
	alone := b.single > 0 || len(b.rejected) > 0
	if alone {
		most = 1
	}
	if peer > 0 {
		limit = int(min(uint64(limit), peer))
	}
	n := b.buf.encode((*from)[:min(most, len(*from))], limit, o)
	items := (*from)[:n]
	b.single = max(0, b.single-n)
	if peer > 0 && uint64(b.buf.size) > peer { // a message that is alone
		tooLarge = slices.Clone(items)
	} else {
		b.next = transferPool.Get().(*transfer)
		b.next.t, b.next.items = t, append(b.next.items, items...)
		b.wasSingle = alone
	}
	rest := copy(*from, (*from)[n:])
	clear((*from)[rest:])
	*from = (*from)[:rest]
	return tooLarge
}

// sent records that next was sent.
func (b *backlog) sent() {
	b.buf.done()
	b.next = nil
}

// drain removes all messages and returns them in the order of sending.
func (b *backlog) drain() (items []transport.Item) {
	if b.next != nil {
		items = append(items, b.next.items...)
	}
	items = append(append(items, b.rejected...), b.queue...)
	b.queue, b.rejected, b.next = nil, nil, nil
	return items
}

// tooLargeError is for a message that is larger than the link allows.
type tooLargeError struct {
	size int
	most uint64
}

func (e *tooLargeError) Error() string {
	return "the message has " + strconv.Itoa(e.size) + " bytes in AMQP's encoding, and the link takes " +
		strconv.FormatUint(e.most, 10) + " at most (max-message-size); send a smaller one"
}
