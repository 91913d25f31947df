package device

import "time"

// Stats are counters since New and current levels. Accepted is the sum of Acknowledged, Refused,
// Expired, Dropped, Cancelled and Queued.
type Stats struct {
	// Accepted counts the messages that entered the queue.
	Accepted uint64
	// Acknowledged counts those that the hub acknowledged.
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
	// handler; MessagesAccepted, MessagesReleased and MessagesRejected count its verdicts.
	// InputsUnhandled counts those that were rejected because their input has no handler; see
	// Client.HandleInput. HandlerPanics counts the failures of all handlers; see Trace.HandlerPanic.
	Received, MessagesAccepted, MessagesReleased, MessagesRejected, InputsUnhandled, HandlerPanics uint64

	// DesiredChanges counts the changes queued for their handler; DesiredSkipped counts notifications
	// that were not newer than those.
	DesiredChanges, DesiredSkipped uint64
	// MethodCalls counts the calls of direct methods that were taken. MethodsRefused counts those
	// answered without being run, because there was no handler, no room or, after they were taken, no
	// time left. AnswersLost counts the answers that could not be sent (see Trace.AnswerLost).
	// MethodsDoubled counts the calls that came twice and were run once.
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

// queueTotals are the queue's part of Stats.
type queueTotals struct{ accepted, acknowledged, refused, expired, dropped, cancelled, resent uint64 }

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
