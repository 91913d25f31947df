package transport

import (
	"context"
	"time"
)

// A Transport makes sessions of one protocol. Several clients may share a Transport only if its
// documentation says so.
type Transport interface {
	// Dial connects and authenticates. It blocks, on the goroutine that will call Run. ctx is the
	// session's context: it outlives Dial and ends Run. When it ends during Dial, Dial returns soon. A
	// failed Dial returns an *Error of Scope Connection and leaks nothing. Dial does not subscribe.
	Dial(ctx context.Context, cfg *Config) (Session, error)
}

// A Checker is a Transport that refuses wrong options, and credentials that it cannot carry, before
// anything is dialed. device.New asks it.
type Checker interface {
	// Check returns the error that Dial would return for the options or for creds, which are valid. It
	// connects to nothing and calls no function of creds.
	Check(creds *Credentials) error
}

// Config is the configuration of a session.
type Config struct {
	Creds *Credentials
	// Window is the maximum number of messages in flight, and the capacity that a session needs for
	// its own queues.
	Window int
	// Queue is the maximum number of unsettled deliveries (AMQP link credit, HTTP polls).
	Queue int
	Sink  Sink
	// Want are the features that the caller will subscribe to at once.
	Want Features
	// DesiredVersion is the version of the desired properties that the caller has, 0 for none.
	DesiredVersion int64
	// DialTimeout is the time after which the caller gives the attempt up. The context of the
	// network's dial gets it as a deadline, for a dial that shares its time among the addresses of a
	// name, as a net.Dialer does. 0: not known.
	DialTimeout time.Duration
	// Certificates: the caller may send OpIssue. MQTT then announces a version of the hub's API
	// that has it.
	Certificates bool
	// Refused, unless nil, reports whether messages that the session refused for the moment still wait
	// for the caller to look at them or for the end of a pause. The caller may have chosen a batch
	// before it learned of a refusal; a session that keeps the order asks inside Send, and refuses
	// that batch too. It may hold a lock then, and does not block.
	Refused func() bool
	// Progress, unless nil, reports that the attempt waits its turn on a connection that is slow but
	// makes progress, or for an answer behind a large message from the peer that arrives slowly; the
	// time-out of the attempt restarts. Any goroutine of the session may call it,
	// with the rules of Sink.
	Progress func()
	// Wait, unless nil, waits for d, and lets attempts of other clients run meanwhile: the caller
	// limits how many run at a time. Dial calls it before its requests. The error is that of ctx.
	Wait func(ctx context.Context, d time.Duration) error
}

// A Session is one connection. At most two goroutines call its methods: one calls Run, the other
// Send and Do.
type Session interface {
	// Info describes the session. It is constant.
	Info() Info

	// Run serves the session until it ends and returns the reason, never nil: an *Error of Scope
	// Connection or, if ctx ended it, any error. When ctx ends, Run takes at most a second to
	// disconnect in good order and closes. All goroutines of the session are children of Run and have
	// ended when it returns; after that the session neither calls the Sink nor touches a Message. Run
	// is called once, right after Dial.
	Run(ctx context.Context) error

	// Send hands messages over, in order. Each is answered by one Sink.Done unless Run returns first.
	// The caller may reuse the slice on return; a Message stays valid and unchanged until its Done or
	// Run's return, or until Send's return if Info.Encodes. Send may block while the socket does (the
	// end of Run unblocks it), but never for flow control or an answer: a session that must wait for
	// those keeps a queue of Config.Window entries. After Run's return Send does nothing.
	Send(batch []Item)

	// Do starts one request, with the blocking rule of Send. The caller may reuse r and the memory it
	// points to on return. Ops marked as replied get one Sink.Reply with the same ID, unless Run
	// returns first. An Op that the protocol lacks gets a reply with Unsupported at once, possibly
	// inside Do.
	Do(r *Request)
}

