package goamqp

import (
	"encoding/binary"
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// maxFrame is the size of the largest frame, as announced in the open.
const maxFrame = 64 << 10

// guard ends the connection when the peer sends a larger frame, which go-amqp would take. One
// goroutine reads.
type guard struct {
	net.Conn
	closed atomic.Bool
	head   []byte // of a frame, incomplete
	left   int    // bytes of the frame, or of a protocol header, that are still to come
}

var errLargeFrame = errors.New("the peer sent a frame that is larger than 64 KiB or smaller than 8 bytes")

// Read passes what was read, up to the first frame that is refused.
func (g *guard) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		if g.left > 0 {
			k := min(g.left, len(rest))
			g.left -= k
			rest = rest[k:]
			continue
		}
		k := min(4-len(g.head), len(rest))
		g.head = append(g.head, rest[:k]...)
		if rest = rest[k:]; len(g.head) < 4 {
			break
		}
		size := binary.BigEndian.Uint32(g.head)
		if string(g.head) == "AMQP" {
			size = 8
		}
		if g.head = g.head[:0]; size < 8 || size > maxFrame {
			_ = g.Close()
			return 0, errLargeFrame
		}
		g.left = int(size) - 4
	}
	if err != nil && g.closed.Load() {
		err = net.ErrClosed // what go-amqp takes for its own doing
	}
	return n, err
}

// SetDeadline and SetWriteDeadline do nothing: the dial's context bounds the handshake, and
// dialer.ProgressConn the writes. go-amqp would cut a frame in two at the deadline of a message.

func (g *guard) SetDeadline(time.Time) error      { return nil }
func (g *guard) SetWriteDeadline(time.Time) error { return nil }

// Close ends pending reads with net.ErrClosed.
func (g *guard) Close() error {
	g.closed.Store(true)
	return g.Conn.Close()
}
