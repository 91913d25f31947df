package mqtt

import (
	"fmt"
	"io"
)

const (
	// The sizes of the buffer of an idle client and of one that sends without a pause. A larger packet
	// gets a larger one.
	leastRead = 512
	mostRead  = 16 << 10
)

// An Inbox holds the bytes that a client has sent and nobody has handled. The zero value is empty.
type Inbox struct {
	buf   []byte
	in    []byte // the part of buf with such bytes
	full  bool   // the last read filled the buffer
	few   bool   // the last read was of less than leastRead
	large bool   // the last packet was of more than mostRead
}

// Room returns where to put the next bytes. A buffer grows with what has arrived, whatever length
// a packet claims. It shrinks with a small packet, such as the PINGREQ of an idle client, so that a
// client that sends in bursts, or large packets one after another, keeps it.
func (b *Inbox) Room() []byte {
	size := len(b.buf)
	switch {
	case size == 0 || b.few && !b.large && len(b.in) < leastRead:
		size = leastRead
	case len(b.in) == size:
		size = max(2*size, mostRead)
	case b.full:
		size = max(size, mostRead)
	case !b.large && len(b.in) < mostRead:
		size = min(size, mostRead) // frees the memory of a large packet
	}
	old := b.in
	if size != len(b.buf) {
		b.buf = make([]byte, size)
	}
	b.in = b.buf[:copy(b.buf, old)]
	return b.buf[len(b.in):]
}

// Add adds n bytes that were put into the room.
func (b *Inbox) Add(n int) {
	b.full = len(b.in)+n == len(b.buf)
	b.few = n < leastRead && !b.full
	b.in = b.buf[:len(b.in)+n]
}

// Take removes bytes from the front.
func (b *Inbox) Take(n int) []byte {
	b.large = n > mostRead
	p := b.in[:n:n]
	b.in = b.in[n:]
	return p
}

// Bytes returns all bytes. They are valid until the next Room.
func (b *Inbox) Bytes() []byte { return b.in }

// Head returns the sizes of the fixed header of the packet in front and of the whole packet; size
// is 0 while the header is incomplete. A packet of more than limit bytes is an error before its
// body has arrived.
func (b *Inbox) Head(limit int) (head, size int, err error) {
	n := 0
	for i := 1; i < len(b.in) && i <= 4; i++ {
		n |= int(b.in[i]&0x7f) << (7 * (i - 1))
		if b.in[i]&0x80 != 0 {
			continue
		}
		if b.in[i] == 0 && i > 1 {
			return 0, 0, malformed("length that is not in its shortest form [MQTT-1.5.5-1]")
		}
		if size = i + 1 + n; size > limit {
			return 0, 0, &Error{PacketTooLarge, fmt.Sprintf("packet of %d bytes, at most %d are allowed", size, limit)}
		}
		return i + 1, size, nil
	}
	if len(b.in) > 4 {
		return 0, 0, malformed("length of more than four bytes [MQTT-2.2.3]")
	}
	return 0, 0, nil
}

// Packet reads a packet: its first byte and the bytes after its length, which are valid until the
// next call. check, unless it is nil, can refuse the first byte before the rest has arrived.
func (b *Inbox) Packet(r io.Reader, limit int, check func(byte) error) (first byte, body []byte, err error) {
	for {
		if check != nil && len(b.in) > 0 {
			if err := check(b.in[0]); err != nil {
				return 0, nil, err
			}
		}
		head, size, err := b.Head(limit)
		if err != nil {
			return 0, nil, err
		}
		if size > 0 && len(b.in) >= size {
			p := b.Take(size)
			return p[0], p[head:], nil
		}
		n, err := r.Read(b.Room())
		b.Add(n)
		if n == 0 && err != nil {
			return 0, nil, err
		}
	}
}
