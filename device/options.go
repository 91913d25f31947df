package device

import (
	"errors"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/messageid"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Options tune a Client. Nil, and the zero value of each field, select the stated default.
type Options struct {
	// RetryPolicy decides about reconnects, and about messages unless MessagePolicy is set. Default:
	// ExponentialBackoffWithJitter{}.
	//
	// Reconnects of any policy get a random part on top, ReconnectSpread: with Fixed{Delay: 1 s} they
	// come after 1 s, and from the second retry on after 1 s to 3 s. A negative ReconnectSpread leaves
	// the delays as the policy says.
	//
	// A policy that is retrypolicy.Stateful has a Series for each message and twin call. The one for
	// connections lasts until a connection was up for StableTime or ended as planned; it may span
	// several lost connections, each reported as VerdictAgain, and Attempt.Elapsed restarts with each.
	// The policy is asked before each attempt to connect, and for each message before it is handed
	// over. If it delays one, everything behind it waits. A refusal ends the attempts, or that message
	// alone, with RetryExpired. It learns how each of them ended; an attempt to connect has succeeded
	// once the connection is up for StableTime. Start.Key is the hub's host name. Clients of one
	// process may share a policy.
	//
	// A policy that can stop (MaxAttempts, MaxElapsed, a quota, a breaker) applies to
	// connections and messages: when it stops for a connection, the client becomes Disconnected; when
	// it stops for a message, the message fails with RetryExpired. If only connections shall be given
	// up, set MessagePolicy to a policy that does not stop.
	RetryPolicy retrypolicy.Policy
	// MessagePolicy decides about repeating operations on a live connection: messages that the service
	// refused for now, and twin calls that it refused or did not answer. Default: RetryPolicy. A
	// message that was in flight when the connection was lost is not a refused message: it is resent
	// without asking.
	MessagePolicy retrypolicy.Policy
	// PacedPolicy alone decides about failures with a slow pace (errfilter.PaceSlow: Throttled, Quota,
	// ClockUnset). Default: the policies above decide whether to retry, and the delay is at least that
	// of ExponentialBackoffWithJitter with C = 5 s, Cmin = 10 s, Cmax = 60 s. The policies above are
	// asked before these attempts too, so a breaker or limiter belongs there. A Quota or RetryBudget
	// that shall charge for all retries belongs around both.
	PacedPolicy retrypolicy.Policy

	// OnStatus is called with each Status, in order, by one goroutine at a time. It may call the
	// client's methods, but Close only in another goroutine (Close waits for OnStatus). While it runs,
	// up to 16 further statuses wait; beyond that the oldest is dropped and counted in Status.Missed.
	// Default: none.
	OnStatus func(Status)

	// Inbox is how many cloud-to-device messages may wait for their handler, or after its removal for
	// another one (Client.HandleMessages). The hub keeps further ones and delivers them again later.
	// Default 64, which is more than a hub keeps for a device; at most 4,096.
	Inbox int
	// DesiredVersion is the version of the desired properties that the program kept from an earlier
	// run: of the latest Desired that its first handler (Client.HandleDesired) has handled. It gets
	// no properties then before there are others. A program that moves to another hub starts with 0.
	// Default 0: the handler begins with the complete properties.
	DesiredVersion int64
	// MethodLimit is how many handlers of direct methods (Client.HandleMethod) run at a time. Default
	// 4; at most 1,024.
	MethodLimit int
	// MethodTimeout is the time after which the context of a direct method's handler ends. Default
	// 30 s, the time that a hub waits unless the caller of the method sets another.
	MethodTimeout time.Duration
	// Trace has callbacks for details that Status leaves out. Default: none.
	Trace *Trace

	// Window is the maximum number of messages in flight. Default 128; at most 61,440. A session may
	// allow fewer.
	Window int
	// MaxMessages limits the number of messages in the queue. Default 4,096; at most 61,440. Boards
	// have the same defaults: set MaxMessages, MaxBytes and Window there.
	MaxMessages int
	// MaxBytes limits the sum of Message.Size in the queue. Default 16 MiB.
	MaxBytes int
	// Overflow selects what happens to a message when the queue is full. Default Block.
	Overflow Overflow

	// MessageIDPrefix begins the ids that the client gives to messages without one, so that a consumer
	// can detect a message that was sent twice. An id is the prefix, "-" and a counter. The prefix has
	// at most 64 ASCII letters, digits and "-._~". It must differ each time the program starts,
	// because messages with the same id count as the same message. Default: eight random characters.
	// TinyGo builds, which may lack a source of entropy, give no ids by default. A message gets no id
	// if that could make it too large for the hub or for an MQTT topic.
	MessageIDPrefix string
	// NoMessageIDs sends messages without an id as they are. It saves some 20 bytes a message.
	NoMessageIDs bool

	// DialTimeout limits one attempt to connect, handshake included. It restarts while the attempt
	// waits for its turn on a shared connection that is slow but makes progress, for a step of the
	// handshake with a hub that has a time of its own for it, or over MQTT for an answer behind a
	// large message that arrives slowly. Default 30 s.
	DialTimeout time.Duration
	// AckTimeout is how long the oldest message in flight may wait for its answer before the
	// connection counts as dead. It runs from the latest of three times: the message was handed over,
	// the message before it was answered, or a slow connection last made progress
	// (transport.Progressor). A message has one second more for each KiB of its size, for a slow hop
	// that took it all at once, unless bytes are stuck on this side. A twin request without an answer
	// fails after the same time: MessagePolicy decides whether it is repeated, but PatchReportedIf
	// fails with transport.ErrOutcomeUnknown. Default 30 s, or the session's transport.Info.AckTimeout
	// if that is longer; over HTTPS that follows http.Options.Timeout.
	AckTimeout time.Duration
	// OperationTimeout limits the duration of a Send and of a twin call. Default 4 minutes; negative:
	// only the context limits it.
	OperationTimeout time.Duration
	// CloseTimeout limits each step of Close: the end of running handlers, of the transport, and of a
	// running OnStatus. Default 5 s.
	CloseTimeout time.Duration
	// StableTime is how long a connection must stay up to reset the count of retries. After a
	// connection that was lost earlier the count continues, so a flapping link backs off. The
	// exception is a useful connection:
	//
	//   - 16 messages were acknowledged or settled on it, those with QoS 0 aside, or it was up for 500
	//     ms and for five times the delay before it, with at least one;
	//   - it was not lost for a reason with a slow pace (errfilter.PaceSlow).
	//
	// Its uptime counts toward the next delay. So a link that makes progress between its losses is
	// connected most of the time, while a peer that accepts connections and drops them at once is
	// dialed ever less often. A connection that was cut for a missing answer counts as up until
	// AckTimeout began to run. Default 30 s.
	StableTime time.Duration
	// OutageLimit ends the retries (RetryExpired) when the next one would start later than this
	// after the loss of the connection, or after Open or Start. Each lost connection restarts this
	// time, however short it was up, and the time of a retrypolicy.MaxElapsed for connections as well.
	// Default 0: no limit.
	OutageLimit time.Duration
	// TryAgainAfter makes every failure retryable: where the client would become Disconnected
	// (ReasonNotRetryable, RetryExpired), it waits this long, or longer if the service asked for
	// it, and starts over with the count of retries at 0. Only Close is final. Open then waits until
	// it is connected or its context ends. For devices that no technician can reach. Default 0:
	// Disconnected.
	TryAgainAfter time.Duration
	// ReconnectSpread adds a random part of up to this duration to the delay before each retry of a
	// connection, so that a fleet that lost its hub together does not reconnect together. Each wait at
	// a breaker or limiter (ReasonHeld) gets one too, drawn once for each attempt. Default 0: 2 s, but
	// not before the first retry, for devices that are alone or some hundred. Negative: none.
	ReconnectSpread time.Duration
	// Dials limits the attempts to connect of all clients that share it. Waiting for a turn is not
	// bounded by DialTimeout or OutageLimit. Default: no limit.
	Dials *DialLimiter
	// RenewAt is the fraction of a token's life after which the client renews it; up to 5 % of the
	// life is subtracted at random. Over AMQP with tokens (amqp.AuthCBS) and MQTT 5 with enhanced
	// authentication (engine.Auth), the token is renewed in place. A renewal that fails with a
	// retryable error is tried again after the same fraction of the remaining life, and so on, until
	// less than 5 s of it are left. Otherwise, or if that fails, the client makes a new connection,
	// with Reason TokenRenewal. The same holds for a client certificate in place of a token: its life
	// is what is left of it when the connection begins. RenewAt has no effect over HTTPS, where each
	// request renews the token at 85 % of its life. From 0.1 to less than 1; 0: 0.85; negative: never,
	// and the hub ends the connection when the token expires.
	RenewAt float64

	// Rand is the source of random numbers for the policies, called by one goroutine of each client.
	// Default: a generator per client, seeded from the identity and the time, so that no two devices
	// draw the same numbers.
	Rand func() uint64
}

// Overflow selects what happens to a message when the queue is full.
type Overflow uint8

const (
	// OverflowBlock: the call waits until there is room, its context ends or Close is called. A Send
	// waits for at most OperationTimeout.
	OverflowBlock Overflow = iota
	// OverflowFail: the call returns an error of Kind Dropped.
	OverflowFail
	// OverflowDropOldest: the oldest message that is not in flight is dropped, with the result
	// Dropped. If all are in flight, the new one is dropped.
	OverflowDropOldest
	// OverflowDropNewest: the new message is accepted and has the result Dropped at once.
	OverflowDropNewest

	overflows // number of rules
)

// settings are Options with the defaults filled in.
type settings struct {
	Options
	ownAck bool // AckTimeout was set by the caller
}

func newSettings(o *Options) (settings, error) {
	var s settings
	if o != nil {
		s.Options = *o
	}
	s.ownAck = s.AckTimeout != 0
	for _, f := range [...]struct {
		name      string
		value     *int
		def, most int
	}{
		{"Window", &s.Window, 128, transport.MaxTags},
		{"MaxMessages", &s.MaxMessages, reconnect.MaxMessages, transport.MaxTags},
		{"MaxBytes", &s.MaxBytes, 16 << 20, 1<<31 - 1},
		{"Inbox", &s.Inbox, 64, 4096},
		{"MethodLimit", &s.MethodLimit, 4, 1024},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		if *f.value < 0 || *f.value > f.most {
			return s, invalidOption(f.name + " is " + strconv.Itoa(*f.value) + "; give 1 to " + strconv.Itoa(f.most) +
				", or 0 for " + strconv.Itoa(f.def))
		}
	}
	for _, f := range [...]struct {
		name  string
		value *time.Duration
		def   time.Duration
		off   bool // a negative value is legal
	}{
		{"DialTimeout", &s.DialTimeout, reconnect.DialTimeout, false},
		{"AckTimeout", &s.AckTimeout, reconnect.AckTimeout, false},
		{"OperationTimeout", &s.OperationTimeout, 4 * time.Minute, true},
		{"MethodTimeout", &s.MethodTimeout, 30 * time.Second, false},
		{"CloseTimeout", &s.CloseTimeout, 5 * time.Second, false},
		{"StableTime", &s.StableTime, reconnect.StableTime, false},
		{"OutageLimit", &s.OutageLimit, 0, false},
		{"TryAgainAfter", &s.TryAgainAfter, 0, false},
		{"ReconnectSpread", &s.ReconnectSpread, 0, true},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		*f.value = times.Cap(*f.value)
		if *f.value < 0 && !f.off {
			return s, invalidOption(f.name + " is negative; give a positive duration, or 0 for the default")
		}
	}
	if !messageid.Valid(s.MessageIDPrefix) {
		return s, invalidOption("MessageIDPrefix is too long or has a character that not every protocol carries; give at " +
			"most 64 ASCII letters, digits and -._~")
	}
	if s.RenewAt == 0 {
		s.RenewAt = reconnect.RenewAt
	}
	if s.RenewAt > 0 && s.RenewAt < 0.1 || !(s.RenewAt < 1) {
		return s, invalidOption("RenewAt is not a sensible part of a life; give 0.1 to less than 1, 0 for 0.85, or a " +
			"negative number for never")
	}
	if s.Dials != nil && s.Dials.enter == nil {
		return s, invalidOption("Dials was not made by NewDialLimiter; make it so")
	}
	if s.Overflow >= overflows {
		return s, invalidOption("Overflow is not one of Block, Fail, DropOldest, DropNewest")
	}
	if s.RetryPolicy == nil {
		s.RetryPolicy = retrypolicy.ExponentialBackoffWithJitter{}
	}
	for _, p := range [...]retrypolicy.Policy{s.RetryPolicy, s.MessagePolicy, s.PacedPolicy} {
		if p == nil {
			continue // the default of MessagePolicy and PacedPolicy
		}
		if err := retrypolicy.Validate(p); err != nil {
			return s, err
		}
	}
	return s, nil
}

// messageIDPrefix returns the prefix of the client's message ids, empty if the client gives none.
func (s *settings) messageIDPrefix() string {
	switch {
	case s.NoMessageIDs:
		return ""
	case s.MessageIDPrefix != "":
		return s.MessageIDPrefix
	}
	return messageid.Random()
}

func invalidOption(text string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpOpen, Err: errors.New("options: " + text)}
}

