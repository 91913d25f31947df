package fault

// Kind is the kind of a fault. In the names, Slow means that something happens after Delay, Swallow
// that something is never sent or is thrown away, Refuse that the hub answers with a refusal, Drop
// that the connection ends, and Garbage or Garble that wrong bytes are sent.
type Kind uint16

// Faults of a connect. Each happens to CONNECT packets, before the credentials are checked unless
// stated otherwise.
const (
	// RefuseConnect answers with the CONNACK code Code, by default 3; over AMQP it closes the
	// connection with Condition; over HTTP it answers with Status, by default 503.
	RefuseConnect Kind = iota + 1
	// SlowConnack handles the CONNECT after Delay.
	SlowConnack
	// SwallowConnack leaves the CONNECT unanswered. The connection stays open until the client gives
	// up.
	SwallowConnack
	// DropConnect closes the connection without an answer.
	DropConnect
	// ForgetSession drops the session of a client that is about to resume it. It happens to CONNECT
	// packets with CleanSession=0 that have a session, after the credentials were accepted.
	ForgetSession
	// GarbageOnConnect sends Bytes right after the CONNACK of an accepted connection.
	GarbageOnConnect
)

// Faults of a message. Each happens to PUBLISH packets; those about PUBACKs, and Forget, only to
// QoS 1. "Cut" means with RST, which follows the earlier answers over TCP, and may
// overtake them in memory.
const (
	// DropDuringPublish cuts the connection after reading a part of the packet.
	DropDuringPublish Kind = iota + 10
	// DropBeforePublish cuts the connection before the message is stored.
	DropBeforePublish
	// DropAfterPublish stores the message and cuts the connection without a PUBACK.
	DropAfterPublish
	// DropAfterPuback ends the connection in order right after sending the PUBACK, so that the client
	// can read it.
	DropAfterPuback
	// SlowPuback sends the PUBACK after Delay. Later PUBACKs wait for it; other packets do not.
	SlowPuback
	// SwallowPuback stores the message and never sends the PUBACK. The connection stays open.
	SwallowPuback
	// Forget sends the PUBACK without storing the message. Use it to prove that a test detects the
	// loss.
	Forget
	// StrayPuback sends a PUBACK with a wrong packet id before the right one.
	StrayPuback
	// DuplicatePuback sends the PUBACK twice.
	DuplicatePuback
	// GarbageOnPublish sends Bytes after storing the message, before its PUBACK.
	GarbageOnPublish
)

// Faults with a duration. Each begins at once or, when After is not zero, with the message after
// that many. It lasts until For has passed or it is removed. Probability and a number of Times are
// refused. Fired counts the single effects.
const (
	// HalfOpen makes connections half-open: they stay open, but the client's data is discarded and
	// nothing is sent back. New connections are accepted and half-open too. When the fault ends, such
	// a connection stays half-open until the client closes it. Fired counts connections.
	HalfOpen Kind = iota + 20
	// Throttle sends at most Rate PUBACKs a second, refuses connects with CONNACK 3, and closes a
	// connection on which more than Limit PUBACKs are delayed. Over AMQP it refuses attaches instead
	// of connects, and rejects messages instead of closing connections, with
	// "com.microsoft:device-container-throttled". Over HTTP it answers requests beyond Rate at once
	// with the status 429 and Retry-After. Twin requests get the status 429. Fired counts delayed
	// PUBACKs, refusals, rejected messages and closed connections.
	Throttle
	// Absent takes the hub off the network: connections are cut, in-memory dials are refused, and
	// connections to real ports are cut as soon as they are accepted. With Device set, the hub stays
	// reachable but cuts that device's connection at its CONNECT, put-token, attach or request. Fired
	// counts connections cut and dials refused.
	Absent
	// Quota accepts Limit messages a day, UTC by the hub's clock; the default is 100, negative means
	// none. Messages count in steps of 4 KB, telemetry and C2D messages alike; an upload counts as
	// two. Beyond the quota a connection is closed at its next message, which is not stored. Connects
	// are refused with CONNACK 3, or with AcceptConnects accepted and closed at once. SendC2D fails.
	// Over AMQP the only effect is that messages are rejected with "amqp:resource-limit-exceeded",
	// over HTTP that they are answered with 403. Fired counts messages, connects and C2D messages.
	Quota
)