// A Progressor is a Session that can distinguish a slow connection from a dead one. Sessions that
// share a connection share its progress.
type Progressor interface {
	// Progress returns when the connection last made progress: the network accepted bytes that had
	// waited, bytes of a large message from the peer arrived, or, on a shared connection, the peer
	// answered the work ahead of the oldest message. The zero time means never. Bytes that the
	// network accepts at once do not count, nor do pings, because a peer that reads and does not
	// answer makes no progress. waits is true if bytes have waited on this side for long: without
	// progress that is a dead network, not a slow hop behind. The goroutine that calls Send calls
	// Progress, every few seconds while answers are outstanding. Progress does not block.
	Progress() (at time.Time, waits bool)
}

// A Twinned is a Session whose device may have another twin than in the session before, because the
// device moved to another hub.
type Twinned interface {
	// TwinNumber identifies the twin among those of the sessions of one client. The versions of
	// another twin begin anew. It is constant. Sessions without the method have the number 0.
	TwinNumber() uint32
}

// A Limited is a Transport that knows, without a connection, what its protocol or its options do
// not have. The caller then refuses what needs it at once.
type Limited interface {
	// Lacks returns why no session with creds has the feature, such as "not available over HTTPS".
	// Empty: it may have it.
	Lacks(creds *Credentials, feature Features) string
}

// Info describes a session.
type Info struct {
	// Window is the maximum number of messages in flight that the session supports. 0: Config.Window.
	Window int
	// MaxSize is the maximum message size (Message.Size) that the peer accepts. 0: not known.
	MaxSize int
	// AckTimeout is the maximum time for an answer by the protocol's own limits: the default of
	// device.Options.AckTimeout over this session. 0: not known.
	AckTimeout time.Duration
	// Encodes: Send has encoded each Message when it returns, and reads neither them nor the memory
	// they point to later. The caller may use them again for the next batch. A Session around another
	// one that hands messages over later must clear it.
	Encodes bool
	// KeepAlive is the interval at which the caller must request OpPing. 0: the session keeps itself
	// alive.
	KeepAlive time.Duration
	// Expires is when the session's credentials expire, by the credentials' clock. Before that the
	// caller requests OpRenew, or replaces the session if that is unsupported. Zero: never, or they
	// cannot be renewed (Token.Fixed).
	Expires time.Time
}

// MaxTags is the number of tags: an Item's Tag is below it. An MQTT session may use tags as packet
// ids, and has 4,095 other ids for itself.
const MaxTags = 61440

// Item is a message for Session.Send.
type Item struct {
	// Tag identifies the message until its Done; unique among those in flight.
	Tag uint16
	// Resent: the message was handed over before with unknown outcome. MQTT sets DUP.
	Resent bool
	Msg    *Message
}

// Sink receives the reports of a session. Any goroutine of the session may call it, also inside
// Send and Do, but never while holding a lock. The calls do not block.
type Sink interface {
	// Done reports the result of one message. Nil means acknowledged by the service, ErrWritten sent
	// with QoS 0. Any other error is an *Error of Scope Operation about this message alone, with
	// ErrOutcomeUnknown in its chain if the service may have it. Run reports lost connections. When a
	// part of the connection is lost that had lasted until the message came, the chain also has an
	// *Error of Scope Connection: if that happens each time, the message is the reason. The message
	// may change from then on, so a session ignores acknowledgements for messages that it has not
	// written. A tag that is not in flight is ignored.
	Done(tag uint16, err error)
	// Reply reports the answer to one request. Unknown and late ids are ignored. r.Body is valid until
	// Reply returns.
	Reply(id uint32, r Reply)
	// Deliver passes on a delivery of the hub; d and its slices are valid until Deliver returns. False
	// means that there is no room or no handler; the session must not acknowledge the delivery.
	Deliver(d *Delivery) bool
}

