// Package engine carries a device over MQTT 3.1.1 with its own codec and session: small enough for
// boards, and the fastest transport on standard Go.
//
//	client, err := device.New(creds, engine.New(dial, nil), nil)
//
// The board provides the connection: a function that returns a Conn, over any network stack or
// serial line. On standard Go package mqtt has one, for TCP, TLS with client
// certificates, and WebSocket.
//
// A Transport owns the buffers of one connection and keeps them between connections, so each client
// needs its own Transport. A second session at the same time is refused with Invalid.
//
// Telemetry is sent with QoS 1 and is done when the hub's PUBACK arrives. MQTT cannot refuse a
// single message: a hub closes the connection instead, so Done reports an error only for messages
// too large to send. Messages sent again carry the DUP flag and their earlier packet id, the tag
// plus one [MQTT-4.4.0-1]. Sessions are persistent (CleanSession 0): the hub keeps subscriptions
// and messages while the device is away.
//
// Cloud-to-device messages arrive with QoS 1. Accept and Reject acknowledge them. Release does not,
// so the hub delivers them again on a later connection, with Delivery.Redelivered.
//
// Messages for which the Sink has no room wait in order, and reading goes on: 512 KB of them, or as
// much as a fixed ReadBuffer has. Further messages with QoS 1 stay unacknowledged. The session ends
// when all others have their verdict, and the next one brings the rest. Messages of a resumed
// session wait in the same way for the first subscription.
//
// Options.Dialect makes all of this hold for any other broker: see package dialect. What a dialect
// does before the connection counts as connected, such as Topics.Birth, is part of Dial: its errors
// are those of the dial, with the Kind of a refused subscription or of the message. Messages that
// come meanwhile wait for Run in the same way.
//
// QoS 2 is not supported, as in the service itself: a PUBLISH with QoS 2 ends the session with a
// loss.
//
// The twin and direct methods use QoS 0, as in the official SDKs: package device repeats a request
// whose answer was lost with the connection. With a fixed ReadBuffer, a request for a larger twin
// is answered with TooLarge, and other larger packets are skipped. Without one, messages above 1 MB
// are skipped; see Options.ReadBuffer.
//
// A new token needs a new connection: OpRenew is unsupported, and Info.Expires is when the present
// token expires.
//
// # Costs
//
// A session has one goroutine, that of Run, which only reads. Send and Do encode into a buffer and
// write it, small messages in one call, on their caller's goroutine. Sending a message allocates
// nothing. Receiving one allocates its topic if it has properties, and 272 bytes for the first one
// of a Transport.
//
// # Silent peers
//
// Run reads with a deadline of KeepAlive plus PingTimeout; the caller requests a ping each
// KeepAlive (Info.KeepAlive). So a connection that died silently ends with Timeout even if the
// caller is stuck in a write, and its end unblocks the caller. A slow write that makes progress
// counts as a sign of life. Package device detects a missing PUBACK (Options.AckTimeout).
//
// # Errors
//
// A failed Dial returns an *transport.Error of Scope Connection and Op OpDial, with one of these
// Kinds:
//
//   - Invalid for wrong options or credentials;
//   - the Kind of the Dial function's error, or else Network, or Timeout when its method Timeout
//     returns true;
//   - Unauthorized for CONNACK 2, 4 and 5;
//   - Unavailable for CONNACK 3;
//   - Unsupported for CONNACK 1;
//   - Protocol for other CONNACKs and for peers that do not speak MQTT;
//   - the Kind that Credentials.NewToken returns.
//
// The code of a refusal is in the *ConnackError reached with errors.As.
//
// The end of a live session is always worth a retry: Network, or Timeout when nothing arrives
// within the read deadline or the hub accepts no data.
//
// # MQTT 5
//
// Options.Protocol selects MQTT 5 for brokers that are no hub: MQTT5. Properties have their place,
// a broker can refuse a single message, QoS 2 is received, MQTT5Options.Auth renews credentials in
// place, and a DISCONNECT ends Run with the Kind of its reason code, in a *ReasonError.
// docs/mqtt5.md has the table of codes.
package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
)