// Faults of a subscription. Each happens to SUBSCRIBE packets.
const (
	// RefuseSubscribe grants no filter: the SUBACK has Code for each, by default 0x80.
	RefuseSubscribe Kind = iota + 30
	// DropOnSubscribe cuts the connection with RST. The filters are not granted.
	DropOnSubscribe
	// SwallowSuback grants the filters and never sends the SUBACK.
	SwallowSuback
	// SlowSuback sends the SUBACK after Delay, and messages that match the filters only then. Other
	// packets are not delayed.
	SlowSuback
	// LongSuback sends a SUBACK with one code too many.
	LongSuback
	// ShortSuback sends a SUBACK without the last code.
	ShortSuback
	// GarbageOnSubscribe sends Bytes before the SUBACK.
	GarbageOnSubscribe
)

// Faults of a TLS handshake. Each happens to connections to a port with TLS, before the hub knows
// the device: with Device set they never happen.
const (
	// MuteHandshake sends no answer. The connection stays open until the client gives up.
	MuteHandshake Kind = iota + 40
	// NotTLS answers the client's first bytes with an HTTP response and ends the connection.
	NotTLS
	// CutHandshake sends the first bytes of the hub's answer and cuts the connection with RST.
	CutHandshake
	// OldTLS offers no version above TLS 1.1.
	OldTLS
	// ExpiredCertificate presents a certificate that expired an hour ago.
	ExpiredCertificate
)

// SwallowPingresp leaves a PINGREQ unanswered. It happens to PINGREQ packets.
const SwallowPingresp Kind = 50

// Faults of an attach over AMQP. Each happens to attaches of links of the kind Link, or of any kind
// if Link is [LinkAny], after the hub has checked the client's right to attach.
const (
	// RefuseAttach refuses the link with Condition.
	RefuseAttach Kind = iota + 100
	// SlowAttach answers the attach after Delay.
	SlowAttach
	// SwallowAttach never answers the attach.
	SwallowAttach
	// DropOnAttach cuts the connection with RST.
	DropOnAttach
	// WithholdCredit gives the client no credit until Delay has passed, or never if Delay is zero. It
	// happens to links on which the client sends.
	WithholdCredit
	// DetachWhileIdle detaches the link with Condition after Delay.
	DetachWhileIdle
)

// Faults of a telemetry message over AMQP, or of a C2D message of a back end if Link is
// [LinkServiceC2D]. Each happens to messages; a batch is one message. Only DetachAfterMessage
// stores the message.
const (
	// RejectMessage answers with the outcome rejected and Condition.
	RejectMessage Kind = iota + 110
	// ReleaseMessage answers with the outcome released.
	ReleaseMessage
	// ModifyMessage answers with the outcome modified, with delivery-failed, and with
	// undeliverable-here if UndeliverableHere is set.
	ModifyMessage
	// CloseOnMessage closes the connection with Condition.
	CloseOnMessage
	// EndOnMessage ends the session with Condition.
	EndOnMessage
	// DetachOnMessage detaches the link with Condition.
	DetachOnMessage
	// DetachAfterMessage detaches the link with Condition instead of sending an outcome.
	DetachAfterMessage
)

// Faults of authentication over AMQP.
const (
	// RefuseSASL answers the chosen mechanism with the outcome Code, 1 to 4; default: 1, auth. The hub
	// does not know the client yet: with Device set the fault never happens.
	RefuseSASL Kind = iota + 120
	// RefuseToken answers a put-token with Status, without checking the token. Like the following
	// kinds, it happens to put-tokens for an identity.
	RefuseToken
	// SlowToken handles the put-token after Delay.
	SlowToken
	// SwallowToken leaves the put-token unanswered and ignores the token.
	SwallowToken
	// DropOnToken cuts the connection with RST.
	DropOnToken
)

