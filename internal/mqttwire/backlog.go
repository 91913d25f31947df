package mqttwire

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Backlog holds the messages of one connection that came while the sink had no room for them, in
// order. Reading goes on meanwhile: a handler may wait for an acknowledgement. Before the first
// subscription of the connection the messages of a resumed session wait here for a handler.
//
// Messages beyond the bound are left to the peer. So are those behind them, and when all others
// have their verdict the session ends: the next connection brings them, in order.
type Backlog struct {
	Sink transport.Sink
	// Pass passes a PUBLISH to the dialect, with to as its sink. fresh: it was just read. waited is
	// how long it was in the backlog.
	Pass func(to *Tap, flags byte, body []byte, fresh bool, waited time.Duration) error
	// Limit is the most bytes that wait, unless one message alone has more. While a large backlog
	// grows its memory is there twice.
	Limit int

	// Passing is held while a message is passed on. It keeps the order, and guards the memory of the
	// dialect and the engine for a message. The Sink may call Do meanwhile, so Do never waits for it:
	// wanted makes the holder look again.
	Passing sync.Mutex
	wanted  atomic.Bool
	began   time.Time // when the first message was kept
	packets []byte    // of each message: flags, length of the body, time after began, body
	head    int       // where the first one begins
	ids     Tags
	tap     Tap

	mu         sync.Mutex // guards the fields below; never held during a call
	held       bool       // nothing is passed on yet
	waiting    int        // number of messages in packets
	open       Tags       // ids of messages that the sink took and has given no verdict on
	opened     int        // number of those
	subscribed bool       // to messages, on this connection
	behind     bool       // a message was left to the peer
}

// MaxBacklog is Limit without a fixed read buffer.
const MaxBacklog = 1 << 19

// backlogHead is the size of the fields before a body.
const backlogHead = 13

// dup is the flag of a PUBLISH that is sent again. Without it mochi gives a new message the id of
// one that has no verdict yet.
const dup = 8

// keptBacklog is the most memory that is kept for the next messages.
const keptBacklog = 8 << 10

// ErrBehind ends a connection on which messages were left to the peer.
var ErrBehind = errors.New("more messages came than may wait for their handler; the next connection brings the rest")

// A Tap is the Sink of a dialect. It notes what became of a message.
type Tap struct {
	transport.Sink
	// Called means that the dialect passed something on.
	Called bool

	backlog *Backlog
	replied bool // it was a reply
	hold    bool // messages wait
	message bool // it is one for the backlog
	taken   bool
}

// Deliver passes a delivery on, unless it is a message that has to wait.
func (t *Tap) Deliver(d *transport.Delivery) bool {
	t.Called = true
	t.message = d.Kind == transport.FeatureMessages || d.Kind == 0 && len(d.Ref) > 0
	if !t.message {
		t.taken = t.Sink.Deliver(d)
		return t.taken
	}
	if t.hold {
		return false
	}
	added := t.backlog.opening(d.Ref) // before the verdict, which may come at once
	if t.taken = t.Sink.Deliver(d); !t.taken && added {
		t.backlog.Settled(d.Ref)
	}
	return t.taken
}

// Reply passes a reply on.
func (t *Tap) Reply(id uint32, r transport.Reply) {
	t.replied = true
	t.Sink.Reply(id, r)
}

// opening records that a message with this reference gets a verdict.
func (b *Backlog) opening(ref []byte) (added bool) {
	if len(ref) < 2 {
		return false
	}
	id := binary.BigEndian.Uint16(ref)
	b.mu.Lock()
	if added = !b.open.Has(id); added {
		b.open.Add(id)
		b.opened++
	}
	b.mu.Unlock()
	return added
}

// Settled records a verdict.
func (b *Backlog) Settled(ref []byte) {
	b.mu.Lock()
	if b.open.Remove(binary.BigEndian.Uint16(ref)) {
		b.opened--
	}
	b.mu.Unlock()
}

// Incoming handles a PUBLISH. ErrBehind means that Over is true.
func (b *Backlog) Incoming(flags byte, body []byte) (err error) {
	b.Passing.Lock()
	b.mu.Lock()
	held, hold := b.held, b.waiting > 0 || b.behind
	b.mu.Unlock()
	if !held {
		err = b.pass(flags, body, true, hold, 0)
	}
	if held || err == nil && b.tap.message && !b.tap.taken {
		b.keep(flags, body)
	}
	b.Passing.Unlock()
	if hold || b.wanted.Load() {
		b.Redeliver()
		if err == nil && b.Over() { // the last verdict came while the message was passed on
			err = ErrBehind
		}
	}
	return err
}

