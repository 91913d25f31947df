package testbroker

import (
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// FaultKind says what goes wrong.
type FaultKind = hub.FaultKind

// Faults of a connect. Each happens to CONNECT packets, before the credentials are looked at unless
// it says otherwise.
const (
	// RefuseConnect answers with the CONNACK code Code, by default 3; over AMQP it closes the
	// connection with Condition; over HTTP it answers with Status, by default 503.
	RefuseConnect = hub.RefuseConnect
	// SlowConnack goes on with the CONNECT only after Delay.
	SlowConnack = hub.SlowConnack
	// NoConnack never answers; the connection stays open until the client gives up.
	NoConnack = hub.NoConnack
	// DropConnect closes the connection without an answer.
	DropConnect = hub.DropConnect
	// ForgetSession forgets the session of a client that is about to take it up again. It happens to
	// CONNECT packets with CleanSession=0 for which there is a session, after the credentials were
	// found good.
	ForgetSession = hub.ForgetSession
	// GarbageOnConnect sends Bytes right after the CONNACK of a connection that is accepted.
	GarbageOnConnect = hub.GarbageOnConnect
)

// Faults of a message. Each happens to PUBLISH packets; those about PUBACKs, and Forget, only to
// QoS 1. "Cut" means by RST.
const (
	// DropDuringPublish cuts the connection when a part of the packet was read.
	DropDuringPublish = hub.DropDuringPublish
	// DropBeforePublish cuts the connection before the message is stored.
	DropBeforePublish = hub.DropBeforePublish
	// DropAfterPublish stores the message and cuts the connection without a PUBACK.
	DropAfterPublish = hub.DropAfterPublish
	// DropAfterPuback ends the connection right after the PUBACK was sent, in order, so that the
	// client can read it.
	DropAfterPuback = hub.DropAfterPuback
	// DelayPuback sends the PUBACK after Delay. Later PUBACKs wait behind it; other packets flow.
	DelayPuback = hub.DelayPuback
	// SwallowPuback stores the message and never sends the PUBACK. The connection lives on.
	SwallowPuback = hub.SwallowPuback
	// Forget sends the PUBACK and does not store the message: the hub lies. It shows that a test would
	// notice.
	Forget = hub.Forget
	// StrayPuback sends, before the PUBACK, another one with a packet id that the message does not
	// have.
	StrayPuback = hub.StrayPuback
	// DuplicatePuback sends the PUBACK twice.
	DuplicatePuback = hub.DuplicatePuback
	// GarbageOnPublish sends Bytes when the message is stored, before its PUBACK.
	GarbageOnPublish = hub.GarbageOnPublish
)

// Faults with a duration. Each begins at once, or when After is not zero with the message after
// that many, and lasts until For has passed or it is removed. Times and Probability mean nothing to
// them. Fired counts their single effects.
const (
	// HalfOpen makes connections dead without a sign: they stay open, but what the client sends
	// vanishes and nothing comes back. New connections are accepted and dead too. A connection that
	// died stays dead when the fault is over, until the client closes it. Fired counts connections.
	HalfOpen = hub.HalfOpen
	// Throttle sends at most Rate PUBACKs a second, refuses connects with CONNACK 3, and closes a
	// connection on which more than Limit PUBACKs are due. Over AMQP it refuses attaches instead of
	// connects, and rejects messages instead of closing connections, with
	// "com.microsoft:device-container-throttled". Over HTTP it answers requests that come sooner than
	// Rate allows at once, with the status 429 and Retry-After. Requests about twins have the status
	// 429. Fired counts delayed PUBACKs, refusals, rejected messages and closed connections.
	Throttle = hub.Throttle
	// Absent takes the hub off the network: connections are cut, dials in memory refused, and
	// connections to real ports cut as soon as they are made. With Device set the hub is there, but
	// cuts that device off at its CONNECT, or put-token, or attach, or request. Fired counts
	// connections cut and dials refused.
	Absent = hub.Absent
	// Quota lets messages through until Limit of them were sent on one day, UTC by the hub's clock;
	// the default is 100, negative means none. Messages count in steps of 4 KB, telemetry and C2D
	// messages alike; an upload counts as two. When they are used up, a connection is closed at its
	// next message, which is not stored; connects are refused with CONNACK 3, or with AcceptConnects
	// accepted and closed at once; and SendC2D fails. Over AMQP messages are rejected with
	// "amqp:resource-limit-exceeded" and nothing else happens, nor does it over HTTP, where the status
	// is 403. Fired counts messages, connects and C2D messages.
	Quota = hub.Quota
)

// Faults of a subscription. Each happens to SUBSCRIBE packets.
const (
	// RefuseSubscribe grants no filter: the SUBACK has the code Code for each, by default 0x80.
	RefuseSubscribe = hub.RefuseSubscribe
	// DropOnSubscribe cuts the connection by RST. The filters are not granted.
	DropOnSubscribe = hub.DropOnSubscribe
	// SwallowSuback grants the filters and never sends the SUBACK.
	SwallowSuback = hub.SwallowSuback
	// SlowSuback sends the SUBACK after Delay, and what the filters let through only then. Other
	// packets flow.
	SlowSuback = hub.SlowSuback
	// LongSuback sends a SUBACK with one code too many.
	LongSuback = hub.LongSuback
	// ShortSuback sends a SUBACK without the last code.
	ShortSuback = hub.ShortSuback
	// GarbageOnSubscribe sends Bytes before the SUBACK.
	GarbageOnSubscribe = hub.GarbageOnSubscribe
)

// Faults of a TLS handshake. Each happens to connections to a port with TLS, before anything is
// known of the device: with Device set they never happen.
const (
	// MuteHandshake never answers; the connection stays open until the client gives up.
	MuteHandshake = hub.MuteHandshake
	// NotTLS answers the client's first bytes with a response of HTTP, and ends the connection.
	NotTLS = hub.NotTLS
	// CutHandshake sends the first bytes of the hub's answer and cuts the connection by RST.
	CutHandshake = hub.CutHandshake
	// OldTLS offers no version above TLS 1.1.
	OldTLS = hub.OldTLS
	// ExpiredCertificate presents a certificate that expired an hour ago.
	ExpiredCertificate = hub.ExpiredCertificate
)

// SwallowPingresp never answers a PINGREQ. It happens to PINGREQ packets.
const SwallowPingresp = hub.SwallowPingresp

// Faults of an attach over AMQP. Each happens to attaches of links of the kind Link, or of any if
// Link is [LinkAny], after the client was found to have the right to attach.
const (
	// RefuseAttach refuses the link with Condition.
	RefuseAttach = hub.RefuseAttach
	// SlowAttach answers the attach after Delay.
	SlowAttach = hub.SlowAttach
	// NoAttach never answers the attach.
	NoAttach = hub.NoAttach
	// DropOnAttach cuts the connection by RST.
	DropOnAttach = hub.DropOnAttach
	// WithholdCredit gives the client no credit before Delay has passed, or ever if Delay is zero. It
	// happens to links on which the client sends.
	WithholdCredit = hub.WithholdCredit
	// DetachWhileIdle detaches the link with Condition when Delay has passed.
	DetachWhileIdle = hub.DetachWhileIdle
)

// Faults of a telemetry message over AMQP. Each happens to messages, of which a batch is one. Only
// DetachAfterMessage stores it.
const (
	// RejectMessage answers with the outcome rejected and Condition.
	RejectMessage = hub.RejectMessage
	// ReleaseMessage answers with the outcome released.
	ReleaseMessage = hub.ReleaseMessage
	// ModifyMessage answers with the outcome modified, delivery-failed, and undeliverable-here if
	// UndeliverableHere is set.
	ModifyMessage = hub.ModifyMessage
	// CloseOnMessage closes the connection with Condition.
	CloseOnMessage = hub.CloseOnMessage
	// EndOnMessage ends the session with Condition.
	EndOnMessage = hub.EndOnMessage
	// DetachOnMessage detaches the link with Condition.
	DetachOnMessage = hub.DetachOnMessage
	// DetachAfterMessage detaches the link with Condition instead of telling an outcome.
	DetachAfterMessage = hub.DetachAfterMessage
)

// Faults of authentication over AMQP.
const (
	// RefuseSASL answers a choice of mechanism with the outcome Code, 1 to 4; default: 1, auth. It
	// happens before the hub knows who the client is: with Device set it never does.
	RefuseSASL = hub.RefuseSASL
	// RefuseToken answers a put-token with Status, without looking at the token. It happens, like
	// those that follow, to put-tokens for an identity.
	RefuseToken = hub.RefuseToken
	// SlowToken handles the put-token after Delay.
	SlowToken = hub.SlowToken
	// NoToken never answers the put-token, whose token does not count.
	NoToken = hub.NoToken
	// DropOnToken cuts the connection by RST.
	DropOnToken = hub.DropOnToken
)

// Faults of a request over HTTP. Each happens to requests of the kind Route, or of any if Route is
// [RouteAny]. Those that cut or garble what is below HTTP/2 end all that is on the connection.
const (
	// AnswerStatus answers with the next of Statuses instead of doing what the request asks. The
	// credentials are not looked at.
	AnswerStatus = hub.AnswerStatus
	// AnswerStatusAfter does what the request asks, then answers with the next of Statuses.
	AnswerStatusAfter = hub.AnswerStatusAfter
	// ResetBeforeRequest cuts the connection by RST. Nothing of what the request asks is done.
	ResetBeforeRequest = hub.ResetBeforeRequest
	// ResetAfterRequest does what the request asks, and cuts the connection by RST without an answer.
	ResetAfterRequest = hub.ResetAfterRequest
	// NoAnswer does what the request asks and never answers. The connection lives on.
	NoAnswer = hub.NoAnswer
	// DropDuringAnswer sends half of the answer and ends the connection, in order; over HTTP/2 it
	// resets the stream.
	DropDuringAnswer = hub.DropDuringAnswer
	// SlowAnswer sends the answer in pieces over the time Delay. Over HTTP/1.1 the connection ends
	// with it.
	SlowAnswer = hub.SlowAnswer
	// GarbageAnswer sends Bytes in place of an answer and ends the connection.
	GarbageAnswer = hub.GarbageAnswer
	// WrongDate makes the header Date wrong by Skew.
	WrongDate = hub.WrongDate
	// NoContentLength sends an answer without saying how long it is. Over HTTP/1.1 the connection ends
	// with it. It happens to answers with a body.
	NoContentLength = hub.NoContentLength
)

// Fault declares what goes wrong, to whom and when.
type Fault = hub.Fault

// Injected is a fault in force, or one that was.
type Injected = hub.Injected

// Inject puts a fault in force. It panics if the kind does not exist, or one of Statuses.
func (h *Hub) Inject(f Fault) *Injected { return h.hub.Inject(f) }

// Protocol is a set of protocols that devices speak.
type Protocol = hub.Protocol

// The protocols.
const (
	MQTT = hub.MQTT
	AMQP = hub.AMQP
	HTTP = hub.HTTP
)

// Faults of requests about a twin. Each happens to requests of the kind Operation, or of any if
// Operation is [TwinAny].
const (
	// DropBeforeTwin cuts the connection by RST before the request is looked at.
	DropBeforeTwin = hub.DropBeforeTwin
	// RefuseTwin does not do what is asked: the answer has Status, by default 429, and says RetryAfter
	// unless it is zero.
	RefuseTwin = hub.RefuseTwin
	// DropAfterTwin does what is asked and cuts the connection by RST instead of answering.
	DropAfterTwin = hub.DropAfterTwin
	// SwallowTwin does what is asked and never answers.
	SwallowTwin = hub.SwallowTwin
	// SlowTwin does what is asked and answers after Delay. Other packets flow.
	SlowTwin = hub.SlowTwin
	// MisnameTwin answers with the id of another request, and not with the right one.
	MisnameTwin = hub.MisnameTwin
	// DuplicateTwin answers twice.
	DuplicateTwin = hub.DuplicateTwin
	// GarbleTwin answers with Bytes for a body, by default the beginning of an object of JSON.
	GarbleTwin = hub.GarbleTwin
)

// Faults of a notification of desired properties. Each happens to notifications, as many as there
// are clients that are told of a change.
const (
	// SwallowDesired never sends it.
	SwallowDesired = hub.SwallowDesired
	// DuplicateDesired sends it twice.
	DuplicateDesired = hub.DuplicateDesired
	// SlowDesired sends it after Delay. Later ones do not wait, so they come in another order.
	SlowDesired = hub.SlowDesired
	// DropAfterDesired ends the connection right after it was sent, in order, so that the client can
	// read it.
	DropAfterDesired = hub.DropAfterDesired
)

// Faults of a call of a method. Each happens to requests that are about to be sent to a client, of
// the method Method or of any if Method is empty.
const (
	// DropBeforeMethod cuts the connection by RST instead of sending the request.
	DropBeforeMethod = hub.DropBeforeMethod
	// SwallowMethod never sends it.
	SwallowMethod = hub.SwallowMethod
	// SlowMethod sends it after Delay, unless the connection has ended; the time-out for the answer
	// runs meanwhile.
	SlowMethod = hub.SlowMethod
	// DuplicateMethod sends it twice, with the same request id.
	DuplicateMethod = hub.DuplicateMethod
	// GarbleMethod sends it with Bytes for its payload, by default the beginning of an object of JSON.
	GarbleMethod = hub.GarbleMethod
	// DropAfterMethod ends the connection right after it was sent, in order, so that the client can
	// read it.
	DropAfterMethod = hub.DropAfterMethod
	// MisnameMethod sends it with another request id, so that the answer is to nothing.
	MisnameMethod = hub.MisnameMethod
	// RefuseMethod does not send it: the call fails with the code of Status, by default 429.
	RefuseMethod = hub.RefuseMethod
)

// Faults of an answer to a method. Each happens to answers whose request id is that of a call of
// the method Method, or of any if Method is empty.
const (
	// DropOnMethodAnswer cuts the connection by RST; the answer is lost.
	DropOnMethodAnswer = hub.DropOnMethodAnswer
	// SwallowMethodAnswer loses the answer.
	SwallowMethodAnswer = hub.SwallowMethodAnswer
	// SlowMethodAnswer has the answer arrive after Delay.
	SlowMethodAnswer = hub.SlowMethodAnswer
	// DropAfterMethodAnswer takes the answer and cuts the connection by RST.
	DropAfterMethodAnswer = hub.DropAfterMethodAnswer
)

// Faults of requests to the store, over HTTP, whose upload URI was found good. Those of requests
// over HTTP happen there too; [Fault.Blob] chooses for both.
const (
	// CutBlobBody cuts the connection by RST when half of the body was read. Nothing is stored. It
	// happens to files and blocks.
	CutBlobBody = hub.CutBlobBody
	// SlowBlob goes on with the request only after Delay. Until then its body is not read.
	SlowBlob = hub.SlowBlob
	// DamageBlob changes a byte of the body on its way. It happens to files and blocks.
	DamageBlob = hub.DamageBlob
	// ExpireUpload ends the time of the upload at this request, which is refused.
	ExpireUpload = hub.ExpireUpload
)

// BlobOperation is what a request wants of the store.
type BlobOperation = hub.BlobOperation

const (
	// BlobAny stands for all.
	BlobAny = hub.BlobAny
	// PutBlob stores a file in one go.
	PutBlob = hub.PutBlob
	// PutBlock stores a block that may become part of a file.
	PutBlock = hub.PutBlock
	// PutBlockList makes a file of blocks.
	PutBlockList = hub.PutBlockList
	// GetBlob reads a file, or what is known of it.
	GetBlob = hub.GetBlob
)

// FaultMessages says what the hub does with a message by which a device asks for a fault: one with
// the application property "AzIoTHub_FaultOperationType" of a type that is known, in any letter
// case.
//
// "KillTcp" cuts the connection, and with a duration every new one until that has passed.
// "ShutDownMqtt" ends the connection in order. "InvokeThrottling", "InvokeMaxMessageQuota" and
// "InvokeAuthError" end it in order and refuse new ones, with CONNACK 3, 3 and 5, for the duration.
//
// Over AMQP, the three that begin with "Invoke" leave the connection as it is and reject messages
// for the duration, or the next message if there is none. "ShutDownAmqp" and "KillAmqpConnection"
// close the connection with "amqp:connection:forced", "KillAmqpSession" ends the session, and the
// other types detach the link that they name with "amqp:link:detach-forced". A type that is about
// another protocol does nothing. A new connection of a device that asked for "KillTcp" is known by
// its put-token, or by SASL PLAIN.
//
// Over HTTP, "KillTcp" cuts the connections that the device has used, and with a duration every new
// one at its request. The three that begin with "Invoke" answer its messages with 429, 403 and 401,
// as long as over AMQP.
//
// The other properties are "AzIoTHub_FaultOperationCloseReason", which is put into the cause,
// "AzIoTHub_FaultOperationDelayInSecs" and "AzIoTHub_FaultOperationDurationInSecs". Such a message
// is no telemetry: it is not in the log, and faults declared with [Hub.Inject] pass it by. See
// [Hub.FaultMessages].
type FaultMessages = hub.FaultMessages

const (
	// ObeyFaultMessages acknowledges the message at once and does what it asks. A client that sends at
	// least once would otherwise ask again after each reconnect.
	ObeyFaultMessages = hub.ObeyFaultMessages
	// ObeyFaultMessagesUnacked does what the message asks and never acknowledges it, as the service
	// may.
	ObeyFaultMessagesUnacked = hub.ObeyFaultMessagesUnacked
	// StoreFaultMessages takes it for telemetry.
	StoreFaultMessages = hub.StoreFaultMessages
)

// FaultMessage is a fault that a device asked for by a message.
type FaultMessage = hub.FaultMessage

// FaultMessages returns the faults that devices have asked for by message, in order of arrival.
func (h *Hub) FaultMessages() []FaultMessage { return h.hub.FaultMessages() }

// LinkKind says what a link over AMQP is for. Sender and receiver are said from the client's side.
type LinkKind = hub.LinkKind

const (
	// LinkAny stands for links of all kinds.
	LinkAny = hub.LinkAny
	// LinkTelemetry carries telemetry messages to the hub.
	LinkTelemetry = hub.LinkTelemetry
	// LinkC2D carries C2D messages to the device.
	LinkC2D = hub.LinkC2D
	// LinkTwinSender carries requests about the twin.
	LinkTwinSender = hub.LinkTwinSender
	// LinkTwinReceiver carries answers about the twin and changes of it.
	LinkTwinReceiver = hub.LinkTwinReceiver
	// LinkMethodSender carries answers to direct methods.
	LinkMethodSender = hub.LinkMethodSender
	// LinkMethodReceiver carries calls of direct methods.
	LinkMethodReceiver = hub.LinkMethodReceiver
	// LinkCBSSender carries tokens.
	LinkCBSSender = hub.LinkCBSSender
	// LinkCBSReceiver carries answers to tokens.
	LinkCBSReceiver = hub.LinkCBSReceiver
)

// RouteKind says what a request over HTTP is for.
type RouteKind = hub.RouteKind

const (
	// RouteAny stands for requests of devices, of all kinds.
	RouteAny = hub.RouteAny
	// RouteTelemetry sends a message or a batch.
	RouteTelemetry = hub.RouteTelemetry
	// RouteReceive asks for a C2D message.
	RouteReceive = hub.RouteReceive
	// RouteSettle completes, abandons or rejects a C2D message.
	RouteSettle = hub.RouteSettle
	// RouteUpload asks for a place to put a file.
	RouteUpload = hub.RouteUpload
	// RouteUploadDone tells how an upload went.
	RouteUploadDone = hub.RouteUploadDone
	// RouteBlob is about a file in the store.
	RouteBlob = hub.RouteBlob
	// RouteRegistry, RouteTwin and RouteMethod are requests of back ends: about the registry, which
	// includes queries, about a twin, and to call a method.
	RouteRegistry = hub.RouteRegistry
	RouteTwin     = hub.RouteTwin
	RouteMethod   = hub.RouteMethod
)

// AMQPError is an error as AMQP has them, for example what a fault rejects a message with.
type AMQPError = hub.AMQPError
