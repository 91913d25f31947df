package fault

import (
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// Fault declares a fault: its kind, its target and its time.
type Fault struct {
	// Kind is required.
	Kind Kind
	// Device selects a device and its modules by the device id, or one module as "deviceID/moduleID".
	// Empty means all.
	Device string

	// After is how many matching events pass before the first hit: with After 2 the third event is the
	// first hit. Events count from Inject on, across all connections. An event that another fault has
	// ended does not count.
	After int
	// Times is how often the fault happens: 0 means once, negative means until it ends. A fault with a
	// duration has no number of times: with 0 too it lasts until it ends.
	Times int
	// Probability, from 0 to 1, is the chance of each event to be a hit; 0 means always. The draws are
	// derived from Options.Seed.
	Probability float64
	// For is the time from the fault's beginning to its end; 0 means until it is removed. With it, a
	// fault without a duration needs Times: negative means at each event until For is over.
	For time.Duration

	// Code is the CONNACK code of RefuseConnect (1 to 255, default 3, server unavailable), the SUBACK
	// code of RefuseSubscribe (default 0x80, failure), the outcome of RefuseSASL (default 1) and the
	// reason code of the faults of a plain broker. Over MQTT 5 the CONNACK codes 1 to 5 become the
	// reason codes of the same meaning.
	Code byte
	// ServerReference is the server reference of MQTT 5 in the CONNACK of RefuseConnect and RefuseAuth
	// and in the DISCONNECT of faults. Description is the reason string of these and of
	// RefuseSubscribe and RefusePublish.
	ServerReference string
	// Condition and Description are the AMQP error with which the hub refuses, closes, ends, detaches
	// or rejects. The default is "amqp:connection:forced" for a connection, "amqp:link:detach-forced"
	// for a detached link, and "amqp:internal-error" otherwise.
	Condition, Description string
	// Status is the status code of RefuseToken (default 401), of RefuseTwin, RefuseMethod and
	// RefuseCertificate (default 429), and over HTTP of RefuseConnect (default 503).
	Status int
	// Statuses are the status codes of AnswerStatus and AnswerStatusAfter, 200 to 599, used in turn.
	// Their number is the default of Times. Zero lets a request pass. Default: 503.
	Statuses []int
	// ErrorCode is the service's six-digit code that RefuseConnect over HTTP, AnswerStatus,
	// AnswerStatusAfter, RefuseTwin, RefuseMethod, RefuseProvisioning, RefuseCertificate and
	// WrongStatus put into answers of 400 and above. Default: the usual code of the status.
	// Description is its text.
	ErrorCode int
	// RetryAfter, unless zero, is sent in whole seconds in the header Retry-After of RefuseConnect,
	// AnswerStatus and AnswerStatusAfter, and in the answers of RefuseTwin, RefuseProvisioning and
	// RefuseCertificate.
	// RetryAfterDate sends it, and the delay of Throttle, as a date: see testbroker.HTTPOptions.
	RetryAfter     time.Duration
	RetryAfterDate bool
	// Route is the kind of HTTP requests to which request faults, those of the store and Throttle
	// happen. It is also the kind of requests to a provisioning service, over any protocol.
	Route RouteKind
	// Blob is the blob store operation to which they happen, for requests of the kinds [RouteBlob] and
	// [RouteStorage].
	Blob BlobOperation
	// Skew is the clock skew of WrongDate. Positive means that the hub is ahead.
	Skew time.Duration
	// Operation is the kind of requests to which twin faults happen.
	Operation hubdata.TwinOperation
	// Method is the name of the method to which method faults happen.
	Method string
	// Message is the type of messages, without a version, to which the faults of a dispatch happen:
	// "birth-ack", "twin-push", "get-response", "reported-patch-response", "desired-patch", "probe" or
	// "exec".
	Message string
	// Link is the kind of links to which attach faults happen, and those of messages over AMQP.
	Link LinkKind
	// Unclosed makes the fault detach a link without closing it. Clients treat such a detach in
	// different ways.
	Unclosed bool
	// UndeliverableHere sets the flag undeliverable-here of ModifyMessage.
	UndeliverableHere bool
	// Delay is the delay of the kinds that use it: see [Kind.Fields]. 0: none, except for
	// WithholdCredit, which then gives no credit at all.
	Delay time.Duration
	// Rate is how many PUBACKs a second Throttle sends, by default 1, and how many bytes SlowFile, by
	// default 1,024.
	Rate float64
	// Limit is the number of delayed PUBACKs at which Throttle closes a connection, or the messages a
	// day of Quota. Default: 100.
	Limit int
	// AcceptConnects makes Quota accept connects and close them at once, instead of refusing them.
	AcceptConnects bool
	// Bytes is the output of GarbageOnConnect, GarbageOnSubscribe, GarbageOnPublish and GarbageAnswer.
	// Default: the first bytes of a packet with an unknown type and a length without end; over AMQP a
	// frame that is too short, over HTTP/1.1 a line that is not a status line, over HTTP/2 a PING
	// without its eight bytes. It is also the body of GarbleTwin, GarbleMethod, GarbleProvisioning and
	// GarbleCertificate, the certificate of WrongChain and WrongCertificate, and the key of
	// WrongChallenge and WrongAuthenticationKey, and what GarbleDispatch and MisnameDispatch send.
	Bytes []byte
	// Text is what WrongRetryAfter, WrongStatus, WrongDeviceID, WrongHub, WrongProfile and
	// RetypeDispatch send, the code of RefuseUpdate, and what is wrong for WrongOffer, WrongFile and
	// WrongRootKeys: see [Wrongs].
	Text string
}
