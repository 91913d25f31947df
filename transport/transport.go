// Package transport is the contract between the device client and the protocols that carry it.
//
// A Transport makes sessions; a Session is one connection from its handshake to its end; results
// come back through a Sink, which package device implements. Protocol failures are translated into
// *Error by the transport that met them and are never interpreted above it except by Kind, Scope
// and RetryAfter.
//
// The package imports nothing but the standard library, and of that only what small boards can
// carry.
//
// To write a transport, implement Transport and Session and run package transporttest against it.
package transport

import (
	"context"
	"time"
)

// A Transport makes sessions of one protocol. A Transport may serve several clients at a time only
// if its documentation says so.
type Transport interface {
	// Dial connects and authenticates; it blocks, on the goroutine that will call Run. ctx is the
	// session's own: it outlives Dial and ends Run. When it ends during Dial, Dial returns soon. A
	// failed Dial returns an *Error of Scope Connection and leaves nothing behind. Dial does not
	// subscribe.
	Dial(ctx context.Context, cfg *Config) (Session, error)
}

// Config is what a session is made with.
type Config struct {
	Creds *Credentials
	// Window is the most messages that will be in flight; also the capacity a session needs for any
	// queue of its own.
	Window int
	// Queue is the most deliveries that will be unsettled at a time (AMQP link credit, HTTP polls).
	Queue int
	Sink  Sink
	// Progress, unless nil, tells the caller that the attempt waits its turn on a connection that is
	// slow and makes progress: a time-out of the attempt starts again. Any goroutine of the session
	// may call it, with the rules of Sink.
	Progress func()
}

// A Session is one connection. Its methods are called by two goroutines at most: Run by one, Send
// and Do by another.
type Session interface {
	// Info describes the session. It does not change.
	Info() Info

	// Run serves the session until it ends and returns why, never nil: an *Error of Scope Connection,
	// or, when ctx ended it, any error. When ctx ends it says goodbye for at most a second and closes.
	// All goroutines of the session are children of Run and have ended when it returns; after that the
	// Sink is not called and no Message is touched. Run is called once, right after Dial.
	Run(ctx context.Context) error

	// Send hands messages over, in order. Each is answered by one Sink.Done unless Run returns first.
	// The slice is the caller's again on return; a Message stays valid and unchanged until its Done or
	// Run's return. Send may block while the socket does (Run's end frees it), never for flow control
	// or an answer: a session that must wait for those keeps a queue of Config.Window entries. After
	// Run's return Send does nothing.
	Send(batch []Item)

	// Do starts one request, with the blocking rule of Send. r and what it points to is the caller's
	// again on return. Ops that are replied to are answered by one Sink.Reply with the same ID unless
	// Run returns first; an Op that the protocol lacks is replied to with Unsupported at once,
	// possibly inside Do.
	Do(r *Request)
}

// A Progressor is a Session that can tell a slow connection from a dead one. Sessions that share a
// connection share its progress.
type Progressor interface {
	// Progress returns when the connection last made progress: the network took bytes that had waited,
	// or, on a shared connection, the peer answered what stands before the oldest message. The zero
	// time means never. Bytes that the network takes at once do not count, nor do pings, because a
	// peer that reads and does not answer makes no progress. The goroutine that calls Send calls
	// Progress, every few seconds while answers are due. Progress does not block.
	Progress() time.Time
}

// Info describes a session.
type Info struct {
	// Window is the most messages in flight that the session can take. 0: Config.Window.
	Window int
	// MaxSize is the largest message (Message.Size) that the peer takes. 0: not known.
	MaxSize int
	// AckTimeout is how long an answer may take by the protocol's own limits: the default of
	// device.Options.AckTimeout over this session. 0: not known.
	AckTimeout time.Duration
	// KeepAlive asks the caller for an OpPing this often. 0: the session keeps itself alive.
	KeepAlive time.Duration
	// Expires is when the credentials of the session run out, by their clock. Before that the caller
	// asks for OpRenew, or replaces the session if that is unsupported. Zero: never, or there will be
	// no later ones (Token.Fixed).
	Expires time.Time
}

// MaxTags is the number of tags: an Item's Tag is below it. An MQTT session may make packet ids of
// them and has 4,095 others for itself.
const MaxTags = 61440

// Item is a message handed over.
type Item struct {
	// Tag names the message until its Done; unique among those in flight.
	Tag uint16
	// Again: the message was handed over before with unknown outcome. MQTT sets DUP.
	Again bool
	Msg   *Message
}

