package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/messageid"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// Options tune a Queue. Nil, and the zero value of each field, select the stated default.
type Options struct {
	// MaxBytes limits the size of the files. Default 256 MiB; at least 1 MiB. A message takes its size
	// and some 50 bytes.
	MaxBytes int64
	// Overflow selects what happens to a message when the files are full. Block, the default, waits
	// for room until the context of Put ends. Fail and DropNewest make Put return an error of Kind
	// Dropped. DropOldest drops the oldest segment, which is an eighth of MaxBytes, at most 4 MiB.
	// Dropped messages that the client already has are still sent, but do not survive the process. A
	// full disk is no overflow: Put returns Quota and nothing is dropped.
	Overflow device.Overflow
	// SyncEvery is how long a message may be only in the operating system's cache. Default 0: Put
	// returns after an fsync. Negative: no fsync.
	SyncEvery time.Duration
	// Window is the maximum number of messages that Run has handed to the client; the client's own
	// limits apply as well. Default 512; at most 61,440.
	Window int
	// MessageIDPrefix begins the ids that Put gives to messages without one, as in device.Options. The
	// id is stored with the message, so another process sends it with the same id. Default: eight
	// random characters for each Open.
	MessageIDPrefix string
	// NoMessageIDs stores messages without an id as they are. The client that sends one may give it an
	// id, which other processes do not know.
	NoMessageIDs bool
	// OnFailed is called with the result of each message that ends without an acknowledgement: it has
	// expired, or it was refused for good. The message is then removed from the files. Run makes one
	// call at a time, and messages behind it wait; m is valid until the call returns.
	// OnFailed must not call Run, Flush or Close, nor Put with Overflow Block, because they would wait
	// for OnFailed to return. If it panics or calls runtime.Goexit, Run returns an error. Default:
	// none, such messages are counted, and Flush returns their number.
	OnFailed func(m *transport.Message, err error)
	// CloseTimeout limits Close, which waits for OnFailed and for the disk. Default 5 s.
	CloseTimeout time.Duration
}

const (
	leastBytes = 1 << 20
	// A segment is an eighth of MaxBytes, within these limits.
	leastSegment, mostSegment = 128 << 10, 4 << 20
)

func (o *Options) resolve() (Options, error) {
	var s Options
	if o != nil {
		s = *o
	}
	if s.MaxBytes == 0 {
		s.MaxBytes = 256 << 20
	}
	if s.Window == 0 {
		s.Window = 512
	}
	if s.CloseTimeout == 0 {
		s.CloseTimeout = 5 * time.Second
	}
	switch {
	case s.NoMessageIDs:
		s.MessageIDPrefix = ""
	case s.MessageIDPrefix == "":
		s.MessageIDPrefix = messageid.Random()
	}
	s.SyncEvery, s.CloseTimeout = times.Cap(s.SyncEvery), times.Cap(s.CloseTimeout)
	switch {
	case s.MaxBytes < leastBytes:
		return s, invalid("MaxBytes is below 1 MiB; give more, or 0 for 256 MiB")
	case s.Window < 0 || s.Window > transport.MaxTags:
		return s, invalid("Window is out of range; give 1 to 61440, or 0 for 512")
	case s.CloseTimeout < 0:
		return s, invalid("CloseTimeout is negative; give how long Close may take, or 0 for 5 s")
	case !messageid.Valid(s.MessageIDPrefix):
		return s, invalid("MessageIDPrefix is too long or has a character that not every protocol carries; give at most " +
			"64 ASCII letters, digits and -._~")
	case s.Overflow > device.OverflowDropNewest:
		return s, invalid("Overflow is not one of Block, Fail, DropOldest, DropNewest")
	}
	return s, nil
}

func (o *Options) segmentBytes() int64 { return min(max(o.MaxBytes/8, leastSegment), mostSegment) }

func invalid(text string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpSend, Err: errors.New("outbox: " + text)}
}

var (
	errClosed = &transport.Error{Kind: transport.Closed, Op: transport.OpSend, Err: errors.New("the outbox is closed")}
	errFull   = &transport.Error{Kind: transport.Dropped, Op: transport.OpSend,
		Err: errors.New("the outbox is full; give it more MaxBytes, or send less")}
	errDropped = &transport.Error{Kind: transport.Dropped, Op: transport.OpSend,
		Err: errors.New("DropOldest made room; give the outbox more MaxBytes, or send less")}

	errSlow     = errors.New("the disk does not answer; the message was not written")
	errDamaged  = errors.New("the record is damaged")
	errDeleted  = errors.New("a file of the outbox was deleted or moved under it; close the Queue and open it anew")
	errNumbers  = errors.New("the folder has a file with a number that is too high; remove it, and \"done\"")
	errNoReturn = errors.New("outbox: the client panicked or ended the goroutine of Run")
	errNoLock   = errors.New("outbox: this system has no file locks, so two processes could use the folder; " +
		"keep messages in the client's memory")
)

// gaveUp is the error of a call whose context ended. state is what the call waited for; it may be
// nil.
func gaveUp(ctx context.Context, state error) *transport.Error {
	return operr.Cancelled(ctx, transport.OpSend, transport.ScopeOperation, state)
}