// Request is the argument of Session.Do. The Op determines which fields are used.
type Request struct {
	// ID is below 2^31 for OpTwinGet and OpTwinPatch, whose answers have an id that the hub chooses.
	ID      uint32
	Op      Op
	Want    Features // OpSubscribe; OpTwinGet: FeatureDesired if the others are not needed
	Ref     []byte   // OpRespond, OpSettle: from the Delivery; OpIssue: the id of the request
	Outcome Outcome  // OpSettle
	Status  int      // OpRespond: an int32
	Version int64    // OpTwinPatch: expected version, 0 for any; OpTwinGet: see Reply
	Body    []byte   // OpTwinPatch, OpRespond, OpIssue
}

// Reply answers a Request.
type Reply struct {
	Status int
	// Version is that of the reported properties after OpTwinPatch. After OpTwinGet for FeatureDesired
	// it is the Version of the Request if the hub has no other desired properties; there is no Body
	// then.
	Version int64
	Body    []byte
	Expires time.Time // OpRenew
	// Err is an *Error of Scope Operation, with ErrOutcomeUnknown in its chain if the request may have
	// been executed.
	Err error
}

// Features is a set of things that a hub can deliver to a device.
type Features uint8

const (
	FeatureMessages     Features = 1 << iota // cloud-to-device messages
	FeatureMethods                           // direct methods
	FeatureDesired                           // changes of the twin's desired properties
	FeatureTwin                              // answers to twin requests
	FeatureCertificates                      // answers to requests for certificates
)

// String names one feature; it is empty for a set.
func (f Features) String() string {
	switch f {
	case FeatureMessages:
		return "cloud-to-device messages"
	case FeatureMethods:
		return "direct methods"
	case FeatureDesired:
		return "desired properties"
	case FeatureTwin:
		return "device twins"
	case FeatureCertificates:
		return "certificates"
	}
	return ""
}

// Outcome settles a delivery.
type Outcome uint8

const (
	OutcomeAccept  Outcome = iota // handled; the hub deletes it
	OutcomeRelease                // not handled; the hub delivers it again
	OutcomeReject                 // cannot be handled; AMQP, HTTPS: the hub dead-letters it; MQTT: as Accept
)

// String returns "accept", "release" or "reject".
func (o Outcome) String() string {
	switch o {
	case OutcomeAccept:
		return "accept"
	case OutcomeRelease:
		return "release"
	case OutcomeReject:
		return "reject"
	}
	return "undefined outcome"
}

// Delivery is a delivery of the hub.
type Delivery struct {
	// Kind is one bit, or 0 for a message that no subscription asks for, such as one of an earlier
	// program's session: it is reported, settled with Accept if it has a Ref, and goes to no handler.
	Kind Features
	// Name is the method's name. For Certificates it is the status, and Msg.CorrelationID the id of
	// the request. For a message without Msg or with Kind 0 it is the topic.
	Name []byte
	// Ref is the transport's reference for this delivery, to be copied into the Request that settles
	// or answers it.
	Ref []byte
	// Version is the version of the desired properties. 0: changes may have been missed, and the twin
	// must be read.
	Version int64
	// Full: the body has all desired properties, and not a change of them. A session delivers those
	// that it got at its begin.
	Full bool
	// Probe, unless nil, means that there is no call of the method Name. Its value is
	//
	//   - Unknown for a question: would a call run? If Deliver returns false, it becomes NotFound or
	//     Throttled.
	//   - Expired, NotFound or Throttled for news: the session has refused a call, because too little
	//     time is left for it, for its name, or because there is no room.
	//   - Conflict for news: a call came that was not announced, or came before, and is not run.
	Probe *Kind
	// Redelivered: the hub marks this delivery as repeated. Package device sets Message.Redelivered.
	Redelivered bool
	// Once: the transport delivers it once over all its connections, as with MQTT's QoS 2. So it is
	// kept when its session ends, and its verdict or answer goes to the session that is live then.
	// When the hub repeats a message, it has Redelivered and the same Ref.
	Once bool
	// Msg has the body, for Messages the properties, and for Methods in Expires when the caller gives
	// up, if that is known. Nil: a message, or the body of a method call, is larger than the session
	// takes.
	Msg *Message
}