// Faults of a request over HTTP. Each happens to requests of the kind Route, or of any kind if
// Route is [RouteAny]. Faults that cut or garble the layer below HTTP/2 end all requests on the
// connection.
const (
	// AnswerStatus answers with the next of Statuses instead of executing the request. The credentials
	// are not checked.
	AnswerStatus Kind = iota + 200
	// AnswerStatusAfter executes the request, then answers with the next of Statuses.
	AnswerStatusAfter
	// ResetBeforeRequest cuts the connection with RST. The request is not executed.
	ResetBeforeRequest
	// ResetAfterRequest executes the request and cuts the connection with RST without an answer.
	ResetAfterRequest
	// SwallowAnswer executes the request and never answers. The connection stays open.
	SwallowAnswer
	// DropDuringAnswer sends half of the answer and ends the connection in order; over HTTP/2 it
	// resets the stream.
	DropDuringAnswer
	// SlowAnswer sends the answer in pieces during Delay. Over HTTP/1.1 it then ends the connection.
	SlowAnswer
	// GarbageAnswer sends Bytes instead of an answer and ends the connection.
	GarbageAnswer
	// WrongDate makes the header Date wrong by Skew.
	WrongDate
	// NoContentLength sends an answer without its length. Over HTTP/1.1 it then ends the connection.
	// It happens to answers with a body.
	NoContentLength
)

// Faults of uploads to the store whose URI is valid, and with [RouteStorage] of back ends' requests
// to it. The faults of HTTP requests happen there too; [Fault.Blob] selects the operation for both.
const (
	// CutBlobBody cuts the connection with RST after reading half of the body. Nothing is stored. It
	// happens to files and blocks.
	CutBlobBody Kind = iota + 230
	// SlowBlob handles the request after Delay. Until then the body is not read.
	SlowBlob
	// DamageBlob changes a byte of the body in transit. It happens to files and blocks.
	DamageBlob
	// ExpireUpload makes the upload expire at this request, which is refused. It never happens to
	// [RouteStorage].
	ExpireUpload
)

// Faults of twin requests. Each happens to requests of the kind Operation, or of any kind if
// Operation is [hubdata.TwinAny].
const (
	// DropBeforeTwin cuts the connection with RST before the hub handles the request.
	DropBeforeTwin Kind = iota + 300
	// RefuseTwin does not execute the request: the answer has Status, by default 429, and RetryAfter
	// unless it is zero.
	RefuseTwin
	// DropAfterTwin executes the request and cuts the connection with RST instead of answering.
	DropAfterTwin
	// SwallowTwin executes the request and never answers.
	SwallowTwin
	// SlowTwin executes the request and answers after Delay. Other packets are not delayed.
	SlowTwin
	// MisnameTwin answers with the id of another request instead of the right one.
	MisnameTwin
	// DuplicateTwin answers twice.
	DuplicateTwin
	// GarbleTwin answers with Bytes as the body, by default the beginning of a JSON object.
	GarbleTwin
)

// Faults of a notification of desired properties. Each happens to notifications; a change causes
// one for each listening client.
const (
	// SwallowDesired drops it.
	SwallowDesired Kind = iota + 310
	// DuplicateDesired sends it twice.
	DuplicateDesired
	// SlowDesired sends it after Delay. Later ones do not wait, so the order changes.
	SlowDesired
	// DropAfterDesired ends the connection in order right after sending it, so that the client can
	// read it.
	DropAfterDesired
)

// Faults of a method call. Each happens to requests about to be sent to a client, of the method
// Method or of any if Method is empty.
const (
	// DropBeforeMethod cuts the connection with RST instead of sending the request.
	DropBeforeMethod Kind = iota + 320
	// SwallowMethod drops the request.
	SwallowMethod
	// SlowMethod sends the request after Delay, unless the connection has ended. The response timeout
	// runs meanwhile.
	SlowMethod
	// DuplicateMethod sends the request twice, with the same request id.
	DuplicateMethod
	// GarbleMethod sends the request with Bytes as its payload, by default the beginning of a JSON
	// object.
	GarbleMethod
	// DropAfterMethod ends the connection in order right after sending the request, so that the client
	// can read it.
	DropAfterMethod
	// MisnameMethod sends the request with another request id, so that the answer matches no call.
	MisnameMethod
	// RefuseMethod does not send the request: the call fails with the code of Status, by default 429.
	RefuseMethod
)

// Faults of a method answer. Each happens to answers whose request id belongs to a call of the
// method Method, or of any if Method is empty.
const (
	// DropOnMethodAnswer cuts the connection with RST; the answer is lost.
	DropOnMethodAnswer Kind = iota + 330
	// SwallowMethodAnswer drops the answer.
	SwallowMethodAnswer
	// SlowMethodAnswer delays the answer by Delay.
	SlowMethodAnswer
	// DropAfterMethodAnswer accepts the answer and cuts the connection with RST.
	DropAfterMethodAnswer
)