// Overtake passes a PUBLISH that was read before on, ahead of all that wait.
func (b *Backlog) Overtake(flags byte, body []byte) error {
	b.Passing.Lock()
	err := b.pass(flags, body, false, false, 0)
	b.Passing.Unlock()
	return err
}

// pass passes a PUBLISH on. The caller holds Passing.
func (b *Backlog) pass(flags byte, body []byte, fresh, hold bool, waited time.Duration) error {
	b.tap = Tap{Sink: b.Sink, backlog: b, hold: hold}
	return b.Pass(&b.tap, flags, body, fresh, waited)
}

// keep puts a message into the backlog, or leaves it to the peer. The caller holds Passing.
func (b *Backlog) keep(flags byte, body []byte) {
	id := packetID(flags, body)
	if flags&dup != 0 && b.ids.Has(id) {
		return // the peer repeats it
	}
	b.mu.Lock()
	room := !(b.behind && id != 0) &&
		(b.waiting == 0 || len(b.packets)-b.head+backlogHead+len(body) <= b.Limit)
	if room {
		b.waiting++
	} else if id != 0 {
		b.behind = true
	}
	b.mu.Unlock()
	if !room {
		return
	}
	if id != 0 {
		b.ids.Add(id)
	}
	if b.head > len(b.packets)/2 {
		b.packets = b.packets[:copy(b.packets, b.packets[b.head:])]
		b.head = 0
	}
	now := time.Now()
	if b.began.IsZero() {
		b.began = now
	}
	b.packets = binary.BigEndian.AppendUint32(append(b.packets, flags), uint32(len(body)))
	b.packets = binary.BigEndian.AppendUint64(b.packets, uint64(now.Sub(b.began)))
	b.packets = append(b.packets, body...)
}

// packetID returns the packet id of a PUBLISH of any version, 0 with QoS 0.
func packetID(flags byte, body []byte) uint16 {
	in, _ := ReadPublish(flags, body)
	return in.ID
}

// Redeliver passes messages of the backlog on, as far as there is room.
func (b *Backlog) Redeliver() {
	b.wanted.Store(true)
	for b.wanted.Load() && b.Passing.TryLock() {
		b.wanted.Store(false)
		for b.passFirst() {
		}
		b.Passing.Unlock()
	}
}

// passFirst passes the first message of the backlog on. It returns false without one, or without
// room for it. The caller holds Passing.
func (b *Backlog) passFirst() bool {
	if b.isHeld() || b.head == len(b.packets) {
		return false
	}
	first := b.packets[b.head:]
	size := backlogHead + int(binary.BigEndian.Uint32(first[1:]))
	flags, body := first[0], first[backlogHead:size]
	waited := time.Since(b.began) - time.Duration(binary.BigEndian.Uint64(first[5:]))
	err := b.pass(flags, body, false, false, waited)
	if err == nil && b.tap.message && !b.tap.taken {
		return false
	}
	b.ids.Remove(packetID(flags, body))
	if b.head += size; b.head == len(b.packets) {
		b.head, b.packets = 0, b.packets[:0]
		if cap(b.packets) > keptBacklog {
			b.packets = nil // shrinks after a large backlog
		}
	}
	b.mu.Lock()
	b.waiting--
	b.mu.Unlock()
	return true
}

// Hold makes everything wait for Release.
func (b *Backlog) Hold() { b.setHeld(true) }

// Release passes on what has waited since Hold.
func (b *Backlog) Release() {
	b.setHeld(false)
	b.Redeliver()
}

func (b *Backlog) setHeld(held bool) {
	b.mu.Lock()
	b.held = held
	b.mu.Unlock()
}

func (b *Backlog) isHeld() bool {
	b.mu.Lock()
	held := b.held
	b.mu.Unlock()
	return held
}

// Subscribed passes on what has waited for a subscription to messages.
func (b *Backlog) Subscribed() {
	b.mu.Lock()
	b.subscribed = true
	b.mu.Unlock()
	b.Redeliver()
}

// Over reports whether only another connection brings further messages.
func (b *Backlog) Over() bool {
	b.mu.Lock()
	over := b.behind && b.subscribed && b.waiting == 0 && b.opened == 0
	b.mu.Unlock()
	return over
}
