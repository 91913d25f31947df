package testbroker

import (
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// FaultKind is the kind of a fault.
type FaultKind = hub.FaultKind

// Faults of a connect. Each happens to CONNECT packets, before the credentials are checked unless
// stated otherwise.
const (
	// RefuseConnect answers with the CONNACK code Code, by default 3; over AMQP it closes the
	// connection with Condition; over HTTP it answers with Status, by default 503.
	RefuseConnect = hub.RefuseConnect
	// SlowConnack handles the CONNECT after Delay.
	SlowConnack = hub.SlowConnack
	// NoConnack sends no answer. The connection stays open until the client gives up.
	NoConnack = hub.NoConnack
	// DropConnect closes the connection without an answer.
	DropConnect = hub.DropConnect
	// ForgetSession drops the session of a client that is about to resume it. It happens to CONNECT
	// packets with CleanSession=0 that have a session, after the credentials were accepted.
	ForgetSession = hub.ForgetSession
	// GarbageOnConnect sends Bytes right after the CONNACK of an accepted connection.
	GarbageOnConnect = hub.GarbageOnConnect
)

// Faults of a message. Each happens to PUBLISH packets; those about PUBACKs, and Forget, only to
// QoS 1. "Cut" means with RST.
const (
	// DropDuringPublish cuts the connection after reading a part of the packet.
	DropDuringPublish = hub.DropDuringPublish
	// DropBeforePublish cuts the connection before the message is stored.
	DropBeforePublish = hub.DropBeforePublish
	// DropAfterPublish stores the message and cuts the connection without a PUBACK.
	DropAfterPublish = hub.DropAfterPublish
	// DropAfterPuback ends the connection in order right after sending the PUBACK, so that the client
	// can read it.
	DropAfterPuback = hub.DropAfterPuback
	// DelayPuback sends the PUBACK after Delay. Later PUBACKs wait for it; other packets do not.
	DelayPuback = hub.DelayPuback
	// SwallowPuback stores the message and never sends the PUBACK. The connection stays open.
	SwallowPuback = hub.SwallowPuback
	// Forget sends the PUBACK without storing the message. Use it to prove that a test detects the
	// loss.
	Forget = hub.Forget
	// StrayPuback sends a PUBACK with a wrong packet id before the right one.
	StrayPuback = hub.StrayPuback
	// DuplicatePuback sends the PUBACK twice.
	DuplicatePuback = hub.DuplicatePuback
	// GarbageOnPublish sends Bytes after storing the message, before its PUBACK.
	GarbageOnPublish = hub.GarbageOnPublish
)

// Faults with a duration. Each begins at once or, when After is not zero, with the message after
// that many. It lasts until For has passed or it is removed. Times and Probability have no effect.
// Fired counts the single effects.
const (
	// HalfOpen makes connections half-open: they stay open, but the client's data is discarded and
	// nothing is sent back. New connections are accepted and half-open too. When the fault ends, such
	// a connection stays half-open until the client closes it. Fired counts connections.
	HalfOpen = hub.HalfOpen
	// Throttle sends at most Rate PUBACKs a second, refuses connects with CONNACK 3, and closes a
	// connection on which more than Limit PUBACKs are delayed. Over AMQP it refuses attaches instead
	// of connects, and rejects messages instead of closing connections, with
	// "com.microsoft:device-container-throttled". Over HTTP it answers requests beyond Rate at once
	// with the status 429 and Retry-After. Twin requests get the status 429. Fired counts delayed
	// PUBACKs, refusals, rejected messages and closed connections.
	Throttle = hub.Throttle
	// Absent takes the hub off the network: connections are cut, in-memory dials are refused, and
	// connections to real ports are cut as soon as they are accepted. With Device set, the hub stays
	// reachable but cuts that device's connection at its CONNECT, put-token, attach or request. Fired
	// counts connections cut and dials refused.
	Absent = hub.Absent
	// Quota accepts Limit messages a day, UTC by the hub's clock; the default is 100, negative means
	// none. Messages count in steps of 4 KB, telemetry and C2D messages alike; an upload counts as
	// two. Beyond the quota a connection is closed at its next message, which is not stored. Connects
	// are refused with CONNACK 3, or with AcceptConnects accepted and closed at once. SendC2D fails.
	// Over AMQP the only effect is that messages are rejected with "amqp:resource-limit-exceeded",
	// over HTTP that they are answered with 403. Fired counts messages, connects and C2D messages.
	Quota = hub.Quota
)

// Faults of a subscription. Each happens to SUBSCRIBE packets.
const (
	// RefuseSubscribe grants no filter: the SUBACK has Code for each, by default 0x80.
	RefuseSubscribe = hub.RefuseSubscribe
	// DropOnSubscribe cuts the connection with RST. The filters are not granted.
	DropOnSubscribe = hub.DropOnSubscribe
	// SwallowSuback grants the filters and never sends the SUBACK.
	SwallowSuback = hub.SwallowSuback
	// SlowSuback sends the SUBACK after Delay, and messages that match the filters only then. Other
	// packets are not delayed.
	SlowSuback = hub.SlowSuback
	// LongSuback sends a SUBACK with one code too many.
	LongSuback = hub.LongSuback
	// ShortSuback sends a SUBACK without the last code.
	ShortSuback = hub.ShortSuback
	// GarbageOnSubscribe sends Bytes before the SUBACK.
	GarbageOnSubscribe = hub.GarbageOnSubscribe
)

// Faults of a TLS handshake. Each happens to connections to a port with TLS, before the hub knows
// the device: with Device set they never happen.
const (
	// MuteHandshake sends no answer. The connection stays open until the client gives up.
	MuteHandshake = hub.MuteHandshake
	// NotTLS answers the client's first bytes with an HTTP response and ends the connection.
	NotTLS = hub.NotTLS
	// CutHandshake sends the first bytes of the hub's answer and cuts the connection with RST.
	CutHandshake = hub.CutHandshake
	// OldTLS offers no version above TLS 1.1.
	OldTLS = hub.OldTLS
	// ExpiredCertificate presents a certificate that expired an hour ago.
	ExpiredCertificate = hub.ExpiredCertificate
)

// SwallowPingresp leaves a PINGREQ unanswered. It happens to PINGREQ packets.
const SwallowPingresp = hub.SwallowPingresp

// Faults of an attach over AMQP. Each happens to attaches of links of the kind Link, or of any kind
// if Link is [LinkAny], after the hub has checked the client's right to attach.
const (
	// RefuseAttach refuses the link with Condition.
	RefuseAttach = hub.RefuseAttach
	// SlowAttach answers the attach after Delay.
	SlowAttach = hub.SlowAttach
	// NoAttach never answers the attach.
	NoAttach = hub.NoAttach
	// DropOnAttach cuts the connection with RST.
	DropOnAttach = hub.DropOnAttach
	// WithholdCredit gives the client no credit until Delay has passed, or never if Delay is zero. It
	// happens to links on which the client sends.
	WithholdCredit = hub.WithholdCredit
	// DetachWhileIdle detaches the link with Condition after Delay.
	DetachWhileIdle = hub.DetachWhileIdle
)

// Faults of a telemetry message over AMQP. Each happens to messages; a batch is one message. Only
// DetachAfterMessage stores the message.
const (
	// RejectMessage answers with the outcome rejected and Condition.
	RejectMessage = hub.RejectMessage
	// ReleaseMessage answers with the outcome released.
	ReleaseMessage = hub.ReleaseMessage
	// ModifyMessage answers with the outcome modified, with delivery-failed, and with
	// undeliverable-here if UndeliverableHere is set.
	ModifyMessage = hub.ModifyMessage
	// CloseOnMessage closes the connection with Condition.
	CloseOnMessage = hub.CloseOnMessage
	// EndOnMessage ends the session with Condition.
	EndOnMessage = hub.EndOnMessage
	// DetachOnMessage detaches the link with Condition.
	DetachOnMessage = hub.DetachOnMessage
	// DetachAfterMessage detaches the link with Condition instead of sending an outcome.
	DetachAfterMessage = hub.DetachAfterMessage
)

// Faults of authentication over AMQP.
const (
	// RefuseSASL answers the chosen mechanism with the outcome Code, 1 to 4; default: 1, auth. The hub
	// does not know the client yet: with Device set the fault never happens.
	RefuseSASL = hub.RefuseSASL
	// RefuseToken answers a put-token with Status, without checking the token. Like the following
	// kinds, it happens to put-tokens for an identity.
	RefuseToken = hub.RefuseToken
	// SlowToken handles the put-token after Delay.
	SlowToken = hub.SlowToken
	// NoToken leaves the put-token unanswered and ignores the token.
	NoToken = hub.NoToken
	// DropOnToken cuts the connection with RST.
	DropOnToken = hub.DropOnToken
)

// Faults of a request over HTTP. Each happens to requests of the kind Route, or of any kind if
// Route is [RouteAny]. Faults that cut or garble the layer below HTTP/2 end all requests on the
// connection.
const (
	// AnswerStatus answers with the next of Statuses instead of executing the request. The credentials
	// are not checked.
	AnswerStatus = hub.AnswerStatus
	// AnswerStatusAfter executes the request, then answers with the next of Statuses.
	AnswerStatusAfter = hub.AnswerStatusAfter
	// ResetBeforeRequest cuts the connection with RST. The request is not executed.
	ResetBeforeRequest = hub.ResetBeforeRequest
	// ResetAfterRequest executes the request and cuts the connection with RST without an answer.
	ResetAfterRequest = hub.ResetAfterRequest
	// NoAnswer executes the request and never answers. The connection stays open.
	NoAnswer = hub.NoAnswer
	// DropDuringAnswer sends half of the answer and ends the connection in order; over HTTP/2 it
	// resets the stream.
	DropDuringAnswer = hub.DropDuringAnswer
	// SlowAnswer sends the answer in pieces during Delay. Over HTTP/1.1 it then ends the connection.
	SlowAnswer = hub.SlowAnswer
	// GarbageAnswer sends Bytes instead of an answer and ends the connection.
	GarbageAnswer = hub.GarbageAnswer
	// WrongDate makes the header Date wrong by Skew.
	WrongDate = hub.WrongDate
	// NoContentLength sends an answer without its length. Over HTTP/1.1 it then ends the connection.
	// It happens to answers with a body.
	NoContentLength = hub.NoContentLength
)

// Fault declares a fault: its kind, its target and its time.
type Fault = hub.Fault

// Injected is a fault passed to Inject. It stays valid after the fault has ended.
type Injected = hub.Injected

// Inject puts a fault in force. It panics if the kind or one of Statuses is unknown.
func (h *Hub) Inject(f Fault) *Injected { return h.hub.Inject(f) }

// Protocol is a set of device protocols.
type Protocol = hub.Protocol

// The protocols.
const (
	MQTT = hub.MQTT
	AMQP = hub.AMQP
	HTTP = hub.HTTP
)

// Faults of twin requests. Each happens to requests of the kind Operation, or of any kind if
// Operation is [TwinAny].
const (
	// DropBeforeTwin cuts the connection with RST before the hub handles the request.
	DropBeforeTwin = hub.DropBeforeTwin
	// RefuseTwin does not execute the request: the answer has Status, by default 429, and RetryAfter
	// unless it is zero.
	RefuseTwin = hub.RefuseTwin
	// DropAfterTwin executes the request and cuts the connection with RST instead of answering.
	DropAfterTwin = hub.DropAfterTwin
	// SwallowTwin executes the request and never answers.
	SwallowTwin = hub.SwallowTwin
	// SlowTwin executes the request and answers after Delay. Other packets are not delayed.
	SlowTwin = hub.SlowTwin
	// MisnameTwin answers with the id of another request instead of the right one.
	MisnameTwin = hub.MisnameTwin
	// DuplicateTwin answers twice.
	DuplicateTwin = hub.DuplicateTwin
	// GarbleTwin answers with Bytes as the body, by default the beginning of a JSON object.
	GarbleTwin = hub.GarbleTwin
)

// Faults of a notification of desired properties. Each happens to notifications; a change causes
// one for each listening client.
const (
	// SwallowDesired drops it.
	SwallowDesired = hub.SwallowDesired
	// DuplicateDesired sends it twice.
	DuplicateDesired = hub.DuplicateDesired
	// SlowDesired sends it after Delay. Later ones do not wait, so the order changes.
	SlowDesired = hub.SlowDesired
	// DropAfterDesired ends the connection in order right after sending it, so that the client can
	// read it.
	DropAfterDesired = hub.DropAfterDesired
)

// Faults of a method call. Each happens to requests about to be sent to a client, of the method
// Method or of any if Method is empty.
const (
	// DropBeforeMethod cuts the connection with RST instead of sending the request.
	DropBeforeMethod = hub.DropBeforeMethod
	// SwallowMethod drops the request.
	SwallowMethod = hub.SwallowMethod
	// SlowMethod sends the request after Delay, unless the connection has ended. The response timeout
	// runs meanwhile.
	SlowMethod = hub.SlowMethod
	// DuplicateMethod sends the request twice, with the same request id.
	DuplicateMethod = hub.DuplicateMethod
	// GarbleMethod sends the request with Bytes as its payload, by default the beginning of a JSON
	// object.
	GarbleMethod = hub.GarbleMethod
	// DropAfterMethod ends the connection in order right after sending the request, so that the client
	// can read it.
	DropAfterMethod = hub.DropAfterMethod
	// MisnameMethod sends the request with another request id, so that the answer matches no call.
	MisnameMethod = hub.MisnameMethod
	// RefuseMethod does not send the request: the call fails with the code of Status, by default 429.
	RefuseMethod = hub.RefuseMethod
)

// Faults of a method answer. Each happens to answers whose request id belongs to a call of the
// method Method, or of any if Method is empty.
const (
	// DropOnMethodAnswer cuts the connection with RST; the answer is lost.
	DropOnMethodAnswer = hub.DropOnMethodAnswer
	// SwallowMethodAnswer drops the answer.
	SwallowMethodAnswer = hub.SwallowMethodAnswer
	// SlowMethodAnswer delays the answer by Delay.
	SlowMethodAnswer = hub.SlowMethodAnswer
	// DropAfterMethodAnswer accepts the answer and cuts the connection with RST.
	DropAfterMethodAnswer = hub.DropAfterMethodAnswer
)

// Faults of HTTP requests to the store whose upload URI is valid. The faults of HTTP requests
// happen there too; [Fault.Blob] selects the operation for both.
const (
	// CutBlobBody cuts the connection with RST after reading half of the body. Nothing is stored. It
	// happens to files and blocks.
	CutBlobBody = hub.CutBlobBody
	// SlowBlob handles the request after Delay. Until then the body is not read.
	SlowBlob = hub.SlowBlob
	// DamageBlob changes a byte of the body in transit. It happens to files and blocks.
	DamageBlob = hub.DamageBlob
	// ExpireUpload makes the upload expire at this request, which is refused.
	ExpireUpload = hub.ExpireUpload
)

// BlobOperation is the operation of a request to the store.
type BlobOperation = hub.BlobOperation

const (
	// BlobAny means all operations.
	BlobAny = hub.BlobAny
	// PutBlob stores a file in a single request.
	PutBlob = hub.PutBlob
	// PutBlock stores a block that may become part of a file.
	PutBlock = hub.PutBlock
	// PutBlockList makes a file of blocks.
	PutBlockList = hub.PutBlockList
	// GetBlob reads a file or its properties.
	GetBlob = hub.GetBlob
)

// FaultMessages says how the hub treats a message with which a device requests a fault: one whose
// application property "AzIoTHub_FaultOperationType" has a known type, in any letter case.
//
// "KillTcp" cuts the connection, and with a duration also every new one until the duration ends.
// "ShutDownMqtt" ends the connection in order. "InvokeThrottling", "InvokeMaxMessageQuota" and
// "InvokeAuthError" end it in order and refuse new ones, with CONNACK 3, 3 and 5, for the duration.
//
// Over AMQP, the three "Invoke" types keep the connection. They reject messages for the duration,
// or the next message if there is no duration. "ShutDownAmqp" and "KillAmqpConnection" close the
// connection with "amqp:connection:forced". "KillAmqpSession" ends the session. The other types
// detach the link that they name with "amqp:link:detach-forced". A type for another protocol does
// nothing. The hub recognizes a new connection of a device that requested "KillTcp" by its
// put-token, or by SASL PLAIN.
//
// Over HTTP, "KillTcp" cuts the connections that the device has used, and with a duration every new
// one at its request. The three "Invoke" types answer the device's messages with 429, 403 and 401,
// for as long as over AMQP.
//
// The other properties are "AzIoTHub_FaultOperationCloseReason", which becomes part of the cause,
// "AzIoTHub_FaultOperationDelayInSecs" and "AzIoTHub_FaultOperationDurationInSecs". Such a message
// is not telemetry: it is not in the log, and faults declared with [Hub.Inject] ignore it. See
// [Hub.FaultMessages].
type FaultMessages = hub.FaultMessages

const (
	// ObeyFaultMessages acknowledges the message at once and applies its fault. Without the
	// acknowledgement, an at-least-once client would repeat the request after each reconnect.
	ObeyFaultMessages = hub.ObeyFaultMessages
	// ObeyFaultMessagesUnacked applies the fault and never acknowledges the message, as the service
	// may.
	ObeyFaultMessagesUnacked = hub.ObeyFaultMessagesUnacked
	// StoreFaultMessages treats the message as telemetry.
	StoreFaultMessages = hub.StoreFaultMessages
)

// FaultMessage is a fault that a device requested with a message.
type FaultMessage = hub.FaultMessage

// FaultMessages returns the faults that devices have requested with messages, in order of arrival.
func (h *Hub) FaultMessages() []FaultMessage { return h.hub.FaultMessages() }

// LinkKind is the purpose of a link over AMQP. Sender and receiver are the client's roles.
type LinkKind = hub.LinkKind

const (
	// LinkAny means links of all kinds.
	LinkAny = hub.LinkAny
	// LinkTelemetry carries telemetry messages to the hub.
	LinkTelemetry = hub.LinkTelemetry
	// LinkC2D carries C2D messages to the device.
	LinkC2D = hub.LinkC2D
	// LinkTwinSender carries twin requests.
	LinkTwinSender = hub.LinkTwinSender
	// LinkTwinReceiver carries answers to twin requests and changes of the twin.
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

// RouteKind is the purpose of a request over HTTP.
type RouteKind = hub.RouteKind

const (
	// RouteAny means device requests of all kinds.
	RouteAny = hub.RouteAny
	// RouteTelemetry sends a message or a batch.
	RouteTelemetry = hub.RouteTelemetry
	// RouteReceive requests a C2D message.
	RouteReceive = hub.RouteReceive
	// RouteSettle completes, abandons or rejects a C2D message.
	RouteSettle = hub.RouteSettle
	// RouteUpload requests an upload URI.
	RouteUpload = hub.RouteUpload
	// RouteUploadDone reports the result of an upload.
	RouteUploadDone = hub.RouteUploadDone
	// RouteBlob accesses a file in the store.
	RouteBlob = hub.RouteBlob
	// RouteRegistry, RouteTwin and RouteMethod are requests of back ends: to the registry, including
	// queries, to a twin, and method calls.
	RouteRegistry = hub.RouteRegistry
	RouteTwin     = hub.RouteTwin
	RouteMethod   = hub.RouteMethod
)

// AMQPError is an AMQP error, for example the error of a rejected message.
type AMQPError = hub.AMQPError
