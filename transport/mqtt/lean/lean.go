// Package lean carries a device over MQTT 3.1.1 with a codec and a session of its own: small enough
// for boards, and the fastest way on standard Go.
//
//	client, err := device.New(creds, lean.New(dial, nil), nil)
//
// The board brings the connection: a function that returns a Conn, over whatever network stack or
// serial line there is. On standard Go package leannet makes such functions, for TCP, TLS with
// client certificates, and WebSocket.
//
// A Transport has the buffers of one connection and keeps them between connections, so each client
// needs a Transport of its own. A second session at the same time is refused with Invalid.
//
// Telemetry goes out with QoS 1 and is done when the hub's PUBACK has come. MQTT has no way to
// refuse a single message: a hub that does not like one closes the connection, so Done reports an
// error only for what is too large to be sent at all. Messages handed over again carry the DUP flag
// and the packet id that they had before, [MQTT-4.4.0-1]: it is the tag plus one. Sessions are
// persistent (CleanSession 0): the hub keeps subscriptions and messages while the device is away.
//
// Cloud-to-device messages come with QoS 1; Accept and Reject acknowledge them, Release does not,
// so the hub delivers them again on a later connection, with Delivery.Again.
//
// QoS 2 is not there, as with the service itself: nothing asks for it, and a PUBLISH with it ends
// the session with a loss.
//
// The twin and direct methods go by QoS 0, as in the official SDKs: an answer that a lost
// connection took along is asked for again by package device. Where ReadBuffer is set, a twin
// larger than it is answered for with TooLarge, and what else comes larger than it is passed over.
//
// A hub learns of a new token only by a new connection: OpRenew is unsupported, and Info.Expires
// tells when the present token runs out.
//
// # Costs
//
// A session has one goroutine, that of Run, which only reads. Send and Do encode into a buffer and
// write it in one go, on their caller's goroutine. Nothing is allocated for a message sent. One
// received costs its topic, if it has properties, and a Transport's first one 272 bytes more.
//
// # Silent peers
//
// Run reads with a deadline of KeepAlive and PingTimeout; the caller asks for a ping each KeepAlive
// (Info.KeepAlive). So a connection that died without a sign ends with Timeout although the caller
// may be stuck in a write, and its end frees the caller. A slow write that gets on counts as a sign
// of life. That a PUBACK is missing is noticed by package device (Options.AckTimeout).
//
// # Errors
//
// A failed Dial returns an *transport.Error of Scope Connection and Op OpDial. Kind is Invalid for
// wrong options or credentials; what the Dial function says, or Network, when it fails, and Timeout
// when its error has a method Timeout that says so; Unauthorized for CONNACK 2, 4 and 5;
// Unavailable for CONNACK 3; Unsupported for CONNACK 1; Protocol for other CONNACKs and for peers
// that speak something else; and what Credentials.NewToken returns. The code of a refusal is in the
// *ConnackError reached with errors.As.
//
// The end of a live session is always worth a retry: Network, or Timeout when nothing came any more
// or the hub takes no data.
package lean

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// Conn is what a session needs of a network. A net.Conn satisfies it.
//
// One goroutine reads, another one writes, and any may call SetReadDeadline and Close, which is
// called once.
type Conn interface {
	// Read returns at least one byte or an error; it may return fewer bytes than there is room for.
	Read(p []byte) (int, error)
	// Write writes all of p or returns an error. It may block; Close ends it then.
	Write(p []byte) (int, error)
	// Close closes the connection. What was written before should still go out, within a quarter of a
	// second. It ends a Read and a Write under way.
	Close() error
	// SetReadDeadline makes a Read, also one under way, return an error at t. A driver that cannot do
	// so must call Close by other means: dead connections are not found otherwise.
	SetReadDeadline(t time.Time) error
}

// An Explainer is a Conn that knows the kinds of its errors, such as a TLS alert in place of a
// CONNACK. It is asked about a failed Dial only.
type Explainer interface {
	// Explain returns an *transport.Error for an error of Read or Write, or err itself.
	Explain(err error) error
}

// Dial makes a connection: name look-up, radio, TLS and all. It must end when ctx does. An
// *transport.Error that it returns keeps its Kind; other errors are Network, or Timeout when they
// say so.
type Dial func(ctx context.Context) (Conn, error)

// ConnackError is a CONNECT that the hub refused: the cause of the *transport.Error of a failed
// dial, reachable with errors.As. Its field Code is the CONNACK's return code, 1 to 255. Package
// mqtt has the same type.
type ConnackError = wire.ConnackError

// SubackError is a subscription that the hub refused: the cause of the *transport.Error in the
// Reply to OpSubscribe, reachable with errors.As. Its fields are Filter, the topic filter refused,
// and Code, its return code in the SUBACK. Package mqtt has the same type.
type SubackError = wire.SubackError

// Transport makes sessions, one at a time.
type Transport struct {
	opt  Options
	dial Dial
	err  error // what Dial returns for wrong options

	busy atomic.Bool // there is a session
	in   []byte      // of Dial, then of Run
	out  []byte      // of Dial, then of whoever has session.writing

	message *wire.Inbound // of Run, 272 bytes; nil before the first message
	topic   []byte        // of a request; of whoever has session.writing
	// unanswered are the tags of the messages in out that no PUBACK will come for; the holder of
	// session.writing owns it.
	unanswered []uint16
}

// New returns a Transport with the given options, which are copied; nil means all defaults. Wrong
// options are reported by Dial, with Kind Invalid.
func New(dial Dial, o *Options) *Transport {
	t := &Transport{dial: dial}
	if t.opt, t.err = o.resolve(); t.err != nil {
		return t
	}
	if dial == nil {
		t.err = wire.Invalid("lean.New needs a Dial; package leannet has some")
	}
	if n := t.opt.ReadBuffer; n > 0 {
		t.in = make([]byte, n)
	}
	if n := t.opt.WriteBuffer; n > 0 {
		t.out = make([]byte, 0, n)
	}
	return t
}

var _ transport.Transport = (*Transport)(nil)