// Trace is a set of optional callbacks for events inside a client, similar to httptrace. They run
// on the client's goroutines, must return at once, and must not call the client. Use them for logs,
// counters and measurements; for the state of the connection use Options.OnStatus.
//
// A callback that panics or ends its goroutine (runtime.Goexit) makes the client Disconnected with
// an error of Kind Invalid that names the callback; with Options.TryAgainAfter the client starts
// over. The same holds for policies, Options.Rand and Credentials.Now. Panics of HandlerPanic,
// InputUnhandled, AnswerLost and TwinUnread are ignored.
type Trace struct {
	// Connected: a session is up and subscribed. took is the time since its attempt began.
	Connected func(info transport.Info, took time.Duration)
	// SessionEnd: a session that was up has ended. err is nil when the client hung up as planned.
	SessionEnd func(err error, up time.Duration)
	// Decision: a policy was asked, or asked again after SetRetryPolicy. d is the decision that the
	// client executes; it includes RetryAfter, the minimum delay of a slow pace and the spread.
	Decision func(a retrypolicy.Attempt, d retrypolicy.Decision)
	// Renewed: the session's credentials were renewed in place and expire at that time. With err, the
	// renewal failed, and is tried again or the session is replaced: see RenewAt. Not called for
	// sessions that are always replaced (MQTT without engine.Auth).
	Renewed func(expires time.Time, err error)
	// Sent: n messages were handed to the session.
	Sent func(n int)
	// Settled: a handler's verdict on a message was handed to the session; with QoS 0 there is
	// nothing to send for it. Not called for messages without a handler.
	Settled func(o transport.Outcome)
	// HandlerPanic: a handler, or OnStatus, failed. v is the panic value, or an error: the handler
	// ended its goroutine, or its answer to a method is too large or not JSON. The message was
	// released; the method was answered with the status 500. An *transport.Error of Kind TooLarge is
	// about a message that is larger than the transport takes: it was rejected, and no handler got it.
	// One of Kind NotFound is about messages over MQTT that no handler gets: no subscription asks for
	// their topic, such as an earlier program's, the topic is invalid, or Envelope.Open panicked. They
	// are acknowledged, over MQTT 5 at once with the reason 0x83, else in their turn. Such reports
	// come at most once a minute, with the number of messages since the one before, and begin with
	// the first handler for messages.
	// Called on the handler's goroutine.
	HandlerPanic func(v any)
	// InputUnhandled: a message came by an input of the module that no handler is for, and was
	// rejected; see Client.HandleInput. Called on the handlers' goroutine.
	InputUnhandled func(input string)
	// AnswerLost: the answer to a direct method could not be sent. The session that brought the call
	// has ended, and the hub has given up the call; or the session cannot send it; or the hub calls
	// methods faster than it takes answers (see Client.HandleMethod). Answers that were sent and then
	// lost are not detected, because a hub does not confirm answers.
	AnswerLost func(method string)
	// MethodRefused: a call that the hub has announced is not run. why is NotFound for a method
	// without a handler, Throttled if there is no room, Expired if too little time is left, and
	// Conflict if the call came again, too late or without an announcement; the method is not always
	// known then. Only hubs with the MQTT v5 profile announce calls.
	MethodRefused func(method string, why transport.Kind)
	// TwinUnread: the twin could not be read to catch up with desired properties, and the failure is
	// not retryable. It is read again after 10 s, then at growing intervals of up to 10 minutes, on
	// the next change and on the next connection.
	TwinUnread func(err error)
	// ClockJump: the credentials' clock moved by this much relative to elapsed time, ahead or back by
	// 5 s or more, because the device slept or the clock was set. Called at most every 30 s; during a
	// delay that the service asked for, at its end.
	ClockJump func(by time.Duration)
}

func (t *Trace) handlerPanic(v any) {
	if t != nil && t.HandlerPanic != nil {
		_ = callback.Run("Trace.HandlerPanic", func() { t.HandlerPanic(v) })
	}
}
