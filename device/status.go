package device

import (
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

// State is the state of the connection.
type State uint8

const (
	// StateDisconnected: not connected and not trying. Open and Start begin again, unless Close was
	// called.
	StateDisconnected State = iota
	// StateDisconnectedRetrying: not connected, and trying: dialing or waiting for the next attempt.
	StateDisconnectedRetrying
	// StateConnected: messages flow, or are paused at the service's request.
	StateConnected
)

// String returns the state's name in words.
func (s State) String() string {
	return name(int(s), stateText[:])
}

var stateText = [...]string{StateDisconnected: "disconnected", StateDisconnectedRetrying: "retrying",
	StateConnected: "connected"}

// Reason is the event that led to a Status.
type Reason uint8

const (
	// ReasonNotOpened: the client is new.
	ReasonNotOpened Reason = iota
	// ReasonConnecting: an attempt to connect begins; Retry is its number, 0 for the first.
	ReasonConnecting
	// ReasonConnectionOK: the connection is up, or messages flow again after a pause.
	ReasonConnectionOK
	// ReasonConnectionLost: a connection that was up ended; attempt number Retry follows after Delay.
	ReasonConnectionLost
	// ReasonAttemptFailed: an attempt to connect failed; attempt number Retry follows after Delay.
	ReasonAttemptFailed
	// ReasonHeld: the retry policy (a breaker, a limiter) delays the next attempt to connect by Delay.
	ReasonHeld
	// ReasonPaused: the service refused a message for now; all sending pauses for Delay. The
	// connection is up.
	ReasonPaused
	// ReasonPlanned: the client replaces a healthy connection because Reconnect was called.
	ReasonPlanned
	// ReasonTokenRenewal: the client replaces a healthy connection because its token is about to
	// expire.
	ReasonTokenRenewal
	// ReasonClockJumped: the client gives up a connection because the clock moved ahead by 5 s or more
	// against elapsed time: the device has slept, or the clock was set. Attempt number Retry follows
	// after Delay. The client compares the clocks whenever it is active, at least every 30 s. For 30 s
	// after a jump it reacts to no other; a clock that is still off by 5 s then counts as a jump.
	ReasonClockJumped
	// ReasonNotRetryable: the failure in Err is not retryable (package errfilter).
	ReasonNotRetryable
	// ReasonRetryExpired: the retry policy or OutageLimit ended the retries; Err wraps the last
	// failure.
	ReasonRetryExpired
	// ReasonOpenCancelled: the context of Open ended before the first connection.
	ReasonOpenCancelled
	// ReasonClientClosed: Close was called.
	ReasonClientClosed
)

// String returns the reason's name in words.
func (r Reason) String() string { return name(int(r), reasonText[:]) }

var reasonText = [...]string{
	ReasonNotOpened:      "not opened",
	ReasonConnecting:     "connecting",
	ReasonConnectionOK:   "connection ok",
	ReasonConnectionLost: "connection lost",
	ReasonAttemptFailed:  "attempt failed",
	ReasonHeld:           "held back",
	ReasonPaused:         "paused",
	ReasonPlanned:        "planned",
	ReasonTokenRenewal:   "token renewal",
	ReasonClockJumped:    "clock jumped",
	ReasonNotRetryable:   "not retryable",
	ReasonRetryExpired:   "retries ended",
	ReasonOpenCancelled:  "open cancelled",
	ReasonClientClosed:   "client closed",
}

func name(i int, names []string) string {
	if i >= len(names) {
		return "undefined"
	}
	return names[i]
}

// Suspect is the likely reason why connections do not last.
type Suspect uint8

const (
	// SuspectNone: there is no pattern, or the connection lasts.
	SuspectNone Suspect = iota
	// SuspectSecondDevice: connections end while nothing is in flight. Another program may use the
	// same device id, and each new connection of one ends that of the other.
	SuspectSecondDevice
	// SuspectBadMessage: connections end with the same large message in flight and without an
	// acknowledgement. The hub may not take that message.
	SuspectBadMessage
	// SuspectQuotaUsedUp: connections end as soon as something is sent, and nothing is acknowledged. A
	// quota may be used up, or the hub throttles.
	SuspectQuotaUsedUp
	// SuspectUnstable: messages get through, but connections do not last, because of the network, the
	// hub's throttling, or a second program that sends with the same device id: over MQTT 3.1.1 the
	// hub cannot say which.
	SuspectUnstable
)

// String returns the guess as a sentence; empty for NoSuspect.
func (s Suspect) String() string { return name(int(s), suspectText[:]) }

var suspectText = [...]string{
	SuspectNone:         "",
	SuspectSecondDevice: "another program may be using the same device id",
	SuspectBadMessage:   "the hub may not take the message that is first in the queue",
	SuspectQuotaUsedUp:  "the hub's quota may be used up, or it throttles",
	SuspectUnstable:     "the network is unstable, the hub throttles, or another program is using the same device id",
}

// Status is one step in the life of the connection. A Status is immutable.
type Status struct {
	State  State
	Reason Reason
	// Retry is the number of the attempt that comes next (ReasonConnectionLost, ReasonAttemptFailed),
	// of the one that begins (ReasonConnecting) or of the resend (ReasonPaused). 0 is a first attempt.
	// For ReasonConnectionOK it is the number of retries needed. The loss of a connection that was
	// stable or useful (see Options.StableTime) resets the count.
	Retry int
	// Delay is the wait before that attempt, measured from the failure. Reconnect ends it early; a
	// policy that holds the attempt, such as an open breaker, is then asked again and may hold it on.
	// After SetRetryPolicy another Status has the new delay, still measured from the failure.
	Delay time.Duration
	// Err is the failure that led to this status, an *transport.Error; nil without one. With
	// ReasonConnectionOK it is of Kind Unsupported: a handler is registered for something that the
	// peer does not have, and everything else works.
	Err error
	// Flaps counts the consecutive connections, up to this status, that were lost before they were up
	// for Options.StableTime. 0 and 1 are normal.
	Flaps int
	// Suspect is the cause that the peer named when it ended or refused the connection, or the likely
	// one when Flaps is 3 or more. A hub often just hangs up on a device, without a reason.
	Suspect Suspect
	// Since is when the client reached this status, by the process's clock.
	Since time.Time
	// Missed counts the statuses before this one that were dropped because OnStatus was busy.
	Missed int

	first bool // no connection has worked yet
}

// Hint returns a sentence for the person who reads the status: why the client does or does not
// retry after Err, and what helps. It follows Suspect where the failure alone says little. It is
// empty without Err, except for ReasonHeld.
func (s Status) Hint() string {
	switch {
	case s.Reason == ReasonHeld:
		return "the retry policy, such as a breaker or limiter, delays the next attempt"
	case s.Err == nil:
		return ""
	}
	rule := errfilter.Of(s.Err)
	switch {
	case !rule.Retry || rule.Pace != errfilter.PaceNormal:
	case s.Suspect != SuspectNone:
		return s.Suspect.String() + suspectHelp[min(int(s.Suspect), len(suspectHelp)-1)]
	case s.first && (rule.Kind == transport.Network || rule.Kind == transport.Timeout):
		return "no connection has worked yet; check host name, port, proxy and firewall"
	}
	return rule.Hint()
}

// suspectHelp says what helps against each Suspect.
var suspectHelp = [...]string{
	SuspectNone:         "",
	SuspectSecondDevice: "; stop it, or give it an id of its own",
	SuspectBadMessage:   "; compare its size with the hub's limit",
	SuspectQuotaUsedUp:  "; send less, or raise the quota",
	SuspectUnstable:     "; look at the network's quality and the hub's metrics, and give each program an id of its own",
}

// String returns the status on one line, such as "retrying (connection lost): mqtt connection:
// network failure: EOF; retry 1 in 150ms; connections come back".
func (s Status) String() string {
	text := s.State.String() + " (" + s.Reason.String() + ")"
	if s.Err != nil {
		text += ": " + s.Err.Error()
	}
	if s.Retry > 0 && s.State == StateDisconnectedRetrying {
		text += "; retry " + strconv.Itoa(s.Retry)
		if s.Delay > 0 {
			text += " in " + s.Delay.Round(time.Millisecond).String()
		}
	}
	if hint := s.Hint(); hint != "" {
		text += "; " + hint
	}
	return text
}

// noticeQueue is the maximum number of statuses that wait for OnStatus.
const noticeQueue = 16

// notices is the queue of statuses for OnStatus. Guarded by Client.mu.
type notices struct {
	queue   []Status // at most noticeQueue; it grows with use, because it is rarely longer than 2
	missed  int
	running bool
	ended   chan struct{} // closed when the running dispatcher has ended
}

func (q *notices) push(s Status) {
	if len(q.queue) == noticeQueue {
		q.shift()
		q.missed++
	}
	q.queue = append(q.queue, s)
}

func (q *notices) pop() (Status, bool) {
	if len(q.queue) == 0 {
		return Status{}, false
	}
	s := q.queue[0]
	q.shift()
	s.Missed, q.missed = q.missed, 0
	return s, true
}

// shift removes the oldest status.
func (q *notices) shift() {
	n := copy(q.queue, q.queue[1:])
	q.queue[n] = Status{}
	q.queue = q.queue[:n]
}

// Stats are counters since New and current levels. Accepted is the sum of Acknowledged, Refused,
// Expired, Dropped, Cancelled and Queued.
type Stats struct {
	// Accepted counts the messages that entered the queue.
	Accepted uint64
	// Acknowledged counts those that the hub acknowledged, and those with QoS 0 that were written.
	Acknowledged uint64
	// Refused counts those that the service refused for good, or for which the message policy stopped.
	Refused uint64
	// Expired counts those that reached their expiry without an acknowledgement.
	Expired uint64
	// Dropped counts those that OverflowDropOldest or OverflowDropNewest dropped.
	Dropped uint64
	// Cancelled counts those that ended because Close was called, or, for a Send, because its context
	// ended or the client became Disconnected.
	Cancelled uint64
	// Resent counts how often a message was handed to a connection again.
	Resent uint64

	// Queued and QueuedBytes are what the queue holds, in flight or not.
	Queued, QueuedBytes int
	// InFlight is how many of them are handed over and unanswered.
	InFlight int

	// Received counts the cloud-to-device messages, and those of a module's inputs, taken for their
	// handler; MessagesAccepted, MessagesReleased and MessagesRejected count its verdicts. A message
	// that waits for the handler when its connection ends comes again, and is counted again. One that
	// is too large for the transport counts as rejected, and as a failure of its handler. A report of
	// messages that no subscription asks for counts as such a failure, too.
	// InputsUnhandled counts those that were rejected because their input has no handler; see
	// Client.HandleInput. HandlerPanics counts the failures of all handlers; see Trace.HandlerPanic.
	Received, MessagesAccepted, MessagesReleased, MessagesRejected, InputsUnhandled, HandlerPanics uint64

	// DesiredChanges counts the changes queued for their handler; DesiredSkipped counts notifications
	// that were not newer than those.
	DesiredChanges, DesiredSkipped uint64
	// MethodCalls counts the calls of direct methods that were taken. MethodsRefused counts those
	// refused without being run, because there was no handler, no room or no time left. AnswersLost
	// counts the answers that could not be sent (see Trace.AnswerLost). MethodsDoubled counts the
	// calls that came again and were not run again.
	MethodCalls, MethodsRefused, AnswersLost, MethodsDoubled uint64

	// Attempts counts attempts to connect, Connections the successful ones.
	Attempts, Connections uint64
	// Outage is how long the client has been trying to connect without success; 0 when it is connected
	// or does not try.
	Outage time.Duration
	// LongestOutage is the longest such time, including the current one.
	LongestOutage time.Duration
	// LastError is the latest failure of a connection or attempt, nil if there was none.
	LastError error
}

// queueTotals are the queue's part of Stats. Those messages are confirmed that the hub itself
// acknowledged, not those with QoS 0.
type queueTotals struct{ accepted, acknowledged, refused, expired, dropped, cancelled, resent, confirmed uint64 }

// counters are the connection's part of Stats. Guarded by Client.mu.
type counters struct {
	attempts, connections uint64
	panics                uint64    // of OnStatus
	retryingSince         time.Time // zero: connected, or not trying
	longest               time.Duration
	lastError             error
}

// observe updates the counters for a change of status.
func (k *counters) observe(old, new Status) {
	if new.Reason == ReasonConnecting {
		k.attempts++
	}
	if new.State == StateConnected && old.State != StateConnected {
		k.connections++
	}
	switch new.Reason {
	case ReasonConnectionLost, ReasonAttemptFailed, ReasonNotRetryable, ReasonRetryExpired:
		k.lastError = new.Err
	default: // the others change nothing
	}
	if new.State == StateDisconnectedRetrying {
		if k.retryingSince.IsZero() {
			k.retryingSince = new.Since
		}
		return
	}
	if !k.retryingSince.IsZero() {
		k.longest = max(k.longest, new.Since.Sub(k.retryingSince))
		k.retryingSince = time.Time{}
	}
}

func (k *counters) fill(s *Stats, now time.Time) {
	s.HandlerPanics += k.panics
	s.Attempts, s.Connections, s.LastError = k.attempts, k.connections, k.lastError
	if !k.retryingSince.IsZero() {
		s.Outage = now.Sub(k.retryingSince)
	}
	s.LongestOutage = max(k.longest, s.Outage)
}