// Conn is the connection that a session needs. A net.Conn satisfies it.
//
// One goroutine reads and another one writes. Any goroutine may call SetReadDeadline and Close.
// Close is called once.
type Conn interface {
	// Read returns at least one byte or an error; it may return fewer bytes than fit into p.
	Read(p []byte) (int, error)
	// Write writes all of p or returns an error. It may block; Close unblocks it.
	Write(p []byte) (int, error)
	// Close closes the connection. Bytes written before should still be sent, within a quarter of a
	// second. It unblocks Read and Write.
	Close() error
	// SetReadDeadline makes Read, also one in progress, return an error at t. A driver without
	// deadlines must call Close when t passes: dead connections are not detected otherwise.
	SetReadDeadline(t time.Time) error
}

// An Explainer is a Conn that knows the kinds of its errors, such as a TLS alert in place of a
// CONNACK. Explain is called only for a failed Dial.
type Explainer interface {
	// Explain returns an *transport.Error for an error of Read or Write, or err itself, such as for an
	// error about the peer's packets.
	Explain(err error) error
}

// An Expirer is a Conn that proves the identity for a limited time, as a client certificate does.
// The client replaces it before that, unless a token with a known expiry proves the identity.
type Expirer interface {
	// Expires returns when the proof expires. The zero time means never.
	Expires() time.Time
}

// A Faster is a Conn that knows whether large writes are worth it.
type Faster interface {
	// Fast reports whether the network has taken so much so fast, and no write has waited for long
	// since, that messages should be collected for writes of 80 KB. Without it, and while it is false,
	// writes have at most 16 KB or Options.WriteBuffer, so that progress is seen on a slow link.
	// Programs built by TinyGo do not ask.
	Fast() bool
}

// Dial makes a connection to the host of creds, including name look-up, radio and TLS. It must end
// when ctx does. An *transport.Error that it returns keeps its Kind; other errors become Timeout if
// their method Timeout returns true, else Network.
type Dial func(ctx context.Context, creds *transport.Credentials) (Conn, error)

// ConnackError is a CONNECT that the hub refused: the cause of the *transport.Error of a failed
// dial, reachable with errors.As. Its field Code is the CONNACK's return code, 1 to 255. Package
// mqtt has the same type.
type ConnackError = mqttwire.ConnackError

// SubackError is a subscription that the hub refused: the cause of the *transport.Error in the
// Reply to OpSubscribe, reachable with errors.As. Its fields are Filter, the topic filter refused,
// and Code, its return code in the SUBACK. Package mqtt has the same type.
type SubackError = mqttwire.SubackError

// ReasonError is a refusal by a broker that speaks MQTT 5: of a CONNECT, a message or a
// subscription, or the end of a connection. It is the cause of the *transport.Error, reachable with
// errors.As, and has the reason code, and what the broker added to it.
type ReasonError = mqttwire.ReasonError

// Transport makes sessions, one at a time.
type Transport struct {
	opt  Options
	dial Dial
	err  error // what Dial returns for wrong options

	newer version // of MQTT than 3.1.1; nil: that

	busy atomic.Bool // a session exists
	in   []byte      // read buffer; owned by Dial, then by Run
	out  []byte      // write buffer; owned by Dial, then by the holder of session.writing

	kept    any               // of the dialect; owned by it
	message *mqttwire.Inbound // owned by Dial, then guarded by backlog.Passing; nil until a message
	topic   []byte            // of a request; owned by the holder of session.writing
	// unacked are the tags of the messages written with QoS 1 on this connection and not
	// acknowledged, inFlight those of any connection: MQTT 5 sends these again with DUP. handshake
	// says the same of the message of a handshake. unsent are the messages that were handed over
	// and not written. Guarded by session.mu while there is a session.
	unacked, inFlight, unsent mqttwire.Tags
	handshake                 bool
	// qos0Tags are the tags of the messages in out with QoS 0, which get no PUBACK; owned by the
	// holder of session.writing.
	qos0Tags []uint16
}

// New returns a Transport with the given options, which are copied; nil means all defaults. Wrong
// options are reported by Check, which device.New calls, and by Dial, with Kind Invalid.
func New(dial Dial, o *Options) *Transport {
	t := &Transport{dial: dial}
	if t.opt, t.err = o.resolve(); t.err != nil {
		return t
	}
	if d, ok := t.opt.Dialect.(protocolled); ok && t.opt.Protocol == nil {
		t.opt.Protocol = d.Protocol()
	}
	if p := t.opt.Protocol; p != nil {
		t.newer, t.err = p.version(&t.opt)
	}
	if dial == nil {
		t.err = mqttwire.Invalid("engine.New needs a Dial; mqtt.Dialer has one")
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
