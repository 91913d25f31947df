package amqpscreen

import (
	"bytes"
	"encoding/binary"

	"github.com/hubline-iot/hubline/internal/amqpenc"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// partialDelivery is a delivery in several transfers, before its last one.
//
// The library gets as many transfers as the peer sends, because both count them for the session's
// incoming window. It gets the payload after the check of the whole message. So the screen holds
// back as many transfers as the payload needs in frames of MaxFrame bytes, and passes the others
// without payload. It encodes them itself, none longer than the peer's encoding, so that the held
// transfers have room for all that they brought.
type partialDelivery struct {
	channel    uint16 // of the peer, as handle
	handle     uint32
	id, format uint32
	tag        []byte
	settled    bool // by one of the transfers so far

	begun   bool // the library has got the first transfer
	held    int  // transfers that the library has not got
	payload []byte
	bad     *Violation // why the message is replaced, and its payload is not kept; nil: it is not
}

func newPartial(f *inFrame) *partialDelivery {
	return &partialDelivery{
		channel: f.channel, handle: f.uint32(transferHandle), id: f.uint32(transferID), format: f.uint32(transferFormat),
		tag: bytes.Clone(f.text(transferTag)),
	}
}

// passSpare returns frames for the held transfers that the payload does not need.
func (d *partialDelivery) passSpare() (out []byte) {
	var head [maxTransferHead]byte
	next := partialDelivery{handle: d.handle, begun: true}
	room := MaxFrame - len(next.appendHead(head[:0], true, true, false))
	for d.held > 0 && (d.held-1)*room >= len(d.payload) {
		out, _ = d.passHeld(out, nil)
	}
	return out
}

// passHeld appends a frame for a held transfer, with the beginning of payload, and returns the
// rest.
func (d *partialDelivery) passHeld(dst, payload []byte) (out, rest []byte) {
	d.held--
	return d.appendTransfer(dst, payload, d.settled, true, false)
}

// finish returns frames for the held transfers and the last one, with the payload or a stand-in.
// settled is a field of the last transfer.
func (d *partialDelivery) finish(settled bool) (out []byte) {
	payload := d.payload
	if d.bad != nil {
		payload = appendStandIn(nil, d.bad)
	}
	out = make([]byte, 0, len(payload)+(d.held+1)*maxTransferHead)
	for d.held > 0 {
		out, payload = d.passHeld(out, payload)
	}
	out, _ = d.appendTransfer(out, payload, settled, false, false)
	return out
}

// abort returns frames for the held transfers, without payload, and one that aborts the delivery.
func (d *partialDelivery) abort() []byte {
	out, _ := d.appendTransfer(d.passAll(), nil, false, false, true)
	return out
}

// passAll returns frames for the held transfers, without payload.
func (d *partialDelivery) passAll() (out []byte) {
	for d.held > 0 {
		out, _ = d.passHeld(out, nil)
	}
	return out
}

// appendTransfer appends a transfer with as much of payload as a frame can hold, and returns the
// rest.
func (d *partialDelivery) appendTransfer(dst, payload []byte, settled, more, aborted bool) (out, rest []byte) {
	begin := len(dst)
	dst = d.appendHead(dst, settled, more, aborted)
	d.begun = true
	n := min(len(payload), MaxFrame-(len(dst)-begin))
	dst = append(dst, payload[:n]...)
	binary.BigEndian.PutUint32(dst[begin:], uint32(len(dst)-begin))
	return dst, payload[n:]
}

// maxTransferHead is the most bytes that appendHead appends, with a delivery-tag of 32 bytes.
const maxTransferHead = 80

// appendHead appends frame header and performative of the next transfer, in their shortest
// encoding.
func (d *partialDelivery) appendHead(dst []byte, settled, more, aborted bool) []byte {
	dst = append(dst, 0, 0, 0, 0, 2, wire.FrameAMQP, byte(d.channel>>8), byte(d.channel))
	dst = append(dst, amqpenc.Described, amqpenc.SmallCode, codeTransfer, amqpenc.List8, 0, 0)
	list := len(dst)
	dst = amqpenc.AppendUint32(dst, d.handle)
	count := transferID
	if !d.begun {
		dst = amqpenc.AppendUint32(dst, d.id)
		dst = amqpenc.AppendBytes(dst, amqpenc.Binary, d.tag)
		dst = amqpenc.AppendUint32(dst, d.format)
		count = transferSettled
	}
	flags := [...]bool{transferSettled: settled, transferMore: more, transferAborted: aborted}
	for i, set := range flags {
		if !set {
			continue
		}
		for ; count < i; count++ {
			dst = append(dst, amqpenc.Null)
		}
		dst = append(dst, amqpenc.True)
		count++
	}
	dst[list-2], dst[list-1] = byte(len(dst)-list+1), byte(count)
	return dst
}