// Sink takes what a session reports. Any goroutine of the session may call it, also inside Send and
// Do, never with a lock held. The calls do not block.
type Sink interface {
	// Done resolves one message: nil means acknowledged by the service; an error is an *Error of Scope
	// Operation about this message alone, with ErrOutcomeUnknown in its chain when the service may
	// have it. A lost connection is never reported here but by Run. A tag that is not in flight is
	// ignored.
	Done(tag uint16, err error)
	// Reply answers one request. Unknown and late ids are ignored. r.Body is valid until Reply
	// returns.
	Reply(id uint32, r Reply)
	// Deliver brings something from the hub; d and the slices in it are valid until Deliver returns.
	// False: no room or no taker, do not acknowledge.
	Deliver(d *Delivery) bool
}

// Op is what was being done when an Error arose; those from OpSubscribe on are also requests.
type Op uint8

const (
	OpNone Op = iota
	// OpDial, OpRun and OpSend name the places where an Error of a Session arises.
	OpDial
	OpRun
	OpSend
	// OpClose and OpOpen name calls of the device client.
	OpOpen
	OpClose
	// OpSubscribe asks for the Features in Want to be delivered; replied when the hub has granted all.
	OpSubscribe
	// OpTwinGet and OpTwinPatch read the twin and change its reported part; replied.
	OpTwinGet
	OpTwinPatch
	// OpRenew renews the credentials in place; replied with the next Expires.
	OpRenew
	// OpPing keeps the connection alive; one-way.
	OpPing
	// OpRespond answers a method call. It dies with the session, and is replied to only when the
	// session knows that it was not sent; then also inside a Do after Run's return.
	OpRespond
	// OpSettle settles a delivery; one-way.
	OpSettle

	ops // number of ops
)

var opText = [ops]string{
	OpDial: "dial", OpRun: "connection", OpSend: "send", OpOpen: "open", OpClose: "close", OpSubscribe: "subscribe",
	OpTwinGet: "twin get", OpTwinPatch: "twin patch", OpRenew: "renew", OpPing: "ping", OpRespond: "respond",
	OpSettle: "settle",
}

// String returns the operation in a word or two; empty for OpNone.
func (o Op) String() string {
	if o >= ops {
		return "undefined operation"
	}
	return opText[o]
}

// Request is what Session.Do starts. Which fields count depends on Op.
type Request struct {
	ID      uint32
	Op      Op
	Want    Features // OpSubscribe
	Ref     []byte   // OpRespond, OpSettle: from the Delivery
	Outcome Outcome  // OpSettle
	Status  int      // OpRespond
	Version int64    // OpTwinPatch: expected version, 0 for any
	Body    []byte   // OpTwinPatch, OpRespond
}

// Reply answers a Request.
type Reply struct {
	Status  int
	Version int64
	Body    []byte
	Expires time.Time // OpRenew
	// *Error of Scope Operation, with ErrOutcomeUnknown in its chain when the request may have been
	// carried out
	Err error
}

// Features is a set of what a hub can deliver to a device.
type Features uint8

const (
	Messages Features = 1 << iota // cloud-to-device messages
	Methods                       // direct methods
	Desired                       // changes of the twin's desired properties
	Twin                          // answers to twin requests
)

// Outcome settles a delivery.
type Outcome uint8

const (
	Accept  Outcome = iota // handled; the hub forgets it
	Release                // not handled; the hub delivers it again
	Reject                 // cannot be handled; the hub sets it aside
)

// String returns "accept", "release" or "reject".
func (o Outcome) String() string {
	switch o {
	case Accept:
		return "accept"
	case Release:
		return "release"
	case Reject:
		return "reject"
	}
	return "undefined outcome"
}

// Delivery is something that the hub sent.
type Delivery struct {
	// Kind is one bit.
	Kind Features
	// Name is the method's name.
	Name []byte
	// Ref is the transport's own name of this delivery, to be copied into the Request that settles or
	// answers it.
	Ref []byte
	// Version is the version of the desired properties. 0: changes may have been missed, and the twin
	// is to be read.
	Version int64
	// Again: the hub says that it delivered this before. Package device tells the handler by
	// Message.Redelivered.
	Again bool
	// Msg carries the body, and for Messages the properties. Nil: the body of a call of a method did
	// not fit into the session's buffer.
	Msg *Message
}
